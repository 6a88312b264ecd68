// The tables of the page, and what they answer about areas of each axis: everything, one area, or several.

import { data } from "./base.js";

const tables = new Map(data.tables.map((table) => [table.at.join(), table]));

/** Return the table with some axis levels; null where the page has none. */
export function tableAt(at) {
  return tables.get(at.join()) ?? null;
}

/** Return how many areas a level of an axis has; 1 for everything. */
export function sizeOf(axis, level) {
  return level ? data.axes[axis].levels[level - 1].codes.length : 1;
}

/** Return the finest level of an axis that a table has. */
export function finestOf(axis) {
  return Math.max(...data.tables.map((table) => table.at[axis]));
}

/** Return the place of a cell in the columns of a table by its number, -1 where it is not shown. */
function placeOfNumber(table, number) {
  if (!table.cells) return number;
  table.places ??= new Map(table.cells.map((cell, place) => [cell, place]));
  return table.places.get(number) ?? -1;
}

/** Return the place of a cell in the columns of a table by its areas, -1 where it is not shown. */
function placeOf(table, areas) {
  return placeOfNumber(table, areas.reduce((before, area, axis) => before * sizeOf(axis, table.at[axis]) + area, 0));
}

/** Return the areas of a place in the columns of a table, one of each axis. */
function areasOf(table, place) {
  let number = table.cells ? table.cells[place] : place;
  const areas = [];
  for (let axis = table.at.length - 1; axis >= 0; axis -= 1) {
    const size = sizeOf(axis, table.at[axis]);
    areas[axis] = number % size;
    number = Math.floor(number / size);
  }
  return areas;
}

/** Return the places of a table's rows, which count something. */
export function rowsOf(table) {
  table.rowPlaces ??= [...table.count.keys()].filter((place) => table.count[place] !== 0);
  return table.rowPlaces;
}

/** Return what a table answers about a cell. `ofRow` asks for the interval of its row in the list of its level, if that has another promise. */
function answerOfCell(table, areas, ofRow) {
  const { exact, rows } = table;
  const place = placeOf(table, areas);
  if (place < 0) {
    const high = table.absent_high;
    return { count: 0, low: high === null ? null : 0, high, sd: null, signal: false, exact, table, lacksRow: true };
  }
  const count = table.count[place];
  const answer = { count, low: table.low?.[place] ?? null, high: table.high?.[place] ?? null, sd: table.sd?.[place] ?? null, exact, table };
  if (rows && count === 0) return { ...answer, signal: false, lacksRow: true };
  const signal = table.signal ? Boolean(table.signal[place]) : null;
  if (rows?.promise !== "rows" || !rows.low || exact || !(ofRow || answer.low === null)) return { ...answer, signal };
  table.ranks ??= new Map(rowsOf(table).map((own, rank) => [own, rank]));
  const rank = table.ranks.get(place);
  return { ...answer, low: rows.low[rank] ?? null, high: rows.high[rank] ?? null, signal, ofRows: true };
}

/** Return every choice of one of each list, the last one changing fastest. */
function productOf(lists) {
  return lists.reduce((before, list) => before.flatMap((one) => list.map((other) => [...one, other])), [[]]);
}

/** Return the areas of a level as the fewest areas of any level, fine to coarse, with the areas of each; null where they are everything. */
export function fewest(axis, level, areas) {
  const set = [];
  let left = areas.toSorted((one, other) => one - other);
  for (let at = level; at && left.length; at -= 1) {
    const { parent, codes } = data.axes[axis].levels[at - 1];
    const above = (area) => (at > 1 ? parent[area] : 0);
    const many = new Map();
    for (const area of codes.keys()) many.set(above(area), (many.get(above(area)) ?? 0) + 1);
    const held = Map.groupBy(left, above);
    const isWhole = (parentOf) => held.get(parentOf).length === many.get(parentOf);
    const rest = left.filter((area) => !isWhole(above(area)));
    if (rest.length) set.push({ level: at, areas: rest });
    left = [...held.keys()].filter(isWhole);
    if (at === 1 && left.length) return null;
  }
  return set;
}

/** Return areas of a level as those of a finer one. */
export function within(axis, level, areas, finer) {
  let found = areas;
  for (let at = level + 1; at <= finer; at += 1) {
    const chosen = new Set(found);
    found = [...data.axes[axis].levels[at - 1].codes.keys()].filter((area) => (at > 1 ? chosen.has(data.axes[axis].levels[at - 1].parent[area]) : true));
  }
  return found;
}

