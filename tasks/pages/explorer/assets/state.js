// What is chosen on the page, and what is asked with it. Other scripts fill `actions`, so that lists and pictures can choose too.

import { called, data } from "./base.js";
import { FROM, axisOf } from "./areas.js";
import { fewest, within } from "./tables.js";

export const hasMap = Boolean(data.ends) && Object.keys(data.shapes ?? {}).length > 0;

export const chosen = {
  ends: [[], []], // the areas where trips begin, and where they end; empty for anywhere
  several: false, // whether a further area joins those that are chosen
  picked: false, // whether they were picked from a list or a picture that shows counts
  direction: FROM, // whether the map and the list are about trips from the areas in their middle, or to them
  pairs: null, // of `pairsListed`, what the list shows
  within: false, // whether trips that stay in an area are listed
  zoom: 1, // of the map
  only: new Map(), // by axis, the codes to which everything is restricted: their level, the first and the last of them
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

/** Return what is asked about areas of both ends, empty for anywhere, with the codes to which everything is restricted; null where an end has no such area. */
export function setsFor(from, to) {
  const sets = data.axes.map((_, axis) => {
    const only = chosen.only.get(axis);
    if (!only) return null;
    const codes = [...Array(only.last - only.first + 1).keys()].map((place) => only.first + place);
    return setOf(axis, only.level, codes);
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

/** Return each restriction in words, such as "mode bus" and "hour 7 to 9", without those of some attributes. */
function restrictions(without) {
  return attributes.filter((axis) => chosen.only.has(axis) && !without.some((one) => one.axis === axis)).map((axis) => {
    const { level, first, last } = chosen.only.get(axis);
    const range = [first, last].map((code) => called(data.axes[axis], level, code));
    return `${attributeTitle({ axis, level })} ${first === last ? range[0] : range.join(" to ")}`;
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
