"""Rows: measure on sets that anybody may see whether the published rows are what a release says of them.

The sets are those of `accuracy.py`, Rhode Island and Adult among them where TRELLIS_DATA is set, and a made-up survey in place of the
made-up country. ε is 0.1, 1 and 4, δ = 10⁻⁸, both noise laws, a uniform split below an exact total, confidence nine in ten and 19
in 20. Beside the intervals of the tables stand those of cells that are fixed beforehand, on the same rows. Then come the marks and
the bounds. The page is benchmarks/rows.md. The benchmark fails if on some level the mean share of rows that are missed, or of marked
rows that are noise, is above its rate by more than two standard errors and what chance makes of so many levels, or if a bound does not
hold.
"""

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import repository  # noqa: F401, for tests.support
from accuracy import SEED, sets
from compute import measurements, table_of
from coverage import percent
from results import excerpt, load, save
from scipy.special import ndtri

from flows.trials.in_memory import PublicTable, Trial, public_table
from storage.releases.terms import SIGNAL_RATE
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, Law, LevelNoise
from tasks.laws.named import noise_of
from tasks.mechanisms import MECHANISMS
from tasks.released.families import estimate_of
from tasks.released.sources.job import JobSource
from tasks.synthesize.country import draw_survey
from tasks.tree.frontier import Frontier
from tasks.uncertainty.bounds import chebyshev_bounds
from tasks.uncertainty.intervals import margins_of
from tasks.validate.coverage import false_share, measured_bounds, rows_covered, summed_bounds
from tasks.validate.utility import level_errors
from tests.support.scales import try_scales

EPSILONS = (0.1, 1.0, 4.0)
CONFIDENCES = (0.9, 0.95)
NAMES = ("inftda", "inftda_reconciled", "inftda_lenient", "tda_l2", "gaussian")
LAWS: dict[str, Law] = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
MOST_LEAVES = 100_000  # of a set on which `gaussian` is tried, which measures them all
WIDE = 1.6  # times the interval of a fixed cell
FEWEST = 100  # rows of a level, of which a share says something

PAGE = """\
# Coverage of the rows

This page shows how many published rows have their true count between `low` and `high`. `python benchmarks/rows.py` writes it; do not
edit it. Each figure comes from {runs} runs with δ = 10⁻⁸ and a uniform split below a total that is exact, on levels with {fewest} rows
or more.

Trellis promises that of a level's rows a share α at most is missed on average, even though the noise decides which cells become rows. All {looked}
levels of all sets, mechanisms, laws and ε were looked at: {far} miss the promise by more than chance.

- *rows*: the share covered, on the level that is covered least, as a mean over the runs.
- *width*: the median over the levels of how wide the intervals are, relative to those of cells that are fixed beforehand. Of {entries} widths,
  {wide} are above 1.6, the widest {widest}; the median of no set is above {median}.
- *fixed*: what the intervals of fixed cells cover on their worst level. They promise nothing for rows.

The page shows the default mechanism at ε = 1 with Gaussian noise. `gaussian`, which measures every leaf, was tried on sets of at most 100,000 possible leaves.

{table}

## Marks and bounds

- *false marks*: the share of rows with `signal` whose true count is 0, on the worst level with {fewest} marked rows or more. Trellis
  promises 10% at most on average; {false} of the levels miss that by more than chance.
- *error*: the largest error of any count at the finest level in any run. *before* is the bound that is known before the draw, *after* the mean of
  the bounds that are known after it. In {beyond} of {bounded} releases some error was beyond the bound after the draw.

{known}

Measured on {machine}.
"""


def scales_of(law: str, depth: int, epsilon: float) -> list[float]:
    """Return the scales of levels 0 to T, records: 0 for the total, which one person who moves does not change."""
    if law == "laplace":
        return [0.0, *[2 * depth / epsilon] * depth]
    return [0.0, *(of_level.sigma for of_level in measurements(depth, epsilon, "zcdp"))]


def shares(table: PublicTable, trial: Trial, confidence: float) -> Iterator[tuple[float, float, float]]:
    """Yield, for each level with enough rows, the share covered, the same by intervals of fixed cells, and the ratio of widths."""
    release = trial.job.record.release
    terms = replace(release.terms, intervals=release.terms.intervals.model_copy(update={"confidence": confidence}))
    record = replace(trial.job.record, release=replace(release, terms=terms))
    published = estimate_of(JobSource(replace(trial.job, record=record)))
    noises = [
        LevelNoise(LAWS_BY_NAME[of.mechanism], of.scale or of.sigma) if of.sigma else NO_NOISE for of in release.levels
    ]
    if release.levels[0].is_summed:
        bounds = [summed_bounds(table.tree, nodes, noises[-1], confidence) for nodes in trial.released]
    else:
        margins = margins_of(noises, confidence)
        bounds = measured_bounds(table.tree, trial.measured, trial.released, margins, [1] * len(noises))
    for bound, nodes in zip(bounds, table.levels, strict=True):
        rows, kept = published.rows(bound.level)[:], np.flatnonzero(bound.counts)
        true = Frontier(bound.level, nodes.areas, nodes.true_counts)
        of_rows = rows_covered(table.tree, true, rows.areas, *rows.bounds[:2])
        areas = [of_axis[kept] for of_axis in bound.areas]
        of_fixed = rows_covered(table.tree, true, areas, bound.low[kept], bound.high[kept])
        if bound.level and of_rows and of_fixed and of_rows.cells >= FEWEST:
            yield of_rows.coverage or 0.0, of_fixed.coverage or 0.0, (of_rows.width or 0.0) / (of_fixed.width or 1.0)
        else:
            yield np.nan, np.nan, np.nan


