// Attributes: restrict everything to some codes, and see a chart of one or two attributes with the table behind it.

import { MOST_IN_MATRIX, announce, called, capital, chip, counted, data, fill, interval, make, number, peak, percent, release, significant, spoken, tableOf } from "./base.js";
import { barsOf, draw, lineOf, matrixOf, widthOf } from "./charts.js";
import { answerTo, finestOf, hasRows, isClear, rowsBy, sizeOf, within } from "./tables.js";
import { actions, attributeTitle, attributes, chosen, onlyOf, onlyTitle, onlyWords, setsFor } from "./state.js";
import { whyNone } from "./lists.js";
import { cardOf } from "./cards.js";

const FIRST_ROWS = 60; // of a table before more are asked for
const LONGEST_BARS = 60;
const MOST_OPEN = 6; // attributes whose choices are open from the start

/** Every attribute at every level of which the page has a table. */
const every = attributes.flatMap((axis) => [...Array(finestOf(axis)).keys()].map((place) => ({ axis, level: place + 1 }))).filter((one) => hasRows([[one.axis, one.level]], setsFor([], [])));

function labelOf({ axis, level }, at) {
  return called(data.axes[axis], level, at);
}

function isOrdered(axis) {
  return data.axes[axis].ordered || data.axes[axis].role === "size";
}

/** Restrict everything to some ranges of codes, or to none. */
function restrict(axis, ranges) {
  if (ranges.length) chosen.only.set(axis, ranges);
  else chosen.only.delete(axis);
  actions.show();
}

/** Return the choice of one code of an attribute, of several together, or of all. */
function anyCodes(axis) {
  const levels = every.filter((one) => one.axis === axis);
  const codes = (one) => [...Array(sizeOf(axis, one.level)).keys()].map((at) => make("option", { value: `${one.level}.${at}` }, labelOf(one, at)));
  const change = (event) => {
    const [level, first] = event.target.value.split(".").map(Number);
    const others = (chosen.several && chosen.only.get(axis)) || [];
    restrict(axis, level ? [...others.filter((own) => own.level !== level || own.first !== first), { level, first, last: first }] : []);
  };
  const groups = levels.length > 1 ? levels.map((one) => make("optgroup", { label: attributeTitle(one) }, ...codes(one))) : levels.flatMap(codes);
  const none = make("option", { value: "" });
  const select = make("select", { id: `only-${axis}`, onchange: change }, none, ...groups);
  const chips = make("ul", { class: "chips", id: `only-${axis}-chosen` });
  const show = () => {
    const only = chosen.only.get(axis) ?? [];
    none.textContent = chosen.several && only.length ? "and another" : "all";
    select.value = only.length && !chosen.several ? `${only[0].level}.${only[0].first}` : "";
    const leave = (own) => () => {
      restrict(axis, only.filter((other) => other !== own));
      select.focus();
    };
    chips.replaceChildren(...(chosen.several ? only.map((own) => chip(labelOf({ axis, level: own.level }, own.first), leave(own))) : []));
  };
  return { show, part: make("div", {}, make("label", { for: select.id }, data.axes[axis].name), select, chips) };
}

/**
 * Return the choice of a range of an ordered attribute by two handles; codes beside its order are in none. Where it goes round, the first handle may
 * stand after the second. Of several ranges, which an address may name, they show the first.
 */
function twoHandles(axis) {
  const { level } = every.findLast((one) => one.axis === axis);
  const last = sizeOf(axis, level) - data.axes[axis].apart - 1;
  const all = ["all", ...[...Array(data.axes[axis].apart).keys()].map((place) => labelOf({ axis, level }, last + 1 + place))].join(", with ");
  const words = make("output", { id: `only-${axis}` });
  const value = () => handles.map((handle) => Number(handle.value));
  const isAll = ([from, to]) => (from === 0 && to === last) || from === to + 1;
  const inWords = (own) => [...new Set([own.first, own.last])].map((at) => labelOf({ axis, level: own.level }, at)).join(" to ");
  const say = () => {
    const [from, to] = value();
    const labels = [from, to].map((at) => labelOf({ axis, level }, at));
    words.textContent = isAll(value()) ? all : inWords({ level, first: from, last: to });
    track.classList.toggle("round", from > to);
    handles.forEach((handle, place) => handle.setAttribute("aria-valuetext", labels[place]));
    track.style.setProperty("--from", `${(100 * from) / last}%`);
    track.style.setProperty("--to", `${(100 * to) / last}%`);
  };
  const move = (place) => () => {
    const [from, to] = value();
    if (from > to && !data.axes[axis].round) handles[place].value = place ? from : to; // one handle stops at the other
    handles[0].style.zIndex = value()[0] === last ? 1 : 0; // so that two at the end can be parted
    say();
  };
  const change = () => {
    const [from, to] = value();
    restrict(axis, isAll(value()) ? [] : [{ level, first: from, last: to }]);
  };
  const handles = ["from", "to"].map((text, place) =>
    make("input", { type: "range", id: `only-${axis}-${text}`, min: 0, max: last, step: 1, value: place * last, "aria-label": `${data.axes[axis].name}, ${text}`, oninput: move(place), onchange: change }),
  );
  const track = make("div", { class: "track" }, ...handles);
  const show = () => {
    const ranges = chosen.only.get(axis) ?? [];
    const [only = { level, first: 0, last }] = ranges;
    handles[1].value = within(axis, only.level, [only.last], level).at(-1);
    [handles[0].value] = within(axis, only.level, [only.first], level);
    move(0)();
    if (ranges.length) words.textContent = ranges.map(inWords).join(", ");
  };
  return { show, part: make("div", { role: "group", "aria-label": data.axes[axis].name }, make("span", { class: "label" }, data.axes[axis].name, ": ", words), track) };
}