/** Return the box of a set of each axis, with what is coarser than some levels taken apart; without a table where the page has none. */
function boxesOf(sets, floors) {
  const sides = sets.map((set, axis) => {
    if (!set) return [{ level: 0, areas: [0] }];
    const coarse = set.filter((piece) => piece.level <= floors[axis]);
    const areas = coarse.flatMap((piece) => piece.areas && within(axis, piece.level, piece.areas, floors[axis]));
    return [{ level: floors[axis], areas: areas.includes(null) ? null : areas.toSorted((one, other) => one - other) }, ...set.filter((piece) => piece.level > floors[axis])];
  });
  return productOf(sides).map((pieces) => ({ table: tableAt(pieces.map((piece) => piece.level)), areas: pieces.map((piece) => piece.areas) }));
}

/**
 * Return the ways in which the page has boxes that sets are made of, a table with areas of each axis: as they are; then with all areas taken
 * apart to those of one level. If it has none, those of the coarsest finer levels that it has.
 */
function waysOf(sets) {
  const levels = sets.map((set) => (set ?? [{ level: 0 }]).map((piece) => piece.level));
  const finest = levels.map((of) => Math.max(...of));
  const own = [levels.map((of) => Math.min(...of)), finest].map((floors) => boxesOf(sets, floors)).filter((boxes) => boxes.every((box) => box.table));
  if (own.length) return own;
  const finer = productOf(finest.map((least, axis) => (least ? data.axes[axis].levels.map((_, place) => place + 1).filter((level) => level >= least) : [0])));
  const there = finer.filter((at) => tableAt(at) && sets.every((set, axis) => set?.[0].areas !== null || at[axis] === set[0].level));
  const [first] = there.toSorted((one, other) => tableAt(one).count.length - tableAt(other).count.length);
  return first ? [boxesOf(sets, first)] : [];
}

/**
 * Return the answer about areas of each axis; null where the page does not hold it.
 *
 * @param {({level: number, areas: number[]}[]|null)[]} sets per axis the areas by their levels, of which none contains another; null for everything
 * @param {boolean} ofRow whether their count was seen before, in a list
 */
export function answerTo(sets, ofRow = false) {
  const isOne = sets.every((set) => !set || (set.length === 1 && set[0].areas.length === 1));
  const table = isOne ? tableAt(sets.map((set) => set?.[0].level ?? 0)) : null;
  if (!table) return sumOf(sets);
  return answerOfCell(table, sets.map((set) => set?.[0].areas[0] ?? 0), ofRow);
}

const NOT_HERE = "This page states no interval of this sum. `trellis query` may.";

/** Return the places of all cells of a box in its table. */
function placesIn({ table, areas }) {
  return areas.reduce((before, own, axis) => before.flatMap((number) => own.map((area) => number * sizeOf(axis, table.at[axis]) + area)), [0]).map((number) => placeOfNumber(table, number));
}

/**
 * Return the margin of the noise of some draws, where some sums share the probability; null where it is not listed. More draws and sums stand
 * for fewer, unless it is about as much that is asked for.
 */
function marginOf(part, draws, sums, about = false) {
  const { draws: listed, z } = data.sums.margins[part];
  const share = data.sums.shares.findIndex((many) => many >= sums);
  const place = listed.findIndex((many) => many >= draws);
  if (draws === 0) return 0;
  if (share < 0 || place < 0) return null;
  return about ? z[share][place] * Math.sqrt(draws / listed[place]) : z[share][place];
}

/** Return what is known of a box: its count, and of what was measured of it the sum, its draws, and the most that dropped cells above it count. */
function known(box) {
  const { table } = box;
  const places = placesIn(box);
  const add = (values) => places.reduce((sum, place) => sum + (values[place] ?? 0), 0);
  const count = add(table.count);
  if (!table.measured) return { count, isExact: table.exact };
  const { part, noisy, draws, possible, under } = table.measured;
  const many = (of) => (typeof of === "number" ? of * places.length : add(of));
  const above = new Set(under ? places.flatMap((place) => data.sums.under[under[place]]) : []);
  const cap = [...above].reduce((sum, cell) => sum + data.sums.dropped[cell], 0);
  return { count, part, noisy: add(noisy), draws: draws === null ? places.filter((place) => !under?.[place]).length : many(draws), possible: possible && many(possible), cap, isExact: table.exact };
}

/** Return the interval of a box with its count inside, where some boxes share the probability; null where none is known. */
function intervalOf({ count, part, noisy, draws, cap, isExact }, sums) {
  if (isExact) return [count, count];
  const z = part === undefined ? null : marginOf(part, draws, sums);
  return z === null ? null : [Math.min(Math.max(noisy - z, 0), Math.max(count, 0)), Math.max(Math.max(noisy + z, 0) + cap, count)]; // no true count is below 0
}

