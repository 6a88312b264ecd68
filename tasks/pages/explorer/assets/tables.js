// The tables of the page, and what they answer about areas of each axis: everything, one area, or several.

import { data } from "./base.js";
import { normalQuantile, quantileOfSum } from "./noise.js";
import { deviationOf } from "./variances.js";

const { sums } = data;
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

/** Return what a table answers about a cell; `ofRow`: whether it was seen in a list before, for whose rows together ranges are promised. */
function answerOfCell(table, areas, ofRow) {
  const { exact, rows } = table;
  const place = placeOf(table, areas);
  if (place < 0) {
    const high = table.absent_high;
    return { count: 0, low: high === null ? null : 0, high, sd: null, signal: false, exact, table, lacksRow: true, why: sums.why ?? "the page has no row of this cell, and each has an interval of its own" };
  }
  const count = table.count[place];
  const answer = { count, low: table.low?.[place] ?? null, high: table.high?.[place] ?? null, sd: table.sd?.[place] ?? null, exact, table, why: sums.why ?? table.why };
  if (rows && count === 0) return { ...answer, signal: false, lacksRow: true };
  return { ...answer, signal: table.signal ? Boolean(table.signal[place]) : null, ofRows: ofRow && !exact && rows?.promise === "rows" };
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

/** Return the areas of a level that contain some areas of another or lie in them. */
function areasAt(axis, level, areas, to) {
  let found = areas;
  for (let at = level; at > to; at -= 1) found = at > 1 ? [...new Set(found.map((area) => data.axes[axis].levels[at - 1].parent[area]))] : [0];
  return to > level ? within(axis, level, found, to) : found;
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

const alpha = 1 - data.release.confidence;

/** Return the numbers of all cells of a box in its table. */
function numbersIn({ table, areas }) {
  return areas.reduce((before, own, axis) => before.flatMap((number) => own.map((area) => number * sizeOf(axis, table.at[axis]) + area)), [0]);
}

/** Return the places of cells among those of a table that were measured, of which the tables of rows alone have more. */
function measuredOf(table, numbers, places) {
  const { measured } = table;
  if (!measured.cells) return table.cells ? numbers : places;
  measured.places ??= new Map(measured.cells.map((cell, place) => [cell, place]));
  return numbers.map((number) => measured.places.get(number) ?? -1);
}

/** Return what is known of a box: its count, and of what was measured of it the sum, its draws, how many there could have been, and the most that it counts. */
function known(box) {
  const { count, measured, exact } = box.table;
  const numbers = numbersIn(box);
  const places = numbers.map((number) => placeOfNumber(box.table, number));
  const addOf = (of, values) => (typeof values === "number" ? values * of.length : of.reduce((sum, place) => sum + (values[place] ?? 0), 0));
  if (!measured) return { ...box, count: addOf(places, count), isExact: exact };
  const { part, noisy, draws, possible, most } = measured;
  const every = measuredOf(box.table, numbers, places);
  const add = (values) => addOf(every.filter((place) => place >= 0), values);
  const drawn = { noisy: add(noisy), draws: add(draws), most: most === null ? Infinity : add(most) };
  return { ...box, count: addOf(places, count), part, ...drawn, possible: possible && addOf(numbers, possible), isExact: exact };
}

/** Return an interval with its count inside; no true count is below 0. */
function around(count, low, high) {
  return [Math.min(Math.max(low, 0), Math.max(count, 0)), Math.max(high, 0, count)];
}

/** Return δ, what each level above a box takes of the probability, and what is left for its own level; `tasks/released/sums.py` has the rule. */
function tailsAt(level, miss) {
  const noisy = Object.values(sums.noises).filter((noise) => noise).length;
  const share = noisy > 1 ? miss / 2 / (noisy - 1) : 0;
  const above = [...Array(level).keys()].filter((at) => sums.noises[at]).length;
  return [share, Math.log((miss - share * above) / 2)];
}

/** Return what is measured of a level above a box, each cell with its area of each axis. */
function cellsAbove(level) {
  const above = sums.above[level];
  if (above && !above.areas) {
    above.sizes = above.at.map((of, axis) => sizeOf(axis, of));
    above.areas = above.at.map(() => new Int32Array(above.noisy.length));
    for (let cell = 0; cell < above.noisy.length; cell += 1) {
      let number = above.cells[cell];
      for (let axis = above.at.length - 1; axis >= 0; axis -= 1) {
        above.areas[axis][cell] = number % above.sizes[axis];
        number = Math.floor(number / above.sizes[axis]);
      }
    }
  }
  return above;
}

/** Return the most that the measured cells of a level above a box count together, and the dropped ones among them; null where this page does not hold them. */
function mostAbove(level, { table, areas }, share) {
  const above = cellsAbove(level);
  if (!above) return null;
  const inside = above.at.map((of, axis) => {
    const marks = new Uint8Array(above.sizes[axis]);
    for (const area of areasAt(axis, table.at[axis], areas[axis], of)) marks[area] = 1;
    return marks;
  });
  const possible = inside.reduce((product, marks) => product * marks.reduce((sum, mark) => sum + mark, 0), 1);
  const met = [...above.noisy.keys()].filter((cell) => inside.every((marks, axis) => marks[above.areas[axis][cell]]));
  const add = (of) => met.reduce((sum, cell) => sum + of(cell), 0);
  const noise = sums.noises[level];
  const isSum = noise && possible > 1 && met.length > 0;
  const margin = quantileOfSum([[noise, 1]], Math.log(isSum ? share / 2 : share) - Math.log(possible));
  const cap = (cell) => Math.max(above.noisy[cell] + margin, 0);
  const most = [add(cap), add((cell) => (above.children[cell] ? 0 : cap(cell)))];
  if (!isSum) return most;
  const logTail = Math.log(share / 4);
  const [own, below] = [[noise, met.length], [sums.noises[level + 1], add((cell) => above.children[cell])]].map((draws) => quantileOfSum([draws], logTail));
  if (own === null || below === null) return null;
  const together = add((cell) => above.noisy[cell]) + own;
  const stayed = add((cell) => above.below[cell]) - below;
  return [Math.min(most[0], Math.max(together, 0)), Math.min(most[1], Math.max(together - Math.max(stayed, 0), 0))];
}

/** Return the interval of a box in a tree that was walked; null where this page cannot tell. */
function intervalBelow(box, miss) {
  if (box.isExact) return [box.count, box.count];
  if (box.part === undefined) return null;
  const [share, logTail] = tailsAt(box.part, miss);
  const z = quantileOfSum([[sums.noises[box.part], box.draws]], logTail);
  if (z === null) return null;
  let [least, dropped] = [Infinity, 0];
  for (let level = 0; level < box.part; level += 1) {
    const most = mostAbove(level, box, share);
    if (!most) return null;
    least = Math.min(least, dropped + most[0]);
    dropped += most[1];
  }
  return around(box.count, box.noisy - z, Math.min(Math.max(box.noisy + z, 0) + dropped, least));
}

/** Return the interval of boxes all of whose noise is independent; null where this page cannot tell. */
function intervalOfAll(boxes, miss) {
  const count = boxes.reduce((sum, of) => sum + of.count, 0);
  if (boxes.every((of) => of.isExact)) return [count, count];
  if (boxes.some((of) => of.part === undefined)) return null;
  const draws = boxes.map((of) => [sums.noises[of.part], of.draws]);
  const ofLeaves = [[draws[0][0], listed(draws.reduce((sum, [, many]) => sum + many, 0))]];
  const z = quantileOfSum(sums.leaves ? ofLeaves : draws, Math.log(miss / 2));
  const [noisy, ofList] = [boxes.reduce((sum, of) => sum + of.noisy, 0), boxes.reduce((sum, of) => sum + of.most, 0)];
  const most = sums.leaves ? Infinity : Math.min(ofList, sums.total ?? Infinity);
  return z === null ? null : around(count, noisy - z, Math.max(Math.min(Math.max(noisy + z, 0), most), count));
}

/** Return the number of draws for which those of many leaves stand; `sum_margins` in `tasks/uncertainty/intervals.py` has the rule. */
function listed(draws) {
  return draws <= 100 ? draws : Math.ceil(Math.exp(Math.ceil(Math.log(draws) / 0.02) * 0.02)) + 1;
}

/** Return the ways in which the page has what sets are made of, with the coarsest area that is the same in place of an only child. */
function waysOfAlike(sets) {
  return waysOf(sets.map((set, axis) => (set?.length === 1 && set[0].areas?.length === 1 ? fewest(axis, set[0].level, set[0].areas) : set)));
}

/** Return what is known of the boxes of the best way, given the probability with which their interval may miss. */
function bestOf(ways, miss) {
  const found = ways.map((boxes) => boxes.map((box) => ofRange(known(box))));
  // where a tree was walked, the cells that are possible decide how far areas are taken apart
  const reach = (boxes) => boxes.reduce((sum, { part, possible }) => sum + (quantileOfSum([[sums.noises[part], possible]], tailsAt(part, miss / boxes.length)[1]) ?? Infinity), 0);
  const best = sums.above && found.filter((boxes) => boxes.every((of) => of.part !== undefined)).toSorted((one, two) => reach(one) - reach(two))[0];
  return best || found[0];
}

/** Return what is known of the boxes that sets are made of; null where the page does not hold them. */
export function boxesIn(sets) {
  const ways = waysOfAlike(sets);
  return ways.length ? bestOf(ways, alpha) : null;
}

/** Return the sum over sets of several areas, as `trellis query` adds them up, with an interval that may miss with a probability; null where the page does not hold it. */
export function sumOf(sets, miss = alpha) {
  const ways = waysOfAlike(sets);
  if (!ways.length) return null;
  const range = miss === alpha && rangeIn(ways.at(-1));
  if (range) return range;
  const boxes = bestOf(ways, miss);
  const count = boxes.reduce((sum, of) => sum + of.count, 0);
  const answer = { count, sd: null, signal: null, exact: boxes.every((of) => of.isExact), low: null, high: null };
  if (sums.least_squares) return unbiased(answer, sets);
  const ends = sums.above ? boxes.map((of) => intervalBelow(of, miss / boxes.length)) : [intervalOfAll(boxes, miss)];
  if (ends.includes(null)) return { ...answer, why: whyNone(boxes) };
  const [low, high] = [0, 1].map((end) => ends.reduce((sum, of) => sum + of[end], 0));
  const note = ends.length > 1 && !answer.exact ? `It is a sum of ${ends.length} parts, whose noise is not added up: each interval misses with 1/${ends.length} of the probability.` : "";
  return { ...answer, low, high, note };
}

/** Return why this page states no interval of the sum of boxes. */
function whyNone(boxes) {
  const isLimited = sums.above && Math.max(...boxes.map((of) => of.part ?? 0)) > sums.above.length;
  const rest = isLimited ? "measured cells of levels above limit it, and this page has no room for them" : "so many draws of Laplace noise take a page too long to add up";
  return sums.why ?? boxes.map((of) => of.table.why).find(Boolean) ?? rest;
}

/** Return the answer about sets with an unbiased count: its standard deviation, and the interval by a normal law. */
function unbiased(answer, sets) {
  const sd = deviationOf(sets);
  const margin = sd ? Math.ceil(normalQuantile(Math.log(alpha / 2)) * sd) + sums.least_squares.slack : 0;
  const [low, high] = around(answer.count, answer.count - margin, Math.min(Math.max(answer.count + margin, 0), sums.total ?? Infinity));
  return { ...answer, sd, low, high };
}

/** Return which range a box has on the axis of whose areas its table has all of them, and its place there for areas of the others; null where it has none. */
function rangeOf({ table, areas }) {
  if (!table.ranges) return null;
  const own = areas[table.ranges.axis];
  const [first, last] = [own[0], own.at(-1)];
  if (last - first !== own.length - 1) return null;
  const codes = sizeOf(table.ranges.axis, table.at[table.ranges.axis]);
  return (other) => (other * codes * (codes + 1)) / 2 + first * codes - (first * (first - 1)) / 2 + last - first;
}

/** Return what is known of a box with a range of sizes, with its draws, of which those between two sizes cancel out. */
function ofRange(box) {
  const { table, areas } = box;
  const place = rangeOf(box);
  if (!place) return table.ranges ? { ...box, part: undefined } : box;
  const { axis, draws } = table.ranges;
  const others = areas.reduce((before, own, at) => (at === axis ? before : before.flatMap((number) => own.map((area) => number * sizeOf(at, table.at[at]) + area))), [0]);
  return { ...box, draws: draws && others.reduce((sum, other) => sum + draws[place(other)], 0), most: box.most / areas[axis].length };
}

/** Return the answer about a range of sizes, where the page has all of them; null for any other box. */
function rangeIn([box, ...further]) {
  const { table, areas } = box;
  const place = further.length ? null : rangeOf(box);
  if (!place || !areas.every((own, at) => at === table.ranges.axis || own.length === 1)) return null;
  const { axis, low, high } = table.ranges;
  const other = areas.reduce((before, own, at) => (at === axis ? before : before * sizeOf(at, table.at[at]) + own[0]), 0);
  const { count, isExact } = known(box);
  return { count, low: low[place(other)], high: high[place(other)], sd: null, signal: null, exact: isExact };
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