const restrictions = [];

/** Return the attributes that the chart can have beside another one, by their places among all. */
function besides(one) {
  return [...every.keys()].filter((place) => every[place].axis !== one.axis && hasRows([one, every[place]].map(({ axis, level }) => [axis, level]), setsFor(...chosen.ends) ?? setsFor([], [])));
}

/** Show what is chosen in the controls of attributes. */
function showControls() {
  for (const one of restrictions) one.show();
  const [first, second] = ["first", "second"].map((id) => document.getElementById(id));
  first.selectedIndex = chosen.by[0];
  const fit = besides(every[chosen.by[0]]);
  second.replaceChildren(
    make("option", { value: "", selected: chosen.by[1] === null }, "none"),
    ...fit.map((place) => make("option", { value: place, selected: place === chosen.by[1] }, attributeTitle(every[place]))),
  );
}

/** Return which codes of an attribute its chart shows: those to which everything is restricted, or all beside a single one. */
function isInside({ axis, level }) {
  const only = onlyOf(axis);
  if (!only || only.codes.length === 1) return () => true;
  if (only.level <= level) {
    const inside = new Set(within(axis, only.level, only.codes, level));
    return (at) => inside.has(at);
  }
  return (at) => within(axis, level, [at], only.level).some((own) => only.codes.includes(own));
}

/** Return the rows of the chart, with the labels and the kinds that pictures need; null where the page does not hold them. */
function rowsOfChart(by) {
  const sets = setsFor(...chosen.ends);
  const rows = sets && rowsBy(by.map(({ axis, level }) => [axis, level]), sets, true);
  const inside = by.map(isInside);
  return rows && rows
    .filter(({ areas }) => areas.every((at, place) => inside[place](at)))
    .map((row) => {
      const label = by.map((one, place) => labelOf(one, row.areas[place])).join(", ");
      const range = row.low === null || row.exact ? "" : ` (${interval(row.low, row.high)})`;
      return { ...row, label, tooltip: `${label}: ${counted(row.count)}${range}`, kind: isClear(row) ? "signal" : "noise" };
    });
}

/** Show the chart and the table of the chosen attributes, about what else is chosen; `where` ends their title. */
export function showAttributes(where, what) {
  showControls();
  const by = chosen.by.filter((place) => place !== null).map((place) => every[place]);
  const rows = rowsOfChart(by);
  const list = data.ends ? "chart-list" : "list";
  const part = document.getElementById("chart-part");
  part.hidden = !rows;
  if (!rows) {
    fill(list, make("p", {}, "This page has no table from which these rows add up."));
    return;
  }
  const title = `${capital(release.many)} by ${by.map(attributeTitle).join(" and ")}${where}${onlyTitle(by)}`;
  drawAttributes(rows, by, title, what);
  const bounds = rows.some((row) => row.low !== null) ? ["low", "high"] : [];
  const deviations = rows.some((row) => row.sd !== null) ? ["sd"] : [];
  const pick = (row) => make("button", { type: "button", class: "link", onclick: () => showRow(row, by, what) }, labelOf(by[0], row.areas[0]));
  const isMarked = rows.some((row) => row.signal !== null);
  const cells = rows.slice(0, chosen.charted).map((row) => [
    pick(row),
    ...by.slice(1).map((one) => labelOf(one, row.areas[1])),
    row.count,
    ...(bounds.length ? [row.low ?? "–", row.high ?? "–"] : []),
    ...(deviations.length ? [row.sd === null ? "–" : significant(row.sd, 3)] : []),
    row.kind === "noise" ? "may be noise" : row.low === null && row.signal === null && !row.exact ? "unknown" : "yes",
  ]);
  const more = () => {
    chosen.charted *= 4;
    actions.show();
  };
  const sources = [...new Set(rows.map((row) => row.table?.source ?? "sums of tables"))].join(", ");
  fill(
    list,
    tableOf(title, [...by.map(attributeTitle), release.many, ...bounds, ...deviations, isMarked ? "stands out" : "above 0"], cells, bounds.length ? `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.` : whyNone(rows)),
    rows.length > chosen.charted ? make("button", { type: "button", class: "more", onclick: more }, "Show more rows") : null,
    make("p", { class: "note" }, `Numbers from: ${sources}. Choose a row to read and quote it.`),
  );
  if (!data.ends) announce(`${title}: ${number(rows.length)} rows.`);
}

