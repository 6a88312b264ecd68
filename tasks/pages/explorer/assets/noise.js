// How far the noise of sums goes, as `tasks/laws/` has it: the sources and the proofs are there.

const CARE = 1e-12; // of the logarithm of a probability, lowered by it
const CARE_OF_SUMS = 1e-9; // likewise, of sums of Laplace draws
const MOST_LISTED = 2 ** 13; // of σ: the probabilities of one Gaussian with more are not listed
const MOST_STEPS = 1e7; // of a list of probabilities
const POINTS = 4096; // at which a characteristic function is summed up
const REACH = 12; // in units of one over the standard deviation, beyond which it is taken to be 0

const kept = new Map(); // the results of this page

/** Return the logarithm of the probability that a standard normal variable is above x >= 0. */
function logAbove(x) {
  const logDensity = -(x * x) / 2 - Math.log(2 * Math.PI) / 2;
  if (x < 3) {
    let [term, sum] = [x, x];
    for (let odd = 3; term > 1e-17 * sum; odd += 2) {
      term *= (x * x) / odd;
      sum += term;
    }
    return Math.log(0.5 - Math.exp(logDensity) * sum);
  }
  let fraction = 0;
  for (let place = 100; place; place -= 1) fraction = place / (x + fraction);
  return logDensity - Math.log(x + fraction);
}

/** Return what a standard normal variable exceeds with a probability of at most a half, given by its logarithm. */
export function normalQuantile(logTail) {
  let x = Math.sqrt(-2 * logTail); // it is further off, from where Newton's steps never go too far
  for (let step = 1; Math.abs(step) > 1e-15 * x; ) {
    const reached = logAbove(x);
    step = (reached - logTail) * Math.exp(reached + (x * x) / 2 + Math.log(2 * Math.PI) / 2);
    if (step >= 0 && x < Math.sqrt(-2 * logTail)) break;
    x += step;
  }
  return x;
}

/** Return the characteristic function of a discrete Gaussian at an angle, up to a factor. */
function wave(sigma, angle) {
  if (sigma >= 1) return [-1, 0, 1].reduce((sum, image) => sum + Math.exp(-((sigma * (angle - 2 * Math.PI * image)) ** 2) / 2), 0);
  let sum = 1;
  for (let value = 1; value <= 40 && value < 40 * sigma; value += 1) sum += 2 * Math.cos(angle * value) * Math.exp(-((value / sigma) ** 2) / 2);
  return sum;
}

/** Return the standard deviation of a discrete Gaussian. */
function gaussianDeviation(sigma) {
  if (sigma > 3) return sigma;
  let [whole, squares] = [1, 0];
  for (let value = 1; value <= 40 * sigma + 2; value += 1) {
    const weight = 2 * Math.exp(-((value / sigma) ** 2) / 2);
    whole += weight;
    squares += weight * value ** 2;
  }
  return Math.sqrt(squares / whole);
}

/** Return log κ of a sum of discrete Gaussians, by scales and numbers of draws. */
export function logKappa(draws) {
  const [scale, deviation] = [(sigma) => sigma, gaussianDeviation].map((of) => Math.sqrt(draws.reduce((sum, [sigma, many]) => sum + of(sigma) ** 2 * many, 0)));
  const many = draws.reduce((sum, [, own]) => sum + own, 0);
  if (!deviation) return Math.log(scale * Math.sqrt(2 * Math.PI));
  const reach = Math.min(REACH, Math.PI * deviation);
  const whole = draws.map(([sigma]) => wave(sigma, 0));
  let integral = 0;
  for (let point = 0; point <= POINTS; point += 1) {
    const angle = (reach * point) / POINTS / deviation;
    const log = draws.reduce((sum, [sigma, own], place) => sum + own * Math.log(Math.max(wave(sigma, angle) / whole[place], 0)), 0);
    integral += (point % POINTS ? 1 : 0.5) * Math.exp(log);
  }
  return Math.log((integral * (reach / POINTS) * Math.sqrt(2 / Math.PI) * scale) / deviation) + CARE + 1e-15 * many;
}

