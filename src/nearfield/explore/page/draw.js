// Drawings: each gives an SVG with a title and a description, as wide as the place it is for.

const SPACE = "http://www.w3.org/2000/svg";
let drawings = 0;

function node(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A number with four digits, as sentences have it.
export function short(value) {
  if (value === null || !Number.isFinite(value)) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e4 && size < 1e7 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}

// Round values between low and high.
function nice(low, high, most) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= (span / most) * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

const upTicks = (low, high) => nice(low, high, 4);

// Pixels that the labels of an upright axis need.
function room(low, high) {
  return 12 + 7.4 * Math.max(...upTicks(low, high).map((value) => short(value).length));
}

function isoOf(days, digits = 10) {
  return new Date(Math.round(days * 864e5)).toISOString().slice(0, digits);
}

// Ticks of numbers or of days since 1970: values with labels, at most so many.
function ticks(low, high, most, date) {
  const months = [1, 2, 3, 6, 12, 24, 60, 120, 240].find((step) => (high - low) / (30.4 * step) <= most);
  if (!date || !months || high - low < 60) {
    return nice(low, high, most).map((value) => [value, date ? isoOf(value) : short(value)]);
  }
  const found = [];
  const first = new Date(low * 864e5).getUTCFullYear();
  for (let month = 0; Date.UTC(first, month) / 864e5 <= high; month += months) {
    const value = Date.UTC(first, month) / 864e5;
    if (value >= low) found.push([value, isoOf(value, 7)]);
  }
  return found;
}

class Drawing {
  constructor(place, height, title, description, sides) {
    this.width = Math.max(place.clientWidth || 320, 200);
    this.height = height;
    this.box = { left: sides.left, top: sides.top, right: this.width - sides.right, bottom: height - sides.bottom };
    const id = ++drawings;
    this.svg = node("svg", {
      viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-labelledby": `title-${id} description-${id}`,
    });
    this.svg.append(
      node("title", { id: `title-${id}` }, title), node("desc", { id: `description-${id}` }, description),
    );
    place.replaceChildren(this.svg);
  }

  scale(x, y) {
    const { left, right, top, bottom } = this.box;
    this.x = (value) => left + ((right - left) * (value - x[0])) / (x[1] - x[0] || 1);
    this.y = (value) => bottom - ((bottom - top) * (value - y[0])) / (y[1] - y[0] || 1);
  }

  put(tag, attributes, ...children) {
    const rounded = Object.fromEntries(
      Object.entries(attributes).map(([name, v]) => [name, typeof v === "number" ? Math.round(v * 10) / 10 : v]),
    );
    this.svg.append(node(tag, rounded, ...children));
  }

  xAxis(low, high, name, date = false) {
    const { left, right, bottom } = this.box;
    this.put("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom });
    let last = -1e9;
    for (const [value, label] of ticks(low, high, Math.max(4, Math.floor((right - left) / 50)), date)) {
      const x = this.x(value);
      const half = 3.4 * label.length;
      if (x - half < last || x < left - 1 || x > right + 1) continue;
      this.put("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 });
      const at = Math.min(Math.max(x, half), this.width - half);
      this.put("text", { class: "tick", x: at, y: bottom + 17, "text-anchor": "middle" }, label);
      last = x + half + 6;
    }
    if (name) {
      this.put("text", { class: "name", x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle" }, name);
    }
  }

  yAxis(low, high) {
    const { left, right } = this.box;
    for (const value of upTicks(low, high)) {
      this.put("line", { class: "grid", x1: left, x2: right, y1: this.y(value), y2: this.y(value) });
      this.put("text", { class: "tick", x: left - 5, y: this.y(value) + 4, "text-anchor": "end" }, short(value));
    }
  }

  area(kind, points, base = 0) {
    if (points.length < 2) return;
    const corners = [[points[0][0], base], ...points, [points[points.length - 1][0], base]];
    this.put("polygon", { class: kind, points: corners.map(([x, y]) => this.at(x, y)).join(" ") });
  }

  line(kind, points) {
    this.put("polyline", { class: kind, points: points.map(([x, y]) => this.at(x, y)).join(" ") });
  }

  at(x, y) {
    return `${this.x(x).toFixed(1)},${this.y(y).toFixed(1)}`;
  }

  upright(kind, x) {
    this.put("line", { class: kind, x1: this.x(x), x2: this.x(x), y1: this.box.top, y2: this.box.bottom });
  }
}

function ranged(...values) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const by = (high - low || Math.abs(high) || 1) * 0.04;
  return [low - by, high + by];
}

// The density (x, y) of a number with its intervals, before the training targets where these set the axis.
export function density(place, { x, y, near }, own, targets, name, zoomed) {
  const [low, high] = zoomed
    ? ranged(...near)
    : ranged(targets.edges[0], targets.edges[targets.edges.length - 1], ...own.wide);
  const told = `${name} is ${short(own.mean)} on average, between ${short(own.narrow[0])} and ${short(own.narrow[1])} ` +
    `with 50 % probability, and between ${short(own.wide[0])} and ${short(own.wide[1])} with 90 %.`;
  const drawing = new Drawing(place, 240, `Predictive density of ${name}`, told, { left: 10, right: 10, top: 8, bottom: 42 });
  drawing.scale([low, high], [0, 1.02]);
  const most = Math.max(...targets.counts);
  targets.counts.forEach((count, i) => {
    const [a, b] = [Math.max(targets.edges[i], low), Math.min(targets.edges[i + 1], high)];
    if (a < b) drawing.area("targets", [[a, (0.9 * count) / most], [b, (0.9 * count) / most]]);
  });
  const top = Math.max(...y);
  const curve = x.map((value, i) => [value, y[i] / top]).filter(([value]) => value >= low && value <= high);
  const height = (value) => {
    const i = x.findIndex((one) => one >= value);
    if (i <= 0) return y[0] / top;
    const share = (value - x[i - 1]) / (x[i] - x[i - 1] || 1);
    return ((1 - share) * y[i - 1] + share * y[i]) / top;
  };
  for (const [kind, [from, to]] of [["wide", own.wide], ["narrow", own.narrow]]) {
    const inside = curve.filter(([value]) => value > from && value < to);
    drawing.area(kind, [[from, height(from)], ...inside, [to, height(to)]]);
  }
  drawing.line("line one", curve);
  drawing.upright("mean", own.mean);
  drawing.xAxis(low, high, name);
}

// Probabilities of counts, or of ranges of them.
export function counts(place, bars, own, name) {
  const width = bars[0].to - bars[0].from + 1;
  const [low, high] = [bars[0].from - 0.5, bars[bars.length - 1].to + 0.5];
  const top = Math.max(...bars.map((bar) => bar.p));
  const told = `${name} is ${short(own.mean)} on average; with at least 90 % probability from ${short(own.wide[0])} to ` +
    `${short(own.wide[1])}. The most probable ${width > 1 ? "range begins at" : "count is"} ` +
    `${short(bars.find((bar) => bar.p === top).from)}.`;
  const drawing = new Drawing(place, 240, `Probabilities of ${name}`, told, { left: room(0, top * 1.05), right: 10, top: 8, bottom: 42 });
  drawing.scale([low, high], [0, top * 1.05]);
  drawing.yAxis(0, top * 1.05);
  for (const { from, to, p } of bars) {
    const [a, b] = [drawing.x(from - 0.5), drawing.x(to + 0.5)];
    drawing.put("rect", {
      class: to >= own.wide[0] && from <= own.wide[1] ? "inside" : "outside",
      x: a + 0.5, width: Math.max(b - a - 1, 0.5), y: drawing.y(p), height: Math.max(drawing.box.bottom - drawing.y(p), 0),
    });
  }
  drawing.upright("mean", own.mean);
  drawing.xAxis(low, high, name);
}

// The prediction over one column, with error bars; of text a line for each level. range: of all that are shown.
export function effect(place, told, what, range) {
  const { column, mean, low, high, labels, at } = told;
  const here = at >= 0 ? ` At ${labels[at]}, as chosen, it is ${short(mean[at])}.` : "";
  const [least, most] = [Math.min(...mean), Math.max(...mean)];
  const description = `${what} with ${column} from ${labels[0]} to ${labels[labels.length - 1]}, all else as chosen: ` +
    `between ${short(least)} and ${short(most)}.${here}`;
  const title = `${what} over ${column}`;
  if (!told.ordered) return levels(place, told, title, description, range);
  const { values } = told;
  const drawing = new Drawing(place, 190, title, description, { left: room(...range), right: 10, top: 8, bottom: 24 });
  const [from, to] = values.length > 1 ? [values[0], values[values.length - 1]] : [values[0] - 0.5, values[0] + 0.5];
  drawing.scale([from, to], range);
  drawing.yAxis(...range);
  const band = [...values.map((x, i) => [x, high[i]]), ...values.map((x, i) => [x, low[i]]).reverse()];
  drawing.put("polygon", { class: "band one", points: band.map(([x, y]) => drawing.at(x, y)).join(" ") });
  drawing.line("line one", values.map((x, i) => [x, mean[i]]));
  if (at >= 0) {
    drawing.upright("here", values[at]);
    drawing.put("line", { class: "error two", x1: drawing.x(values[at]), x2: drawing.x(values[at]), y1: drawing.y(low[at]), y2: drawing.y(high[at]) });
    drawing.put("circle", { class: "point", cx: drawing.x(values[at]), cy: drawing.y(mean[at]), r: 4 });
  }
  drawing.xAxis(from, to, "", told.date);
}

function levels(place, { mean, low, high, labels, at }, title, description, range) {
  const [row, wide] = [22, Math.min(110, Math.max(...labels.map((label) => 7 * label.length + 12)))];
  const height = row * labels.length + 34;
  const drawing = new Drawing(place, height, title, description, { left: wide, right: 12, top: 6, bottom: 24 });
  drawing.scale(range, [0, 1]);
  labels.forEach((label, i) => {
    const [y, chosen] = [6 + row * (i + 0.5), i === at];
    const fits = Math.floor((wide - 10) / 7);
    const text = label.length > fits ? `${label.slice(0, fits - 1)}…` : label;
    drawing.put("text", { class: chosen ? "name" : "tick", x: wide - 8, y: y + 4, "text-anchor": "end" }, text);
    drawing.put("line", { class: "grid", x1: wide, x2: drawing.box.right, y1: y, y2: y });
    const role = chosen ? "two" : "one";
    drawing.put("line", { class: `error ${role}`, x1: drawing.x(low[i]), x2: drawing.x(high[i]), y1: y, y2: y });
    drawing.put("circle", { class: chosen ? "point" : "dot one", cx: drawing.x(mean[i]), cy: y, r: chosen ? 4.5 : 3.5 });
  });
  drawing.xAxis(...range, "");
}

// A range that holds the predictions and error bars of all effects.
export function together(effects) {
  return ranged(...effects.flatMap(({ mean, low, high }) => [...mean, ...low, ...high]));
}
