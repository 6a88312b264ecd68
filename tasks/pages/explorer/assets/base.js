// What all parts of the explorer share: the data, texts, numbers, and the pieces of the page that are made again and again.

export const data = JSON.parse(document.getElementById("data").textContent);
export const release = data.release;
export const percent = `${+(100 * release.confidence).toFixed(2)}%`;

export const NO_NAME = "no name"; // of an area of a level whose other areas have names
const AT_END = "It is at the end of its range: that is around what was measured of it alone, and the number follows from others too.";
const SHOWN = 4_000; // milliseconds that "Copied." stands
export const MOST_IN_MATRIX = 60; // areas on a side

/** Return a number with separators of thousands; "?" where it is unknown. */
export function number(value) {
  return value === null || value === undefined ? "?" : value.toLocaleString("en-GB").replace("-", "−");
}

/** Return a number with so many significant digits, ties to the even one, as `trellis query` writes it. */
export function significant(value, digits) {
  return value.toLocaleString("en-GB", { maximumSignificantDigits: digits, roundingMode: "halfEven", useGrouping: false });
}

/** Return a share in per cent, rounded up to the next whole one where it is above 1. */
export function share(value) {
  const percents = 100 * value;
  return `${percents > 1 ? Math.ceil(percents) : significant(percents, 2)}%`;
}

/** Return the largest of some values and a further one; there may be too many for `Math.max` to take. */
export function peak(values, least) {
  return values.reduce((largest, value) => Math.max(largest, value), least);
}

/** Return a number of records in words, such as "1,240 jobs". */
export function counted(value) {
  return `${number(value)} ${Math.abs(value) === 1 ? release.one : release.many}`;
}

