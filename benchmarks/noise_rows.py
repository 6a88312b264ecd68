"""Noise rows: measure on sets that anybody may see which share of a level's rows is noise alone, and what a release says of it.

The sets, laws, ε and scales are those of `rows.py`. For each set, law, ε, mechanism and level below the total, a line says which share of
the rows has a true count of 0, what the release estimates where it states an estimate, and what it says that the share is at most. The
page is benchmarks/noise_rows.md. The benchmark fails if the mean of a level's estimates is further than ten percentage points from the
truth, or if more levels than the stated risk have more noise rows than is said.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, repeat
from pathlib import Path
from statistics import fmean
from typing import Any

import repository  # noqa: F401, for tests.support
from accuracy import sets
from coverage import percent
from results import excerpt, load, markdown, save
from rows import EPSILONS, LAWS, MOST_LEAVES, SEED, is_shown, is_wanted, scales_of, survey

from flows.trials.in_memory import PublicTable
from tasks.mechanisms import MECHANISMS
from tasks.released.estimate import Estimate
from tasks.tree.frontier import Frontier
from tasks.uncertainty.noise_rows import KNOWN_WITHIN, RISK
from tasks.validate.coverage import false_share
from tests.support.scales import try_scales

ROUNDING = 0.0005  # of a stated share
NAMES = ("inftda", "inftda_reconciled", "inftda_lenient", "inftda_shrunk", "tda_l2", "gaussian")

PAGE = """\
# Noise rows

A noise row is a row whose true count is 0. This page compares what a release says about the share of such rows with the truth.
`python benchmarks/noise_rows.py` writes it, and prints a line for every level; do not edit it. Each figure comes from {runs} runs with δ = 10⁻⁸ and a
uniform split below a total that is exact.

A release states an estimate where its noisy counts rule out every share that is more than {within:g} percentage points away from it.

- *levels*: the levels below the total, in all runs; *stated*: those with an estimate.
- *mean error*: the mean distance of the estimates from the truth, in percentage points; *worst level*: the largest distance of a level's mean
  estimate; *worst run*: the largest distance in any run.
- *more*: levels with more noise rows than the release allows for. It may be wrong for {risk:g}% of them.

{summary}

## Finest levels

*Noise* is the true share of noise rows at the finest level, *estimated* the mean of the estimates, and *at most* what the release says that the share
does not exceed with 95% probability. The page shows the default mechanism at ε = 1 with Gaussian noise.

{finest}

Measured on {machine}.
"""


def rows_of(name: str, table: PublicTable, runs: int) -> Iterator[dict[str, Any]]:
    """Yield a row per law, ε, mechanism and level below the total, with the shares of each run."""
    for law, of_law in LAWS.items():
        for epsilon in EPSILONS:
            scales = scales_of(law, table.tree.depth, epsilon)
            for mechanism in NAMES:
                if mechanism == "gaussian" and table.tree.possible_cells(table.tree.depth) > MOST_LEAVES:
                    continue
                said = []
                for _ in range(runs):
                    trial = try_scales(table, MECHANISMS[mechanism], scales, of_law.samplers["table"].draw, law=of_law)
                    said.append(list(known(table, trial.published)))
                tried = {"set": name, "law": law, "epsilon": epsilon, "mechanism": mechanism}
                for level, of_runs in enumerate(zip(*said, strict=True), 1):
                    shares = [of for of in of_runs if of is not None]
                    yield tried | {"level": level, "depth": table.tree.depth, "runs": shares}


def known(table: PublicTable, published: Estimate) -> Iterator[tuple[float, float | None, float] | None]:
    """Yield of each level below the total the true share of noise rows, the estimate and the bound; None where it has no row."""
    for level, nodes in enumerate(table.levels):
        rows, shares = published.rows(level)[:], published.known(level).shares
        if level:
            true = false_share(table.tree, Frontier(level, nodes.areas, nodes.true_counts), rows.areas)
            yield (true, shares.noise, shares.noise_at_most) if shares and true is not None else None


def errors(runs: Iterable[Sequence[Any]]) -> list[float]:
    """Return how far the estimates of some runs are above the truth, where there is one."""
    return [estimate - true for true, estimate, _ in runs if estimate is not None]


def off(row: dict[str, Any]) -> float:
    """Return how far the mean of a level's estimates is from the truth."""
    return abs(fmean(errors(row["runs"]) or [0.0]))


