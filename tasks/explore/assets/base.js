// What all parts of the explorer share: the data, texts, numbers, and the pieces of the page that are made again and again.

export const data = JSON.parse(document.getElementById("data").textContent);
export const release = data.release;
export const percent = `${+(100 * release.confidence).toFixed(2)}%`;

export const MOST_IN_MATRIX = 60; // areas on a side

/** Return a number with separators of thousands; "?" where it is unknown. */
export function number(value) {
  return value === null || value === undefined ? "?" : value.toLocaleString("en-GB").replace("-", "−");
}

/** Return a share in per cent, rounded up to the next whole one where it is above 1. */
export function share(value) {
  const percents = 100 * value;
  return `${percents > 1 ? Math.ceil(percents) : +percents.toPrecision(2)}%`;
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

/** Return what an area of a level of an axis is called: its name with its code, or its code alone. */
export function called(axis, level, area) {
  const of = axis.levels[level - 1];
  const code = of.codes[area];
  const name = of.names ? of.names[area] : null;
  if (data.kind === "sizes" && axis.name === "size" && area === of.codes.length - 1) return `${code} or more`;
  return name && name !== code ? `${name} (${code})` : code;
}

/** Return the interval of a count in words; empty where none is stated. */
export function interval(low, high) {
  return low === null || low === undefined ? "" : `${number(low)} to ${number(high)}`;
}

/** Return how far a count can be trusted: a word for a style, and a sentence. `sure` says how often the interval holds. */
function judged({ count, low, high, exact, signal }, sure) {
  if (exact) return ["sure", "This number is published exactly. It has no noise."];
  if (low === null || low === undefined) return ["unknown", "No interval can be stated for this number."];
  if (low > 0 && !signal) {
    return ["noise", "This number does not stand out from the noise among the rows of its level. Do not quote it as it is."];
  }
  if (low <= 0) {
    return [
      "noise",
      `This number is too small to be told from noise: the true number may be 0, and is at most ${number(high)}, ${sure}.`,
    ];
  }
  const wide = Math.max(high - count, count - low) / Math.max(count, 1);
  const within = `The true number is within ${wide < 0.01 ? "1%" : `about ${share(wide)}`} of it, ${sure}.`;
  if (wide <= 0.05) return ["sure", `This number is reliable. ${within}`];
  if (wide <= 0.25) return ["fair", `This number is good enough to compare sizes. ${within}`];
  return ["rough", wide > 1 ? "This number is very rough: quote its interval, not the number." : `This number is rough. ${within}`];
}

/** Return a sentence that quotes a count correctly. */
function quoted({ count, low, high, exact, signal }, what, sure) {
  const source = `Source: ${release.title} (${release.id}), differentially private (ε = ${+release.epsilon.toPrecision(4)}).`;
  if (exact) return `${capital(counted(count))} ${what}. ${source}`;
  if (low === null || low === undefined) {
    return `${capital(counted(count))} ${what}, a number with noise of unknown size. ${source}`;
  }
  if (low <= 0 || !signal) {
    return `The number of ${release.many} ${what} is too small to be told from noise; it is at most ${number(high)}, ${sure}. ${source}`;
  }
  return `About ${counted(count)} ${what} (between ${number(low)} and ${number(high)}, ${sure}). The number has noise added to protect individuals. ${source}`;
}

export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Return a card about one number: what it is, its interval, how far to trust it, and how to quote it. `ofRows`: whether its interval is that of a row. */
export function card(title, what, { count, low, high, exact = false, signal = true, note = "", ofRows = false }) {
  const sure = ofRows ? `a range that holds for ${percent} of rows on average` : `with ${percent} probability`;
  const found = { count, low, high, exact, signal };
  const [kind, sentence] = judged(found, sure);
  const quote = quoted(found, what, sure);
  const said = make("span", { role: "status", class: "copied" });
  const copy = make(
    "button",
    {
      type: "button",
      class: "copy",
      onclick: () => {
        const text = make("textarea", { class: "away", "aria-hidden": "true" });
        text.value = quote;
        document.body.append(text);
        text.select();
        said.textContent = document.execCommand("copy") ? "Copied." : "Select the sentence and copy it.";
        text.remove();
      },
    },
    "Copy",
  );
  return make(
    "article",
    { class: `card ${kind}` },
    make("h3", {}, title),
    make(
      "p",
      { class: "figure" },
      make("b", { class: "count" }, number(count)),
      ` ${Math.abs(count) === 1 ? release.one : release.many}`,
      interval(low, high) && !exact
        ? make("span", { class: "interval" }, ` ${interval(low, high)}, ${sure}`)
        : null,
    ),
    make("p", { class: "judged" }, sentence),
    note ? make("p", { class: "note" }, note) : null,
    make("p", { class: "quote" }, make("q", {}, quote), " ", copy, " ", said),
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
  const said = { "aria-label": caption, "aria-describedby": promise?.id ?? null };
  const table = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", {}, make("div", { class: "scroll", tabindex: "0", role: "group", ...said }, table), promise);
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