/** Return the sum over sets of several areas, as `trellis query` adds them up; null where the page does not hold it. */
function sumOf(sets) {
  const ways = waysOf(sets);
  if (!ways.length) return null;
  const range = rangeIn(ways.at(-1));
  if (range) return range;
  const found = ways.map((boxes) => boxes.map(known));
  // where levels are measured one below the other, those that are possible decide how far areas are taken apart
  const reach = (boxes) => boxes.reduce((sum, of) => sum + (marginOf(of.part, of.possible, boxes.length, true) ?? Infinity), 0);
  const best = data.sums.walked ? found.filter((boxes) => boxes.every((of) => of.part !== undefined)).toSorted((one, two) => reach(one) - reach(two))[0] : found[0];
  const boxes = best ?? found[0];
  const count = boxes.reduce((sum, of) => sum + of.count, 0);
  const answer = { count, sd: null, signal: null, exact: boxes.every((of) => of.isExact), low: null, high: null, note: NOT_HERE };
  const ends = (data.sums.walked ? boxes : addedUp(boxes)).map((of, _, all) => intervalOf(of, all.length));
  if (ends.some((of) => !of)) return answer;
  const [low, high] = [0, 1].map((end) => ends.reduce((sum, of) => sum + of[end], 0));
  return { ...answer, note: "", low: Math.min(low, Math.max(count, 0)), high: Math.max(Math.min(high, data.sums.total ?? high), count) };
}

/** Return boxes with all that was measured in one place as one, since its noise is independent. */
function addedUp(boxes) {
  const parts = Map.groupBy(boxes, (of) => of.part);
  return [...parts.values()].map((of) => of.reduce((one, other) => ({ ...one, count: one.count + other.count, noisy: one.noisy + other.noisy, draws: one.draws + other.draws, cap: one.cap + other.cap, isExact: one.isExact && other.isExact })));
}

/** Return the answer about a range of one axis, where the page has all of them; null for any other box. */
function rangeIn([{ table, areas }, ...further]) {
  const { axis, low, high } = table.ranges ?? {};
  const isOne = !further.length && table.ranges && areas.every((own, at) => at === axis || own.length === 1);
  if (!isOne || areas[axis].at(-1) - areas[axis][0] !== areas[axis].length - 1) return null;
  const codes = sizeOf(axis, table.at[axis]);
  const [first, last] = [areas[axis][0], areas[axis].at(-1)];
  const other = areas.reduce((before, own, at) => (at === axis ? before : before * sizeOf(at, table.at[at]) + own[0]), 0);
  const place = (other * codes * (codes + 1)) / 2 + first * codes - (first * (first - 1)) / 2 + last - first;
  const { count, isExact } = known({ table, areas });
  return { count, low: low[place], high: high[place], sd: null, signal: null, exact: isExact };
}

/** Return sets with all areas of some axes with their levels. */
function withAll(kept, sets) {
  const open = sets.slice();
  for (const [axis, level] of kept) open[axis] = [{ level, areas: null }];
  return open;
}

/**
 * Return the rows of some axes, where the other axes have the areas of sets: the areas of each with the answer. They are null where the page does
 * not hold them.
 *
 * @param {number[][]} kept axes with their levels
 * @param {boolean} every whether those that count 0 are among them, in the order of their areas
 */
export function rowsBy(kept, sets, every = false) {
  const open = withAll(kept, sets);
  const [boxes] = waysOf(open);
  if (!boxes) return null;
  const found = new Map();
  if (every) {
    for (const areas of productOf(kept.map(([axis, level]) => [...Array(sizeOf(axis, level)).keys()]))) found.set(areas.join(), areas);
  }
  for (const { table, areas: inside } of every ? [] : boxes) {
    const chosen = inside.map((own) => own && new Set(own));
    for (const place of rowsOf(table)) {
      const areas = areasOf(table, place);
      if (chosen.some((own, axis) => own && !own.has(areas[axis]))) continue;
      const own = kept.map(([axis]) => areas[axis]);
      found.set(own.join(), own);
    }
  }
  return [...found.values()].map((areas) => {
    const asked = open.slice();
    kept.forEach(([axis, level], place) => {
      asked[axis] = [{ level, areas: [areas[place]] }];
    });
    return { areas, ...answerTo(asked, true) };
  });
}

/** Return whether the page holds the rows of some axes; arguments as in `rowsBy`. */
export function hasRows(kept, sets) {
  return waysOf(withAll(kept, sets)).length > 0;
}

/** Return whether the number of an answer is certainly no noise alone: it stands out, and its range does not reach 0. */
export function isClear({ exact, signal, low }) {
  return exact || (signal !== false && (low ?? 1) > 0);
}

/** Return how a picture shows an answer. */
export function kindOf(answer) {
  if (answer.count === 0) return "none";
  return answer.count > 0 && isClear(answer) ? "signal" : "noise";
}
