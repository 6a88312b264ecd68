"""Cumulative counts of a series whose days are measured together, against releases that each stand alone at the same budget.

Run `python benchmarks/days.py`: a tree of 4 areas with 8 each is measured on every day for a unit with one record, under add_remove, and
settled by least squares, as releases do it. It prints the standard deviation of the counts of the 32 areas, over all trials, and beside it
the one that is stated. No store and no file.
"""

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.laws.days import Days, days_of
from tasks.laws.law import LevelCost, LevelNoise
from tasks.mechanisms import MECHANISMS
from tasks.noise.measure import measure
from tasks.tree.axis import Axis, IntArray
from tasks.tree.frontier import taking
from tasks.tree.order import Tree
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.variance import tree_variances

AREAS, EACH = 4, 8
EPSILON, DELTA = 1.0, 1e-8


def tree() -> Tree:
    """Return the tree."""
    first = np.array([0, AREAS]), np.arange(AREAS + 1) * EACH
    parent = np.zeros(AREAS, dtype=np.int64), np.repeat(np.arange(AREAS), EACH)
    return Tree((Axis("area", ("district", "zone"), first, parent, ()),), (0, 0))


def scheme(days: Days | None) -> Scheme:
    """Return what is measured, of each day alone or of days together."""
    keys = PrivacyKeys(unit="one person", neighbours="add_remove", max_records_per_unit=1, epsilon=EPSILON, delta=DELTA)
    return scheme_of(keys, tree(), tree(), MECHANISMS["unbiased_tree"], "opendp", days=days)


def noisy_days(days: Days | None, rho: Fraction, true: IntArray) -> Iterator[list[IntArray]]:
    """Yield the noisy counts of all levels of every day, from the true counts of the leaves, shape (days, leaves)."""
    planned, before = scheme(days), list[list[IntArray]]()
    of_levels = planned.allocation.measurements(rho)
    levels = [true.sum(axis=1, keepdims=True), true.reshape(len(true), AREAS, EACH).sum(axis=2), true]
    for day in range(len(true)):
        noisy = list[IntArray]()
        for level, (of, counts, moved) in enumerate(zip(of_levels, levels, planned.sensitivities, strict=True)):
            sampler = planned.law.samplers["opendp"].draw
            seen = counts[max(day + 1 - len(days.weights), 0) : day + 1][::-1] if days else counts[day]
            noise = LevelNoise(planned.law, of.sigma)
            measured = measure(seen, noise, LevelCost(of.rho), moved, sampler, days=days)
            noisy.append(days.released(measured, [of_day[level] for of_day in before]) if days else measured)
        before = [noisy, *before][: len(days.weights) - 1] if days else []
        yield noisy


def errors(days: Days | None, rho: Fraction, many: int, trials: int) -> tuple[float, float]:
    """Return the standard deviation of the count of a leaf on the last day, and of its sum over all days, before rounding."""
    planned, random = scheme(days), np.random.default_rng(1)
    precisions = precisions_of([LevelNoise(planned.law, of.sigma) for of in planned.allocation.measurements(rho)])
    variances, found = tree_variances(tree(), precisions), list[tuple[IntArray, IntArray]]()

    def settled(noisy: Sequence[IntArray]) -> IntArray:
        return np.concatenate(list(least_squares(variances, precisions, lambda level: taking(iter([noisy[level]])))))

    for _ in range(trials):
        true = random.integers(0, 200, (many, AREAS * EACH))
        every = list(noisy_days(days, rho, true))
        sums = [np.sum(of_level, axis=0) for of_level in zip(*every, strict=True)]
        found.append((settled(every[-1]) - true[-1], settled(sums) - true.sum(axis=0)))
    day, cumulative = (np.concatenate(of) for of in zip(*found, strict=True))
    return float(np.sqrt((day**2).mean())), float(np.sqrt((cumulative**2).mean()))


def stated(days: Days | None, rho: Fraction, many: int) -> tuple[float, float]:
    """Return the same as it is stated."""
    planned = scheme(days)
    scales = [of.sigma for of in planned.allocation.measurements(rho)]

    def deviation(of_levels: Sequence[float]) -> float:
        precisions = precisions_of([LevelNoise(planned.law, of) for of in of_levels])
        return float(tree_variances(tree(), precisions).levels[-1].most ** 0.5)

    if days is None:
        return deviation(scales), deviation(scales) * many**0.5
    of_day = [days.deviation(scale, many - 1) for scale in scales]
    return deviation(of_day), deviation([days.cumulative_deviation(scale, [many]) for scale in scales])


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--trials", type=int, default=20)
    asked = parser.parse_args()
    rho = ACCOUNTANTS["zcdp"].largest_rho(scheme(None).allocation, EPSILON, DELTA)
    print(f"ε = {EPSILON}, δ = {DELTA}, ρ = {float(rho):.5f}; {asked.days} days, {asked.trials} trials")
    print("                                             one day  stated   all days  stated")
    for name, days, cost in (
        ("measured together, for one record in all days", days_of(asked.days), rho),
        ("alone, for one record on every day           ", None, rho / asked.days),
        ("alone, for one record on one day             ", None, rho),
    ):
        (day, cumulative), (of_day, of_all) = (
            errors(days, cost, asked.days, asked.trials),
            stated(days, cost, asked.days),
        )
        print(f"{name}  {day:7.2f}  {of_day:6.2f}  {cumulative:8.1f}  {of_all:7.1f}")


if __name__ == "__main__":
    main()
