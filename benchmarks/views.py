"""Views: measure what views give, on the made-up shuttle city, and on Rhode Island and Adult where TRELLIS_DATA is set.

The city is that of `trellis synthesise shuttle --seed 1` in the morning: three specs, O3, O4 and O5, at ε = 1 and δ = 10⁻⁸ under
add_remove, beside flat Laplace noise and the default mechanism without views. Rhode Island's tract pairs come with `views: margins` under the
default mechanism, and with both margins and a distance band under cbdp; its pairs of blocks, of which there are too many to settle
together, with margins to which the tree is calibrated; Adult's seven features with all one-way and two-way margins.
Errors are means over all cells of a view, zeros too. Then come the seconds and the memory of settling and rounding 811,200 leaves. A
line says of every figure that was asked for whether it is reached. The page is benchmarks/views.md; each part keeps its last results
there. Nothing is released or charged.
"""

import argparse
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import polars as pl
import yaml
from results import load, markdown, save

from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from flows.trials.comparison import Comparison, make_comparison
from flows.trials.contestants import Contestant
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.tree.frontier import Frontier, joined, locate
from tasks.tree.views import Partition, level_view, sums_of_leaves

SEED = 1
O5 = "cbdp, o5"
OF_THE_PAPER = ("laplace", "hay", "hay:pruned", "hay:geometric", "hay:pruned_geometric")
DEFAULT, WITHOUT = "inftda_reconciled", "inftda_reconciled:without_views"
ADULT = ("sex", "race", "relationship", "marital-status", "workclass", "education-num", "occupation")
BANDS = (2.0, 5.0, 10.0, 20.0)  # kilometres

Errors = dict[str, float]  # by what they are of


