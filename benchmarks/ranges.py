"""Ranges: exact variances of trees of which every node is measured, against the best that any linear mechanism can do.

- tables: for 64, 256, 1,024 and 2²⁰ leaves the mean variance of all ranges, prefixes, nodes and dense sets, and that of the worst node, of
  flat noise, the binary tree without least squares, Hay's tree, the wavelet, the cascade, simple splits, the best split, and the
  eigen-design, with add_remove and 2ρ = 1. Beside them stands the optimum of the matrix mechanism with its dual bound, up to 1,024 leaves.
- strategies: for 24, 101, 256 and 1,024 codes the mean and the worst variance of all ranges and of all prefixes at 2ρ = 1 under add_remove, of
  unbiased_tree, cascade and optimal_ranges, as plans of releases have them, over the dual bound.
- products: 7 zones in 2 regions × 100 ages at ρ = 0.0172 under add_remove, the deviation of ages 18 to 24 in a zone, a region and all of them, as
  plans of grids and of a tree have it.
- grids: the mean variance of all rectangles of 32 × 32 leaves, for products of the splits of two axes, at 2ρ = 1 under add_remove.
- accounting: the noise of a node of the cascade with whole numbers, and with continuous noise.
- data: the error of all ranges on made-up daily counts, and of the default mechanism beside unbiased trees.
- releases: seconds and memory for 2²⁰ leaves; over `--releases` releases the variance of the nodes of every level, and their bias; how many
  of 2,000 random ranges their intervals hold in 200 releases.
- errata: the figures of docs/proofs/errata.md about Dharangutte, Gao, Gong and Wang (2024). The event that breaks sampling in floating-point
  numbers is counted in `--draws` draws; `--draws 20000000` takes a few minutes.

A line says of every figure that was asked for whether it is reached. Nothing is released or charged.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from unittest.mock import patch

import numpy as np
import repository  # noqa: F401, for tests.support
from matrix_mechanism import WORKLOADS, eigen_design, optimum, square_root
from numpy.typing import NDArray
from range_releases import covered_ranges, errors_of_levels, grid_seconds_and_memory, seconds_and_memory
from results import markdown, save
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr
from views import Asked

from flows.planning.guarantee import guarantee_of
from flows.planning.scheme import Scheme
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from flows.trials.in_memory import public_table
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, shares_of
from tasks.laws.samplers import table_noise
from tasks.mechanisms import MECHANISMS, mechanism_with
from tasks.tree.axis import Axis
from tasks.tree.order import Tree, alternate
from tasks.tree.views import View
from tasks.unbiased.baselines import MOST_LEAVES, best_precisions, covariance, variances_by, variances_in_pieces
from tasks.unbiased.dense import Dense
from tasks.unbiased.grid import Grid, side_of
from tasks.unbiased.precisions import costs_of, for_workload, mean_fan_outs, twice_rho, uniform, wavelet, worst_node
from tasks.unbiased.variance import ROUNDING_VARIANCE, TreeVariances, tree_variances
from tasks.unbiased.workloads import LEAVES, NODES, PREFIX, RANGES, SETS, WORST, mean_variances
from tests.support.scales import try_scales
from tests.support.shapes import axis_by

FloatArray = NDArray[np.float64]
Row = dict[str, float]  # by workload

SHOWN = (RANGES, PREFIX, NODES, WORST, SETS)
MOST_OPTIMAL = 1024  # leaves for which the optimum is found
MOST_DENSE = 256  # leaves for which eigenvectors of prefixes are found
CLOSE = 0.005  # relative, to the figures that were asked for

# What was asked for, by leaves, in multiples of the optimum; of the worst node and of the optimum, variances.
WANTED: Mapping[int, Mapping[str, Row]] = {
    256: {"eigen-design": {PREFIX: 1.59}},
    1024: {
        "flat": {RANGES: 27.7, PREFIX: 58.6, NODES: 2.56, WORST: 1024, SETS: 3.04},
        "binary tree": {RANGES: 7.1, PREFIX: 6.3, NODES: 5.11, WORST: 11},
        "hay": {RANGES: 1.75, PREFIX: 1.55, NODES: 2.56, WORST: 6.67, SETS: 6.10},
        "wavelet": {RANGES: 1.51, PREFIX: 1.54, NODES: 1.71, WORST: 11, SETS: 3.37},
        "cascade": {RANGES: 1.67, PREFIX: 1.49, NODES: 2.01, WORST: 4.33, SETS: 3.96},
        "best split": {RANGES: 1.46, PREFIX: 1.44, NODES: 1.0, SETS: 1.0},
        "eigen-design": {RANGES: 1.05, NODES: 1.0, SETS: 1.0},
        "square root": {PREFIX: 1.11},
        "optimum": {RANGES: 12.36, PREFIX: 8.74, NODES: 2.151, WORST: 4.33, SETS: 210.4},
    },
}
WANTED_OF_MILLION: Mapping[str, Row] = {  # variances for 2**20 leaves
    "hay": {RANGES: 76.37},
    "wavelet": {RANGES: 70.58},
    "cascade": {RANGES: 74.75},
    "best split": {RANGES: 69.38},
}
WANTED_OF_BRANCHING = {"2 children": {RANGES: 1.46}, "4 children": {RANGES: 1.58}, "32 children": {RANGES: 2.72}}


def main() -> None:
    """Run what is asked for, and print its tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only",
        default="tables,strategies,grids,products,accounting,data,releases,errata",
        help="parts, separated by commas",
    )
    parser.add_argument("--runs", type=int, default=20, help="of the default mechanism on made-up counts")
    parser.add_argument("--releases", type=int, default=4000, help="of which the variance is measured")
    parser.add_argument("--draws", type=int, default=2_000_000, help="of noise in floating-point numbers")
    parser.add_argument("--seed", type=int, default=1, help="of made-up counts and of floating-point noise")
    asked = parser.parse_args()
    parts: dict[str, Callable[[argparse.Namespace], list[Asked]]] = {
        "tables": tables,
        "strategies": strategies,
        "grids": grids,
        "products": products,
        "accounting": accounting,
        "data": data,
        "releases": releases,
        "errata": errata,
    }
    found = list[Asked]()
    if unknown := set(asked.only.split(",")) - parts.keys():
        parser.error(f"--only must name parts of {', '.join(parts)}, got {', '.join(sorted(unknown))}.")
    for name in asked.only.split(","):
        print(f"\n## {name}\n", flush=True)
        found += parts[name](asked)
    print()
    for figure in found:
        print(figure.line)
    save("ranges", [{"what": of.what, "value": of.value, "least": of.least, "most": of.most} for of in found])


