r"""The prior of a level: what cells may count before their own estimates are looked at, fitted to the totals of areas and to families of siblings.

The prior mean m of a cell is its part of its parent's count by the totals of areas (`prior_means`). What cells count relative to m is
learnt: by strata of m, and for trips within one area by themselves, a mixture

.. math:: y \sim w_0 \delta_0 + \sum_j w_j N(r_j m, (0.28\, r_j m)^2) + w_c \delta_c

of nothing, of multiples of m, and of all that the parent counts. Its weights are those with which the estimates are likely, after a fixed
number of rounds of EM. Most of what the estimates tell is learnt by then, and what they do not tell apart stays near where it began.
"""

from dataclasses import dataclass

import numpy as np

from tasks.optimize.reconcile import NodeEstimates
from tasks.tree.axis import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Some families that have a total to share out and two cells at least: siblings, given what they add up to.

    Attributes:
        parent: int64, shape (families,): which of the given parents each family has.
        cell: int64, shape (cells,): which of the given cells each is, family by family.
        first: int64, shape (families + 1,): family f has the cells first[f]:first[f + 1].
        totals: int64, shape (families,), records, > 0.
        values: z, float64, shape (cells,), records: the estimates, moved so that they add up to the totals.
        variances: u, float64, shape (cells,), records squared: of these, given the totals.
    """

    parent: IntArray
    cell: IntArray
    first: IntArray
    totals: IntArray
    values: FloatArray
    variances: FloatArray

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def sizes(self) -> IntArray:
        """How many cells each family has, shape (families,)."""
        return np.diff(self.first)

    @property
    def family(self) -> IntArray:
        """Which family each cell is of, shape (cells,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def __getitem__(self, some: slice) -> "Families":
        first = self.first[some.start : some.stop + 1]
        cells = slice(first[0], first[-1])
        return Families(
            self.parent[some],
            self.cell[cells],
            first - first[0],
            self.totals[some],
            self.values[cells],
            self.variances[cells],
        )


def families_with(estimates: NodeEstimates, first: IntArray, totals: IntArray) -> Families:
    r"""Return the families that have a total to share out and two cells at least, with their estimates given that total.

    .. math:: z_i = e_i + \frac{v_i}{V} \Bigl(c - \sum_{j} e_j\Bigr), \qquad u_i = v_i \Bigl(1 - \frac{v_i}{V}\Bigr),
        \qquad V = \sum_{j} v_j

    These are the mean and the variance of normal estimates, given what the true counts add up to.

    Args:
        estimates: e and v of some cells, shape (cells,), v > 0.
        first: shape (parents + 1,), int64; parent p owns the cells first[p]:first[p + 1].
        totals: c, of the parents, int64, shape (parents,), records, >= 0.
    Raises:
        ValueError: an estimate has no variance: what is exact is not shared out by a prior.
    """
    if not (estimates.variances > 0).all():
        raise ValueError("variances must be > 0.")
    sizes = np.diff(first)
    parent = np.flatnonzero((totals > 0) & (sizes > 1))
    own = sizes[parent]
    ends = np.cumsum(own)
    cell = np.arange(ends[-1] if len(own) else 0) + np.repeat(first[parent] - ends + own, own)
    of = estimates[cell]
    total_variance = np.repeat(_sums(of.variances, ends), own)
    lacking = np.repeat(totals[parent] - _sums(of.values, ends), own)
    part = of.variances / total_variance
    return Families(
        parent,
        cell,
        np.concatenate(([0], ends)),
        totals[parent],
        of.values + part * lacking,
        of.variances * (1 - part),
    )


def _sums(values: FloatArray, ends: IntArray) -> FloatArray:
    """Return the sum of each family's values, whatever other families there are, float64, shape (families,)."""
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    sums: FloatArray = np.add.reduceat(values, starts) if len(ends) else np.zeros(0)
    return sums


RATIOS: FloatArray = np.geomspace(0.03, 30_000, 32)  # r
SPREAD = 0.28  # of a component, relative to its mean
_LEAST_MEAN = 0.001  # records
_BY_TOTALS = 0.95  # the part of a prior mean that follows the totals of areas; the rest is shared equally

_LOWEST, STRATA, _OCTAVES = -6, 19, 1.5  # strata of m: from 2^(1.5 · -6) records up, each 1.5 octaves wide
_FEWEST = 300  # cells of a stratum; fewer take the prior of the stratum below
_LEAST_GAIN = (
    10.0  # in log-likelihood, with which cells within one area have weights of their own; chance alone gains less
)
_STEP_OF_WEIGHTS = 2.0**-20  # to which weights are rounded, so that they are the same whatever their last bits
_ROUNDS, _LEAST_WEIGHT = 200, 2e-5  # of EM; what is added to each weight in each round
_OF_ALL = 0.02  # the weight of the last component, to begin with
_LEAST_LIKELY = 1e-300  # in place of 0


def _lognormal(multiples: FloatArray, spread: float) -> FloatArray:
    """Return weights of multiples that are lognormal with mean 1, shape (multiples,)."""
    weights = np.exp(-(((np.log(multiples) + spread**2 / 2) / spread) ** 2) / 2)
    of_all: FloatArray = weights / weights.sum()
    return of_all


def _beginning(nothing: float, spread: float) -> FloatArray:
    """Return weights to begin with, shape (2 + ratios,): multiples of m are lognormal, so that with nothing their mean is m."""
    of_ratios = (1 - nothing - _OF_ALL) * _lognormal(RATIOS * (1 - nothing), spread)
    return np.concatenate(([nothing], of_ratios, [_OF_ALL]))


# half on nothing, and all multiples alike; or lognormal multiples. Those with more on nothing are never begun with: where they are the likeliest
# the level is sparse, and the first ones are better
_OF_NOTHING = 0.5
_BEGINNINGS = [
    np.concatenate(([_OF_NOTHING], np.full(len(RATIOS), (1 - _OF_NOTHING - _OF_ALL) / len(RATIOS)), [_OF_ALL])),
    *(_beginning(nothing, spread) for nothing in (0.02, 0.3, 0.6, 0.9) for spread in (0.5, 1.0, 1.5, 2.2)),
]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Cells of a level to which a prior is fitted.

    Attributes:
        values: z, float64, shape (cells,), records: the estimate of each, given its family's total; likewise all others.
        variances: u, records squared.
        means: m, records.
        totals: c, records.
        stand_for: for how many cells of the level each stands.
        within: bool, whether each counts trips within one area.
    """

    values: FloatArray
    variances: FloatArray
    means: FloatArray
    totals: FloatArray
    stand_for: FloatArray
    within: BoolArray

    def __getitem__(self, some: IntArray | BoolArray) -> "Sample":
        return Sample(
            self.values[some],
            self.variances[some],
            self.means[some],
            self.totals[some],
            self.stand_for[some],
            self.within[some],
        )


def prior_means(totals: FloatArray, sizes: IntArray | FloatArray, first: IntArray, of_areas: FloatArray) -> FloatArray:
    r"""Return the prior means of cells: mostly by the totals of their areas, and a little shared equally.

    .. math:: m_i = \max(0.001, c\,(0.95\, q_i + 0.05 / b)), \qquad q_i = M_i / \sum_j M_j

    Args:
        totals: c, of the families, shape (families,), records.
        sizes: b, how many cells each has, shape (families,).
        first: where those of its cells begin that are given, and the end, shape (families + 1,): all, or a part that is like the rest.
        of_areas: M, the total of each given cell's area, shape (cells,), records, >= 0.
    """
    some, given = of_areas + _LEAST_MEAN, np.diff(first)
    of_families = np.add.reduceat(some, first[:-1]) * (sizes / given)
    parts = some / np.repeat(of_families, given)
    return mean_of_part(np.repeat(totals, given), np.repeat(sizes, given).astype(np.float64), parts)


def mean_of_part(totals: FloatArray, sizes: FloatArray, parts: FloatArray) -> FloatArray:
    """Return the prior means of cells that are parts q of their families, by the totals c and the sizes b of these, all of shape (cells,)."""
    shares = _BY_TOTALS * parts + (1 - _BY_TOTALS) / sizes
    means: FloatArray = np.maximum(_LEAST_MEAN, totals * shares)
    return means


def parts_among_siblings(of_areas: FloatArray, first_child: IntArray) -> FloatArray:
    """Return, for each area, its part of the totals of its siblings, shape (areas,); arguments are those of `shrunk_totals`."""
    some = of_areas + _LEAST_MEAN
    parts: FloatArray = some / np.repeat(np.add.reduceat(some, first_child[:-1]), np.diff(first_child))
    return parts


def stratum_of(means: FloatArray) -> IntArray:
    """Return the stratum of each prior mean, int64, shape (cells,)."""
    octaves = np.floor(np.log2(means) / _OCTAVES)
    return np.clip(octaves, _LOWEST, _LOWEST + STRATA - 1).astype(np.int64) - _LOWEST


@dataclass(frozen=True, slots=True, eq=False)
class LevelPrior:
    """What cells of a level may count before their own estimates are looked at.

    Attributes:
        weights: of mixtures, as `fitted` returns them; none where the level has too few cells to fit them.
        of_areas: M, of the areas of the refined axis, float64, shape (areas,), records.
    """

    weights: FloatArray
    of_areas: FloatArray

    def of_cells(self, families: Families, areas: IntArray, within: BoolArray) -> tuple[FloatArray, IntArray]:
        """Return prior means and strata of the cells of some families, shape (cells,), given their areas, and which are within one area."""
        totals = families.totals.astype(np.float64)
        means = prior_means(totals, families.sizes, families.first, self.of_areas[areas])
        return means, stratum_of(means) + STRATA * within


def fitted(sample: Sample) -> FloatArray:
    """Return the prior under which the estimates of a level are likely: the mixture weights of every stratum.

    Strata that stand for few cells take the weights of the stratum below, or of the lowest that has enough. Cells within one area have
    the weights of the others unless they are far more likely by their own. The result depends on the sample and its order alone.

    Args:
        sample: cells of the level, at least one that is not within one area.
    Returns:
        float64, shape (2 · strata, 2 + ratios): of nothing, of each multiple of the mean, and of all; each row sums to 1. Strata of cells
        within one area are the second half.
    """
    others, within = _fitted_alone(sample[~sample.within]), sample[sample.within]
    if not len(within.values):
        return np.concatenate((others, others))
    own, stratum, likelihood = _fitted_alone(within), stratum_of(within.means), _likelihood(within)
    gain = _log_likelihood(likelihood, own[stratum]) - _log_likelihood(likelihood, others[stratum])
    return np.concatenate((others, own if gain > _LEAST_GAIN else others))


def _fitted_alone(sample: Sample) -> FloatArray:
    """Return the weights of all strata of cells of one kind, shape (strata, 2 + ratios)."""
    stratum = _merged(stratum_of(sample.means), sample.stand_for)
    there = np.unique(stratum)
    cells = [sample[np.flatnonzero(stratum == one)] for one in there]
    likelihoods = [_likelihood(of) for of in cells]
    likely = [
        sum(_log_likelihood(of, begin, some.stand_for) for of, some in zip(likelihoods, cells, strict=True))
        for begin in _BEGINNINGS
    ]
    begin = _BEGINNINGS[int(np.argmax(likely))]
    begin = _BEGINNINGS[0] if begin[0] > _OF_NOTHING else begin
    weights = np.array([_weights(of, begin, some.stand_for) for of, some in zip(likelihoods, cells, strict=True)])
    nearest = np.maximum(np.searchsorted(there, np.arange(STRATA), side="right") - 1, 0)
    of_strata: FloatArray = weights[nearest]
    return of_strata


def _merged(stratum: IntArray, stand_for: FloatArray) -> IntArray:
    """Return the strata after each that stands for few cells has joined the one below, from the highest down."""
    cells = np.bincount(stratum, stand_for, STRATA)
    joins = np.arange(STRATA)
    for one in range(STRATA - 1, 0, -1):
        if cells[one] < _FEWEST:
            cells[one - 1] += cells[one]
            joins[joins == one] = one - 1
    merged: IntArray = joins[stratum]
    return merged


def _log_likelihood(likelihood: FloatArray, weights: FloatArray, stand_for: FloatArray | float = 1.0) -> float:
    return float((stand_for * np.log(np.maximum((likelihood * weights).sum(axis=1), _LEAST_LIKELY))).sum())


def _weights(likelihood: FloatArray, begin: FloatArray, stand_for: FloatArray, rounds: int = _ROUNDS) -> FloatArray:
    """Return the weights of components, shape (components,), by EM from those to begin with."""
    weights, of_cells = begin, stand_for / stand_for.sum()
    for _ in range(rounds):  # by plain sums: a product of matrices depends on the threads that share it
        explained = of_cells / (likelihood * weights).sum(axis=1)
        weights = weights * (likelihood * explained[:, None]).sum(axis=0) + _LEAST_WEIGHT
        weights /= weights.sum()
    return np.rint(weights / _STEP_OF_WEIGHTS) * _STEP_OF_WEIGHTS


def _likelihood(sample: Sample) -> FloatArray:
    """Return how likely each estimate is under each component, up to a factor for each cell, shape (cells, 2 + ratios)."""
    multiples = sample.means[:, None] * RATIOS
    nothing = np.zeros((len(multiples), 1))
    means = np.concatenate((nothing, multiples, sample.totals[:, None]), axis=1)
    spreads = np.concatenate((nothing, SPREAD * multiples, nothing), axis=1)
    variances = sample.variances[:, None] + spreads**2
    return _normal_likelihood(sample.values, means, variances)


def _normal_likelihood(values: FloatArray, means: FloatArray, variances: FloatArray) -> FloatArray:
    """Return how likely values are under normal components, up to a factor for each, shape (values, components)."""
    logarithms = -((values[:, None] - means) ** 2) / (2 * variances) - np.log(variances) / 2
    likelihood: FloatArray = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    return likelihood


_MULTIPLES: FloatArray = np.geomspace(0.01, 100, 128)  # of the mean total of siblings
_SPREAD_OF_TOTALS = 0.05  # of a component, relative to its mean
_SPREADS = (0.05, 0.15, 0.4, 1.0, 1.6)  # lognormal ones, of which EM begins with the likeliest
_ROUNDS_OF_TOTALS, _AREAS_FITTED, _AREAS_AT_ONCE = 20, 2**12, 2**14
_STEP_OF_TOTALS = 2.0**-10  # records; to it totals are rounded, so that they are the same whatever their last bits


def shrunk_totals(values: FloatArray, variances: FloatArray, first_child: IntArray) -> FloatArray:
    r"""Return the totals of areas, drawn to what their siblings and other families of areas show to be likely.

    .. math:: M_a = E[y_a \mid s_a], \qquad s_a \sim N(y_a, v_a), \qquad y_a \sim \sum_j w_j N(r_j \bar{s}, (0.05\, r_j \bar{s})^2)

    with the mean of siblings :math:`\bar{s}`. Few areas have most of a table, so that a total far above the others is moved less
    than one factor for all would move it. The weights are fitted to a level's areas, or to some of them at even distances.

    Args:
        values: s, of the areas of one level of an axis, float64, shape (areas,), records.
        variances: v, of the same areas, float64, shape (areas,), records squared.
        first_child: shape (areas above + 1,), int64: where the children of each area above begin.
    Returns:
        float64, shape (areas,), records, >= 0.
    Source:
        Robbins (1956): empirical Bayes.
    """
    children = np.diff(first_child)
    means = np.maximum(np.add.reduceat(values, first_child[:-1]) / children, _LEAST_MEAN)
    means, noise = np.repeat(means, children), np.maximum(variances, _LEAST_MEAN)

    def components(some: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        of = means[some, None] * _MULTIPLES
        return of, noise[some, None], (_SPREAD_OF_TOTALS * of) ** 2

    def likelihood(some: IntArray) -> FloatArray:
        of, own, spread = components(some)
        return _normal_likelihood(values[some], of, own + spread)

    every = np.arange(len(values))
    of_some = likelihood(every[:: -(-len(every) // _AREAS_FITTED)])
    begin = max((_lognormal(_MULTIPLES, spread) for spread in _SPREADS), key=lambda of: _log_likelihood(of_some, of))
    weights = _weights(of_some, begin, np.ones(len(of_some)), _ROUNDS_OF_TOTALS)
    totals = np.empty(len(values))
    for start in range(0, len(every), _AREAS_AT_ONCE):
        some = every[start : start + _AREAS_AT_ONCE]
        of, own, spread = components(some)
        posterior = likelihood(some) * weights
        given = (values[some, None] * spread + of * own) / (own + spread)
        totals[some] = (posterior * given).sum(axis=1) / posterior.sum(axis=1)
    return np.maximum(0.0, np.rint(totals / _STEP_OF_TOTALS) * _STEP_OF_TOTALS)
