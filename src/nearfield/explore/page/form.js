// The fields of a row: one for each column, read and set by the name of the column.

const FEW = 12; // columns that are always in sight

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// columns: as the server describes them; ranked: their names, those that matter most first; changed: called after input.
export class Form {
  constructor(columns, ranked, given, changed) {
    this.parts = new Map();
    this.changed = changed;
    const first = new Set(ranked.slice(0, FEW));
    const [inSight, others] = [document.getElementById("fields"), document.getElementById("others")];
    for (const one of given) this.add(inSight, { ...one, kind: "number", given: true });
    for (const column of columns) {
      this.add(columns.length <= FEW || first.has(column.name) ? inSight : others, column);
    }
    const rest = columns.length - FEW;
    document.getElementById("more-fields").hidden = rest <= 0;
    document.getElementById("more-fields-title").textContent = `${rest} more column${rest === 1 ? "" : "s"}`;
  }

  key(column) {
    return (column.given ? "given " : "column ") + column.name;
  }

  add(place, column) {
    const id = `field-${this.parts.size}`;
    const part = { column, id, make: null };
    const build = { text: this.text, flag: this.flag, date: this.date }[column.kind] ?? this.number;
    const line = element("div", { class: "line" });
    const field = element("div", { class: "field" }, element("label", { for: id }, column.label ?? column.name), line);
    build.call(this, part, line);
    if (column.missing && column.kind !== "text" && column.kind !== "flag") this.gap(part, line);
    const hints = [column.kind === "duration" ? "in days" : "", column.hint ?? ""].filter(Boolean);
    if (hints.length) field.append(element("span", { class: "hint" }, hints.join("; ")));
    part.wrong = element("p", { class: "wrong", id: `${id}-wrong`, hidden: true });
    field.append(part.wrong);
    place.append(field);
    this.parts.set(this.key(column), part);
  }

  number(part, line) {
    const { column, id } = part;
    part.input = element("input", { id, type: "text", inputmode: "decimal", spellcheck: "false" });
    if (column.low < column.high) {
      part.slider = element("input", {
        type: "range", min: column.low, max: column.high, step: column.step, "aria-label": `${column.name}, slider`,
      });
      part.slider.addEventListener("input", () => {
        part.input.value = part.slider.value;
        this.present(part);
        this.changed();
      });
      line.append(part.slider);
    }
    part.input.addEventListener("input", () => {
      this.follow(part);
      this.changed();
    });
    line.append(part.input);
    part.get = () => part.input.value;
    part.set = (value) => {
      part.input.value = value === null ? "" : String(value);
      this.follow(part);
    };
  }

  follow(part) {
    if (part.slider && part.input.value.trim() !== "" && Number.isFinite(Number(part.input.value))) {
      part.slider.value = part.input.value;
    }
  }

  text(part, line) {
    const { column, id } = part;
    if (column.free) {
      const list = element("datalist", { id: `${id}-levels` });
      for (const level of column.levels) list.append(element("option", { value: level }));
      part.input = element("input", { id, type: "text", list: `${id}-levels`, spellcheck: "false" });
      line.append(part.input, list);
    } else {
      part.input = element("select", { id });
      if (column.missing) part.input.append(element("option", { value: "" }, "(missing)"));
      for (const level of column.levels) part.input.append(element("option", { value: level }, level));
      line.append(part.input);
    }
    part.input.addEventListener(column.free ? "input" : "change", () => this.changed());
    part.get = () => (part.input.value === "" ? null : part.input.value);
    part.set = (value) => this.choose(part.input, value);
  }

  flag(part, line) {
    part.input = element("select", { id: part.id });
    for (const value of ["false", "true"]) part.input.append(element("option", { value }, value));
    if (part.column.missing) part.input.append(element("option", { value: "" }, "(missing)"));
    part.input.addEventListener("change", () => this.changed());
    line.append(part.input);
    part.get = () => (part.input.value === "" ? null : part.input.value === "true");
    part.set = (value) => this.choose(part.input, value === null ? null : String(value));
  }

  date(part, line) {
    part.input = element("input", { id: part.id, type: part.column.clock ? "datetime-local" : "date" });
    part.input.addEventListener("input", () => this.changed());
    line.append(part.input);
    part.get = () => part.input.value || null;
    part.set = (value) => (part.input.value = value ?? "");
  }

  choose(input, value) {
    const wanted = value ?? "";
    if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === wanted)) {
      input.append(element("option", { value: wanted }, wanted || "(missing)"));
    }
    input.value = wanted;
  }

  // A box that says that there is no value; the field keeps what it had.
  gap(part, line) {
    const { get, set, column } = part;
    part.box = element("input", { type: "checkbox", id: `${part.id}-gap`, "aria-label": `${column.name} is missing` });
    line.append(element("span", { class: "gap" }, part.box, " ", element("label", { for: `${part.id}-gap` }, "missing")));
    part.box.addEventListener("input", () => {
      this.disable(part);
      this.changed();
    });
    part.get = () => (part.box.checked ? null : get());
    part.set = (value) => {
      part.box.checked = value === null;
      if (value !== null) set(value);
      this.disable(part);
    };
  }

  disable(part) {
    for (const input of [part.input, part.slider]) if (input) input.disabled = part.box.checked;
  }

  present(part) {
    if (part.box) part.box.checked = false;
  }

  get() {
    const found = { values: {}, given: {} };
    for (const { column, get } of this.parts.values()) found[column.given ? "given" : "values"][column.name] = get();
    return found;
  }

  set(row) {
    for (const { column, set } of this.parts.values()) {
      const from = column.given ? row.given : row.values;
      if (from && column.name in from) set(from[column.name]);
    }
  }

  // Says at the field of a column what is wrong with it, and at all others that nothing is; whether there is such a field.
  wrong(name, message) {
    let found = false;
    for (const { column, input, wrong } of this.parts.values()) {
      const here = column.name === name;
      found ||= here;
      wrong.hidden = !here;
      wrong.textContent = here ? message : "";
      if (here) {
        input.setAttribute("aria-invalid", "true");
        input.setAttribute("aria-describedby", wrong.id);
      } else {
        input.removeAttribute("aria-invalid");
        input.removeAttribute("aria-describedby");
      }
    }
    return found;
  }
}