# what was asked for of all rectangles of 32 × 32 leaves
RECTANGLES = {"flat": 128.4, "hay": 46.1, "cascade": 38.0, "wavelet": 28.7, "best for ranges": 25.8}


def grids(_: argparse.Namespace) -> list[Asked]:
    """Print the exact mean variance of all rectangles where all pairs of nodes of two axes are measured."""
    tree, ones, found = ordered_tree(32), [1] * 6, list[Asked]()
    fan_outs = mean_fan_outs(tree)
    splits = {
        "flat": np.eye(6)[5],
        "hay": uniform(fan_outs),
        "cascade": worst_node(fan_outs),
        "wavelet": wavelet(fan_outs),
        "best for ranges": for_workload("ranges", tree, ones, {0}),
    }
    for name, split in splits.items():
        unit = (split / twice_rho(split, ones)).tolist()
        side = side_of(tree, unit)
        variance = Grid((side, side)).mean_variances()[RANGES]
        print(f"{name}: {variance:.1f}")
        found.append(Asked(f"32 × 32 leaves, {name}: off, relative", abs(variance / RECTANGLES[name] - 1), most=CLOSE))
    return found


def products(_: argparse.Namespace) -> list[Asked]:
    """Print the deviations of a range of ages at every level of zones."""
    fan_outs, rho = [[2], [3, 4]], 0.0172
    zones, (ages,) = replace(axis_by(fan_outs, "zone"), is_ordered=False), ordered_tree(100).axes
    grid, tree = Tree((zones, ages), alternate([2, ages.depth], 0)), Tree((zones, ages), (0, 0) + (1,) * ages.depth)
    of_tree = {grid.axis_levels(level) for level in range(grid.depth + 1)}
    beside = [at for at in product(range(3), range(ages.depth + 1)) if at not in of_tree]
    names = [{axis.name: axis.level_name(own) for axis, own in zip(grid.axes, at, strict=True)} for at in beside]
    views = [
        (str(at), View(number, at, of))
        for number, (at, of) in enumerate(zip(beside, names, strict=True), grid.depth + 1)
    ]
    keys = PrivacyKeys(
        unit="one", neighbours="add_remove", max_records_per_unit=1, rho=rho, delta=1e-8, accountant="zcdp"
    )
    ends = [np.array([0, 0, 0]), np.array([18] * 3)], [np.array([1, 3, 7]), np.array([25] * 3)]
    deviations = dict[str, FloatArray]()
    for name, of in (("optimal_ranges", grid), ("unbiased_tree", grid), ("unbiased_tree", tree)):
        mechanism = mechanism_with(MECHANISMS[name], has_views=of is grid, is_grid=of is grid)
        scheme = scheme_of(keys, of, of, mechanism, "table", views=views if of is grid else ())
        variances = scheme.released(guarantee_of(scheme).noises).variances
        deviations[f"{name}, {'grid' if of is grid else 'order'}"] = variances.of_boxes(*ends) ** 0.5
        for axes, mean in scheme.ranges_beside(guarantee_of(scheme).noises):
            print(f"{name}, grid: the root mean variance of all ranges is {mean:.1f} in {axes or 'all'}")
        if scheme.strategies:
            strategy = scheme.strategies[1]
            zone = side_of(Tree((zones,), (0, 0)), [2 * rho / 3] * 3)
            dense = Dense(Tree((ages,), (0,) * ages.depth), strategy, float(np.diagonal(strategy.products).max()))
            deviations["equal precisions of zones, and a strategy of ages"] = Grid((zone, dense)).of_boxes(*ends) ** 0.5
    for name, (zone, region, total) in deviations.items():
        print(f"{name}: one zone {zone:.1f}, one region {region:.1f}, all {total:.1f}")
    wanted = deviations["equal precisions of zones, and a strategy of ages"]
    return [
        Asked(f"ages 18 to 24 in {where}: off, relative", abs(found / figure - 1), most=0.02)
        for where, found, figure in zip(("a zone", "a region", "all"), wanted.tolist(), (16.9, 14.4, 15.4), strict=True)
    ]


