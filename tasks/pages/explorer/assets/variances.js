// The exact standard deviations of sums where every node was measured, as `tasks/unbiased/` has them: the formulas and their sources are there.

import { data } from "./base.js";

const { least_squares: known, total } = data.sums;

/** Per axis and level but the finest, the first child of each area, and the end. */
const children = (known?.fan_outs ?? []).map((levels) => {
  let areas = 1;
  return levels.map((fanOut) => {
    const first = new Int32Array(areas + 1);
    for (let area = 0; area < areas; area += 1) first[area + 1] = first[area] + (typeof fanOut === "number" ? fanOut : fanOut[area]);
    areas = first[areas];
    return first;
  });
});

/** Per axis and level, where each area begins among the finest ones, and the end. */
const begins = children.map((levels) => levels.reduceRight((below, first) => [first.map((child) => below[0][child]), ...below], [Int32Array.from({ length: levels.at(-1).at(-1) + 1 }, (_, area) => area)]));

/**
 * The trees, with what is refined below each level: the axis, the level that it has there, and whether it is for the last time. Nodes are told
 * apart by their area on each axis that a later step refines, or on which how precisely they are measured depends; others have 0.
 */
const trees = (known?.trees ?? []).map(({ steps, scales, portions = [] }) => {
  const own = steps.map((axis, level) => steps.slice(0, level).filter((of) => of === axis).length);
  const isUneven = (axis, from) => portions.slice(from).some((of) => of && of.shape[axis] > 1);
  const refined = steps.map((axis, level) => ({ axis, own: own[level], isLast: !steps.includes(axis, level + 1) && !isUneven(axis, level + 1) }));
  const open = scales.map((_, level) => [...new Set(steps.slice(level))].map((axis) => ({ axis, own: own[steps.indexOf(axis, level)] })));
  const apart = scales.map((_, level) => children.map((levels, axis) => steps.includes(axis, level) || isUneven(axis, level)));
  return { scales, portions, refined, open, apart, kept: new Map() };
});

/** Return how precisely a node is measured, as a part of the most precise nodes of its level. */
function portionOf({ portions }, level, areas) {
  const of = portions[level];
  return of ? of.values[of.shape.reduce((place, size, axis) => place * size + (size > 1 ? areas[axis] : 0), 0)] : 1;
}

/** Return the place of the last of some ascending numbers that is at most a number; 0 if none is. */
function placeIn(numbers, most) {
  let [low, high] = [0, numbers.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= most) low = middle;
    else high = middle;
  }
  return low;
}

/** Return a set of areas of an axis as ranges of finest areas that do not touch: where they begin, and where they end. */
function rangesOf(set, axis) {
  const ends = (set ?? [{ level: 0, areas: [0] }]).flatMap(({ level, areas }) => areas.map((area) => [begins[axis][level][area], begins[axis][level][area + 1]]));
  const [first, stop] = [[], []];
  for (const [begin, end] of ends.toSorted(([one], [other]) => one - other)) {
    if (begin === stop.at(-1)) stop.pop();
    else first.push(begin);
    stop.push(end);
  }
  return { first, stop };
}

/** Return the first finest area from one on that is inside. */
function nextInside({ first, stop }, from) {
  const at = placeIn(first, from);
  if (from < stop[at]) return Math.max(from, first[at]);
  return first[at + 1] ?? Infinity;
}

/** Return whether finest areas from one to another, which is left out, are all inside. */
function isInside({ first, stop }, begin, end) {
  const at = placeIn(first, begin);
  return first[at] <= begin && end <= stop[at];
}

/** Return how many finest areas from one to another, which is left out, are in two sets. */
function inBoth(one, other, begin, end) {
  let [at, place, many] = [placeIn(one.first, begin), placeIn(other.first, begin), 0];
  while (one.first[at] < end && other.first[place] < end) {
    many += Math.max(Math.min(one.stop[at], other.stop[place], end) - Math.max(one.first[at], other.first[place], begin), 0);
    if (one.stop[at] < other.stop[place]) at += 1;
    else place += 1;
  }
  return many;
}

/** Yield the children of a family that a set meets. */
function* metBy(set, places, first, stop) {
  for (let leaf = nextInside(set, places[first]); leaf < places[stop]; ) {
    const child = placeIn(places, leaf);
    yield child;
    leaf = nextInside(set, places[child + 1]);
  }
}

