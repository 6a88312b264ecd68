// The lists of trips: the largest flows, and where trips from an area end or those to it begin.

import { data, make, number, percent, release, share, tableOf } from "./base.js";
import { FROM, TO, areaAt, axisOf, isWithin, pairsListed } from "./areas.js";
import { hasRows, isClear, rowsBy, rowsOf } from "./tables.js";
import { actions, chosen, depthOf, hasMap, onlyTitle, onlyWords, setsFor, titleOf } from "./state.js";

/** Return what readers call an area of an end, by the depths of a list. */
function word(pairs, end) {
  return data.axes[axisOf(end)].levels[pairs.at[end] - 1].called;
}

/** Return what a list is called: the levels of both ends. */
function pairTitle(pairs) {
  return `${word(pairs, FROM)} to ${word(pairs, TO)}`;
}

/** Return a button that chooses an area, with its title, and its code where the title does not have it. */
function link(area, choose) {
  const code = area.title === area.label && area.label !== area.code ? make("small", {}, ` ${area.code}`) : null;
  return make("button", { type: "button", class: "link", onclick: () => choose(area) }, area.title, code);
}

/** Return whether a row stands out from the noise, in words. */
function standsOut(row) {
  if (row.signal === false) return "may be noise";
  if (row.signal === null && !row.exact) return row.low === null ? "unknown" : row.low > 0 ? "yes" : "may be noise";
  return isClear(row) ? "yes" : "yes, but may be 0";
}

/** Return why rows have no intervals, in words; empty if they have them, or need none. */
export function whyNone(rows) {
  if (rows.every((row) => row.exact) || rows.some((row) => row.low !== null)) return "";
  return `This page states no intervals of these rows: ${rows[0].why}.${data.sums.why ? "" : " Choose a row for the command that states one."}`;
}

/** Return what the intervals of a list promise. */
function promiseOf(rows) {
  const none = whyNone(rows);
  if (none) return none;
  return rows.some((row) => row.ofRows)
    ? `On average over the noise, low to high holds the true number of at least ${percent} of all rows of this level together, not of those that stand out alone.`
    : `For a row that you fix beforehand, low to high holds the true number with ${percent} probability.`;
}

/** Return a choice that draws the page again and has the focus after that. */
function choice(kind, attributes, change) {
  const onchange = (event) => {
    change(event.target);
    actions.show();
    document.getElementById(attributes.id).focus();
  };
  return make(kind, { ...attributes, onchange });
}

/** Return the choice of a direction and a level. */
function switches(directions, words, lists, titleOfList) {
  const radio = (of) => {
    const look = { type: "radio", name: "direction", id: `direction-${of}`, value: of, checked: of === chosen.direction };
    return make("label", {}, choice("input", look, () => Object.assign(chosen, { direction: of })), ` ${words[of]}`);
  };
  const select = choice("select", { id: "level" }, (field) => Object.assign(chosen, { pairs: lists[field.selectedIndex] }));
  select.append(...lists.map((one) => make("option", { selected: one === chosen.pairs }, titleOfList(one))));
  const box = choice("input", { type: "checkbox", id: "within", checked: chosen.within }, (field) => Object.assign(chosen, { within: field.checked }));
  return make(
    "fieldset",
    { class: "switches" },
    make("legend", {}, hasMap ? "What the list and the map show" : "What the list shows"),
    ...directions.map(radio),
    make("label", {}, "by ", select),
    make("label", {}, box, " also within one area"),
  );
}

function moreButton(are) {
  const more = () => {
    const before = chosen.shown;
    chosen.shown *= 4;
    actions.show();
    document.querySelectorAll("#list tbody tr")[before]?.querySelector("button").focus();
  };
  return are ? make("button", { type: "button", class: "more", onclick: more }, "Show more rows") : null;
}

/** Return how many rows a level has, how many of them stand out, and how many may be noise alone. */
function noiseIn(table) {
  const rows = rowsOf(table);
  const marked = rows.reduce((sum, place) => sum + (table.signal?.[place] ?? 0), 0);
  return { rows: rows.length, marked, others: rows.length - marked, most: Math.ceil(table.rows.noise_rows.at_most * rows.length) };
}

/** Return how much of a level's rows is noise, in words: of those that stand out, and of the others. */
function noiseSentence(table) {
  const noise = table?.rows?.noise_rows;
  if (!noise || chosen.only.size) return "";
  if (noise.at_most === 0) return "No row of this level is noise alone.";
  const { rows, marked, others, most } = noiseIn(table);
  if (!table.signal || !others) {
    return noise.at_most < 1 ? `At most ${share(noise.at_most)} of all rows of this level are noise alone: their true number is 0.` : "";
  }
  const text = `${number(marked)} of the ${number(rows)} rows of this level stand out from the noise; of these, at most ${share(release.signal_rate)} are expected to be noise alone, which means that their true number is 0. `;
  if (others === 1) return text + "The other one may be.";
  return text + (most < others ? `Of the other ${number(others)}, up to ${share(most / others)} are noise alone.` : `Any of the other ${number(others)} may be.`);
}

