// Features, ordered axes and group sizes: choose one or two attributes, and see a chart and the table behind it.

import { MOST_IN_MATRIX, address, announce, called, capital, card, counted, data, fill, interval, make, number, peak, percent, release, spoken, tableOf } from "./base.js";
import { showViews } from "./views.js";
import { barsOf, draw, lineOf, matrixOf, widthOf } from "./charts.js";

const FIRST_ROWS = 60; // of a table before more are asked for
const LONGEST_BARS = 60;
const chosen = { first: 0, second: null, only: null, shown: FIRST_ROWS };

/** Return what a table is about: its attributes with their levels. */
function attributesOf(table) {
  return table.axes.map((axis, place) => ({ axis, level: table.at[place] }));
}

function attributeTitle({ axis, level }) {
  const of = data.axes[axis];
  const { name, called: word, codes } = of.levels[level - 1];
  if (name.startsWith(`${of.name}_`)) return `${of.name} in ${codes.length} groups`;
  return of.levels.length === 1 || name === of.name ? of.name : `${of.name} by ${word}`;
}

function sameAttribute(one, two) {
  return one && two && one.axis === two.axis && one.level === two.level;
}

/** Return every attribute that has a table of its own or with another. */
function allAttributes() {
  const every = [];
  for (const table of data.tables) {
    for (const one of attributesOf(table)) if (!every.some((two) => sameAttribute(one, two))) every.push(one);
  }
  return every.toSorted((one, two) => one.axis - two.axis || one.level - two.level);
}

/** Return the table of one or two attributes, and the places of the attributes in it; null where the page has none. */
function tableFor(one, two) {
  for (const table of data.tables) {
    const of = attributesOf(table);
    if (two ? of.length === 2 : of.length === 1) {
      if (sameAttribute(of[0], one) && (!two || sameAttribute(of[1], two))) return { table, places: [0, 1] };
      if (two && sameAttribute(of[0], two) && sameAttribute(of[1], one)) return { table, places: [1, 0] };
    }
  }
  return null;
}

function labelOf(attribute, at) {
  return called(data.axes[attribute.axis], attribute.level, at);
}

/** Return the rows of a table as values, in the order of the first attribute's codes. */
function rowsOf({ table, places }, attributes) {
  return table.count
    .map((count, row) => ({
      at: table.index[places[0]][row],
      other: attributes[1] ? table.index[places[1]][row] : null,
      count,
      low: table.low ? table.low[row] : null,
      high: table.high ? table.high[row] : null,
      sd: table.sd ? table.sd[row] : null,
      signal: table.signal ? table.signal[row] : null,
    }))
    .map((row) => ({ ...row, kind: !table.exact && (row.signal === 0 || (row.low !== null && row.low <= 0)) ? "noise" : "signal" }))
    .toSorted((one, two) => one.at - two.at || one.other - two.other);
}

/** Show the chart and the table of the chosen attributes. */
export function showAttributes() {
  const attributes = allAttributes();
  const first = attributes[chosen.first];
  const second = chosen.second === null ? null : attributes[chosen.second];
  const inTable = tableFor(first, second);
  const only = document.getElementById("only-part");
  only.hidden = !second || !inTable;
  if (!inTable) {
    fill("answer", make("p", {}, "This page has no table of these two attributes. The tables of the release may have it."));
    fill("list");
    document.getElementById("chart-part").hidden = true;
    return;
  }
  let rows = rowsOf(inTable, [first, second]);
  if (second) {
    const values = [...new Set(rows.map((row) => row.other))].toSorted((one, two) => one - two);
    const select = document.getElementById("only");
    select.replaceChildren(
      make("option", { value: "", selected: chosen.only === null }, "all, as a matrix"),
      ...values.map((at) => make("option", { value: at, selected: at === chosen.only }, labelOf(second, at))),
    );
    if (chosen.only !== null) rows = rows.filter((row) => row.other === chosen.only);
  }
  const isMatrix = second && chosen.only === null;
  const where = second && !isMatrix ? ` where ${attributeTitle(second)} is ${labelOf(second, chosen.only)}` : "";
  const title = `${capital(release.many)} by ${attributeTitle(first)}${isMatrix ? ` and ${attributeTitle(second)}` : ""}${where}`;
  const labelled = rows.map((row) => {
    const name = labelOf(first, row.at) + (isMatrix ? `, ${labelOf(second, row.other)}` : "");
    return { ...row, label: name, tooltip: `${name}: ${counted(row.count)}${row.low === null || inTable.table.exact ? "" : ` (${interval(row.low, row.high)})`}`, exact: inTable.table.exact };
  });
  drawAttributes(labelled, first, second, title, isMatrix);
  const heads = [attributeTitle(first), ...(isMatrix ? [attributeTitle(second)] : []), release.many];
  const bounds = rows.some((row) => row.low !== null) ? ["low", "high"] : [];
  const deviations = rows.some((row) => row.sd !== null) ? ["sd"] : [];
  const pick = (row) =>
    make(
      "button",
      { type: "button", class: "link", onclick: () => showRow(row, first, second, where) },
      labelOf(first, row.at),
    );
  const cells = rows.slice(0, chosen.shown).map((row) => [
    pick(row),
    ...(isMatrix ? [labelOf(second, row.other)] : []),
    row.count,
    ...(bounds.length ? [row.low ?? "–", row.high ?? "–"] : []),
    ...(deviations.length ? [row.sd === null ? "–" : +row.sd.toPrecision(3)] : []),
    row.kind === "noise" ? "may be noise" : row.low === null && row.signal === null && !inTable.table.exact ? "unknown" : "yes",
  ]);
  const more = () => {
    chosen.shown *= 4;
    showAttributes();
  };
  fill(
    "list",
    tableOf(title, [...heads, ...bounds, ...deviations, inTable.table.signal ? "stands out" : "above 0"], cells, bounds.length ? `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.` : ""),
    rows.length > chosen.shown ? make("button", { type: "button", class: "more", onclick: more }, "Show more rows") : null,
    make("p", { class: "note" }, `Numbers from: ${inTable.table.source}. Choose a row to read and quote it.`),
  );
  fill("answer", card("Everything", "in all", release.total));
  const attributesNow = attributes.map((one) => attributeTitle(one));
  announce(`${title}: ${number(rows.length)} rows.`);
  address.write({ first: attributesNow[chosen.first], second: second ? attributesNow[chosen.second] : null, only: chosen.only });
}

