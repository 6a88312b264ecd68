"""Compare the accuracy of mechanisms with InfTDA by the lemma with a uniform split, at the same ε = 1 and δ = 10⁻⁸.

The sets are the six sets of the paper's Table 1, in which only the noise is random, and sets on which nothing was tuned: Rhode
Island's block groups and Adult (from TRELLIS_DATA), other draws of the sets (`--seed`), and a made-up country. For each mechanism
the benchmark prints, each with its standard error: the ratio of the maximum absolute error at a level, mean over runs, to InfTDA's,
mean over levels; the largest of these ratios; the ratio of the ℓ₁ error at the leaves; the difference of the false discovery rates
at the leaves; and the ratio of the cells measured. The noise is the table sampler's. benchmarks/accuracy.md discusses the results.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import repository  # noqa: F401, for tests.support
from compute import DELTA, axis_of, table_of, trips_tree
from results import save

from flows.trials.in_memory import PublicTable, Trial, public_table
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, Measurement, finest, uniform
from tasks.laws.samplers import table_noise
from tasks.mechanisms import MECHANISMS, Mechanism
from tasks.synthesize.areas import SHARES, draw_paper_set
from tasks.synthesize.country import draw_country
from tasks.tree.axis import axis_from_codebook
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.validate.utility import level_errors
from tests.support.scales import try_scales

EPSILON = 1.0
SEED = 2025
ADULT = (
    ("sex", "race", "education-num", "occupation"),
    ("sex", "race", "relationship", "marital-status", "workclass", "education-num", "occupation"),
)


class Candidate:
    """A mechanism with an accountant and a split.

    Attributes:
        name: as it is printed.
        mechanism: the mechanism.
        accountant: by which ε and δ become ρ.
        weight: of the finest level's share of ρ.
    """

    def __init__(self, name: str, mechanism: Mechanism, accountant: str = "pld", weight: str = "1") -> None:
        self.name, self.mechanism = name, mechanism
        self.accountant, self.weight = accountant, Fraction(weight)

    def terms(self, levels: int, epsilon: float = EPSILON) -> tuple[Measurement, ...]:
        """Return what the budget buys at each of some levels below an exact root, under substitution of one record."""
        shares = uniform(levels) if self.weight == 1 else finest(self.weight, levels)
        allocation = Allocation(shares, (2,) * levels)
        return allocation.measurements(ACCOUNTANTS[self.accountant].largest_rho(allocation, epsilon, DELTA))

    def try_on(self, table: PublicTable, sigmas: Sequence[float]) -> tuple[list[Frontier], int]:
        """Return what it releases of levels 0 to T with noise of some scales, and how many cells it measures."""
        trial = try_scales(table, self.mechanism, sigmas, table_noise)
        return trial.released, cells_of(trial)


def cells_of(trial: Trial) -> int:
    """Return how many cells a trial has measured, exact ones too."""
    return sum(seal.rows for seal in trial.job.record.shards["noisy"].values())


BASELINE = Candidate("inftda, lemma", MECHANISMS["inftda"], "lemma")
CANDIDATES = (
    Candidate("inftda", MECHANISMS["inftda"]),
    Candidate("inftda_reconciled", MECHANISMS["inftda_reconciled"]),
    Candidate("inftda_lenient", MECHANISMS["inftda_lenient"]),
    Candidate("inftda_lenient, finest 1.5", MECHANISMS["inftda_lenient"], weight="1.5"),
    Candidate("inftda_lenient, finest 3", MECHANISMS["inftda_lenient"], weight="3"),
)


def sets(seed: int) -> Iterator[tuple[str, PublicTable]]:
    """Yield the sets, those of the paper first; those of TRELLIS_DATA only where it is set."""
    for kind in ("binary", "random"):
        for density in SHARES:
            drawn = draw_paper_set(kind, density, generator=np.random.default_rng(seed))
            yield f"{kind} {density}", public_table(*table_of(drawn))
    yield "made-up country", public_table(*table_of(draw_country(generator=np.random.default_rng(seed))))
    if "TRELLIS_DATA" not in os.environ:
        print("TRELLIS_DATA is not set: Rhode Island and Adult are left out.")
        return
    folder = Path(os.environ["TRELLIS_DATA"])
    yield "Rhode Island", rhode_island(folder / "lodes_ri_2019")
    for features in ADULT:
        yield f"Adult, {len(features)} features", adult(folder / "adult", features)


def rhode_island(folder: Path, finest: str = "bgrp") -> PublicTable:
    """Return jobs by block group of home and of work, or by tract (`trct`)."""
    text = {"infer_schema": False}
    blocks = pl.read_csv(folder / "ri_xwalk.csv.gz", **text)
    levels = ["cty", "trct", "bgrp"]
    levels = levels[: levels.index(finest) + 1]
    axis = axis_from_codebook("area", blocks.select(levels).unique().sort(levels))
    group = dict(zip(blocks["tabblk2010"], blocks[finest], strict=True))
    number = {code: area for area, code in enumerate(axis.codes[-1])}
    jobs = pl.read_csv(folder / "ri_od_main_JT00_2019.csv.gz", **text)
    ends = [[number[group[block]] for block in jobs[end]] for end in ("h_geocode", "w_geocode")]
    pairs = pl.DataFrame({"home": ends[0], "work": ends[1], "jobs": jobs["S000"].cast(pl.Int64)})
    pairs = pairs.group_by("home", "work").agg(pl.col("jobs").sum())
    return public_table(
        trips_tree(axis), (pairs["home"].to_numpy(), pairs["work"].to_numpy()), pairs["jobs"].to_numpy()
    )


def adult(folder: Path, features: Sequence[str]) -> PublicTable:
    """Return people by some features, each of which is a level."""
    sizes = json.loads((folder / "adult-domain.json").read_text())
    people = pl.read_csv(folder / "adult.csv").group_by(features).len()
    axes = tuple(axis_of(feature, [np.zeros(sizes[feature], dtype=np.int64)]) for feature in features)
    areas = tuple(people[feature].to_numpy().astype(np.int64) for feature in features)
    return public_table(Tree(axes, tuple(range(len(axes)))), areas, people["len"].to_numpy().astype(np.int64))


def try_out(table: PublicTable, candidate: Candidate, runs: int) -> tuple[np.ndarray, int]:
    """Return per run and measured level the maximum error, the ℓ₁ error and false discovery; and the cells of one run."""
    sigmas = [0.0, *(of_level.sigma for of_level in candidate.terms(table.tree.depth))]
    true = [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(table.levels)]
    rows, cells = [], 0
    for _ in range(runs):
        released, cells = candidate.try_on(table, sigmas)
        errors = [level_errors(table.tree, *of_level) for of_level in zip(true[1:], released[1:], strict=True)]
        rows.append([(error.max_absolute, error.l1, error.false_discovery) for error in errors])
    return np.array(rows, dtype=np.float64), cells


def against(errors: np.ndarray, base: np.ndarray) -> dict[str, float]:
    """Return how errors, per run and level, compare with others; standard errors by the delta method."""
    runs, of_base = len(errors), base.mean(axis=0)
    of_base = np.where(of_base == 0, 1, of_base)  # as false discovery may be at upper levels
    ratio = errors.mean(axis=0) / of_base
    parts = (
        errors / of_base,
        base / of_base * ratio,
    )  # per run, what a ratio's numerator and denominator bring to its error
    of_levels = np.sqrt(sum(part.var(axis=0, ddof=1) for part in parts) / runs)[:, 0]
    of_mean = np.sqrt(sum(part[:, :, 0].mean(axis=1).var(ddof=1) for part in parts) / runs)
    leaf = np.sqrt(sum(part[:, -1, 1].var(ddof=1) for part in parts) / runs)
    discovery = np.sqrt((errors[:, -1, 2].var(ddof=1) + base[:, -1, 2].var(ddof=1)) / runs)
    worst = int(ratio[:, 0].argmax())
    return {
        "max": ratio[:, 0].mean(),
        "max_error": of_mean,
        "worst": ratio[worst, 0],
        "worst_error": of_levels[worst],
        "above": int((ratio[:, 0] > 1 + 2 * of_levels).sum()),
        "l1": ratio[-1, 1],
        "l1_error": leaf,
        "discovery": errors[:, -1, 2].mean() - base[:, -1, 2].mean(),
        "discovery_error": discovery,
    }


def main() -> None:
    """Try every candidate on every set, and print and keep what it came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the made-up sets")
    parser.add_argument("--only", default="", help="only sets whose names begin with this")
    arguments = parser.parse_args()
    rows = []
    for name, table in sets(arguments.seed):
        if not name.startswith(arguments.only):
            continue
        base, cells = try_out(table, BASELINE, arguments.runs)
        print(f"{name}: {BASELINE.name} has false discovery {base[:, -1, 2].mean():.3f}, {cells:,} cells", flush=True)
        for candidate in CANDIDATES:
            errors, measured = try_out(table, candidate, arguments.runs)
            row = {"set": name, "mechanism": candidate.name, "cells": measured / cells} | against(errors, base)
            rows.append(row)
            print(line_of(row), flush=True)
    save("accuracy", rows)


def line_of(row: dict) -> str:
    """Return a row as a line."""
    cells = f"; cells {row['cells']:.2f}" if "cells" in row else ""
    return (
        f"  {row['mechanism']:26} max {row['max']:.3f} ± {row['max_error']:.3f}, at most {row['worst']:.2f} ±"
        f" {row['worst_error']:.2f}, {row['above']} levels above 1; l1 of leaves {row['l1']:.3f} ± {row['l1_error']:.3f};"
        f" false discovery {row['discovery']:+.3f} ± {row['discovery_error']:.3f}{cells}"
    )


if __name__ == "__main__":
    main()
