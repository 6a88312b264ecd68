"""Coverage: measure how many intervals of fixed cells contain the true count, by true count, on sets that anybody may see.

The sets are the six made-up sets of the paper's Table 1, and Rhode Island by block groups if TRELLIS_DATA is set. ε is 1 and 10,
δ = 10⁻⁸, with privacy loss distributions, a uniform split, and a confidence of nine in ten. Every cell that a level could have
counts, measured or not. The page is benchmarks/coverage.md. The benchmark fails if the coverage of any level and true count is
more than five standard errors below the promise.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import takewhile
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import repository  # noqa: F401, for tests.support
from accuracy import SEED, sets
from compute import measurements
from results import excerpt, load, save

from flows.trials.in_memory import PublicTable
from tasks.laws.gaussian import GAUSSIAN, gaussian_quantile
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.laws.samplers import table_noise
from tasks.mechanisms import MECHANISMS
from tasks.tree.frontier import Frontier, locate
from tasks.tree.order import Tree
from tasks.uncertainty.intervals import CONFIDENCE, margins_of
from tasks.validate.coverage import GROUPS, TRUE_COUNTS, ZEROED, Bounds, MeasuredCells, level_coverages, measured_bounds
from tests.support.scales import try_scales

EPSILONS = (1.0, 10.0)
NAMES = ("inftda", "inftda_reconciled")
FEWEST = 100  # cells, of which a share says something
FAR = 5.0  # standard errors: what is further below the promise is no chance
MANY = 10  # records: with more, a cell that is zeroed has lost something
OURS = (
    "measured",
    "measured, many",
)  # of the cells that were measured and zeroed while not 0, and of those with many records
NAIVE = ("x ± z", "x ± z, many")  # of the same cells: around the noisy counts alone

PAGE = """\
# Coverage of the intervals of fixed cells

This page shows how often the intervals that `trellis query` states for single cells contain the true count. `python benchmarks/coverage.py`
writes it; do not edit it. Each figure comes from {runs} runs with δ = 10⁻⁸, privacy loss distributions and a uniform split below a total that
is exact. Every cell that a level could have is included, measured or not. The page shows the default mechanism at ε = 1.

## By true count

The interval of each fixed cell contains the true count with a probability of {confidence} or more, over all noise. The table has the share of
covered cells and the mean width (high − low, in records), by true count, over the cells of all levels:

{pooled}

Of {looked} levels and true counts, {far} are below {confidence} by more than five standard errors. The next table has the level on which a true
count is covered least, with the standard error. The least of many levels is small by chance too.

{worst}

## What is not promised

The intervals promise nothing about cells that are chosen by looking at the noise. *Zeroed* cells were released as 0 although their true count is not 0;
*measured* are those of them that were measured, and *above {many}* those that have more than {many} records. Beside them stands what the noisy count's
own x ± z covers. It says nothing about cells that were not measured, {unmeasured} of the zeroed cells. Shares of fewer than {fewest} cells are left out. At
ε = 10 hardly any cell with more than {many} records is zeroed, and few of those are covered: their noise was beyond any margin.

{selected}

Measured on {machine}.
"""


def of_zeroed(
    tree: Tree, true: Frontier, level: MeasuredCells, bounds: Bounds, margin: int
) -> dict[str, tuple[int, int, float]]:
    """Return of the measured cells that were zeroed while not 0 how many there are, and how many either interval covers."""
    row = locate(true.areas, bounds.areas, tree.sizes(true.level))
    zeroed = (row >= 0) & (bounds.counts[row] == 0)
    row, counts = row[zeroed], true.counts[zeroed]
    held = {OURS: counts <= bounds.high[row], NAIVE: np.abs(level.noisy[row] - counts) <= margin}
    return {
        name: (int(which.sum()), int(covered[which].sum()), 0.0)
        for names, covered in held.items()
        for name, which in zip(names, (counts > 0, counts > MANY), strict=True)
    }


def trials(table: PublicTable, name: str, epsilon: float, runs: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield, run by run, by group the cells, those covered, and the sum of widths of every noisy level, shape (levels, 3)."""
    tree = table.tree
    sigmas = [0.0, *(of_level.sigma for of_level in measurements(tree.depth, epsilon, "pld"))]
    margins = margins_of([LevelNoise(GAUSSIAN, sigma) if sigma else NO_NOISE for sigma in sigmas], CONFIDENCE)
    true = [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)]
    usual = [gaussian_quantile(sigma, log((1 - CONFIDENCE) / 2)) if sigma else 0 for sigma in sigmas]
    for _ in range(runs):
        tried = try_scales(table, MECHANISMS[name], sigmas, table_noise)
        measured = tried.measured
        bounds = measured_bounds(tree, measured, tried.released, margins, [1] * len(sigmas))
        levels = list(level_coverages(tree, true, bounds))[1:]
        of_run = {}
        for group in GROUPS:
            covered = [of_level[group] for of_level in levels]
            of_run[group] = np.array(
                [(of.cells, of.cells * (of.coverage or 0), of.cells * (of.width or 0)) for of in covered]
            )
        together = zip(true, measured, bounds, usual, strict=True)
        held = [of_zeroed(tree, *of_level) for of_level in together][1:]
        yield of_run | {name: np.array([of_level[name] for of_level in held]) for name in (*OURS, *NAIVE)}