def tables(_: argparse.Namespace) -> list[Asked]:
    """Print the exact variances of every mechanism, for four numbers of leaves."""
    found = list[Asked]()
    for n in (64, 256, 1024, 2**20):
        rows = rows_of(n)
        print(f"{n:,} leaves, variances at 2ρ = 1 under add_remove:\n")
        print_rows(rows)
        if n <= MOST_OPTIMAL:
            print("\nin multiples of the optimum, except for the worst node; and the optimum:\n")
            bounds = optimum(n)
            best = {workload: at_most for workload, (_, at_most) in bounds.items()}
            over = {
                name: {of: value / best.get(of, 1.0) for of, value in row.items()} for name, row in rows.items()
            } | {"optimum": best | {WORST: rows["cascade"][WORST]}}
            print_rows(over | {"dual bound": {workload: at_least for workload, (at_least, _) in bounds.items()}})
            gap = max(at_most / at_least for at_least, at_most in bounds.values()) - 1
            found.append(Asked(f"{n} leaves: the optimum over its dual bound, less 1", gap, most=0.01))
            found.append(Asked(f"{n} leaves: furthest from dense inverses", furthest_from_dense(n, rows), most=1e-6))
            found += close_to(WANTED.get(n, {}), over, f"{n:,} leaves: ")
        else:
            found += close_to(WANTED_OF_MILLION, rows, f"{n:,} leaves: ")
        print(flush=True)
    print_gains()
    return found + branchings()