/** Return an element with attributes and children; text is never read as HTML. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace the children of the element with an id. */
export function fill(id, ...children) {
  document.getElementById(id).replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

/** Return the name of an area of a level; null where the level has no names. */
export function nameOf(of, area) {
  return of.names ? (of.names[area] ?? NO_NAME) : null;
}

/** Return what an area of a level of an axis is called: its name with its code, or its code alone. */
export function called(axis, level, area) {
  const of = axis.levels[level - 1];
  const code = of.codes[area];
  const name = nameOf(of, area);
  if (axis.role === "size" && area === of.codes.length - 1) return `${code} or more`;
  return name && name !== code ? `${name} (${code})` : code;
}

/** Return the interval of a count in words; empty where none is stated. */
export function interval(low, high) {
  return low === null || low === undefined ? "" : `${number(low)} to ${number(high)}`;
}

/** Return how the interval of a count is promised, in words that follow it: that of a question, or of a row that was picked from a list. */
function sureOf(ofRows) {
  return ofRows ? `a range from a list of which at least ${percent} hold the true number` : `with ${percent} probability`;
}

/** Return on what a statement about the true number depends: words that end such a sentence. */
function ifSure(ofRows) {
  return ofRows ? `if its range is among the ${percent} or more of its list that hold` : sureOf(false);
}

/** Return how far a count can be trusted: a word for a style, what stands largest, and a sentence. */
function judged({ count, low, high, exact, signal, ofRows, why }) {
  const sure = ifSure(ofRows);
  if (exact) return ["sure", counted(count), "This number is published exactly. It has no noise."];
  if (low === null || low === undefined) return ["unknown", counted(count), `This page states no interval of this number${why ? `: ${why}` : ""}.`];
  if (low <= 0) {
    const reason = signal === true ? "stands out among the rows of its level, but its own range reaches 0" : "is too small to be told from noise";
    return ["noise", "Too small to say", `This number ${reason}: the true number may be 0, and is at most ${number(high)}, ${sure}.`];
  }
  if (signal === false) return ["noise", "Too small to say", "This number does not stand out from the noise among the rows of its level. Do not quote it as it is."];
  const wide = Math.max(high - count, count - low) / Math.max(count, 1);
  const within = `The true number is within ${wide < 0.01 ? "1%" : `about ${share(wide)}`} of it, ${sure}.`;
  if (wide <= 0.05) return ["sure", counted(count), `This number is reliable. ${within}`];
  if (wide <= 0.25) return ["fair", counted(count), `This number is good enough to compare sizes. ${within}`];
  if (wide <= 1) return ["rough", counted(count), `This number is rough. ${within}`];
  return ["vague", `${number(low)} to ${number(high)} ${release.many}`, "This number is very rough: quote its range, not the number."];
}

/** Return a sentence that quotes a count correctly. */
function quoted(kind, { count, low, high, signal, ofRows }, what) {
  const sure = sureOf(ofRows);
  const from = release.source ? `${release.source}; ` : "";
  const noise = kind === "sure" && low === null ? "" : " Noise was added to protect individuals";
  const source = `Source: ${from}${release.title} (${release.id}).${noise}${noise ? ` (differential privacy, ε = ${significant(release.epsilon, 4)}).` : ""}`;
  const range = `between ${number(low)} and ${number(high)}`;
  const there = Math.abs(count) === 1 ? "There is" : "There are";
  const sentences = {
    sure: () => (low === null ? `${there} ${counted(count)} ${what}` : `${there} about ${counted(count)} ${what} (${range}, ${sure})`),
    unknown: () => `${there} ${counted(count)} ${what}, a number with noise of unknown size`,
    noise: () =>
      `The number of ${release.many} ${what} ${signal === true ? "may be 0" : "is too small to be told from noise"}; it is at most ${number(high)}, ${ifSure(ofRows)}`,
    rough: () => `${there} roughly ${counted(count)} ${what} (${range}, ${sure})`,
    vague: () => `There are ${range} ${release.many} ${what}, ${sure}`,
  };
  sentences.fair = sentences.sure;
  return `${sentences[kind]()}. ${source}`;
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return what is said of a count to readers who do not see its card. */
export function spoken(answer) {
  const [kind, largest] = judged({ exact: false, signal: null, ofRows: false, ...answer });
  const hedge = { fair: "about ", rough: "roughly ", sure: answer.exact ? "" : "about " };
  return kind === "noise" ? `too small to say, at most ${counted(answer.high)}` : `${hedge[kind] ?? ""}${largest}`;
}

/** Return one of several that are chosen together, with a button that leaves it out. */
export function chip(title, leave) {
  return make("li", {}, title, " ", make("button", { type: "button", onclick: leave, "aria-label": `Leave out ${title}` }, "×"));
}

function copyButton(quote) {
  const status = make("span", { role: "status", class: "copied" });
  const copy = (event) => {
    const text = make("textarea", { class: "away", "aria-hidden": "true" });
    text.value = quote;
    document.body.append(text);
    text.select();
    status.textContent = document.execCommand("copy") ? "Copied." : "Select the sentence and copy it.";
    text.remove();
    event.target.focus();
    setTimeout(() => {
      status.textContent = "";
    }, SHOWN);
  };
  return make("p", { class: "copying" }, make("button", { type: "button", class: "copy", onclick: copy }, "Copy"), " ", status);
}

/** Return the command that answers what this page does not; null without one. */
export function asking(command) {
  return command ? make("p", { class: "note" }, "The release answers this command: ", make("code", {}, command)) : null;
}

/**
 * Return a card about one number: what it is, its interval, how far to trust it, and how to quote it.
 *
 * @param {string} title of the card
 * @param {string} what is counted, after the unit
 * @param {object} answer the count with its interval; `signal`: whether it stands out among rows, null where it is none; `ofRows`: whether that is the interval of a row; `why`: why none is stated; `note`: a further sentence; `command`: what states one, null where nothing does
 */
export function card(title, what, answer) {
  const all = { exact: false, signal: null, ofRows: false, note: "", ...answer, ...(answer.exact ? { low: null, high: null } : {}) };
  const { count, low, high, ofRows } = all;
  const isAtEnd = !all.exact && !all.sd && count > 0 && (count === low || count === high);
  const note = [all.note, all.sd && !all.exact ? `Standard deviation: ${significant(all.sd, 3)}.` : ""].filter(Boolean).join(" ");
  const [kind, largest, sentence] = judged(all);
  const isCount = largest === counted(count);
  const figure = make("b", { class: "count" }, number(count));
  const unit = ` ${Math.abs(count) === 1 ? release.one : release.many}`;
  const range = interval(low, high) ? make("span", { class: "interval" }, `${interval(low, high)}, ${sureOf(ofRows)}`) : null;
  const quote = quoted(kind, all, what);
  return make(
    "article",
    { class: `card ${kind}` },
    make("h3", {}, title),
    isCount ? make("p", { class: "figure" }, figure, make("span", { class: "unit" }, unit)) : make("p", { class: "figure" }, largest),
    isCount ? null : make("p", { class: "released" }, "The release counts ", figure, `${unit}.`),
    range,
    make("p", { class: "judged" }, sentence, isAtEnd ? ` ${AT_END}` : null),
    note ? make("p", { class: "note" }, note) : null,
    kind === "unknown" ? asking(all.command) : null,
    make("p", { class: "quote" }, make("q", {}, quote)),
    copyButton(quote),
  );
}

let promises = 0; // notes of tables so far

/** Return a table with a caption, headings and rows; the first column heads its row, numbers stand at the right. A note says what its intervals promise. */
export function tableOf(caption, headings, rows, note = "") {
  const isNumber = (cell) => typeof cell === "number" || cell === "–";
  const head = make("tr", {}, ...headings.map((text, place) => make("th", { scope: "col", class: rows.length && isNumber(rows[0][place]) ? "number" : null }, text)));
  const body = rows.map((cells) =>
    make(
      "tr",
      {},
      ...cells.map((cell, place) => {
        const attributes = isNumber(cell) ? { class: "number" } : {};
        const content = typeof cell === "number" ? number(cell) : cell;
        return place ? make("td", attributes, content) : make("th", { scope: "row" }, content);
      }),
    ),
  );
  const promise = note ? make("p", { class: "promise", id: `promise-${(promises += 1)}` }, note) : null;
  const labels = { "aria-label": caption, "aria-describedby": promise?.id ?? null };
  const table = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", {}, make("div", { class: "scroll", tabindex: "0", role: "group", ...labels }, table), promise);
}

/** Keep the state of the page in its address, so that a link leads back to it. */
export const address = {
  read() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  },
  write(state) {
    const given = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const before = this.read();
    const isNew = ["area", "to"].some((name) => (before[name] ?? null) !== (state[name] ?? null));
    const hash = `#${new URLSearchParams(given)}`;
    if (hash !== location.hash) history[isNew && location.hash ? "pushState" : "replaceState"](null, "", hash);
  },
};

/** Say something to readers who do not see the page change. */
export function announce(text) {
  document.getElementById("announced").textContent = text;
}
