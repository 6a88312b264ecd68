"""Measure ideas for accuracy that we tried and did not keep, as `accuracy.py` measures; benchmarks/accuracy.md discusses them.

Each idea changes `inftda_reconciled` in one way, at the same ε, δ and split: most of them its second pass, and contrasts what it
measures. None reads a true count but to measure it.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import repository  # noqa: F401, for tests.support
from accuracy import BASELINE, SEED, Candidate, against, line_of, sets, try_out

from flows.trials.in_memory import PublicTable
from tasks.laws.samplers import table_noise
from tasks.mechanisms import MECHANISMS
from tasks.noise.measure import TruthInMemory, true_counts_below
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import (
    BoolArray,
    FloatArray,
    NodeEstimates,
    combined,
    first_kept,
    measured,
    root_total,
    settle,
    summed_children,
)
from tasks.optimize.siblings import Optimiser
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, expand, keep_positive, locate
from tests.support.scales import try_scales

SMALL = 12.0  # standard deviations: beyond it a count is left as it is
STEPS = 40  # of expectation maximisation
FITTED = 3000  # cells, at most, from which a prior is learned
ONCE, RECONCILED = MECHANISMS["inftda"], MECHANISMS["inftda_reconciled"]


class Idea(Candidate):
    """A candidate that is no mechanism of the table.

    Attributes:
        release: from a table and the scales of the noise to what is released.
    """

    def __init__(self, name: str, release: Callable[[PublicTable, Sequence[float]], list[Frontier]]) -> None:
        super().__init__(name, RECONCILED)
        self.release = release

    def try_on(self, table: PublicTable, sigmas: Sequence[float]) -> tuple[list[Frontier], int]:
        """Return what it releases of levels 0 to T; its cells are not counted."""
        return self.release(table, sigmas), 0


class Halves(Idea):
    """A candidate that buys noise for half of the levels."""

    def terms(self, levels: int) -> tuple:
        """Return the terms of half of the levels, for each of them all."""
        return (super().terms(-(-levels // 2))[0],) * levels


def pruned_more(table: PublicTable, sigmas: Sequence[float]) -> list[Frontier]:
    """Let only cells stay that the first pass gives half a standard deviation of the noise."""
    [sigma] = set(sigmas[1:])

    def repair(noisy: IntArray, first_cell: IntArray, totals: IntArray) -> IntArray:
        counts = nearest_in_chebyshev(noisy, first_cell, totals)
        return _settled_within(noisy, first_cell, totals, counts > sigma / 2)

    return try_scales(table, replace(RECONCILED, repair={"pruned": repair}), sigmas, table_noise).released


def posterior_means(table: PublicTable, sigmas: Sequence[float]) -> list[Frontier]:
    """On the way up, let each child bring its posterior mean and variance under a prior learned from its level.

    The prior is the nonparametric maximum likelihood estimate from the estimates of all measured cells whose parents have
    about as many records a child, within a factor of two.
    """
    trial = try_scales(table, ONCE, sigmas, table_noise)
    levels, nodes = trial.measured, trial.released
    variances = [sigma**2 for sigma in sigmas]
    upwards = [measured(levels[-1].noisy[levels[-1].kept], variances[-1])]
    for level in reversed(range(len(levels) - 1)):
        own, children = levels[level], levels[level + 1]
        cells = measured(children.noisy, variances[level + 1])
        cells.values[children.kept], cells.variances[children.kept] = upwards[-1].values, upwards[-1].variances
        fan_out = np.diff(children.cells.first_cell)
        sizes = np.log2(np.maximum(nodes[level].counts / fan_out, 1)).astype(np.int64)
        shrunk = _shrunk(cells, np.repeat(sizes, fan_out))
        everything = np.ones(len(cells), dtype=bool)
        sums = summed_children(children.noisy, 0.0, children.cells.first_cell, everything, shrunk)
        upwards.append(combined(own.noisy[own.kept], variances[level], sums))
    totals = np.array([root_total(upwards[-1], int(nodes[0].counts[0]))])
    released = [Frontier(0, nodes[0].areas, totals)]
    for below, estimates in zip(levels[1:], upwards[-2::-1], strict=True):
        counts = np.zeros(len(below.cells), dtype=np.int64)
        first = first_kept(below.kept, below.cells.first_cell)
        totals = counts[below.kept] = settle(estimates, first, totals, nearest_in_chebyshev)
        released.append(keep_positive(below.cells, counts))
    return released


def shared_leaves(table: PublicTable, sigmas: Sequence[float]) -> list[Frontier]:
    """At the finest level, draw all measured cells towards equal shares, by the variance among siblings less that of noise."""
    trial = try_scales(table, RECONCILED, sigmas, table_noise)
    *_, above, leaves = trial.measured
    *released, settled = trial.released[:-1]
    kept = [areas[above.kept] for areas in above.cells.areas]
    totals = np.zeros(len(kept[0]), dtype=np.int64)
    totals[locate(settled.areas, kept, table.tree.sizes(settled.level))] = settled.counts
    first_cell, variance = leaves.cells.first_cell, sigmas[-1] ** 2
    fan_out = np.diff(first_cell)
    parent, share = np.repeat(np.arange(len(totals)), fan_out), np.repeat(totals / fan_out, fan_out)
    gap = (totals - np.bincount(parent, leaves.noisy, len(totals))) / fan_out
    values, own = leaves.noisy + gap[parent], variance * (1 - 1 / fan_out)[parent]
    size = np.log2(np.maximum(totals, 1)).astype(np.int64)[parent]
    spread = np.bincount(size, (values - share) ** 2 - own) / np.maximum(np.bincount(size, share**2), 1e-9)
    between = np.maximum(spread, 0)[size] * share**2
    drawn = share + between / (between + np.maximum(own, 1e-9)) * (values - share)
    counts = nearest_in_chebyshev(np.rint(drawn).astype(np.int64), first_cell, totals)
    return [*released, settled, keep_positive(leaves.cells, counts)]


def every_other_level(table: PublicTable, sigmas: Sequence[float]) -> list[Frontier]:
    """Measure every other level with twice the ρ, and release the sums of the finer one at those between."""
    tree, root, truth = table.tree, table.levels[0], TruthInMemory(table.levels)
    sigma = sigmas[-1]  # as `Halves` has bought it
    wanted = [level for level in range(1, tree.depth + 1) if (tree.depth - level) % 2 == 0]
    nodes, totals = Frontier(0, root.areas, root.true_counts), root.true_counts
    passed = []
    for level in wanted:
        between = expand(tree, nodes) if level - nodes.level == 2 else None
        parents = Frontier(between.level, between.areas, np.ones(len(between), dtype=np.int64)) if between else nodes
        cells, nothing = expand(tree, parents), np.zeros(0, dtype=np.int64)
        noisy = table_noise(np.concatenate([nothing, *true_counts_below(truth, tree, parents)]), sigma)
        first_cell = cells.first_cell[between.first_cell] if between else cells.first_cell
        counts = nearest_in_chebyshev(noisy, first_cell, totals) if len(totals) else noisy
        passed.append((between, cells, first_cell, noisy, counts > 0))
        nodes = keep_positive(cells, counts)
        totals = nodes.counts
    below = None
    upwards: list[NodeEstimates] = []
    for _, _, first_cell, noisy, kept in reversed(passed):
        own = measured(noisy[kept], sigma**2) if below is None else combined(noisy[kept], sigma**2, below)
        below = summed_children(noisy, sigma**2, first_cell, kept, own)
        upwards.append(own)
    released = [Frontier(0, root.areas, root.true_counts)]
    totals = root.true_counts
    for (between, cells, first_cell, noisy, kept), own in zip(passed, reversed(upwards), strict=True):
        counts = np.zeros_like(noisy)
        totals = counts[kept] = settle(own, first_kept(kept, first_cell), totals, nearest_in_chebyshev)
        if between:
            released.append(keep_positive(between, np.diff(np.append(0, np.cumsum(counts))[cells.first_cell])))
        released.append(keep_positive(cells, counts))
    return released


def contrasts(optimiser: Optimiser) -> Callable[[PublicTable, Sequence[float]], list[Frontier]]:
    """Measure contrasts of siblings in place of their counts: how far each is from the mean of its family.

    A unit moves a contrast of b siblings by 1 - 1/b, squared, on either path, and by 2 where its two paths part. So at the same cost
    the noise of a family below level 1 has (1 - 1/b) times the variance. Each family is settled on the way down, and there is
    nothing to learn on a way up.
    """

    def release(table: PublicTable, sigmas: Sequence[float]) -> list[Frontier]:
        tree, root, truth = table.tree, table.levels[0], TruthInMemory(table.levels)
        generator, nodes = np.random.default_rng(), Frontier(0, root.areas, root.true_counts)
        released = [nodes]
        for level, sigma in enumerate(sigmas[1:], 1):
            cells = expand(tree, nodes)
            fan_out, noisy = (
                np.diff(cells.first_cell),
                np.concatenate([*true_counts_below(truth, tree, nodes), np.zeros(0)]),
            )
            scales = sigma * (np.ones(len(nodes)) if level == 1 else np.sqrt(1 - 1 / fan_out))
            noisy += np.repeat(scales, fan_out) * generator.standard_normal(len(noisy))
            missing = nodes.counts - np.bincount(np.repeat(np.arange(len(nodes)), fan_out), noisy, len(nodes))
            estimates = np.rint(noisy + np.repeat(missing / fan_out, fan_out)).astype(np.int64)
            nodes = keep_positive(cells, optimiser(estimates, cells.first_cell, nodes.counts))
            released.append(nodes)
        return released

    return release


def _settled_within(noisy: IntArray, first_cell: IntArray, totals: IntArray, stays: BoolArray) -> IntArray:
    """Return counts of the cells that stay; of a parent of which none does, all do."""
    fan_out = np.diff(first_cell)
    has_any = np.bincount(np.repeat(np.arange(len(totals)), fan_out), stays, len(totals)) > 0
    stays = stays | ~np.repeat(has_any, fan_out)
    counts = np.zeros_like(noisy)
    own = measured(noisy[stays], 1.0)
    counts[stays] = settle(own, first_kept(stays, first_cell), totals, nearest_in_chebyshev)
    return counts


def _shrunk(cells: NodeEstimates, kinds: IntArray) -> NodeEstimates:
    """Return posterior means and variances of cells, a prior for each kind of which there are enough."""
    values, variances = cells.values.copy(), cells.variances.copy()
    for kind in np.unique(kinds):
        of_kind = np.flatnonzero(kinds == kind)
        small = of_kind[values[of_kind] < SMALL * np.sqrt(variances[of_kind].max())]
        if len(of_kind) >= 50 and 2 * len(small) > len(of_kind):
            values[small], variances[small] = _posterior(cells.values[small], cells.variances[small])
    return NodeEstimates(values, np.maximum(variances, 0.02 * cells.variances))


def _posterior(values: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the moments of each count under the prior that makes all of them most likely, on a grid from 0 up."""
    grid, step = [0.0], 0.35 * np.sqrt(variances.min())
    while grid[-1] < values.max():
        grid.append(grid[-1] + max(step, 0.12 * grid[-1]))
    points = np.array(grid)
    some = slice(None, None, max(1, len(values) // FITTED))
    prior = np.full(len(points), 1 / len(points))
    likelihood = _likelihood(values[some], variances[some], points)
    for _ in range(STEPS):
        prior = _weights(likelihood, prior).mean(axis=0)
    mean, square = (_weights(_likelihood(values, variances, points), prior) @ power for power in (points, points**2))
    return mean, np.maximum(square - mean**2, 0)


def _likelihood(values: FloatArray, variances: FloatArray, points: FloatArray) -> FloatArray:
    return np.exp(-((values[:, None] - points) ** 2) / (2 * variances[:, None]))


def _weights(likelihood: FloatArray, prior: FloatArray) -> FloatArray:
    joint = likelihood * prior
    return joint / (joint.sum(axis=1, keepdims=True) + 1e-300)


CANDIDATES = (
    Idea("pruned more", pruned_more),
    Idea("posterior means", posterior_means),
    Idea("shared leaves", shared_leaves),
    Halves("every other level", every_other_level),
    Idea("contrasts", contrasts(nearest_in_chebyshev)),
    Idea("contrasts in l2", contrasts(nearest_in_euclid)),
)


def main() -> None:
    """Try every idea on every set, and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the made-up sets")
    parser.add_argument("--only", default="", help="only sets whose names begin with this")
    arguments = parser.parse_args()
    for name, table in sets(arguments.seed):
        if name.startswith(arguments.only):
            base, _ = try_out(table, BASELINE, arguments.runs)
            print(f"{name}:", flush=True)
            for candidate in CANDIDATES:
                errors, _ = try_out(table, candidate, arguments.runs)
                print(line_of({"mechanism": candidate.name} | against(errors, base)), flush=True)


if __name__ == "__main__":
    main()
