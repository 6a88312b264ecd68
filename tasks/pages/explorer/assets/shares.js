// Shares of a whole with their intervals, as `trellis query --share-of` states them: `tasks/uncertainty/ratios.py` has the bounds and their proofs.

import { data, number, percent, release, significant } from "./base.js";
import { logKappa, normalQuantile } from "./noise.js";
import { deviationOf } from "./variances.js";
import { answerTo, boxesIn, sizeOf, sumOf, within } from "./tables.js";

const { sums } = data;
const alpha = 1 - release.confidence;
const HALVINGS = 60; // of what the end of an interval is searched in
const SHARES_OF_DRAWS = !data.axes.some(({ role }) => role === "size"); // of sizes, draws are taken off too

/** Return the sum of draws of boxes by the part where they were drawn; null where they are not all known, or not independent. */
function drawsOf(boxes) {
  if (sums.above || !boxes || boxes.some((of) => of.part === undefined)) return null;
  const draws = new Map();
  for (const { part, draws: own } of boxes) draws.set(part, (draws.get(part) ?? 0) + own);
  return { draws, noisy: boxes.reduce((sum, of) => sum + of.noisy, 0) };
}

/** Return V′ and log K of a sum of discrete Gaussians. */
function spread(draws) {
  const variance = draws.reduce((sum, [scale, many]) => sum + scale ** 2 * many, 0);
  const eta = 1 / (2 * Math.sqrt(variance));
  return [(1 + eta) * variance, logKappa(draws) + Math.log1p(eta) / 2 + 1 / (8 * eta * variance)];
}

/** Return the bound of |A − rB| by the draws of a part and a whole; null but for independent Gaussian noise of both. */
function reachByDraws(part, whole) {
  const [one, other] = [new Map(part.draws), new Map(whole.draws)];
  const isInside = SHARES_OF_DRAWS && other.size === 1 && [...one.keys()].every((own) => other.has(own));
  if (isInside) for (const [own, many] of one) other.set(own, other.get(own) - many);
  const isGaussian = [...one.keys(), ...other.keys()].every((own) => sums.noises[own]?.law === "discrete_gaussian");
  const draws = [one, other].map((of) => [...of].filter(([, many]) => many).map(([own, many]) => [sums.noises[own]?.scale, many * (sums.noises[own]?.terms ?? 0)]));
  if (!isGaussian || draws.some((of) => !of.length) || !(isInside || [...one.keys()].every((own) => !other.has(own)))) return null;
  const [[ofPart, further], [ofRest, more]] = draws.map(spread);
  const z = normalQuantile(Math.min(Math.log(alpha / 2) - further - more, Math.log(0.5)));
  return (share) => {
    const own = 1 - share * isInside;
    return z * Math.sqrt(own ** 2 * ofPart + share ** 2 * ofRest) + (own + share) / 2;
  };
}

/** Return the bound of |A − rB| for unbiased counts. */
function reachByVariance(sets, whole, axis) {
  const level = Math.max(...sets[axis].map((piece) => piece.level));
  const inside = new Set(sets[axis].flatMap((piece) => within(axis, piece.level, piece.areas, level)));
  const others = [...Array(sizeOf(axis, level)).keys()].filter((area) => !inside.has(area));
  const exactly = [sets, whole, sets.with(axis, [{ level, areas: others }])].map((of, place) => (place < 2 || others.length ? deviationOf(of, 0) ** 2 : 0));
  const together = (exactly[0] + exactly[1] - exactly[2]) / 2;
  const [ofPart, ofWhole] = [sets, whole].map((of) => deviationOf(of) ** 2);
  const { views, trees, strategies, slack } = sums.least_squares;
  const rounding = views || strategies || trees.length > 1 ? 2 ** (data.axes.length - 1) : slack; // of sums over all axes
  const z = normalQuantile(Math.log(alpha / 2));
  return (share) => z * Math.sqrt(Math.max(ofPart + share ** 2 * ofWhole - 2 * share * together, 0)) + (1 + share) * rounding;
}

/** Return the least and the greatest share in [0, 1] that a test allows, given the noisy counts of part and whole. */
function shareEnds(part, whole, reach) {
  const nearest = whole > 0 ? Math.min(Math.max(part / whole, 0), 1) : 0;
  return [[0, -1], [1, 1]].map(([limit, sign]) => {
    const excess = (share) => sign * (share * whole - part) - reach(share);
    if (excess(limit) <= 0 || limit === nearest) return limit;
    if (excess(nearest) > 0) return nearest;
    let [inside, outside] = [nearest, limit];
    for (let step = 0; step < HALVINGS; step += 1) {
      const middle = (inside + outside) / 2;
      if (excess(middle) > 0) outside = middle;
      else inside = middle;
    }
    return inside;
  });
}

/** Return the ends of a share by two intervals that both hold; nulls where one of them is not stated. */
function endsByIntervals(sets, whole, isAnyExact) {
  const both = [sets, whole].map((of) => sumOf(of, isAnyExact ? alpha : alpha / 2));
  const [[least, most], [fewest, largest]] = both.map((of) => (of.exact ? [of.count, of.count] : [of.low, of.high]));
  if ([least, fewest].includes(null)) return [null, null];
  return [largest ? Math.min(least / largest, 1) : 0, fewest ? Math.min(most / fewest, 1) : 1];
}

/** Return a share in per cent, with as many digits as tell both ends of its interval apart. */
function inPercent(share, [low, high]) {
  const digits = [3, 4, 5, 6, 7, 8].find((many) => low === high || significant(100 * low, many) !== significant(100 * high, many)) ?? 9;
  return `${significant(100 * share, digits)}%`;
}

/** Return which share of all areas of an axis sets have, in words, and whether that is all that the release says of it. */
export function shareOf(sets, axis) {
  const whole = sets.with(axis, null);
  const share = `Share of ${data.axes[axis].name} = all`;
  const [part, all] = [answerTo(sets), answerTo(whole)];
  if (!part || !all) return [`${share}: this page has no table from which the whole adds up.`, false];
  if (all.count <= 0) return [`${share}: none, since the whole counts nothing.`, true];
  const value = Math.min(Math.max(part.count / all.count, 0), 1);
  const drawn = sums.least_squares ? [] : [sets, whole].map((of) => drawsOf(boxesIn(of)));
  const byDraws = drawn[0] && drawn[1] ? reachByDraws(...drawn) : null;
  let ends;
  let how = "";
  if (sums.least_squares) ends = shareEnds(part.count, all.count, reachByVariance(sets, whole, axis));
  else if (byDraws) ends = shareEnds(drawn[0].noisy, drawn[1].noisy, byDraws);
  else {
    ends = endsByIntervals(sets, whole, part.exact || all.exact);
    how = part.exact || all.exact ? "One of both is exact, and the interval is that of the other." : "Both intervals hold, each of which misses with half of the probability.";
  }
  if (sums.why || ends.includes(null)) return [`${share} (${number(all.count)}): ${inPercent(value, [value, value])}, without an interval.`, Boolean(sums.why)];
  const bounds = [Math.min(ends[0], value), Math.max(ends[1], value)];
  const [own, low, high] = [value, ...bounds].map((one) => inPercent(one, bounds));
  return [`${share} (${number(all.count)}): ${own}, ${low} to ${high} with ${percent} probability.${how && ` ${how}`}`, true];
}