LAWS_BY_NAME = {law.name: law for law in LAWS.values()}


def known(table: PublicTable, trial: Trial) -> Iterator[dict[str, float]]:
    """Yield, for each level but the root, what is true of its rows and what a release says of them."""
    published, noises = trial.published, [noise_of(level) for level in trial.job.record.release.levels]
    rows = [published.rows(level)[:] for level in range(len(noises))]
    stated = [published.known(level) for level in range(len(noises))]
    before = bounds_before(table, trial, noises)
    for level, (of_level, nodes) in enumerate(zip(rows, table.levels, strict=True)):
        true = Frontier(level, nodes.areas, nodes.true_counts)
        marked = [areas[of_level.signal] for areas in of_level.areas]
        errors = level_errors(table.tree, true, trial.released[level])
        if level:
            yield {
                "marks": int(of_level.signal.sum()),
                "false": false_share(table.tree, true, marked) or 0.0,
                "error": errors.max_absolute,
                "after": np.nan if stated[level].bound is None else stated[level].bound,
                "before": before[level],
            }


def bounds_before(table: PublicTable, trial: Trial, noises: Sequence[LevelNoise]) -> list[float]:
    """Return the bounds of levels 0 to T before the draw, where the repair is one that they hold for."""
    possible = [table.tree.possible_cells(level) for level in range(table.tree.depth + 1)]
    is_bounded = trial.job.record.release.terms.mechanism == "inftda"
    return chebyshev_bounds(noises, possible) if is_bounded else [np.nan] * len(possible)