def row_of(table: PublicTable, name: str, epsilon: float, runs: int) -> dict[str, Any]:
    """Return of a mechanism at an ε what all levels together and the worst one come to, by group, and what is too low."""
    tried = list(trials(table, name, epsilon, runs))
    row: dict[str, Any] = {"mechanism": name, "epsilon": epsilon, "runs": runs, "looked": 0, "far": []}
    for group in (*GROUPS, *OURS, *NAIVE):
        of_runs = np.array([of_run[group] for of_run in tried])  # shape (runs, levels, 3)
        cells, covered, width = of_runs.sum(axis=(0, 1))
        row[group] = {
            "cells": cells / runs,
            "coverage": covered / cells if cells else None,
            "width": width / cells if cells else None,
        }
        there = of_runs[0, :, 0] > 0
        if group in TRUE_COUNTS and there.any():
            shares = of_runs[:, there, 1] / of_runs[:, there, 0]
            means, errors = shares.mean(axis=0), shares.std(axis=0, ddof=1) / runs**0.5
            worst, levels = int(means.argmin()), 1 + np.flatnonzero(there)
            row[group] |= {"worst": means[worst], "worst_error": errors[worst], "worst_level": int(levels[worst])}
            row["looked"] += len(means)
            # of few runs the error may come out too small by chance: it is at least that of independent cells
            least = np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / of_runs[:, there, 0].sum(axis=0))
            is_far = means < CONFIDENCE - FAR * np.maximum(errors, least)
            row["far"] += [[group, int(level)] for level in levels[is_far]]
    return row


def percent(share: float | None) -> str:
    """Return a share as people read it."""
    return "" if share is None else f"{100 * share:.1f}%"


def records(width: float | None) -> str:
    """Return a mean width as people read it."""
    return "" if width is None else f"{width:,.1f}"


def table(file: str, rows: Sequence[dict[str, Any]], heads: Sequence[str], cells: Any) -> str:
    """Write rows as a table: the set, ε and the mechanism, then what is said of each row; return the rows of the default at ε = 1."""
    lines = [["set", "ε", "mechanism", *heads], ["---", "---:", "---", *["---:"] * len(heads)]]
    lines += [[row["set"], f"{row['epsilon']:g}", f"`{row['mechanism']}`", *cells(row)] for row in rows]
    return excerpt(file, lines, lambda line: list(line[1:3]) == ["1", "`inftda_reconciled`"])


def page(rows: Sequence[dict[str, Any]], machine: str) -> str:
    """Return the page."""
    zeroed, measured = (sum(row[group]["cells"] for row in rows) for group in ("zeroed", OURS[0]))
    return PAGE.format(
        runs=rows[0]["runs"],
        confidence=f"{100 * CONFIDENCE:g}%",
        looked=sum(row["looked"] for row in rows),
        far=sum(len(row["far"]) for row in rows) or "none",
        unmeasured=percent(1 - measured / zeroed),
        machine=machine,
        many=MANY,
        fewest=FEWEST,
        pooled=table(
            "coverage.csv",
            rows,
            [head for group in TRUE_COUNTS for head in (f"true {group}", f"width, {group}")],
            lambda row: [
                said
                for group in TRUE_COUNTS
                for said in (percent(row[group]["coverage"]), records(row[group]["width"]))
            ],
        ),
        worst=table(
            "coverage-worst.csv",
            rows,
            [f"true {group}" for group in TRUE_COUNTS],
            lambda row: [
                f"{percent(of['worst'])} ± {100 * of['worst_error']:.1f} (level {of['worst_level']})"
                if "worst" in of
                else ""
                for of in (row[group] for group in TRUE_COUNTS)
            ],
        ),
        selected=table(
            "coverage-zeroed.csv",
            rows,
            ["zeroed", "measured", "x ± z", f"above {MANY}", f"x ± z, above {MANY}"],
            lambda row: [
                percent(row[group]["coverage"] if row[group]["cells"] * row["runs"] >= FEWEST else None)
                for group in (ZEROED, OURS[0], NAIVE[0], OURS[1], NAIVE[1])
            ],
        ),
    )


def main() -> None:
    """Try both mechanisms on every set, print and keep what it came to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--page", action="store_true", help="only write the page from the last run")
    parser.add_argument("--only", default="", help="only sets whose names begin with this; does not write the page")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return
    rows = []
    for name, table in takewhile(lambda of: not of[0].startswith("Adult"), sets(SEED)):
        if name.startswith("made-up") or not name.startswith(arguments.only):
            continue
        for epsilon in EPSILONS:
            for mechanism in NAMES:
                rows.append({"set": name} | row_of(table, mechanism, epsilon, arguments.runs))
                print(line_of(rows[-1]), flush=True)
    if not arguments.only:
        save("coverage", rows)
        write_page()
    far = [(row["set"], row["mechanism"], row["epsilon"], of) for row in rows for of in row["far"]]
    assert not far, f"Covered less than is promised: {far}"


def write_page() -> None:
    """Write the page from what the last run has left."""
    if last := load("coverage"):
        (Path(__file__).parent / "coverage.md").write_text(page(last["rows"], last["machine"]), encoding="utf-8")


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    by_count = ", ".join(f"{group}: {percent(row[group]['coverage'])}" for group in TRUE_COUNTS)
    least = min((row[group]["worst"], row[group]["worst_error"]) for group in TRUE_COUNTS if "worst" in row[group])
    return (
        f"{row['set']}, epsilon {row['epsilon']:g}, {row['mechanism']}: covered {by_count}; at least {percent(least[0])} ±"
        f" {100 * least[1]:.1f} on a level; zeroed {percent(row['zeroed']['coverage'])}; of those measured {percent(row[OURS[0]]['coverage'])}, x ± z"
        f" {percent(row[NAIVE[0]]['coverage'])}"
    )


if __name__ == "__main__":
    main()
