// The areas of both ends of trips.

import { NO_NAME, data, nameOf } from "./base.js";

export const FROM = 0;
export const TO = 1;

/** Return the axis of an end. */
export function axisOf(end) {
  return data.ends[end];
}

/** Return all areas, coarse to fine, each once: `at` has its number at each end, or null where the end has no such area. */
function areasOfBothEnds() {
  const byKey = new Map();
  data.ends.forEach((number, end) => {
    let above = [];
    data.axes[number].levels.forEach((of, place) => {
      const own = of.codes.map((code, at) => {
        const parent = place ? above[of.parent[at]] : null;
        const path = parent ? [...parent.path, code] : [code];
        const label = nameOf(of, at) ?? code;
        const key = [of.name, ...path].join("\u0000");
        const same = `${key}\u0000${label}`; // ends with codebooks of their own may use a code for two areas
        if (!byKey.has(same)) {
          byKey.set(same, { key, path, parent, at: [null, null], depth: place + 1, levelName: of.called, label, code });
        }
        const area = byKey.get(same);
        area.at[end] = at;
        return area;
      });
      above = own;
    });
  });
  const every = [...byKey.values()].toSorted((one, other) => one.depth - other.depth);
  entitle(every);
  return every;
}

/** Give every area a title, no two the same: its label, or with it its level and code, where it is, and at which end of trips. */
function entitle(every) {
  const code = (area) => (area.label === area.code ? "" : ` ${area.code}`);
  const end = (area) => (area.at[TO] === null ? ", where trips begin" : area.at[FROM] === null ? ", where trips end" : "");
  const ways = [
    (area) => area.label,
    (area) => `${area.label} (${area.levelName}${code(area)})`,
    (area) => `${area.label} (${area.levelName}${code(area)}${area.parent ? `, in ${area.parent.title}` : ""})`,
    (area) => `${area.label} (${area.levelName}${code(area)}${area.parent ? `, in ${area.parent.title}` : ""}${end(area)})`,
  ];
  let left = every;
  for (const way of ways) {
    for (const area of left) area.title = way(area); // parents before their children
    const named = Map.groupBy(left, (area) => area.title);
    left = left.filter((area) => named.get(area.title).length > 1 || area.title === NO_NAME);
  }
}

export const areas = data.ends ? areasOfBothEnds() : [];
const byPlace = new Map(areas.flatMap((area) => area.at.map((at, end) => [`${end}:${area.depth}:${at}`, area])));

/** Return an area by its number at a level of an end. */
export function areaAt(end, depth, at) {
  return byPlace.get(`${end}:${depth}:${at}`);
}

/** Return the areas that an address names. */
export function areasNamed(text) {
  return areas.filter((area) => text === addressOf([area]) || text?.split("|").includes(addressOf([area])));
}

/** Return how an address names areas. */
export function addressOf(chosen) {
  return chosen.map((area) => area.key.replaceAll("\u0000", "/")).join("|");
}

/** Tables that a list of pairs may be of: those of the release's levels, and of ends that are equally deep. */
export const pairsListed = data.tables.flatMap((table) => {
  const [one, other] = (data.ends ?? []).map((axis) => table.at[axis]);
  const arePairs = one && other && table.at.every((level, axis) => !level || data.ends.includes(axis)) && table.count.length;
  return arePairs && (table.rows || one === other) ? [{ table, at: [one, other], name: String(table.rows?.level ?? `${one}-${other}`) }] : [];
});

/** Return whether trips between two areas stay within the coarser one. */
export function isWithin(from, to) {
  const depth = Math.min(from.depth, to.depth);
  const [one, two] = [from, to].map((area) => {
    let above = area;
    while (above.depth > depth) above = above.parent;
    return above;
  });
  return data.twins[depth - 1]?.[one.at[FROM]] === two.at[TO];
}