/** Return the children of a node: what is refined, where their finest areas begin, and the first of them, and the one after the last. */
function familyOf(tree, level, areas) {
  const { axis, own, isLast } = tree.refined[level];
  return { axis, isLast, places: begins[axis][own + 1], first: children[axis][own][areas[axis]], stop: children[axis][own][areas[axis] + 1] };
}

/** Return V of a node. */
function varianceOf(tree, level, areas) {
  const key = `${level} ${areas.map((area, axis) => (tree.apart[level][axis] ? area : 0))}`;
  if (!tree.kept.has(key)) {
    const scale = tree.scales[level];
    const precision = scale === null ? 0 : portionOf(tree, level, areas) / scale ** 2;
    tree.kept.set(key, 1 / (precision + (level < tree.refined.length ? 1 / togetherOf(tree, level, areas) : 0)));
  }
  return tree.kept.get(key);
}

/** Return the sum of V over the children of a node. */
function togetherOf(tree, level, areas) {
  const { axis, isLast, first, stop } = familyOf(tree, level, areas);
  if (isLast) return (stop - first) * varianceOf(tree, level + 1, areas.with(axis, 0));
  let sum = 0;
  for (let child = first; child < stop; child += 1) sum += varianceOf(tree, level + 1, areas.with(axis, child));
  return sum;
}

const WHOLE = { share: 1, runs: 1, begins: true, ends: true };

/** Return a sum over a set of each axis, and what becomes known of it. */
function partOf(sets) {
  return { sets: sets.map(rangesOf), kept: new Map() };
}

/**
 * Return what a sum has of a node that it meets: g, the share of a record of the node that least squares gives it; of how many runs of adjacent leaves
 * it is made there, and whether these begin with the first leaf of the node and end with the last one.
 */
function insideOf(tree, level, areas, { sets, kept }) {
  if (tree.open[level].every(({ axis, own }) => isInside(sets[axis], begins[axis][own][areas[axis]], begins[axis][own][areas[axis] + 1]))) return WHOLE;
  const key = `${tree.refined[0].axis} ${level} ${areas}`;
  if (kept.has(key)) return kept.get(key);
  const { axis, isLast, places, first, stop } = familyOf(tree, level, areas);
  const found = { share: 0, runs: 0, begins: false, ends: false };
  let [sum, last] = [0, -1];
  for (const child of metBy(sets[axis], places, first, stop)) {
    const node = areas.with(axis, isLast ? 0 : child);
    const inside = insideOf(tree, level + 1, node, { sets, kept });
    sum += varianceOf(tree, level + 1, node) * inside.share;
    found.runs += inside.runs - (found.ends && inside.begins && child === last + 1 ? 1 : 0);
    found.begins ||= inside.begins && child === first;
    found.ends = inside.ends;
    found.share = inside.share; // of an only child
    last = child;
  }
  if (stop - first > 1) found.share = sum && sum / togetherOf(tree, level, areas);
  found.ends &&= last === stop - 1;
  kept.set(key, found);
  return found;
}

/** Return the covariance of two sums given a node that both meet: the sum of V_c (g_c - g_v) (f_c - f_v) over all children c of nodes v. */
function betweenOf(tree, level, areas, one, other, kept) {
  const [own, further] = [one, other].map((part) => insideOf(tree, level, areas, part));
  if (own === WHOLE || further === WHOLE) return 0;
  const key = `${level} ${areas}`;
  if (kept.has(key)) return kept.get(key);
  const { axis, isLast, places, first, stop } = familyOf(tree, level, areas);
  const isOnly = stop - first === 1;
  let sum = isOnly ? 0 : -own.share * further.share * togetherOf(tree, level, areas);
  const add = (child, many) => {
    const node = areas.with(axis, child);
    const [share, otherShare] = [one, other].map((part) => insideOf(tree, level + 1, node, part).share);
    sum += many * (betweenOf(tree, level + 1, node, one, other, kept) + (isOnly ? 0 : varianceOf(tree, level + 1, node) * share * otherShare));
  };
  const [ranges, others] = [one.sets[axis], other.sets[axis]];
  const many = isLast ? inBoth(ranges, others, places[first], places[stop]) : 0;
  if (many) add(0, many);
  if (!isLast) for (const child of metBy(ranges, places, first, stop)) if (nextInside(others, places[child]) < places[child + 1]) add(child, 1);
  kept.set(key, sum);
  return sum;
}

