// The page: sends the row of the form to the server, and shows what comes back.

import { counts, density, effect, short, together } from "./draw.js";
import { element, Form } from "./form.js";

const $ = (id) => document.getElementById(id);
const page = { model: null, form: null, choice: 0, shown: [], found: null, effects: null };

async function ask(path, content) {
  const options = content === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
  };
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch {
    throw { error: "The server does not answer: it may have been stopped. Start it again and reload the page.", column: null };
  }
  const found = await answer.json();
  if (!answer.ok) throw found;
  return found;
}

// One question after the other; while a slider moves, only the last row is asked about.
let asking = false, again = false;

async function refresh() {
  again = true;
  delete document.body.dataset.settled;
  if (asking) return;
  asking = true;
  try {
    while (again) {
      again = false;
      await answers();
    }
    document.body.dataset.settled = "true"; // what is shown is that of the form
  } finally {
    asking = false;
  }
}

async function answers() {
  const content = { ...page.form.get(), choice: page.choice };
  try {
    page.found = await ask("predict", content);
    $("failed").hidden = true;
    document.body.classList.remove("stale");
    page.form.wrong(null);
    showPrediction();
    if (again) return;
    page.effects = (await ask("effects", { ...content, columns: page.shown })).effects;
    showEffects();
    if (again) return;
    showRows(await ask("neighbours", content));
  } catch (problem) {
    showProblem(problem);
  }
}

function showProblem(problem) {
  if (problem instanceof Error) throw problem;
  const there = page.form && page.form.wrong(problem.column, problem.error);
  setText("says", there ? "No prediction." : "");
  setText("rests", page.found ? "What is drawn is the last one." : "");
  $("rests").classList.remove("far");
  $("remarks").replaceChildren();
  setText("failed", problem.error);
  setText("bar", `No prediction: ${problem.error}`);
  $("failed").hidden = false;
  document.body.classList.add("stale");
}

// --- the prediction -------------------------------------------------------------------------------------------------

function showPrediction() {
  const { found, model } = page;
  setText("says", found.says);
  setText("bar", found.says);
  setText("rests", `${found.rests} Support ${found.support.toFixed(2)} of 1.`);
  $("rests").classList.toggle("far", !found.rests.startsWith("Amid"));
  const remarks = found.remarks.map((remark) => element("li", {}, remark));
  if ($("remarks").textContent !== found.remarks.join("")) $("remarks").replaceChildren(...remarks);
  $("distribution").hidden = model.kind === "label";
  if (model.kind === "label") {
    $("numbers").replaceChildren(classTable(found), element("p", { class: "soft" }, model.target.set));
  } else {
    drawDistribution();
    $("numbers").replaceChildren(numberTable(found.targets));
  }
}

function setText(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text; // what is the same is not announced again
}

function drawDistribution() {
  const { found, model, choice } = page;
  const [place, own] = [$("distribution").querySelector(".drawing"), found.targets[found.targets.length > 1 ? choice : 0]];
  const caption = $("distribution").querySelector("figcaption");
  if (found.bars) {
    setText("distribution-title", `Probabilities of ${own.name}`);
    counts(place, found.bars, own, own.name);
    keys(caption, [["", "in the 90 % interval"], ["outside", "outside of it"], ["mean", "mean"]]);
  } else {
    setText("distribution-title", `Predictive density of ${own.name}`);
    density(place, found.density, own, model.target.targets[choice], own.name, $("scale").value === "prediction");
    keys(caption, [["narrow", "50 %"], ["wide", "90 %"], ["mean", "mean"], ["targets", "training targets"]]);
  }
}

function keys(caption, entries) {
  if (caption.childElementCount) return;
  for (const [kind, text] of entries) caption.append(element("span", { class: "key" }, element("i", { class: kind }), text));
}

function numberTable(targets) {
  const heads = ["", "mean", "standard deviation", "50 % interval", "90 % interval"];
  const rows = targets.map(({ name, mean, std, narrow, wide }) => [
    name, short(mean), short(std), narrow.map(short).join(" to "), wide.map(short).join(" to "),
  ]);
  return table("The prediction in numbers", heads, rows);
}

function classTable(found) {
  const body = element("tbody");
  for (const one of found.classes) {
    const bar = element("span");
    bar.style.width = `${100 * one.p}%`;
    const kind = [one.inside ? "inside" : "", one.class === found.best ? "best" : ""].join(" ").trim();
    body.append(element("tr", { class: kind }, element("th", { scope: "row" }, one.name),
      element("td", { class: "number" }, one.p.toFixed(3)), element("td", { class: "share", "aria-hidden": "true" }, bar),
      element("td", {}, one.inside ? "in the set" : "")));
  }
  const heads = ["class", "probability", "", "90 % set"].map((text) =>
    text ? element("th", { scope: "col" }, text) : element("td", { "aria-hidden": "true" }));
  const made = element("table", { class: "classes" }, element("caption", { class: "unseen" }, "Probabilities of the classes"),
    element("thead", {}, element("tr", {}, ...heads)), body);
  const rest = found.others > 1e-9 ? element("p", { class: "soft" }, `All other classes: ${found.others.toFixed(3)}.`) : "";
  return element("div", {}, made, rest);
}