PAGE = """\
# Views

This page shows how near the counts of views come to the true counts, with `release.views` and without, and whether the figures that
were asked for are reached. `python benchmarks/views.py` writes it; do not edit it. ε = 1 and δ = 10⁻⁸ throughout. An error is the mean
absolute error over all cells of a view, those with no record too, in records, and then the mean over the runs of that part. Every run
draws its noise anew. A standard error is that of the mean over the runs.
[docs/mechanisms.md](../docs/mechanisms.md#views-with-a-tree) explains the mechanisms.

## What was asked for

{figures}

{parts}
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """A mean over runs, and its standard error."""

    value: float
    error: float = math.nan

    def over(self, other: "Measured") -> "Measured":
        """Return the ratio of two means of independent runs."""
        ratio = self.value / other.value
        return Measured(ratio, abs(ratio) * math.hypot(self.error / self.value, other.error / other.value))


@dataclass(frozen=True, slots=True)
class Asked:
    """A figure that was asked for, and whether it is reached."""

    what: str
    value: float
    error: float = math.nan
    least: float = -math.inf
    most: float = math.inf

    @classmethod
    def of(cls, what: str, of: Measured, least: float = -math.inf, most: float = math.inf) -> "Asked":
        """Return the figure of a mean over runs."""
        return cls(what, of.value, of.error, least, most)

    @property
    def cells(self) -> list[str]:
        """The figure as a row of a table."""
        bounds = [f"at least {self.least:g}"] * math.isfinite(self.least)
        bounds += [f"at most {self.most:g}"] * math.isfinite(self.most)
        verdict = "reached" if self.least <= self.value <= self.most else "MISSED"
        if min(abs(self.value - bound) for bound in (self.least, self.most)) < 2 * self.error:
            verdict += ", but within two standard errors of the bound"
        error = "" if math.isnan(self.error) else f"{self.error:.2g}"
        return [self.what, f"{self.value:.4g}", error, ", ".join(bounds), verdict]

    @property
    def line(self) -> str:
        """The figure in a line."""
        what, value, error, bounds, verdict = self.cells
        verdict, comma, doubt = verdict.partition(",")
        return f"{verdict}: {what} {value}{f' ± {error}' if error else ''} ({bounds}{comma}{doubt})"


@dataclass(frozen=True, slots=True)
class Part:
    """What a part of the benchmark found.

    Attributes:
        text: its tables, in Markdown.
        figures: those that were asked for.
    """

    text: str
    figures: Sequence[Asked] = ()


def main() -> None:
    """Run what is asked for, print it, and write the page from the last results of every part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--page", action="store_true", help="only write the page from the last results")
    asked = parser.parse_args()
    for name in [] if asked.page else asked.only.split(","):
        if PARTS[name].reads_data and "TRELLIS_DATA" not in os.environ:
            print(f"{name} is left out: TRELLIS_DATA is not set.")
            continue
        runs = max(asked.runs // PARTS[name].runs_divisor, 2)
        with ProcessPoolExecutor(1, max_tasks_per_child=1) as worker:  # so that the memory stated is that of one part
            part = worker.submit(in_folder, name, runs).result()
        print(f"\n## {name}, {runs} runs\n\n{part.text}\n")
        print("\n".join(figure.line for figure in part.figures), flush=True)
        save(f"views-{name}", [{"runs": runs, "text": part.text, "figures": [asdict(of) for of in part.figures]}])
    last = {name: results for name in PARTS if (results := load(f"views-{name}"))}
    (Path(__file__).parent / "views.md").write_text(page(last), encoding="utf-8")


def in_folder(name: str, runs: int) -> Part:
    """Run a part in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRELLIS_HOME"] = f"{folder}/home"
        return PARTS[name].find(Path(folder), runs)


def page(last: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page, from what every part has found last."""
    figures = [Asked(**figure).cells for results in last.values() for figure in results["rows"][0]["figures"]]
    heads = [["", "figure", "standard error", "asked for", ""], ["---", "---:", "---:", "---", "---"]]
    parts = []
    for name, results in last.items():
        (row,) = results["rows"]
        about = PARTS[name].about.format(runs=row["runs"])
        parts.append(f"## {PARTS[name].title}\n\n{about}\n\n{row['text']}\n\nMeasured on {results['machine']}.")
    return PAGE.format(figures=markdown([*heads, *figures]), parts="\n\n".join(parts))


def city(folder: Path, runs: int) -> Part:
    """Try the three specs of the city, the baselines of the paper, and the default mechanism without views."""
    synthesise_answer("shuttle", folder / "city", SEED)
    errors: dict[str, list[Errors]] = {}
    ratios: list[Mapping[str, float | None]] = []
    five = compared(folder / "city" / "o5.yaml", ["cbdp", WITHOUT, *OF_THE_PAPER], ["fleet"])
    views = views_of(five)
    for name in ("o3", "o4", "o5"):
        comparison = five if name == "o5" else compared(folder / "city" / f"{name}.yaml", ["cbdp"])
        for entry in comparison.entries:
            key = f"cbdp, {name}" if entry.name == "cbdp" else entry.name
            for _ in range(runs):
                released = entry.try_on(comparison.table).released[-1]
                errors.setdefault(key, []).append(view_errors(views, five.true_levels[-1], released))
                if key == O5:
                    (fleet,) = five.utilities
                    ratios.append(fleet.measure(five.table.tree, five.true_levels[-1], released, fleet.terms))
    vehicles = {name: measured(run[name] or 0.0 for run in ratios) for name in ratios[0]}
    told = ", ".join(f"{name} {of.value:.2f}" for name, of in vehicles.items())
    o5 = {name: measured(run[name] for run in errors[O5]) for name in views}
    laplace = measured(run["by_zones"] for run in errors["laplace"])
    without = measured(run["by_mode"] for run in errors[WITHOUT])
    return Part(
        f"{table_of_errors(errors)}\n\nVehicles of o5, released over true: {told}.",
        [
            Asked.of("city, O5: error at zones", o5["by_zones"], most=5.5),
            Asked.of("city, O5: error at modes", o5["by_mode"], most=5),
            Asked.of("city, O5: error at periods", o5["by_period"], most=6),
            Asked.of("city, O5: error of the total", o5["total"], most=10),
            Asked.of("city: flat Laplace over O5, at zones", laplace.over(o5["by_zones"]), least=50),
            Asked.of("city: O5 over the default without views, at modes", o5["by_mode"].over(without), most=0.35),
            Asked.of("city, O5: busy vehicles, released over true", vehicles["busy"], least=0.9, most=1.35),
            Asked.of("city, O5: pooled vehicles, released over true", vehicles["pooled"], least=0.95, most=1.05),
        ],
    )


def rhode_island(folder: Path, runs: int) -> Part:
    """Try both margins and a distance band under cbdp, and the margins of every level under the default mechanism."""
    write_bands(folder / "bands.csv")
    both = compared(spec_at(folder / "both.yaml", RHODE_ISLAND | BOTH), ["cbdp", WITHOUT])
    views, true = views_of(both), both.true_levels[-1]
    of_both = {
        entry.name: [view_errors(views, true, released_by(both, entry)) for _ in range(runs)] for entry in both.entries
    }
    margins = compared(spec_at(folder / "margins.yaml", RHODE_ISLAND | MARGINS), [DEFAULT, WITHOUT])
    views, tree, true = views_of(margins), margins.table.tree, margins.true_levels[-1]
    levels = {level: Partition(tree, level_view(tree, level)) for level in range(1, tree.depth + 1)}
    errors: dict[str, list[Errors]] = {}
    largest: dict[str, list[list[int]]] = {}
    for entry in margins.entries:
        for _ in range(runs):
            released = released_by(margins, entry)
            errors.setdefault(entry.name, []).append(view_errors(views, true, released))
            of_run = [int(abs(deviations(of, true, released)).max()) for of in levels.values()]
            largest.setdefault(entry.name, []).append(of_run)
    plan, found = margins.plan, list[Asked]()
    for end in ("origin", "destination"):
        number = next(view.number for view in plan.named_views if view.name == f"{end}_trct")
        alone = Measured(mean_noise(plan.scheme.of_measured(plan.guarantee.noises)[number].sigma), 0.0)
        error = measured(run[f"{end}_trct"] for run in errors[DEFAULT])
        found.append(
            Asked.of(f"Rhode Island, margins: {end} tracts over noisy margins alone", error.over(alone), most=1.5)
        )
    ratios = np.mean(largest[DEFAULT], axis=0) / np.mean(largest[WITHOUT], axis=0)
    working, band = (measured(run[name] for run in of_both["cbdp"]) for name in ("working", "band"))
    return Part(
        f"Both margins and a distance band:\n\n{table_of_errors(of_both)}\n\n"
        f"`views: margins`:\n\n{table_of_errors(errors)}\n\n"
        f"The largest error of each level:\n\n{table_of_levels(largest)}",
        [
            Asked.of("Rhode Island, cbdp: error of destination tracts", working, most=7.5),
            Asked.of("Rhode Island, cbdp: error of distance bands", band, most=9),
            *found,
            Asked("Rhode Island, margins: mean ratio of the levels' largest errors", float(ratios.mean()), most=1.15),
        ],
    )


def blocks(folder: Path, runs: int) -> Part:
    """Try the margins of every level of Rhode Island's pairs of blocks, to which the tree is calibrated; no figure was asked for."""
    keys = MARGINS | {"release": MARGINS["release"] | {"finest": "tabblk2010"}}
    comparison = compared(spec_at(folder / "blocks.yaml", RHODE_ISLAND | keys), [DEFAULT, WITHOUT])
    views = {view.terms.name: view.partition for view in comparison.views}
    true = comparison.true_levels[-1]
    errors: dict[str, list[Errors]] = {}
    largest: dict[str, list[list[int]]] = {}
    for entry in comparison.entries:
        for _ in range(runs):
            job = entry.try_on(comparison.table).job
            released = [joined(level, job.level(level, job.record.released)) for level in range(job.record.finest + 1)]
            pairs = zip(comparison.true_levels, released, strict=True)
            largest.setdefault(entry.name, []).append([largest_error(comparison, *pair) for pair in pairs][1:])
            errors.setdefault(f"{entry.name}, leaves", []).append(view_errors(views, true, released[-1]))
            if entry.name == DEFAULT:
                tables = {terms.name: job.counts(terms.number) for terms in comparison.plan.named_views}
                errors.setdefault("tables of views", []).append(
                    {name: mean_distance(tables[name], sums_of_leaves(of, true)) for name, of in views.items()}
                )
                errors.setdefault("tables and leaves differ", []).append(
                    {name: mean_distance(tables[name], sums_of_leaves(of, released[-1])) for name, of in views.items()}
                )
    return Part(f"{table_of_errors(errors)}\n\nThe largest error of each level:\n\n{table_of_levels(largest)}")


def mean_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean absolute difference."""
    return float(np.abs(one - other).mean())


def largest_error(comparison: Comparison, true: Frontier, released: Frontier) -> int:
    """Return the largest error over all cells of a level, those without a count too."""
    sizes = comparison.table.tree.sizes(true.level)
    row, back = locate(true.areas, released.areas, sizes), locate(released.areas, true.areas, sizes)
    of_true = np.where(row >= 0, released.counts[row], 0) - true.counts
    return int(max(np.abs(of_true).max(initial=0), released.counts[back < 0].max(initial=0)))


def adult_keys() -> dict[str, Any]:
    """Return the spec of all one-way and two-way margins of seven features of Adult, under cbdp."""
    data = Path(os.environ["TRELLIS_DATA"]) / "adult"
    sizes = json.loads((data / "adult-domain.json").read_text())
    pairs = [(one,) for one in ADULT] + list(combinations(ADULT, 2))
    return COMMON | {
        "name": "adult",
        "dataset": "adult",
        "input": {"table": str(data / "adult.csv"), "features": list(ADULT)},
        "hierarchy": {feature: {"values": sizes[feature]} for feature in ADULT},
        "release": {"order": list(ADULT), "views": {"-".join(of): {one: one for one in of} for of in pairs}},
        "mechanism": "cbdp",
        "privacy": {"unit": "one person", "neighbours": "substitution", **PRIVACY},
    }


def adult(folder: Path, runs: int) -> Part:
    """Try all one-way and two-way margins of seven features, under cbdp and under the default mechanism."""
    comparison = compared(spec_at(folder / "adult.yaml", adult_keys()), ["cbdp", DEFAULT, WITHOUT])
    true = comparison.true_levels[-1]
    records, found = int(true.counts.sum()), dict[str, tuple[Measured, Measured]]()
    ways = np.array([sum(map(bool, view.partition.view.axis_levels)) for view in comparison.views])
    for entry in comparison.entries:
        of_runs = []
        for _ in range(runs):
            released = released_by(comparison, entry)
            of_runs.append(
                [np.abs(deviations(view.partition, true, released)).sum() / records for view in comparison.views]
            )
        one, two = (measured(np.array(of_runs)[:, ways == number].mean(axis=1)) for number in (1, 2))
        found[entry.name] = one, two
    rows = [[name, *(f"{of.value:.4f} ± {of.error:.4f}" for of in both)] for name, both in found.items()]
    figures = []
    for name in ("cbdp", DEFAULT):
        one, two = found[name]
        figures += [
            Asked.of(f"Adult, {name} with views: mean ℓ₁ of one-way margins, share of records", one, most=0.010),
            Asked.of(f"Adult, {name} with views: mean ℓ₁ of two-way margins, share of records", two, most=0.10),
        ]
    return Part(markdown([["", "one-way ℓ₁", "two-way ℓ₁"], ["---", "---:", "---:"], *rows]), figures)


def large(folder: Path, runs: int) -> Part:
    """Settle and round a day of the city: 811,200 leaves, and 1, 48, 768 and 576 cells."""
    synthesise_answer("shuttle", folder / "day", SEED, day="weekday")
    comparison = compared(folder / "day" / "o5.yaml", ["cbdp"])
    tree, true, plan = comparison.table.tree, comparison.true_levels[-1], comparison.plan
    scheme = plan.scheme
    generator = np.random.default_rng(SEED)
    noises = scheme.of_measured(plan.guarantee.noises)
    partitions = {number: Partition(tree, scheme.view(number)) for number in noises}
    true_counts = {number: sums_of_leaves(of, true) for number, of in partitions.items()}
    cells = partitions[tree.depth].cells()
    labels = {number: of.places(cells).astype(np.int32) for number, of in partitions.items() if number != tree.depth}
    del comparison, cells
    seconds, furthest = list[float](), list[float]()
    for _ in range(runs):
        noisy = {
            number: of + np.rint(generator.laplace(0, noises[number].scale, len(of)))
            for number, of in true_counts.items()
        }
        weights = {number: 1 / (noises[number].variance * math.sqrt(len(of))) for number, of in noisy.items()}
        groupings = [Grouping(cell, noisy[number], weights[number]) for number, cell in labels.items()]
        began = time.thread_time()
        values = settle_overlapping(noisy[tree.depth], weights[tree.depth], groupings)
        furthest.append(max(round_controlled(values, [of.cell for of in groupings]).deviations))
        seconds.append(time.thread_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    taken = measured(seconds)
    return Part(
        f"{len(values):,} leaves in {taken.value:.2f} thread seconds, {max(seconds):.2f} at most; the whole process takes"
        f" {peak:.2f} GiB at most. The largest deviation of any cell or leaf from its real sum is {max(furthest):.3f}.",
        [
            Asked.of("811,200 leaves: thread seconds to settle and round", taken, most=6),
            Asked("811,200 leaves: GiB of the whole process", peak, most=1),
        ],
    )


PRIVACY = {"max_records_per_unit": 1, "epsilon": 1.0, "delta": 1e-8}
COMMON: dict[str, Any] = {
    "public_data": True,
    "noise": {"law": "gaussian", "sampler": "table"},
    "budget": {"epsilon": 10.0, "delta": 1e-7},
}
RHODE_ISLAND: dict[str, Any] = COMMON | {
    "name": "rhode-island",
    "dataset": "lodes-ri-2019",
    "input": {
        "table": "${TRELLIS_DATA}/lodes_ri_2019/ri_od_main_JT00_2019.csv.gz",
        "origin": "h_geocode",
        "destination": "w_geocode",
        "count": "S000",
    },
    "hierarchy": {
        "table": "${TRELLIS_DATA}/lodes_ri_2019/ri_xwalk.csv.gz",
        "levels": ["cty", "trct", "bgrp", "tabblk2010"],
    },
}
BOTH = {
    "derived": {"band": {"table": "bands.csv", "of": ["origin.trct", "destination.trct"]}},
    "release": {
        "tree": "destination",
        "finest": "trct",
        "views": {
            "total": {},
            "counties": {"origin": "cty", "destination": "cty"},
            "living": {"origin": "trct"},
            "working": {"destination": "trct"},
            "band": {"origin": "cty", "band": "band"},
        },
    },
    "mechanism": "cbdp",
    "noise": {"law": "auto"},
    "privacy": {"unit": "one job", "neighbours": "add_remove", **PRIVACY},
}
MARGINS = {
    "release": {"tree": "destination", "finest": "trct", "views": "margins"},
    "privacy": {"unit": "one job", "neighbours": "substitution", **PRIVACY},
}


def spec_at(path: Path, keys: Mapping[str, Any]) -> Path:
    """Write a spec."""
    path.write_text(yaml.safe_dump(dict(keys)))
    return path


def compared(spec: Path, mechanisms: Sequence[str], utilities: Sequence[str] = ()) -> Comparison:
    """Return a comparison at ε = 1."""
    return make_comparison(load_spec(spec), mechanisms, [1.0], 1, utilities)


def released_by(comparison: Comparison, entry: Contestant) -> Frontier:
    """Return the leaves of one trial."""
    return entry.try_on(comparison.table).released[-1]


def leaves_of_tree(comparison: Comparison) -> Partition:
    """Return the finest level with all its cells."""
    tree = comparison.table.tree
    return Partition(tree, level_view(tree, tree.depth))


def views_of(comparison: Comparison) -> dict[str, Partition]:
    """Return the views of a comparison, and its leaves."""
    return {view.terms.name: view.partition for view in comparison.views} | {"leaf": leaves_of_tree(comparison)}


def deviations(of: Partition, true: Frontier, released: Frontier) -> np.ndarray:
    """Return the errors of all cells of a grouping, zeros too."""
    return sums_of_leaves(of, released) - sums_of_leaves(of, true)


def view_errors(views: Mapping[str, Partition], true: Frontier, released: Frontier) -> Errors:
    """Return the mean absolute error over all cells of each grouping."""
    return {name: float(np.abs(deviations(of, true, released)).mean()) for name, of in views.items()}


def measured(values: Iterable[float]) -> Measured:
    """Return the mean over the runs, with its standard error."""
    of_runs = [float(value) for value in values]
    return Measured(fmean(of_runs), stdev(of_runs) / math.sqrt(len(of_runs)))


def mean_noise(sigma: float) -> float:
    """Return the mean of the absolute noise, nearly: that of a normal variable."""
    return sigma * math.sqrt(2 / math.pi)


def write_bands(path: Path) -> None:
    """Write the distance band of every pair of Rhode Island's tracts, by their middles."""
    folder = Path(os.environ["TRELLIS_DATA"])
    (shapes,) = [*folder.rglob("ri_tracts.geojson")][:1]
    codes = pl.read_csv(folder / "lodes_ri_2019" / "ri_xwalk.csv.gz", infer_schema=False)["trct"].unique().sort()
    middles = {of["properties"]["code"]: middle_of(of["geometry"]) for of in json.loads(shapes.read_text())["features"]}
    fallback = np.mean(list(middles.values()), axis=0)  # of tracts without land
    places = np.array([middles.get(code, fallback) for code in codes])
    scale = np.array([111.2 * math.cos(math.radians(41.6)), 111.2])
    distances = np.sqrt((((places[:, None] - places[None]) * scale) ** 2).sum(axis=2))
    names = np.array([f"{least:g} km and more" for least in (0.0, *BANDS)])[
        np.searchsorted(BANDS, distances, side="right")
    ]
    pairs = {"origin": codes.gather(np.repeat(np.arange(len(codes)), len(codes)))}
    pairs |= {"destination": codes.gather(np.tile(np.arange(len(codes)), len(codes))), "band": names.ravel()}
    pl.DataFrame(pairs).write_csv(path)


def middle_of(geometry: Mapping[str, Any]) -> np.ndarray:
    """Return the mean of the corners of a shape."""
    corners = geometry["coordinates"]
    polygons = corners if geometry["type"] == "MultiPolygon" else [corners]
    return np.mean([point for polygon in polygons for point in polygon[0]], axis=0)


def table_of_errors(errors: Mapping[str, Sequence[Errors]]) -> str:
    """Return the mean errors, a row per mechanism."""
    names = list(dict.fromkeys(name for runs in errors.values() for name in runs[0]))
    rows = [[key, *(in_short(fmean(run[name] for run in runs)) for name in names)] for key, runs in errors.items()]
    return markdown([["", *names], ["---", *["---:"] * len(names)], *rows])


def in_short(value: float) -> str:
    """Return a number with three digits."""
    return f"{float(f'{value:.3g}'):,g}"


def table_of_levels(largest: Mapping[str, Sequence[Sequence[int]]]) -> str:
    """Return the means over the runs of the largest errors, a row per mechanism and a column per level below the total."""
    rows = [[name, *(f"{of:.1f}" for of in np.mean(runs, axis=0))] for name, runs in largest.items()]
    levels = [str(level + 1) for level in range(len(rows[0]) - 1)]
    return markdown([["level", *levels], ["---", *["---:"] * len(levels)], *rows])


@dataclass(frozen=True, slots=True)
class PartTerms:
    """A part of the benchmark.

    Attributes:
        title: what the page calls it.
        about: a paragraph, with {runs}.
        find: runs it in a folder, that many times.
        runs_divisor: by which the runs that are asked for are divided.
        reads_data: whether it reads TRELLIS_DATA.
    """

    title: str
    about: str
    find: Callable[[Path, int], Part]
    runs_divisor: int = 1
    reads_data: bool = True


PARTS = {
    "city": PartTerms(
        "The shuttle city",
        "The city is that of `trellis synthesise shuttle --seed 1` in the morning: 67,600 leaves, nearly all of them 0. The specs are\n"
        "o3, o4 and o5, under add_remove. {runs} runs. `inftda_reconciled:without_views` is that mechanism on the tree of the\n"
        "same spec, without views. The others are the baselines of the paper.",
        city,
        reads_data=False,
    ),
    "rhode_island": PartTerms(
        "Pairs of tracts in Rhode Island",
        "The first table has a spec with five views under `cbdp` and add_remove, the others `views: margins` with `inftda_reconciled`\n"
        "under substitution. {runs} runs each.",
        rhode_island,
        2,
    ),
    "blocks": PartTerms(
        "Pairs of blocks in Rhode Island",
        "There are too many leaves to settle together. So the margins are trees of their own, to which the leaves are calibrated. {runs}\n"
        "runs each. No figure was asked for.",
        blocks,
        4,
    ),
    "adult": PartTerms(
        "Adult",
        "All one-way and two-way margins of seven features are views. The table has the mean over these margins of the ℓ₁ distance from\n"
        "the true margin, as a share of the records. {runs} runs each. MST, a synthesizer made for margins, comes to 0.005 and 0.075 at\n"
        "the same ε and δ.",
        adult,
        4,
    ),
    "large": PartTerms(
        "A day of the city",
        "A day has 811,200 leaves, and views of 1, 48, 768 and 576 cells. {runs} runs, of settling and rounding alone.",
        large,
        4,
        reads_data=False,
    ),
}

if __name__ == "__main__":
    main()