def more(rows: Iterable[dict[str, Any]]) -> int:
    """Return how many levels have more noise rows than is said."""
    return sum(true > at_most for row in rows for true, _, at_most in row["runs"])


def line_of(row: dict[str, Any]) -> list[str]:
    """Return what is known of a level: the true share, the estimate and the bound, as means over the runs."""
    runs = row["runs"]
    estimates = [estimate for _, estimate, _ in runs if estimate is not None]
    said = percent(fmean(estimates)) if estimates else "none"
    if 0 < len(estimates) < len(runs):
        said += f" ({len(estimates)} of {len(runs)} runs)"
    return [percent(fmean(of[0] for of in runs)), said, percent(fmean(of[2] for of in runs))] if runs else [""] * 3


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the lines of the first table: by ε, law and mechanism, and by set."""
    yield ["", "levels", "stated", "mean error", "worst level", "worst run", "more"]
    yield ["---", *["---:"] * 6]
    keys = [
        lambda row: f"ε = {row['epsilon']:g}, {row['law']}",
        lambda row: f"`{row['mechanism']}`",
        lambda row: row["set"],
        lambda row: "finest levels" if row["level"] == row["depth"] else "levels above",
        lambda _: "all",
    ]
    for key in keys:
        for name in dict.fromkeys(map(key, rows)):
            of_key = [row for row in rows if key(row) == name]
            found = [abs(error) for row in of_key for error in errors(row["runs"])]
            yield [
                name,
                f"{sum(len(row['runs']) for row in of_key):,}",
                f"{len(found):,}",
                *(f"{100 * of:.1f}" for of in (fmean(found or [0.0]), max(map(off, of_key)), max(found, default=0.0))),
                str(more(of_key)),
            ]


def finest(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    """Yield the lines of the second table."""
    yield ["set", "ε", "law", "mechanism", "noise", "estimated", "at most"]
    yield ["---", "---:", "---", "---", *["---:"] * 3]
    for row in rows:
        if row["level"] == row["depth"]:
            yield [row["set"], f"{row['epsilon']:g}", row["law"], f"`{row['mechanism']}`", *line_of(row)]


def rows_of_set(name: str, table: PublicTable, runs: int) -> list[dict[str, Any]]:
    """Return the rows of a set, and print each."""
    found = []
    for row in rows_of(name, table, runs):
        found.append(row)
        share, estimate, at_most = line_of(row)
        print(
            f"{name}, epsilon {row['epsilon']:g}, {row['law']}, {row['mechanism']}, level {row['level']} of {row['depth']}:"
            f" noise {share}, estimated {estimate}, at most {at_most}",
            flush=True,
        )
    return found


def main() -> None:
    """Try every mechanism on every set, print and keep what it came to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="only sets whose names begin with this; does not write the page")
    arguments = parser.parse_args()
    wanted = [of for of in chain([("survey", survey())], sets(SEED)) if is_wanted(of[0], arguments.only)]
    with ProcessPoolExecutor() as workers:
        of_sets = workers.map(rows_of_set, *zip(*wanted, strict=True), repeat(arguments.runs))
        rows = [row for of_set in of_sets for row in of_set]
    if not arguments.only:
        save("noise_rows", rows)
        write_page(arguments.runs)
    far = [
        (row["set"], row["epsilon"], row["law"], row["mechanism"], row["level"])
        for row in rows
        if off(row) > KNOWN_WITHIN + ROUNDING
    ]
    assert not far, f"Estimates are too far from the truth: {far}"
    said = sum(len(row["runs"]) for row in rows)
    assert more(rows) <= RISK * said + 2 * (RISK * said) ** 0.5, (
        "More levels than that have more noise rows than is said."
    )


def write_page(runs: int) -> None:
    """Write the page from what the last run has left."""
    last = load("noise_rows")
    if last is None:
        return
    text = PAGE.format(
        runs=runs,
        within=100 * KNOWN_WITHIN,
        risk=100 * RISK,
        summary=markdown(summary(last["rows"])),
        finest=excerpt("noise_rows.csv", finest(last["rows"]), is_shown),
        machine=last["machine"],
    )
    (Path(__file__).parent / "noise_rows.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