/** Return how many of the rows that do not stand out may be noise alone, in words; empty where nothing is known. */
export function unmarkedShare(table) {
  if (!table?.rows?.noise_rows || !table.signal) return "";
  const { others, most } = noiseIn(table);
  return most < others ? `Up to ${share(most / others)} of the rows like this one are noise alone, with 95% probability.` : "";
}

/** Return rows of a list, the largest first, without those within one area unless they are asked for. */
function sorted(rows, isInside) {
  return rows.filter((row) => chosen.within || !isInside(row)).toSorted((one, two) => two.count - one.count);
}

/** Return the axes of both ends with the levels of a list. */
function sidesOf(pairs) {
  return [FROM, TO].map((end) => [axisOf(end), pairs.at[end]]);
}

/** Return the pairs of areas that a list shows, with the answer about each. */
export function flows(pairs) {
  const rows = rowsBy(sidesOf(pairs), setsFor([], []));
  return rows?.map((row) => ({ ...row, ends: [FROM, TO].map((end) => areaAt(end, pairs.at[end], row.areas[end])) })) ?? null;
}

/** Return the other ends of trips from some areas, or to them, with the answer about each. */
export function otherEnds(pairs, end, areas) {
  const sets = setsFor(...(end === FROM ? [areas, []] : [[], areas]));
  const rows = sets && rowsBy([[axisOf(1 - end), pairs.at[1 - end]]], sets);
  return rows?.map((row) => ({ ...row, other: areaAt(1 - end, pairs.at[1 - end], row.areas[0]) })) ?? null;
}

/** Return a list with its switches; `cells` are those of a row before its numbers. */
function listOf(switched, caption, heads, rows, cells, table) {
  const bounds = rows.some((row) => row.low !== null);
  const shown = rows.slice(0, chosen.shown).map((row) => [...cells(row), row.count, ...(bounds ? [row.low ?? "–", row.high ?? "–"] : []), standsOut(row)]);
  return [
    switched,
    rows.length
      ? tableOf(caption, [...heads, release.many, ...(bounds ? ["low", "high"] : []), "stands out"], shown, promiseOf(rows))
      : make("p", {}, `${caption}: the release has no count above 0 between different areas.`),
    moreButton(rows.length > chosen.shown),
    make("p", { class: "note" }, noiseSentence(table)),
  ];
}

/** Return the list of the largest flows of all. */
export function largestFlows() {
  const there = pairsListed.filter((pairs) => hasRows(sidesOf(pairs), setsFor([], [])));
  if (!there.length) return [make("p", {}, `This page has no table from which pairs of areas${onlyWords()} add up.`)];
  const first = there.find(({ table }) => table.rows?.level === data.first);
  if (!there.includes(chosen.pairs)) chosen.pairs = first ?? there[0];
  const pairs = chosen.pairs;
  const rows = sorted(flows(pairs) ?? [], ({ ends }) => isWithin(...ends));
  const cells = ({ ends: [from, to] }) => [from, to].map((area) => link(area, () => actions.choosePair([from], [to], true)));
  const inside = chosen.within ? "" : ", without those that stay in one area";
  const switched = switches([FROM, TO], ["where trips begin", "where trips end"], there, pairTitle);
  return listOf(switched, `The largest flows, ${pairTitle(pairs)}${onlyTitle()}${inside}`, ["from", "to"], rows, cells, pairs.table);
}

/** Return the list of the other ends of trips from the chosen areas, or to them. */
export function listOfEnds() {
  const ends = [FROM, TO].map((end) => (chosen.ends[end].length ? chosen.ends[end] : chosen.ends[1 - end]));
  const listsFor = (end) => pairsListed.filter((pairs) => setsFor(ends[end], ends[end]) && pairs.at[end] === depthOf(ends[end]) && otherEnds(pairs, end, ends[end]));
  const directions = [FROM, TO].filter((end) => listsFor(end).length);
  if (!directions.length) return [make("p", {}, "This page holds no pairs of areas like this one. The finer tables may.")];
  if (!directions.includes(chosen.direction)) [chosen.direction] = directions;
  const end = chosen.direction;
  const here = ends[end];
  const lists = listsFor(end);
  if (!lists.includes(chosen.pairs)) chosen.pairs = lists.find(({ at }) => at[FROM] === at[TO]) ?? lists[0];
  const pairs = chosen.pairs;
  const both = (one, other) => (end === FROM ? [one, other] : [other, one]);
  const rows = sorted(otherEnds(pairs, end, here), ({ other }) => here.some((area) => isWithin(...both(area, other))));
  const caption = `${end === FROM ? `Where trips from ${titleOf(here)} end` : `Where trips to ${titleOf(here)} begin`}${onlyTitle()}`;
  const words = chosen.ends.every((of) => of.length) ? [`from ${titleOf(ends[FROM])}`, `to ${titleOf(ends[TO])}`] : ["from here", "to here"];
  const switched = switches(directions, words, lists, (one) => word(one, 1 - end));
  return listOf(switched, caption, [word(pairs, 1 - end)], rows, ({ other }) => [link(other, () => actions.choosePair(...both(here, [other]), true))], pairs.table);
}