def strategies(_: argparse.Namespace) -> list[Asked]:
    """Print what plans of releases of one ordered axis say of its ranges and prefixes, by trees and by strategies."""
    found, lines = (
        list[Asked](),
        [["codes", "mechanism", "ranges: mean", "worst", "prefixes: mean", "worst", "over the bound"]],
    )
    lines.append(["---:", "---", *["---:"] * 5])
    for n in (24, 101, 256, 1024):
        means, tree = dict[str, float](), ordered_tree(n)
        for mechanism, workload in product(("unbiased_tree", "cascade", "optimal_ranges"), (RANGES, PREFIX)):
            if mechanism == "cascade" and workload == PREFIX:
                continue
            scheme, variances = as_planned(tree, mechanism, workload, rho=0.5, accountant="zcdp")
            begin, end = np.triu_indices(n + 1, 1)
            every = variances.of_boxes([begin], [end])
            own = {RANGES: every, PREFIX: every[begin == 0]}
            name = mechanism if mechanism == "cascade" else f"{mechanism}, {workload}"
            means[name] = float(own[workload].mean())
            over = f"{means[name] / scheme.designs[0].at_least - 1:.2%}" if scheme.designs else ""
            lines.append(
                [f"{n:,}", name, *(f"{of:.2f}" for one in own.values() for of in (one.mean(), one.max())), over]
            )
            if scheme.designs:
                ratio = means[name] / scheme.designs[0].at_least
                found.append(Asked(f"{n:,} codes, {name}: over the bound", ratio, most=1.02))
        if n == 256:
            ratio = means[f"optimal_ranges, {RANGES}"] / means[f"unbiased_tree, {RANGES}"]
            found.append(Asked("256 codes: optimal_ranges over unbiased_tree, ranges", ratio, most=0.75))
            ways = {"optimal_ranges": "zcdp", "unbiased_tree": "pld"}
            of_ways = [as_planned(tree, of, RANGES, epsilon=1.0, accountant=way)[1] for of, way in ways.items()]
            one, other = (float(of.of_boxes([begin], [end]).mean()) for of in of_ways)
            found.append(Asked("256 codes: the same at (1, 1e-8), the tree accounted by pld", one / other))
    print(markdown(lines), flush=True)
    return found


def as_planned(tree: Tree, mechanism: str, workload: str, **cost: object) -> tuple[Scheme, TreeVariances | Dense]:
    """Return the measurements of a planned release of one ordered axis, and the variances of its counts before rounding."""
    split = {} if mechanism == "cascade" else {"split": {"workload": workload}}
    unit = {"unit": "one", "neighbours": "add_remove", "max_records_per_unit": 1}
    scheme = scheme_of(PrivacyKeys(**unit, delta=1e-8, **cost, **split), tree, tree, MECHANISMS[mechanism], "table")
    return scheme, scheme.released(guarantee_of(scheme).noises).variances


def ordered_tree(n: int) -> Tree:
    """Return the tree of n leaves of an ordered axis."""
    (axis,) = halved(n).axes
    return Tree((replace(axis, is_ordered=True),), (0,) * axis.depth)


def rows_of(n: int) -> dict[str, Row]:
    """Return the variances of every mechanism that is exact on n leaves, by workload."""
    tree = halved(n)
    fan_outs, levels = mean_fan_outs(tree), tree.depth + 1
    flat = np.eye(levels)[-1]
    splits = {"flat": flat, "hay": uniform(fan_outs), "wavelet": wavelet(fan_outs), "cascade": worst_node(fan_outs)}
    splits |= {f"finest: {weight}": uniform(fan_outs) + (weight - 1) * flat for weight in (1.5, 2)}
    rows = {name: row_of(tree, precisions) for name, precisions in splits.items()}
    pieces = variances_in_pieces(tree.axes[0], [float(levels)] * levels)
    best = {workload: row_of(tree, for_workload(workload, tree, [1] * levels, {0}))[workload] for workload in WORKLOADS}
    rows |= {"binary tree": pieces, "best split": best}
    if n <= MOST_LEAVES:  # of nodes and sets the eigenvectors are those of a tree, whose best split is the design
        ranges = variances_by(covariance(best_precisions(n)), tree.axes[0])[RANGES]
        rows["eigen-design"] = {RANGES: ranges, NODES: best[NODES], SETS: best[SETS]}
        rows["square root"] = {PREFIX: square_root(n)}
    if n <= MOST_DENSE:
        rows["eigen-design"] |= {PREFIX: eigen_design(PREFIX, n)}
    return rows


