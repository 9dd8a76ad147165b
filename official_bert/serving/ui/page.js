"use strict";

const SIGNATURE = "text";
const INPUT_ORDER = ["question", "context", "text", "text_a", "text_b"];
const LABELS = {
  question: "Question", context: "Context", choices: "Choices, one per line",
  text: "Text", text_a: "Text", text_b: "Second text",
};

const find = (selector) => document.querySelector(selector);

/** Makes an element; strings among the children become text, never HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const percent = (probability) => (100 * probability).toFixed(1) + "%";

/** A table of names with bars, in the order given. */
function bars(rows) {
  const table = make("table");
  for (const [name, probability] of rows) {
    const bar = make("div", { class: "bar" });
    bar.style.width = percent(probability);
    const row = make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, bar), make("td", {}, percent(probability)));
    table.append(row);
  }
  return table;
}

/** A text of which spans [start, end), counted in characters, are drawn by a function; spans do not overlap. */
function marked(text, spans, draw) {
  const characters = Array.from(text);
  const paragraph = make("p", { class: "text" });
  let position = 0;
  for (const span of [...spans].sort((one, other) => one.start - other.start)) {
    paragraph.append(characters.slice(position, span.start).join(""));
    paragraph.append(draw(characters.slice(span.start, span.end).join(""), span));
    position = span.end;
  }
  paragraph.append(characters.slice(position).join(""));
  return paragraph;
}

// How the answers of each task are shown: from the outputs for one example and its texts to elements.

/** Names with their probabilities, most likely first. */
function ranked(names, probabilities) {
  return bars(names.map((name, index) => [name, probabilities[index]]).sort((one, other) => other[1] - one[1]));
}

function showClasses(outputs) {
  return [ranked(outputs.labels[0], outputs.probabilities[0])];
}

function showChoices(outputs) {
  return [ranked(outputs.choices[0], outputs.probabilities[0])];
}

function showCosine({ vectors: [one, other] }) {
  const product = (left, right) => left.reduce((sum, value, index) => sum + value * right[index], 0);
  const cosine = product(one, other) / Math.sqrt(product(one, one) * product(other, other));
  return [make("p", { class: "number" }, cosine.toFixed(4)), make("p", {}, "the cosine of the two vectors")];
}

function showScore(outputs) {
  return [make("p", { class: "number" }, outputs.scores[0].toFixed(4))];
}

function showAnswers(outputs, texts) {
  const answers = outputs.answers[0]
    .map((text, index) => ({
      text, start: outputs.starts[0][index], end: outputs.ends[0][index], probability: outputs.probabilities[0][index],
    }))
    .filter((answer) => answer.probability > 0);
  const named = answers.map((answer) => [answer.text || "no answer", answer.probability]);
  if (outputs.null_probabilities && !answers.some((answer) => !answer.text)) {
    named.push(["no answer", outputs.null_probabilities[0]]);
  }
  named.sort((one, other) => other[1] - one[1]);
  const best = answers.slice(0, 1).filter((answer) => answer.text);
  return [marked(texts.context, best, (text) => make("mark", {}, text)), bars(named)];
}

function hue(type) {
  let hash = 7;
  for (const character of type) hash = (hash * 31 + character.codePointAt(0)) % 360;
  return (hash * 137) % 360;
}

const colored = (type, attributes, ...children) => {
  const element = make("mark", { class: "entity", ...attributes }, ...children);
  element.style.setProperty("--hue", hue(type));
  return element;
};

/** Tags that are no parts of entities, such as parts of speech: each word has its own. */
function showTags(outputs) {
  const words = outputs.words[0].flatMap((word, index) => word
    ? [colored(outputs.tags[0][index], {}, word, make("small", {}, outputs.tags[0][index])), " "] : []);
  return [make("p", { class: "text" }, ...words)];
}

function showEntities(outputs, texts) {
  if (!outputs.tags[0].every((tag) => !tag || tag === "O" || /^[BIESLUMW]-/.test(tag))) return showTags(outputs);
  const entities = outputs.entity_types[0]
    .map((type, index) => ({
      type, start: outputs.entity_starts[0][index], end: outputs.entity_ends[0][index],
      probability: outputs.entity_probabilities[0][index],
    }))
    .filter((entity) => entity.type);
  const text = marked(texts.text, entities, (words, entity) =>
    colored(entity.type, { title: percent(entity.probability) }, words, make("small", {}, entity.type)));
  const counts = new Map();
  for (const { type } of entities) counts.set(type, (counts.get(type) || 0) + 1);
  const legend = make("ul", { class: "legend" });
  for (const [type, count] of counts) legend.append(make("li", {}, colored(type, {}, type), ` ${count}`));
  return [text, entities.length ? legend : make("p", {}, "no entities")];
}

function showMasks(outputs) {
  const masks = outputs.words[0].flatMap((words, mask) => [
    make("p", { class: "mask" }, `[MASK] ${mask + 1}`),
    bars(words.map((word, index) => [word, outputs.probabilities[0][mask][index]])),
  ]);
  return masks.length ? masks : [make("p", {}, "the text has no [MASK]")];
}