function gaussianQuantile(draws, logTail) {
  const [[sigma, many]] = draws;
  if (draws.length > 1 || many > 1 || sigma > MOST_LISTED) {
    const scale = Math.sqrt(draws.reduce((sum, [own, of]) => sum + own ** 2 * of, 0));
    const further = keep(`kappa ${draws}`, () => logKappa(draws));
    return Math.max(0, Math.ceil(scale * normalQuantile(Math.min(logTail - CARE - further, Math.log(0.5)))));
  }
  const weights = Float64Array.from({ length: Math.ceil(40 * sigma) + 2 }, (_, value) => Math.exp(-((value / sigma) ** 2) / 2));
  return leastWithin(weights, Math.exp(logTail - CARE));
}

/** Return the least z that a symmetric variable exceeds with at most a probability, given how likely 0, 1, 2 … are, up to a factor. */
function leastWithin(weights, tail) {
  for (let value = weights.length - 2; value >= 0; value -= 1) weights[value] += weights[value + 1];
  const whole = 2 * weights[0] - (weights[0] - weights[1]);
  let z = weights.length - 1;
  while (z >= 0 && weights[z] <= tail * whole) z -= 1;
  return Math.max(0, z);
}

/** Return a value that the sum of discrete Laplace draws reaches with at most a probability, by Chernoff's bound. */
function laplaceReach(draws, logTail) {
  const most = 1 / Math.max(...draws.map(([scale]) => scale));
  const shares = Array.from({ length: 39 }, (_, place) => ((place + 1) / 40) * most);
  return Math.ceil(Math.min(...shares.map((rate) => draws.reduce((sum, [scale, many]) => sum - many * Math.log1p(-((Math.sinh(rate / 2) / Math.sinh(1 / 2 / scale)) ** 2)), -logTail) / rate)));
}

/**
 * Return how likely 0, 1, 2 … are under a sum of n discrete Laplace draws of one scale, up to a factor, from the largest down: with q = exp(-1/s),
 * q (n + k - 1) p(k - 1) = (1 + q²) k p(k) + q (n - k - 1) p(k + 1), from the derivative of the generating function.
 */
function laplaceWeights(scale, many, most) {
  const [q, weights] = [Math.exp(-1 / scale), new Float64Array(most + 2)];
  weights[most] = 1e-300;
  for (let k = most; k; k -= 1) {
    weights[k - 1] = ((1 + q * q) * k * weights[k] + q * (many - k - 1) * weights[k + 1]) / (q * (many + k - 1));
  }
  return weights;
}

/** Return how likely 0, 1, 2 … are under the sum of two symmetric variables, up to a factor, given the same of both. */
function convolved(one, other) {
  return one.map((_, value) => other.reduce((sum, weight, move) => sum + weight * ((one[Math.abs(value - move)] ?? 0) + (move ? one[value + move] ?? 0 : 0)), 0));
}

function laplaceQuantile(draws, logTail) {
  const [[scale, many]] = draws;
  if (draws.length === 1 && many === 1) return Math.max(0, Math.ceil(-scale * (logTail - CARE + Math.log1p(Math.exp(-1 / scale)))) - 1);
  const wanted = Math.min(logTail, Math.log(0.5)) - CARE_OF_SUMS;
  const most = laplaceReach(draws, wanted - 45);
  if (!(most ** (draws.length > 1 ? 2 : 1) <= MOST_STEPS)) return null;
  const every = draws.map(([own, of]) => laplaceWeights(own, of, most).map((weight, _, all) => weight / all[0]));
  return leastWithin(every.reduce(convolved), Math.exp(wanted));
}

function keep(name, made) {
  if (!kept.has(name)) kept.set(name, made());
  return kept.get(name);
}

/**
 * Return what the sum of independent draws exceeds with at most a probability, given by its logarithm; null where this page cannot tell.
 *
 * @param {[{law: string, scale: number, terms: number}|null, number][]} noises what is drawn, and for how many cells; null for nothing
 */
export function quantileOfSum(noises, logTail) {
  const scales = new Map();
  for (const [noise, cells] of noises) if (noise && cells) scales.set(noise.scale, (scales.get(noise.scale) ?? 0) + cells * noise.terms);
  if (!scales.size) return 0;
  const [{ law }] = noises.find(([noise, cells]) => noise && cells);
  const draws = [...scales].toSorted(([one], [other]) => one - other);
  return keep(`${law} ${draws} ${logTail}`, () => (law === "discrete_gaussian" ? gaussianQuantile : laplaceQuantile)(draws, logTail));
}
