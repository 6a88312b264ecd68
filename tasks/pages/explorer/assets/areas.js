// The areas of trips, and what the page says of them: the answers about pairs and totals, as `trellis query` gives them.

import { NO_NAME, data, nameOf } from "./base.js";

export const FROM = 0;
export const TO = 1;

/** Return all areas, coarse to fine, each once: `at` has its number on each axis, or null where the axis has no such area. */
function areasOfBothEnds() {
  const byKey = new Map();
  data.axes.forEach((axis, end) => {
    let above = [];
    axis.levels.forEach((of, place) => {
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

export const areas = data.kind === "trips" ? areasOfBothEnds() : [];
const byPlace = new Map(areas.flatMap((area) => area.at.map((at, end) => [`${end}:${area.depth}:${at}`, area])));

/** Return an area by its number at a level of an end. */
export function areaAt(end, depth, at) {
  return byPlace.get(`${end}:${depth}:${at}`);
}

/** Return an area as an address names it; null if there is none. */
export function areaNamed(text) {
  return areas.find((area) => addressOf(area) === text) ?? null;
}

/** Return how an address names an area. */
export function addressOf(area) {
  return area.key.replaceAll("\u0000", "/");
}

/** Return the levels that list pairs of areas. */
export function levelsOfPairs() {
  return data.levels.filter((level) => level.at.every(Boolean) && level.count.length);
}

/** Return the levels that list the other ends of trips that begin (or end) in areas as coarse as this one. */
export function levelsFor(area, direction) {
  return data.levels.filter((level) => level.at[direction] === area.depth && level.at[1 - direction] > 0);
}

/** Return the level to begin with: that of the report's largest flows, as far as it lists pairs. */
export function firstLevel() {
  const levels = levelsOfPairs();
  return levels.find((level) => level.level === data.first) ?? levels.at(0);
}

/** Return the rows of a level that begin (or end) in an area, the largest first: their places in its columns. */
export function rowsFrom(level, direction, at) {
  level.rowsOf ??= [new Map(), new Map()];
  const known = level.rowsOf[direction];
  if (!known.size) {
    const ends = direction === FROM ? level.from : level.to;
    ends.forEach((end, row) => {
      if (!known.has(end)) known.set(end, []);
      known.get(end).push(row);
    });
    for (const rows of known.values()) rows.sort((one, two) => level.count[two] - level.count[one]);
  }
  return known.get(at) ?? [];
}

/** Return the answer about a pair of areas; null where the page does not hold it. A pair that was picked from a list has the interval of its row. */
export function answerOf(from, to, picked = false) {
  const [one, two] = [from.at[FROM], to.at[TO]];
  if (one === null || two === null) return null;
  const has = (part) => part.at[FROM] === from.depth && part.at[TO] === to.depth;
  const level = data.levels.find(has);
  const crossed = data.crossed.find(has);
  const place = one * sizeOf(TO, to.depth) + two;
  if (!level && !crossed) return null;
  if (!level) {
    const [low, high] = [crossed.low, crossed.high].map((ends) => (ends ? ends[place] : null));
    return { count: crossed.count[place], low, high, exact: crossed.exact };
  }
  const row = rowsFrom(level, FROM, one).find((candidate) => level.to[candidate] === two);
  if (row === undefined) return { ...withoutRow(level, one, two), level, signal: false, lacksRow: true };
  const asked = level.asked_low && level.asked_low[row] !== null && !(picked && level.promise === "rows");
  return {
    count: level.count[row],
    exact: level.exact,
    ofRows: !asked && level.promise === "rows" && !level.exact,
    low: asked ? level.asked_low[row] : (level.low?.[row] ?? null),
    high: asked ? level.asked_high[row] : (level.high?.[row] ?? null),
    signal: level.signal ? Boolean(level.signal[row]) : null,
    level,
    note: asked || !level.low || level.exact ? "" : ROWS_ONLY,
  };
}

const ROWS_ONLY =
  "The list and the map show counts before they are chosen, so the range is that of the list. If you had this question before you looked, type the areas above: their range is for that.";

function sizeOf(end, depth) {
  return data.axes[end].levels[depth - 1].codes.length;
}

/** Return the answer about a pair that has no row: a count of 0. */
function withoutRow(level, from, to) {
  const note = "The release has no row for this pair, which stands for a count of 0.";
  if (!level.absent) {
    const more = level.absent_high === null ? "" : ` Of no such pair does \`trellis query\` state more.`;
    return { count: 0, low: level.absent_high === null ? null : 0, high: level.absent_high, note: note + more };
  }
  const across = sizeOf(TO, level.at[TO]);
  const place = from * across + to;
  const before = level.from.reduce((sum, own, row) => sum + (own * across + level.to[row] < place), 0);
  const high = level.absent[place - before];
  return { count: 0, low: high === null ? null : 0, high, note };
}

/** Return the answer about all trips from an area, or to it; null where the page does not hold it. */
export function totalOf(area, direction) {
  const totals = data.totals.find((one) => one.axis === direction && one.level === area.depth);
  const at = area.at[direction];
  if (!totals || at === null || totals.count[at] === null) return null;
  return { count: totals.count[at], low: totals.low?.[at] ?? null, high: totals.high?.[at] ?? null, exact: totals.exact };
}

/** Return whether the number of a row is certainly no noise alone: it stands out, and its range does not reach 0. */
export function isClear(level, row) {
  const reachesZero = !level.exact && (level.low?.[row] ?? 1) <= 0;
  return (!level.signal || Boolean(level.signal[row])) && !reachesZero;
}

/** Return whether the trips of a row stay within the coarser one of its areas. */
export function isWithin(level, row) {
  level.rowsWithin ??= new Set(level.within);
  return level.rowsWithin.has(row);
}
