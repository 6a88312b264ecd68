// What is chosen on the page, and what is asked with it. Other scripts fill `actions`, so that lists and pictures can choose too.

import { called, data } from "./base.js";
import { FROM, axisOf } from "./areas.js";
import { fewest, within } from "./tables.js";

export const hasMap = Boolean(data.ends) && Object.keys(data.shapes ?? {}).length > 0;

export const chosen = {
  ends: [[], []], // the areas where trips begin, and where they end; empty for anywhere
  several: false, // whether a further area or code joins those that are chosen
  picked: false, // whether they were picked from a list or a picture that shows counts
  direction: FROM, // whether the map and the list are about trips from the areas in their middle, or to them
  pairs: null, // of `pairsListed`, what the list shows
  within: false, // whether trips that stay in an area are listed
  zoom: 1, // of the map
  only: new Map(), // by axis, the codes to which everything is restricted, as ranges: of each the level, the first and the last code, before the first where it goes over the end of an axis
  whole: null, // the axis of all of whose areas a share is stated
  by: [null, null], // the one or two attributes of the chart
  shown: 15, // rows of the list
  charted: 60, // rows of the table below the chart
};

/** Return the attributes of the page: its axes that are no ends. */
export const attributes = [...data.axes.keys()].filter((axis) => !data.ends?.includes(axis));

export const actions = {
  point: () => {}, // at an area on the map
  choosePair: () => {}, // where trips begin and where they end
  show: () => {}, // the page again
};

/** Return the end around whose areas the map and the list are; null for none. Of a pair, that is the one that the direction names. */
export function middleEnd() {
  return [chosen.direction, 1 - chosen.direction].find((end) => chosen.ends[end].length) ?? null;
}

/** Return the codes of a range, which may go over the end of an axis to its beginning. */
function codesIn(axis, { level, first, last }) {
  const codes = [...data.axes[axis].levels[level - 1].codes.keys()];
  return first <= last ? codes.slice(first, last + 1) : [...codes.slice(0, last + 1), ...codes.slice(first, codes.length - data.axes[axis].apart)];
}

/** Return the codes of one level to which an axis is restricted; null where it is not. */
export function onlyOf(axis) {
  const ranges = chosen.only.get(axis);
  if (!ranges) return null;
  const level = Math.max(...ranges.map((range) => range.level));
  const codes = ranges.flatMap((range) => within(axis, range.level, codesIn(axis, range), level));
  return { level, codes: [...new Set(codes)] };
}

/** Return what is asked about areas of both ends, empty for anywhere, with the codes to which everything is restricted; null where an end has no such area. */
export function setsFor(from, to) {
  const sets = data.axes.map((_, axis) => {
    const only = onlyOf(axis);
    return only && setOf(axis, only.level, only.codes);
  });
  for (const [end, areas] of [from, to].entries()) {
    if (!areas.length) continue;
    if (areas.some((area) => area.at[end] === null)) return null;
    const level = depthOf(areas);
    const own = areas.flatMap((area) => within(axisOf(end), area.depth, [area.at[end]], level));
    sets[axisOf(end)] = areas.length > 1 ? setOf(axisOf(end), level, [...new Set(own)]) : [{ level, areas: own }];
  }
  return sets;
}

/** Return areas of a level of an axis as a set; a single one as it is. */
function setOf(axis, level, areas) {
  return areas.length > 1 ? fewest(axis, level, areas) : [{ level, areas }];
}

/** Return the depth of the finest of some areas. */
export function depthOf(areas) {
  return Math.max(...areas.map((area) => area.depth));
}

/** Return texts as a list in words. */
function listed(texts) {
  return texts.length > 1 ? `${texts.slice(0, -1).join(", ")} and ${texts.at(-1)}` : texts.join("");
}

/** Return what some areas are called together. */
export function titleOf(areas) {
  return listed(areas.map((area) => area.title));
}

/** Return what an attribute of a level is called: its axis, with the level where that has several. */
export function attributeTitle({ axis, level }) {
  const of = data.axes[axis];
  const { name, called: word, codes } = of.levels[level - 1];
  if (name.startsWith(`${of.name}_`)) return `${of.name} in ${codes.length} groups`;
  return of.levels.length === 1 || name === of.name ? of.name : `${of.name} by ${word}`;
}

/** Return each restriction in words, such as "mode bus and walk" and "hour 7 to 9", without those of some attributes. */
function restrictions(without) {
  return attributes.filter((axis) => chosen.only.has(axis) && !without.some((one) => one.axis === axis)).map((axis) => {
    const ofLevels = [...Map.groupBy(chosen.only.get(axis), ({ level }) => level)].map(([level, ranges]) => {
      const labels = ranges.map(({ first, last }) => [...new Set([first, last])].map((code) => called(data.axes[axis], level, code)).join(" to "));
      return `${attributeTitle({ axis, level })} ${listed(labels)}`;
    });
    return listed(ofLevels);
  });
}

/** Return to what the page is restricted, as it ends a title; empty where it is not. */
export function onlyTitle(without = []) {
  return restrictions(without).map((text) => `, ${text}`).join("");
}

/** Return to what the page is restricted, as it ends a sentence; empty where it is not. */
export function onlyWords(without = []) {
  const texts = restrictions(without);
  return texts.length ? ` with ${listed(texts)}` : "";
}

/** Return a text as a shell takes it. */
function quoted(text) {
  return /^[\w.,=+:@%/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return an area as `trellis query` takes it: its code, with its level where there are several, and the codes above it where others have it too. */
function codeOf(axis, level, area) {
  const { levels } = data.axes[axis];
  const { name, codes, parent } = levels[level - 1];
  const above = level > 1 && codes.indexOf(codes[area]) !== codes.lastIndexOf(codes[area]) ? `${codeOf(axis, level - 1, parent[area])},` : "";
  return levels.length > 1 || codes[area] === "all" ? `${above}${name}=${codes[area]}` : codes[area];
}

/** Return the areas of a set as `trellis query` adds them up; those of the finest level of an ordered axis as ranges. */
function sumOfCodes(axis, set) {
  const { levels, ordered, role } = data.axes[axis];
  const finest = Math.max(...set.map(({ level }) => level));
  if (!(ordered || role === "size") || finest < levels.length) return set.flatMap(({ level, areas }) => areas.map((area) => codeOf(axis, level, area))).join("+");
  const inside = set.flatMap(({ level, areas }) => within(axis, level, areas, finest)).toSorted((one, other) => one - other);
  const isApart = (area) => area >= levels[finest - 1].codes.length - data.axes[axis].apart;
  const runs = Object.values(Object.groupBy(inside, (area, place) => (isApart(area) ? area + inside.length : area - place)));
  return runs.map((run) => (run.length > 1 ? [run[0], run.at(-1)].map((area) => levels[finest - 1].codes[area]).join("..") : codeOf(axis, finest, run[0]))).join("+");
}

/** Return the command that answers a question about sets of areas, or also which share of all areas of an axis they have, from the folder of this page. */
export function commandOf(sets, whole = null) {
  const folder = location.protocol === "file:" ? decodeURIComponent(location.pathname).replace(/\/[^/]*$/, "") : data.release.id;
  const options = sets.flatMap((set, axis) => (set ? [`--${data.axes[axis].name}`, sumOfCodes(axis, set)] : []));
  if (whole !== null) options.push("--share-of", `${data.axes[whole].name}=all`);
  return ["trellis query", folder, ...options].map((text, place) => (place ? quoted(text) : text)).join(" ");
}