/** Return the variance of a sum given what a tree counts in all, or its covariance with another sum, and what that adds to it. */
function momentsOf(tree, one, other = one) {
  const all = one.sets.map(() => 0);
  const shares = [one, other].map((part) => insideOf(tree, 0, all, part).share);
  return [betweenOf(tree, 0, all, one, other, new Map()), shares[0] * shares[1] * varianceOf(tree, 0, all)];
}

/** Return the covariances of a sum with the noisy counts of all cells of views, as the next row of a Cholesky factor, and what they leave of its variance. */
function besideViews(part, cells) {
  const sum = (numbers) => numbers.reduce((before, own) => before + own, 0);
  const row = [];
  for (const cell of cells) row.push((sum(momentsOf(trees[0], part, cell.part)) - sum(row.map((own, place) => own * cell.row[place]))) / cell.pivot);
  return { row, rest: sum(momentsOf(trees[0], part)) - sum(row.map((own) => own ** 2)) };
}

/** Return the cells of all views beside the tree with their rows of the factor, made once. */
function cellsBeside() {
  known.cells ??= known.views.reduce((cells, { at, scale }) => {
    const sides = at.map((level, axis) => (level ? [...Array(begins[axis][level].length - 1).keys()].map((area) => [{ level, areas: [area] }]) : [null]));
    for (const sets of sides.reduce((before, side) => before.flatMap((some) => side.map((set) => [...some, set])), [[]])) {
      const part = partOf(sets);
      const { row, rest } = besideViews(part, cells);
      cells.push({ part, row, pivot: Math.sqrt(rest + scale ** 2) });
    }
    return cells;
  }, []);
  return known.cells;
}

/** Return the rows of the Cholesky factor of the products of a strategy, made once. */
function factorOf(strategy) {
  strategy.factor ??= strategy.products.reduce((rows, products, at) => {
    const row = solved(rows, products);
    return [...rows, [...row, Math.sqrt(products[at] - row.reduce((sum, own) => sum + own ** 2, 0))]];
  }, []);
  return strategy.factor;
}

/** Return the numbers that the rows of a factor turn into some others. */
function solved(rows, numbers) {
  const found = [];
  for (const [at, row] of rows.entries()) found.push((numbers[at] - found.reduce((sum, own, place) => sum + own * row[place], 0)) / row[at]);
  return found;
}

/** Return the variance of a sum of codes that a strategy measured, given the total, and what that adds to it. */
function byStrategy(strategy, set) {
  const factor = factorOf(strategy);
  const inside = factor.map((_, code) => (isInside(set, code, code + 1) ? 1 : 0));
  const [own, all] = [inside, inside.map(() => 1)].map((numbers) => solved(factor, numbers));
  const product = (one, other) => one.reduce((sum, of, place) => sum + of * other[place], 0);
  const ofTotal = inside.every(Boolean) ? product(all, all) : product(own, all) ** 2 / product(all, all);
  const given = inside.every(Boolean) ? 0 : product(own, own) - ofTotal;
  return [given, ofTotal].map((variance) => strategy.scale ** 2 * variance);
}

/** Return the standard deviation of the sum over a set of each axis, by the variance that each part adds that is rounded apart. */
export function deviationOf(sets, rounding = known.rounding) {
  const part = partOf(sets);
  if (known.views) {
    const corners = part.sets.reduce((product, { first, stop }, axis) => product * (stop[0] - first[0] < begins[axis][0][1] ? 2 * first.length : 1), 1);
    return rounded(besideViews(part, cellsBeside()).rest, corners, rounding);
  }
  const multiplied = (numbers) => numbers.reduce((product, own) => product * own, 1);
  const strategies = known.strategies ?? [];
  const moments = [...trees.map((tree) => momentsOf(tree, part)), ...strategies.map((of) => byStrategy(of, part.sets[of.axis]))];
  const owed = total === null ? 0 : multiplied(moments.map(([, ofTotal]) => ofTotal));
  const runs = multiplied([...trees.map((tree) => insideOf(tree, 0, sets.map(() => 0), part).runs), ...strategies.map(({ axis }) => part.sets[axis].first.length)]);
  return rounded(multiplied(moments.map(([given, ofTotal]) => given + ofTotal)) - owed, runs, rounding);
}

/** Return the standard deviation of a whole count, given the variance before rounding, and of how many parts it is made that are rounded apart. */
function rounded(variance, parts, rounding) {
  return variance > 0 ? Math.sqrt(variance + parts * rounding) : 0;
}