def known_summary(of_runs: Sequence[Sequence[dict[str, float]]]) -> dict[str, Any]:
    """Return what the runs of a mechanism come to: at the finest level, and over all levels."""
    finest = [run[-1] for run in of_runs]
    often = [of for of in zip(*of_runs, strict=True) if all(level["marks"] >= FEWEST for level in of)]
    shares = np.array([[level["false"] for level in of] for of in often]).reshape(len(often), len(of_runs))
    means, errors = shares.mean(axis=1), shares.std(axis=1, ddof=1) / len(of_runs) ** 0.5
    allowed = (2 + float(-ndtri(0.05 / max(len(often), 1)))) * errors
    return {
        **{key: mean([of[key] for of in finest]) for key in ("after", "before")},
        "error": max(of["error"] for of in finest),
        "false": float(means.max()) if len(often) else None,
        "false_levels": int((means > SIGNAL_RATE + allowed).sum()),
        "beyond": sum(any(of["error"] > of["after"] for of in run) for run in of_runs),
    }


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of the values that there are; None where there is none."""
    there = [value for value in values if not np.isnan(value)]
    return sum(there) / len(there) if there else None


def rows_of(name: str, table: PublicTable, runs: int) -> Iterator[dict[str, Any]]:
    """Yield a row per law, ε, mechanism and confidence."""
    for law, of_law in LAWS.items():
        for epsilon in EPSILONS:
            scales = scales_of(law, table.tree.depth, epsilon)
            for mechanism in NAMES:
                if mechanism == "gaussian" and table.tree.possible_cells(table.tree.depth) > MOST_LEAVES:
                    continue
                found: dict[float, list[Any]] = {confidence: [] for confidence in CONFIDENCES}
                said = []
                for _ in range(runs):
                    trial = try_scales(table, MECHANISMS[mechanism], scales, of_law.samplers["table"].draw, law=of_law)
                    said.append(list(known(table, trial)))
                    for confidence in CONFIDENCES:
                        found[confidence].append(list(shares(table, trial, confidence)))
                for confidence, of_runs in found.items():
                    row = {"set": name, "law": law, "epsilon": epsilon, "mechanism": mechanism, "runs": runs}
                    row |= {"confidence": confidence} | summary(np.array(of_runs), confidence)
                    yield row | {"known": known_summary(said)}


def summary(of_runs: np.ndarray, confidence: float) -> dict[str, Any]:
    """Return what all runs come to, of shape (runs, levels, 3)."""
    of_runs = of_runs[:, ~np.isnan(of_runs[:, :, 0]).any(axis=0)]
    levels = of_runs.shape[1]
    if not levels:
        return {"levels": 0, "far": 0}
    means, errors = of_runs.mean(axis=0), of_runs.std(axis=0, ddof=1) / len(of_runs) ** 0.5
    allowed = (2 + float(-ndtri(0.05 / levels))) * errors[:, 0]
    worst = int(means[:, 0].argmin())
    return {
        "levels": levels,
        "rows": means[worst, 0],
        "error": errors[worst, 0],
        "fixed": means[:, 1].min(),
        "ratio": float(np.median(means[:, 2])),
        "far": int((means[:, 0] < confidence - allowed).sum()),
    }


def page(rows: Sequence[dict[str, Any]], machine: str) -> str:
    """Return the page."""
    heads = [
        "set",
        "ε",
        "law",
        "mechanism",
        *(f"{head}, {of:g}" for of in CONFIDENCES for head in ("rows", "width", "fixed")),
    ]
    lines = [heads, ["---", "---:", "---", "---", *["---:"] * 3 * len(CONFIDENCES)]]
    for first, *others in zip(*[iter(rows)] * len(CONFIDENCES), strict=True):
        line = [first["set"], f"{first['epsilon']:g}", first["law"], f"`{first['mechanism']}`"]
        for row in (first, *others):
            line += [
                f"{percent(row['rows'])} ± {100 * row['error']:.1f}" if row["levels"] else "",
                f"{row['ratio']:.2f}" if row["levels"] else "",
                percent(row["fixed"]) if row["levels"] else "",
            ]
        lines.append(line)
    looked, far = (sum(row[key] for row in rows) for key in ("levels", "far"))
    widths = [row["ratio"] for row in rows if row["levels"]]
    medians = [
        median(row["ratio"] for row in rows if row["levels"] and row["set"] == name)
        for name in {row["set"] for row in rows}
    ]
    of_releases = [row["known"] for row in rows if row["confidence"] == CONFIDENCES[0]]
    false, beyond = (sum(of[key] for of in of_releases) for key in ("false_levels", "beyond"))
    return PAGE.format(
        runs=rows[0]["runs"],
        fewest=FEWEST,
        looked=looked,
        entries=len(widths),
        wide=sum(width > WIDE for width in widths) or "none",
        widest=f"{max(widths):.2f}",
        median=f"{max(medians):.2f}",
        far=far or "none",
        table=excerpt("rows.csv", lines, is_shown),
        known=excerpt("rows-known.csv", known_lines(rows), is_shown),
        false=false or "none",
        beyond=beyond or "none",
        bounded=len(of_releases) * rows[0]["runs"],
        machine=machine,
    )


def is_shown(line: Sequence[str]) -> bool:
    """Return whether the page shows a line: the default at ε = 1, with Gaussian noise."""
    return list(line[1:4]) == ["1", "gaussian", "`inftda_reconciled`"]


def known_lines(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the lines of the second table."""
    yield ["set", "ε", "law", "mechanism", "false marks", "error", "after", "before"]
    yield ["---", "---:", "---", "---", *["---:"] * 4]
    for row in rows:
        if row["confidence"] == CONFIDENCES[0]:
            of = row["known"]
            yield [
                row["set"],
                f"{row['epsilon']:g}",
                row["law"],
                f"`{row['mechanism']}`",
                "" if of["false"] is None else percent(of["false"]),
                *("" if of[key] is None else f"{of[key]:,.0f}" for key in ("error", "after", "before")),
            ]


def is_wanted(name: str, only: str) -> bool:
    """Return whether a set is looked at."""
    return not name.startswith("made-up") and name.startswith(only)


def rows_of_set(name: str, table: PublicTable, runs: int) -> list[dict[str, Any]]:
    """Return the rows of a set, and print each when it is known."""
    rows = []
    for row in rows_of(name, table, runs):
        rows.append(row)
        print({key: round(of, 4) if isinstance(of, float) else of for key, of in row.items()}, flush=True)
    return rows


def survey() -> PublicTable:
    """Return the made-up survey."""
    return public_table(*table_of(draw_survey(generator=np.random.default_rng(SEED))))


def main() -> None:
    """Try every mechanism on every set, print and keep what it came to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--page", action="store_true", help="only write the page from the last run")
    parser.add_argument("--only", default="", help="only sets whose names begin with this; does not write the page")
    arguments = parser.parse_args()
    if not arguments.page:
        rows = []
        wanted = [of for of in chain([("survey", survey())], sets(SEED)) if is_wanted(of[0], arguments.only)]
        with ProcessPoolExecutor() as workers:
            for of_set in workers.map(rows_of_set, *zip(*wanted, strict=True), repeat(arguments.runs)):
                rows += of_set
        if not arguments.only:
            save("rows", rows)
        assert not any(row["far"] for row in rows), "Some level misses more rows than is promised."
        of_releases = [row["known"] for row in rows if row["confidence"] == CONFIDENCES[0]]
        assert not any(of["false_levels"] for of in of_releases), "Some level has more false marks than is promised."
        beyond = sum(of["beyond"] for of in of_releases)
        releases = len(of_releases) * arguments.runs
        assert beyond <= 0.05 * releases + 2 * (0.05 * releases) ** 0.5, "More bounds than that do not hold."
    if not arguments.only and (last := load("rows")):
        (Path(__file__).parent / "rows.md").write_text(page(last["rows"], last["machine"]), encoding="utf-8")


if __name__ == "__main__":
    main()