/** Show everything, or what it is restricted to, as a card. */
export function showTotal() {
  const [sets, words] = [setsFor([], []), onlyWords()];
  fill("answer", cardOf(words ? capital(words.slice(6)) : "Everything", words ? words.slice(1) : "in all", answerTo(sets), sets));
}

/** Show one row as a card. */
function showRow(row, by, where) {
  const own = by.map((one, place) => `${attributeTitle(one)} ${labelOf(one, row.areas[place])}`);
  const what = `${where}with ${own.join(" and ")}${onlyWords(by).replace(" with ", " and ")}`;
  const sets = setsFor(...chosen.ends).slice();
  by.forEach(({ axis, level }, place) => {
    sets[axis] = [{ level, areas: [row.areas[place]] }];
  });
  fill("answer", cardOf(capital(what.replace(/^with /, "")), what, row, sets));
  document.getElementById("answer").scrollIntoView({ block: "nearest" });
  announce(`${what}: ${spoken(row)}.`);
}

function drawAttributes(rows, by, title, what) {
  const part = document.getElementById("chart-part");
  const [first, second] = by;
  document.getElementById("chart-title").textContent = title;
  const width = widthOf("chart");
  const description = `${title}. The table has the same numbers.`;
  document.getElementById("chart-keys").hidden = !second;
  if (second) {
    const labels = by.map((attribute, place) => {
      const numbers = [...new Set(rows.map((row) => row.areas[place]))].toSorted((one, two) => one - two);
      return numbers.map((at) => labelOf(attribute, at));
    });
    if (peak(labels.map((of) => of.length), 0) > MOST_IN_MATRIX * 2) {
      part.hidden = !data.ends;
      fill("chart");
      return;
    }
    const cells = rows.map((row, at) => ({
      at,
      row: labelOf(first, row.areas[0]),
      column: labelOf(second, row.areas[1]),
      count: Math.max(row.count, 0),
      kind: row.kind,
      label: row.tooltip,
    }));
    draw("chart", matrixOf(cells, labels[0], labels[1], by.map(attributeTitle), width), description, (cell) => showRow(rows[cell.at], by, what));
  } else if (data.axes[first.axis].ordered && data.axes[first.axis].role !== "size") {
    const inOrder = sizeOf(first.axis, first.level) - (first.level === finestOf(first.axis) ? data.axes[first.axis].apart : 0);
    draw("chart", lineOf(rows.filter(({ areas }) => areas[0] < inOrder), attributeTitle(first), width), description);
  } else {
    const few = isOrdered(first.axis) ? rows.slice(0, LONGEST_BARS) : rows.toSorted((one, two) => two.count - one.count).slice(0, LONGEST_BARS);
    draw("chart", barsOf(few, release.many, width), description);
  }
}

/** Return the attributes of the chart as an address names them. */
export function namesOfChart() {
  const names = chosen.by.map((place) => (place === null ? null : attributeTitle(every[place])));
  return { first: names[0], second: names[1] };
}

/** Choose the attributes of the chart by their names, or those to begin with; if the second does not go with the first, it is left. */
export function chooseChart(names) {
  const titles = every.map(attributeTitle);
  const size = every.findIndex((one) => data.axes[one.axis].role === "size");
  const finest = size < 0 ? every.findLastIndex((one) => one.axis === every[0]?.axis) : size;
  const [one, other] = [names.first, names.second].map((name) => titles.indexOf(name));
  chosen.by = [one < 0 ? finest : one, other < 0 ? null : other];
  if (!besides(every[chosen.by[0]]).includes(chosen.by[1])) chosen.by[1] = null;
}

/** Begin the controls of attributes; return whether the page has any. */
export function beginAttributes() {
  if (!every.length) return false;
  document.getElementById("choose-attributes").hidden = false;
  const [first, second] = ["first", "second"].map((id) => document.getElementById(id));
  if (data.ends) document.querySelector("label[for=first]").textContent = "Chart by";
  first.replaceChildren(...every.map((one) => make("option", {}, attributeTitle(one))));
  for (const axis of attributes.filter((own) => every.some((one) => one.axis === own) && sizeOf(own, finestOf(own)) > 1)) {
    restrictions.push(isOrdered(axis) && sizeOf(axis, finestOf(axis)) - data.axes[axis].apart > 2 ? twoHandles(axis) : anyCodes(axis));
  }
  fill("only-parts", ...restrictions.map(({ part }) => part));
  document.getElementById("only-part").open = restrictions.length <= MOST_OPEN;
  document.getElementById("only-part").hidden = !restrictions.length;
  const choose = (by) => {
    Object.assign(chosen, { by, charted: FIRST_ROWS });
    if (!besides(every[by[0]]).includes(by[1])) chosen.by[1] = null;
    actions.show();
  };
  first.addEventListener("change", () => choose([first.selectedIndex, chosen.by[1]]));
  second.addEventListener("change", () => choose([chosen.by[0], second.value === "" ? null : Number(second.value)]));
  return true;
}