const TASKS = [
  { outputs: ["labels", "probabilities"], about: "classifies texts", button: "Classify", show: showClasses },
  { outputs: ["scores"], about: "scores texts", button: "Score", show: showScore },
  { outputs: ["answers", "starts", "ends"], about: "answers questions about a text", button: "Answer", show: showAnswers },
  { outputs: ["choices", "best"], about: "chooses one of several texts", button: "Choose", show: showChoices },
  { outputs: ["entity_types", "entity_starts"], about: "finds entities in a text", button: "Tag", show: showEntities },
  { outputs: ["words", "probabilities"], about: "fills in words; write [MASK] for each", button: "Fill in", show: showMasks },
  { outputs: ["vectors"], about: "compares texts by their vectors", button: "Embed", show: showCosine, numTexts: 2 },
];

const UNKNOWN = { about: "answers are shown as the server gives them", button: "Ask", show: () => [] };

function fail(message) {
  find("#error").textContent = message;
  find("#error").hidden = false;
  find("#answer").classList.add("stale");
  find("#time").textContent = "";
}

/** Asks the server; what it answers, or an error with its reason. */
async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, body === undefined ? {} : { method: "POST", body });
  } catch {
    throw new Error("The server cannot be reached.");
  }
  const answer = await response.text();
  let parsed;
  try {
    parsed = JSON.parse(answer);
  } catch {
    throw new Error(`The server answered with status ${response.status}: ${answer.slice(0, 300)}`);
  }
  if (!response.ok) throw new Error(`${parsed.error ?? answer} (status ${response.status})`);
  return parsed;
}

function curl(url, body) {
  return `curl -s ${url} -d '${body.replaceAll("'", "'\\''")}'`;
}

async function start() {
  const path = find("#name").dataset.path;
  const url = new URL(path, location.href);
  const metadata = await ask(`${path}/metadata`);
  const signature = metadata.metadata.signature_def.signature_def[SIGNATURE];
  if (!signature) throw new Error(`The export has no signature "${SIGNATURE}".`);
  const names = Object.keys(signature.inputs).sort((one, other) => INPUT_ORDER.indexOf(one) - INPUT_ORDER.indexOf(other));
  const task = TASKS.find((task) => task.outputs.every((name) => name in signature.outputs)) ?? UNKNOWN;
  find("#about").textContent = `version ${metadata.model_spec.version} · ${task.about}`;
  const examples = Array.from({ length: task.numTexts ?? 1 }, (_, number) => Object.fromEntries(names.map((name) => {
    const rows = name === "question" ? 1 : name === "context" ? 8 : 3;
    const box = make("textarea", { name, rows, spellcheck: "false" });
    find("#inputs").append(make("label", {}, number ? LABELS.text_b : LABELS[name] ?? name, box));
    return [name, box];
  })));
  const button = find("#request button");
  button.textContent = task.button;

  async function send() {
    if (button.disabled) return;
    // A surrogate without its partner is no character, and would shift the places of spans.
    const textOf = (box) => box.value.replace(/\p{Surrogate}/gu, "");
    const inputs = Object.fromEntries(names.map((name) => [name, examples.map((boxes) => textOf(boxes[name]))]));
    const body = JSON.stringify({ signature_name: SIGNATURE, inputs });
    find("#command pre").textContent = curl(`${url}:predict`, body);
    find("#command").hidden = false;
    button.disabled = true;
    const began = performance.now();
    try {
      const answer = await ask(`${path}:predict`, body);
      find("#time").textContent = `${(performance.now() - began).toFixed(0)} ms`;
      find("#error").hidden = true;
      // With a single output there is no name around it.
      const outputs = Object.keys(signature.outputs).length === 1
        ? { [Object.keys(signature.outputs)[0]]: answer.outputs } : answer.outputs;
      const shown = task.show(outputs, Object.fromEntries(names.map((name) => [name, inputs[name][0]])));
      find("#answer").replaceChildren(...shown);
      find("#answer").classList.remove("stale");
      find("#answer").hidden = !shown.length;
      find("#raw pre").textContent = JSON.stringify(answer, null, 1);
      find("#raw").hidden = false;
      find("#raw").open ||= !shown.length;
    } finally {
      button.disabled = false;
    }
  }

  const sent = () => send().catch((error) => fail(error.message));
  find("#request").addEventListener("submit", (event) => { event.preventDefault(); sent(); });
  find("#request").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) sent();
  });
  find("#copy").addEventListener("click", async () => {
    const pre = find("#command pre");
    getSelection().selectAllChildren(pre);
    try {
      await navigator.clipboard.writeText(pre.textContent);
      find("#copy").textContent = "Copied";
    } catch {
      find("#copy").textContent = "Press Ctrl + C"; // there is no clipboard without HTTPS, but the text is selected
    }
    setTimeout(() => { find("#copy").textContent = "Copy"; }, 2000);
  });
  button.disabled = false;
  find("textarea").focus();
}

start().catch((error) => fail(error.message));