/** Show one row as a card. */
function showRow(row, first, second, where) {
  const is = (attribute, at) => `${attributeTitle(attribute)} ${labelOf(attribute, at)}`;
  const both = second && row.other !== null ? ` and ${is(second, row.other)}` : where;
  const what = `with ${is(first, row.at)}${second ? both : ""}`;
  const note = row.sd === null ? "" : `Standard deviation: ${+row.sd.toPrecision(3)}.`;
  const answer = { ...row, signal: row.signal === null ? null : Boolean(row.signal), note };
  fill("answer", card(capital(what.slice(5)), what, answer));
  document.getElementById("answer").scrollIntoView({ block: "nearest" });
  announce(`${what}: ${spoken(answer)}.`);
}

function drawAttributes(rows, first, second, title, isMatrix) {
  const part = document.getElementById("chart-part");
  part.hidden = false;
  document.getElementById("chart-title").textContent = title;
  const width = widthOf("chart");
  const ordered = data.axes[first.axis].ordered || data.axes[first.axis].role === "size";
  const description = `${title}. The table has the same numbers.`;
  document.getElementById("chart-keys").hidden = !isMatrix;
  if (isMatrix) {
    const labels = [first, second].map((attribute, place) => {
      const numbers = [...new Set(rows.map((row) => (place ? row.other : row.at)))].toSorted((one, two) => one - two);
      return numbers.map((at) => labelOf(attribute, at));
    });
    if (peak(labels.map((of) => of.length), 0) > MOST_IN_MATRIX * 2) {
      part.hidden = true;
      return;
    }
    const cells = rows.map((row, at) => ({
      at,
      row: labelOf(first, row.at),
      column: labelOf(second, row.other),
      count: Math.max(row.count, 0),
      kind: row.kind,
      label: row.tooltip,
    }));
    draw("chart", matrixOf(cells, labels[0], labels[1], [attributeTitle(first), attributeTitle(second)], width), description, (cell) =>
      showRow(rows[cell.at], first, second, ""),
    );
  } else if (ordered && data.kind !== "sizes") {
    draw("chart", lineOf(rows, attributeTitle(first), width), description);
  } else {
    const few = ordered ? rows.slice(0, LONGEST_BARS) : rows.toSorted((one, two) => two.count - one.count).slice(0, LONGEST_BARS);
    draw("chart", barsOf(few, release.many, width), description);
  }
}

/** Begin with what the address of the page asks for. */
export function beginAttributes() {
  document.getElementById("choose-attributes").hidden = false;
  const attributes = allAttributes();
  const titles = attributes.map(attributeTitle);
  const [first, second, only] = ["first", "second", "only"].map((id) => document.getElementById(id));
  first.replaceChildren(...titles.map((text) => make("option", {}, text)));
  const others = () => {
    const fit = attributes.map((one, place) => (place !== chosen.first && tableFor(attributes[chosen.first], one) ? place : null)).filter((place) => place !== null);
    if (!fit.includes(chosen.second)) Object.assign(chosen, { second: null, only: null, shown: FIRST_ROWS });
    second.replaceChildren(
      make("option", { value: "", selected: chosen.second === null }, "none"),
      ...fit.map((place) => make("option", { value: place, selected: place === chosen.second }, titles[place])),
    );
  };
  const asked = address.read();
  const finest = attributes.findLastIndex((one) => one.axis === attributes[0].axis);
  chosen.first = titles.includes(asked.first) ? titles.indexOf(asked.first) : finest;
  chosen.second = titles.includes(asked.second) ? titles.indexOf(asked.second) : null;
  others();
  if (data.kind === "sizes" && chosen.second === null && !asked.first) {
    const size = attributes.findIndex((one) => data.axes[one.axis].role === "size");
    if (size >= 0) chosen.first = size;
    others();
  }
  chosen.only = asked.only && chosen.second !== null ? Number(asked.only) : null;
  first.selectedIndex = chosen.first;
  first.addEventListener("change", () => {
    Object.assign(chosen, { first: first.selectedIndex, only: null, shown: FIRST_ROWS });
    others();
    showAttributes();
  });
  second.addEventListener("change", () => {
    Object.assign(chosen, { second: second.value === "" ? null : Number(second.value), only: null, shown: FIRST_ROWS });
    showAttributes();
  });
  only.addEventListener("change", () => {
    chosen.only = only.value === "" ? null : Number(only.value);
    showAttributes();
  });
  showAttributes();
  showViews();
}