function table(caption, heads, rows) {
  const head = heads.map((text) => (text ? element("th", { scope: "col" }, text) : element("td")));
  const body = rows.map(([first, ...rest]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((cell) => element("td", {}, cell))));
  return element("table", {}, element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

// --- effects --------------------------------------------------------------------------------------------------------

function what() {
  const { model, choice } = page;
  return model.kind === "label" ? `Probability of ${model.target.names[choice]}` : model.target.names[choice];
}

function showEffects() {
  const place = $("effects");
  const range = page.effects.length ? together(page.effects) : [0, 1];
  const open = new Set([...place.querySelectorAll("details[open]")].map((details) => details.dataset.column));
  const focused = document.activeElement?.closest?.("#effects details")?.dataset.column;
  const wanted = page.effects.map((told) => {
    const head = element("p", { class: "figure-title", id: `effect-${page.shown.indexOf(told.column)}` }, told.column);
    const drawing = element("div", { class: "drawing" });
    const digits = page.model.kind === "label" ? (p) => p.toFixed(3) : short;
    const rows = told.labels.map((label, i) => [label, digits(told.mean[i]), `${digits(told.low[i])} to ${digits(told.high[i])}`]);
    const numbers = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers of ${told.column}` },
      table(`${what()} over ${told.column}`, [told.column, "prediction", "error bar"], rows));
    const details = element("details", { "data-column": told.column, open: open.has(told.column) },
      element("summary", {}, `The numbers of ${told.column}`), numbers);
    return [element("figure", { "aria-labelledby": head.id }, head, drawing, details), drawing, told];
  });
  place.replaceChildren(...wanted.map(([figure]) => figure));
  for (const [, drawing, told] of wanted) effect(drawing, told, what(), range);
  if (focused) place.querySelector(`details[data-column="${CSS.escape(focused)}"] summary`)?.focus();
}

function buildChoices() {
  const { model } = page;
  const many = model.target.names.length > 1;
  $("choose").hidden = !many;
  $("choice-label").textContent = model.kind === "label" ? "Class of the effects" : "Target";
  model.target.names.forEach((name, i) => $("choice").append(element("option", { value: i }, name)));
  $("choice").addEventListener("change", () => {
    page.choice = Number($("choice").value);
    refresh();
  });
  $("scale-of").hidden = !["number", "numbers"].includes(model.kind);
  $("scale").addEventListener("change", drawDistribution);
  $("effects-about").textContent = "The prediction as that column varies and all others stay as chosen. Error bars: " +
    `${model.target.bars}. The columns that move usual predictions most are shown first.`;
  $("shown").hidden = model.columns.length < 2;
  for (const name of model.ranked) {
    const box = element("input", { type: "checkbox", id: `shown-${$("shown-columns").childElementCount}` });
    box.checked = page.shown.includes(name);
    box.addEventListener("input", () => {
      page.shown = model.ranked.filter((one) => (one === name ? box.checked : page.shown.includes(one)));
      if (page.shown.length > model.most_effects) {
        box.checked = false;
        page.shown = page.shown.filter((one) => one !== name);
      }
      refresh();
    });
    $("shown-columns").append(element("span", {}, box, " ", element("label", { for: box.id }, name)));
  }
}

// --- training rows --------------------------------------------------------------------------------------------------

function showRows({ rows, rest }) {
  const { model } = page;
  const names = model.columns.map((column) => column.name);
  const targets = model.kind === "numbers" ? model.target.names : [model.target.title];
  const measures = model.weights ? ["weight", "change without it"] : [];
  const given = model.kind === "count" ? model.target.given.map((one) => one.name) : [];
  const heads = ["row", ...measures, ...targets, ...given, ...names, "take it"];
  const made = table("Training rows", heads, rows.map((row) => [
    String(row.row), ...(model.weights ? [short(row.weight), short(row.change)] : []), ...row.target,
    ...given.map((name) => short(row.given[name])), ...names.map((name) => row.shown[name]), "",
  ]));
  made.querySelectorAll("tbody tr").forEach((line, i) => {
    const button = element("button", { type: "button", "aria-label": `Take the values of row ${rows[i].row}` }, "take");
    button.addEventListener("click", () => start(rows[i]));
    line.lastElementChild.append(button);
  });
  $("near").replaceChildren(made);
  $("near-about").textContent = model.weights
    ? "Those whose absence would change the prediction most: the weight of their target in it, and the change without " +
      `them. The overall mean has ${short(Math.round(1000 * rest) / 1000)} of 1.` + explained()
    : "Those nearest to it as the model sees distances. Of several targets no weights are told.";
}

function explained() {
  return page.model.kind === "label" ? " It is the probability of the most probable class that changes." : "";
}

// --- the beginning --------------------------------------------------------------------------------------------------

function start(row) {
  page.form.set(row);
  $("from").textContent = `The values of row ${row.row} of the training table, rounded, until you change them.`;
  refresh();
}

async function begin() {
  try {
    page.model = await ask("model");
  } catch (problem) {
    return showProblem(problem);
  }
  const { model } = page;
  document.title = `${model.name} · nearfield explore`;
  $("name").textContent = model.name;
  $("about").textContent = model.model;
  $("version").textContent = `nearfield ${model.version}`;
  page.shown = [...model.effects];
  page.choice = model.target.choice;
  page.form = new Form(model.columns, model.ranked, model.target.given, refresh);
  buildChoices();
  $("choice").value = page.choice;
  $("form").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => start(model.start));
  $("random").addEventListener("click", async () => {
    try {
      start(await ask("row"));
    } catch (problem) {
      showProblem(problem);
    }
  });
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width || !page.found) return;
    width = window.innerWidth;
    if (model.kind !== "label") drawDistribution();
    if (page.effects) showEffects();
  });
  start(model.start);
}

begin();