def row_of(tree: Tree, precisions: FloatArray, squares: Sequence[int] = ()) -> Row:
    """Return the variances of a tree at 2ρ = 1 by workload; of one record under add_remove, unless Δ₂² of levels is given."""
    squares = squares or [1] * len(precisions)
    cost = twice_rho(precisions, squares)
    noise = [p / cost if square else math.inf for p, square in zip(precisions.tolist(), squares, strict=True)]
    return mean_variances(tree_variances(tree, noise), {0})


def halved(n: int, branching: int = 2) -> Tree:
    """Return the tree of n leaves that are cut into parts of about the same size until each is alone."""
    sizes, first_child, parent = np.array([n]), [], []
    while sizes.max() > 1:
        parts = np.minimum(sizes, branching)
        parent.append(np.repeat(np.arange(len(sizes)), parts))
        first_child.append(np.append(0, np.cumsum(parts)))
        part = np.arange(len(parent[-1])) - first_child[-1][parent[-1]]
        sizes = (sizes // parts)[parent[-1]] + (part < (sizes % parts)[parent[-1]])
    names = tuple(f"leaf_{level}" for level in range(len(parent)))
    return Tree((Axis("leaf", names, tuple(first_child), tuple(parent), ()),), (0,) * len(parent))


def furthest_from_dense(n: int, rows: Mapping[str, Row]) -> float:
    """Return the largest relative difference between exact variances of trees and those by dense inverses."""
    tree, furthest = halved(n), 0.0
    fan_outs = mean_fan_outs(tree)
    for name, of in {"hay": uniform, "wavelet": wavelet, "cascade": worst_node}.items():
        precisions = of(fan_outs) / of(fan_outs).sum()
        leaf = np.arange(n)
        information = sum(
            precision * (leaf[:, None] >> (tree.depth - level) == leaf >> (tree.depth - level))
            for level, precision in enumerate(precisions)
        )
        dense = variances_by(np.linalg.inv(information), tree.axes[0])
        furthest = max(furthest, *(abs(rows[name][workload] / dense[workload] - 1) for workload in dense))
    return furthest


def print_gains() -> None:
    """Print how much is gained by the very shape of trees whose fan-outs vary, at most over workloads and neighbours."""
    for n in (3, 5, 9, 17, 24, 65, 100, 365, 1000):
        tree, gain = halved(n), 0.0
        for workload, squares in product(WORKLOADS, ([1] * (tree.depth + 1), [0, *[2] * tree.depth])):
            by_shape = for_workload(workload, tree, squares, {0})
            with patch("tasks.unbiased.precisions.MOST_REFINED", 0):
                by_means = for_workload(workload, tree, squares, {0})
            gain = max(gain, row_of(tree, by_means, squares)[workload] / row_of(tree, by_shape, squares)[workload] - 1)
        print(f"{n} leaves: shares by the shape of the tree gain up to {gain:.2%}")


def branchings() -> list[Asked]:
    """Print what the best split for ranges comes to with more children per node, for 1,024 leaves."""
    found = dict[str, Row]()
    for branching in (2, 4, 32):
        tree = halved(1024, branching)
        best = for_workload(RANGES, tree, [1] * (tree.depth + 1), {0})
        found[f"{branching} children"] = {RANGES: row_of(tree, best)[RANGES] / optimum(1024)[RANGES][1]}
    of = ", ".join(f"{name} {row[RANGES]:.2f}" for name, row in found.items())
    print(f"best split for ranges over the optimum, 1,024 leaves: {of}")
    return close_to(WANTED_OF_BRANCHING, found)


def close_to(wanted: Mapping[str, Row], rows: Mapping[str, Row], of: str = "1,024 leaves: ") -> list[Asked]:
    """Return the figures that were asked for to half a percent."""
    return [
        Asked(f"{of}{name}, {workload}", rows[name][workload], least=value * (1 - CLOSE), most=value * (1 + CLOSE))
        for name, row in wanted.items()
        for workload, value in row.items()
    ]


def print_rows(rows: Mapping[str, Row]) -> None:
    """Print variances, a row per mechanism."""
    cells = [[name, *(f"{row[of]:,.4g}" if of in row else "" for of in SHOWN)] for name, row in rows.items()]
    print(markdown([["", *SHOWN], ["---", *["---:"] * len(SHOWN)], *cells]))


def accounting(_: argparse.Namespace) -> list[Asked]:
    """Print the standard deviation of a node of the cascade for some (ε, δ), of whole and of continuous noise."""
    found, delta = list[Asked](), 1e-8
    asked_for = {
        (1.0, 10, "add_remove"): (10.6200, 10.6171),
        (1.0, 10, "substitution"): (13.8183, 13.8117),
        (4.0, 20, "add_remove"): (3.8653, 3.8642),
        (4.0, 20, "substitution"): (5.2242, 5.2218),
    }
    for (epsilon, depth, neighbours), (whole, continuous) in asked_for.items():
        squares = [1] * (depth + 1) if neighbours == "add_remove" else [0, *[2] * depth]
        precisions = worst_node(np.full(depth, 2.0))
        cost = twice_rho(precisions, squares)
        sigma = math.sqrt(cost / (2 * rho_for(precisions, squares, epsilon, delta)))
        smooth = math.sqrt(cost) * analytic_scale(epsilon, delta)
        print(f"ε = {epsilon:g}, {depth} levels, {neighbours}: whole noise {sigma:.4f}, continuous {smooth:.4f}")
        case = f"ε = {epsilon:g}, {neighbours}"
        found.append(Asked(f"{case}: sd of a node", sigma, least=whole * 0.9995, most=whole * 1.0005))
        found.append(
            Asked(f"{case}: sd with continuous noise", smooth, least=continuous * 0.9995, most=continuous * 1.0005)
        )
    return found


def rho_for(precisions: FloatArray, squares: list[int], epsilon: float, delta: float) -> float:
    """Return the most ρ that the accountant of releases allows for levels with some relative precisions."""
    measured = [square for precision, square in zip(precisions, squares, strict=True) if precision and square]
    allocation = Allocation(shares_of(costs_of(precisions, squares)), tuple(measured))
    return float(ACCOUNTANTS["pld"].largest_rho(allocation, epsilon, delta))


def analytic_scale(epsilon: float, delta: float) -> float:
    """Return the scale of continuous Gaussian noise for sensitivity 1 (Balle and Wang 2018)."""

    def excess(scale: float) -> float:
        over = 1 / (2 * scale)
        return ndtr(over - epsilon * scale) - math.exp(epsilon + log_ndtr(-over - epsilon * scale)) - delta

    return brentq(excess, 1e-3, 1e4, xtol=1e-12)


def data(asked: argparse.Namespace) -> list[Asked]:
    """Print the root mean square error of all ranges of 1,024 days, at ε = 1 and δ = 10⁻⁸ under add_remove."""
    n, epsilon, delta = 1024, 1.0, 1e-8
    tree, squares = halved(n), [1] * 11
    fan_outs, flat = mean_fan_outs(tree), np.eye(11)[-1]
    splits = {"flat": flat, "hay": uniform(fan_outs), "cascade": worst_node(fan_outs), "wavelet": wavelet(fan_outs)}
    splits |= {"best split": for_workload(RANGES, tree, squares, {0})}
    errors, of_leaves = dict[str, float](), dict[str, float]()
    for name, precisions in splits.items():
        cost = 2 * rho_for(precisions, squares, epsilon, delta)
        row, rounding = row_of(tree, precisions), 0.0 if name == "flat" else ROUNDING_VARIANCE
        errors[name], of_leaves[name] = (math.sqrt(row[of] / cost + rounding) for of in (RANGES, LEAVES))
    unit = analytic_scale(epsilon, delta) ** 2
    ranges = variances_by(covariance(best_precisions(n)), tree.axes[0])[RANGES]
    errors |= {"eigen-design": math.sqrt(unit * ranges), "optimum": math.sqrt(unit * optimum(n)[RANGES][1])}
    print("whatever the data, by exact variances: " + ", ".join(f"{name} {of:.1f}" for name, of in errors.items()))
    print("of leaves: " + ", ".join(f"{name} {of:.1f}" for name, of in of_leaves.items()))
    generator = np.random.default_rng(asked.seed)
    sets = {
        "daily counts of mean 200": generator.poisson(200, n),
        "daily counts of mean 10": generator.poisson(10, n),
        "5% of days, Pareto": np.where(generator.random(n) < 0.05, np.ceil(10 * (1 + generator.pareto(1.2, n))), 0),
    }
    rivals = {"inftda_reconciled": uniform(fan_outs), "with {finest: 2}": uniform(fan_outs) + flat}
    for kind, counts in sets.items():
        of = [f"{name} {of_ranges(tree, counts, split, asked.runs)}" for name, split in rivals.items()]
        print(f"{kind}: " + ", ".join(of), flush=True)
    wanted = {"flat": 94.3, "hay": 23.7, "cascade": 23.2, "wavelet": 22.0, "best split": 21.7, "optimum": 17.9}
    return [
        Asked(f"error of all ranges, {name}", errors[name], least=value * (1 - CLOSE), most=value * (1 + CLOSE))
        for name, value in wanted.items()
    ]


def of_ranges(tree: Tree, counts: NDArray[np.float64], split: FloatArray, runs: int) -> str:
    """Return the root mean square error of all ranges and of all leaves of the default mechanism, with a standard error."""
    there = np.flatnonzero(counts)
    table = public_table(tree, (there,), counts[there].astype(np.int64))
    rho = rho_for(split, [1] * len(split), 1.0, 1e-8)
    scales = np.sqrt(split.sum() / (2 * rho * split)).tolist()
    squares = []
    for _ in range(runs):
        leaves = try_scales(table, MECHANISMS["inftda_reconciled"], scales, table_noise).released[-1]
        errors = -counts.astype(np.float64)
        errors[leaves.areas[0]] += leaves.counts
        prefixes = np.append(0.0, np.cumsum(errors))  # a range is the difference of two of them
        squares.append((2 * prefixes.var() * (len(counts) + 1) / len(counts), (errors**2).mean()))
    mean, spread = np.mean(squares, axis=0), np.std(squares, axis=0, ddof=1) / math.sqrt(runs)
    error = spread[0] / (2 * math.sqrt(mean[0]))
    return f"{math.sqrt(mean[0]):.1f} ± {error:.1f} (leaves {math.sqrt(mean[1]):.1f})"


def releases(asked: argparse.Namespace) -> list[Asked]:
    """Print what releases of ordered axes take, how far their counts deviate, and how many intervals of ranges cover."""
    seconds, memory = seconds_and_memory(halved(2**20))
    print(f"2²⁰ leaves, measured and settled with the table sampler: {seconds:.2f} thread seconds, {memory:.2f} GB")
    found = [
        Asked("2²⁰ leaves: thread seconds", seconds, most=0.5),
        Asked("2²⁰ leaves: GB at most", memory, most=0.3),
    ]
    seconds, memory = grid_seconds_and_memory(halved(2**10))
    print(f"a grid of 2¹⁰ × 2¹⁰ leaves: {seconds:.2f} thread seconds, {memory:.2f} GB")
    found += [Asked("grid: thread seconds", seconds, most=1), Asked("grid: GB at most", memory, most=0.6)]
    for sigma in (5.0, 1.0):
        print(
            f"\nσ = {sigma:g}, 128 leaves, {asked.releases:,} releases: variance of nodes over that stated, largest z of a mean"
        )
        tree, wanted = halved(128), sigma**2 + ROUNDING_VARIANCE
        levels = list(errors_of_levels(tree, sigma, asked.releases))
        print(", ".join(f"level {level}: {square / wanted:.3f}, {z:.1f}" for level, square, z in levels))
        # one node per release tells its variance to √(2 / releases)
        apart = max(
            abs(square / wanted - 1) - 3 * math.sqrt(2 / asked.releases / 2**level) for level, square, _ in levels
        )
        found.append(Asked(f"σ = {sigma:g}: variance, off by more than three standard errors", apart, most=0.03))
        found.append(Asked(f"σ = {sigma:g}: largest z of a mean error", max(z for *_, z in levels), most=4.5))
    share = covered_ranges(halved(256), 6.0, 2000, 200)
    print(
        f"\n2,000 random ranges of 256 leaves in 200 releases: {share:.1%} of the intervals at 90% hold the true count"
    )
    return [*found, Asked("share of ranges that are covered", share, least=0.89)]


def errata(asked: argparse.Namespace) -> list[Asked]:
    """Print the figures that docs/proofs/errata.md has about the paper."""
    epsilon, delta, depth = 0.1, 1e-9, 15
    paper = 2 * math.log(2 / delta) / epsilon**2  # its variance for sensitivity 1
    events = floating_point_events(math.sqrt(paper * (1 + depth / 3)), depth, asked.draws, asked.seed)
    for count, of in enumerate(events):
        print(f"|y| < 1/2 and y no multiple of 2⁻⁵³, true count {count}: {of:,} of {asked.draws:,} draws")
    rate = events[0] / asked.draws
    print(f"a rate of {rate:.2g}, which is {rate / delta:,.0f} times δ = {delta:g}\n")
    analytic = analytic_scale(epsilon, delta) ** 2
    print(f"variance for sensitivity 1 at ε = {epsilon}, δ = {delta}: the paper {paper:,.0f}, analytic {analytic:,.0f}")
    tree = halved(2**5)
    of_leaves = sum(
        precision * np.kron(np.eye(2**level), np.ones((2 ** (5 - level),) * 2))
        for level, precision in enumerate(worst_node(mean_fan_outs(tree)))
    )
    largest, own = float(np.linalg.eigvalsh(of_leaves)[-1]), float(np.diag(of_leaves).max())
    print(f"32 leaves: largest eigenvalue of the information {largest:.2f}, largest entry of its diagonal {own:.2f}")
    print(f"mean absolute value of one normal variable: {math.sqrt(2 / math.pi):.3f}, where the paper has at least 1")
    rows = {
        name: row_of(halved(64), of(np.full(6, 2.0)))[RANGES]
        for name, of in {"cascade": worst_node, "wavelet": wavelet}.items()
    }
    laplace = rows["wavelet"] / 7 * 2 * (7 / epsilon) ** 2  # seven coefficients per record, each with scale 7 / ε
    print(
        f"all ranges of 64 leaves: cascade {paper * rows['cascade']:.3g}, wavelet with Laplace noise and pure ε {laplace:.3g},"
        f" with Gaussian noise {paper * rows['wavelet']:.3g}"
    )
    return [
        Asked("the event at count 0, in multiples of δ", rate / delta, least=1000),
        Asked("the event at count 1", float(events[1]), most=0),
        Asked("the paper's variance over the analytic one", paper / analytic, least=1.69, most=1.71),
        Asked("32 leaves: largest eigenvalue", largest, least=31.99, most=32.01),
        Asked("64 leaves: variance of cascade", paper * rows["cascade"], least=3.55e4, most=3.65e4),
        Asked("64 leaves: variance of the wavelet with pure ε", laplace, least=0.995e4, most=1.05e4),
    ]


def floating_point_events(sigma: float, depth: int, draws: int, seed: int) -> tuple[int, int]:
    """Return how often a noisy leaf, drawn down a tree in floating-point numbers, is fine-grained near 0, at true counts 0 and 1.

    Each node's noise is half that of its parent plus or minus a draw of variance 3σ²/4. At count 1 a sum of 1 and noise between -3/2
    and -1/2 is exact, and a multiple of 2⁻⁵³; near 0 noise has more digits.
    """
    generator, events = np.random.default_rng(seed), [0, 0]
    for first in range(0, draws, 1_000_000):
        size = min(1_000_000, draws - first)
        noise = generator.normal(0.0, sigma, size)
        for _ in range(depth):
            noise = noise / 2 + generator.normal(0.0, math.sqrt(3) / 2 * sigma, size)
        for count in (0, 1):
            released = count + noise
            near = released[np.abs(released) < 0.5] * 2.0**53
            events[count] += int((near != np.floor(near)).sum())
    return events[0], events[1]


if __name__ == "__main__":
    main()
