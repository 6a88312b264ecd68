"""Views: measure what views give, on the made-up shuttle city, and on Rhode Island and Adult where TRELLIS_DATA is set.

The city is that of `trellis synthesise shuttle --seed 1` in the morning: three specs, O3, O4 and O5, at ε = 1 and δ = 10⁻⁸ under
add_remove, beside flat Laplace noise and the default mechanism without views. Rhode Island's tract pairs come with `views: margins` under the
default mechanism, and with both margins and a distance band under cbdp; its pairs of blocks, of which there are too many to settle
together, with margins to which the tree is calibrated; Adult's seven features with all one-way and two-way margins.
Errors are means over all cells of a view, zeros too. Then come the seconds and the memory of settling and rounding 811,200 leaves. A
line says of every figure that was asked for whether it is reached. Nothing is released or charged.
"""

import argparse
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import yaml
from results import markdown, save

from flows.spec.file import load_spec
from flows.synthetic import synthesise_city_answer
from flows.trials.baselines import BASELINES
from flows.trials.comparison import Comparison, make_comparison
from flows.trials.contestants import Contestant
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.tree.frontier import Frontier, locate
from tasks.tree.leaves import joined
from tasks.tree.views import Partition, level_view, sums_of_leaves

SEED = 1
DEFAULT, WITHOUT = "inftda_reconciled", "inftda_reconciled:without_views"
ADULT = ("sex", "race", "relationship", "marital-status", "workclass", "education-num", "occupation")
BANDS = (2.0, 5.0, 10.0, 20.0)  # kilometres

Errors = dict[str, float]  # by what they are of


@dataclass(frozen=True, slots=True)
class Asked:
    """A figure that was asked for, and whether it is reached."""

    what: str
    value: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def line(self) -> str:
        """The figure in a line."""
        bounds = [f"at least {self.least:g}"] * math.isfinite(self.least) + [f"at most {self.most:g}"] * math.isfinite(
            self.most
        )
        verdict = "reached" if self.least <= self.value <= self.most else "MISSED"
        return f"{verdict}: {self.what} {self.value:.4g} ({', '.join(bounds)})"


def main() -> None:
    """Run what is asked for, and print its tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", default="city,rhode_island,blocks,adult,large", help="parts, separated by commas")
    asked = parser.parse_args()
    parts = {"city": city, "rhode_island": rhode_island, "blocks": blocks, "adult": adult, "large": large}
    found = list[Asked]()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRELLIS_HOME"] = f"{folder}/home"
        for name in asked.only.split(","):
            if name in {"rhode_island", "blocks", "adult"} and "TRELLIS_DATA" not in os.environ:
                print(f"{name} is left out: TRELLIS_DATA is not set.")
                continue
            print(f"\n## {name}\n")
            found += parts[name](Path(folder), asked.runs)
    print()
    for figure in found:
        print(figure.line)
    save("views", [{"what": of.what, "value": of.value, "least": of.least, "most": of.most} for of in found])


def city(folder: Path, runs: int) -> list[Asked]:
    """Try the three specs of the city, flat Laplace noise, and the default mechanism without views."""
    synthesise_city_answer("morning", folder / "city", SEED)
    errors: dict[str, list[Errors]] = {}
    ratios: list[Mapping[str, float | None]] = []
    five = compared(folder / "city" / "o5.yaml", ["cbdp", WITHOUT, *BASELINES], ["fleet"])
    views = views_of_city(five)
    for name in ("o3", "o4", "o5"):
        comparison = five if name == "o5" else compared(folder / "city" / f"{name}.yaml", ["cbdp"])
        for entry in comparison.entries:
            key = name if entry.name == "cbdp" else entry.name
            for _ in range(runs):
                released = entry.try_on(comparison.table).released[-1]
                errors.setdefault(key, []).append(view_errors(views, five.true_levels[-1], released))
                if key == "o5":
                    (fleet,) = five.utilities
                    ratios.append(fleet.measure(five.table.tree, five.true_levels[-1], released, fleet.terms))
    means = mean_errors(errors)
    print_errors(means)
    vehicles = {name: fmean(run[name] or 0.0 for run in ratios) for name in ratios[0]}
    print(
        "\nvehicles of o5, released over true: " + ", ".join(f"{name} {value:.2f}" for name, value in vehicles.items())
    )
    o5 = means["o5"]
    return [
        Asked("city, O5: error at zones", o5["by_zones"], most=5.5),
        Asked("city, O5: error at modes", o5["by_mode"], most=5),
        Asked("city, O5: error at periods", o5["by_period"], most=6),
        Asked("city, O5: error of the total", o5["total"], most=10),
        Asked("city: flat Laplace over O5, at zones", means["laplace"]["by_zones"] / o5["by_zones"], least=50),
        Asked(
            "city: O5 over the default without views, at modes", o5["by_mode"] / means[WITHOUT]["by_mode"], most=0.35
        ),
        Asked("city, O5: busy vehicles, released over true", vehicles["busy"], least=0.9, most=1.35),
        Asked("city, O5: pooled vehicles, released over true", vehicles["pooled"], least=0.95, most=1.05),
    ]


def rhode_island(folder: Path, runs: int) -> list[Asked]:
    """Try both margins and a distance band under cbdp, and the margins of every level under the default mechanism."""
    write_bands(folder / "bands.csv")
    runs = max(runs // 2, 2)
    both = compared(spec_at(folder / "both.yaml", RHODE_ISLAND | BOTH), ["cbdp", WITHOUT])
    views = {view.terms.name: view.partition for view in both.views} | {"leaf": leaves_of_tree(both)}
    errors = {
        entry.name: [view_errors(views, both.true_levels[-1], released_by(both, entry)) for _ in range(runs)]
        for entry in both.entries
    }
    means = mean_errors(errors)
    print_errors(means)
    print("\nviews: margins, the default mechanism:")
    margins = compared(spec_at(folder / "margins.yaml", RHODE_ISLAND | MARGINS), [DEFAULT, WITHOUT])
    views = {view.terms.name: view.partition for view in margins.views} | {"leaf": leaves_of_tree(margins)}
    tree, true = margins.table.tree, margins.true_levels[-1]
    levels = {level: Partition(tree, level_view(tree, level)) for level in range(1, tree.depth + 1)}
    errors, largest = {}, dict[str, list[list[int]]]()
    for entry in margins.entries:
        for _ in range(runs):
            released = released_by(margins, entry)
            errors.setdefault(entry.name, []).append(view_errors(views, true, released))
            of_run = [int(abs(deviations(of, true, released)).max()) for of in levels.values()]
            largest.setdefault(entry.name, []).append(of_run)
    of_margins = mean_errors(errors)
    print_errors(of_margins)
    largest_means = {name: np.mean(of, axis=0) for name, of in largest.items()}
    print(
        "\nlargest errors of the levels: "
        + "; ".join(f"{name} {np.round(of, 1)}" for name, of in largest_means.items())
    )
    ratios = largest_means[DEFAULT] / largest_means[WITHOUT]
    plan, found = margins.plan, list[Asked]()
    for end in ("origin", "destination"):
        number = next(view.number for view in plan.named_views if view.name == f"{end}_trct")
        alone = mean_noise(plan.scheme.of_measured(plan.guarantee.noises)[number].sigma)
        ratio = of_margins[DEFAULT][f"{end}_trct"] / alone
        found.append(Asked(f"Rhode Island, margins: {end} tracts over noisy margins alone", ratio, most=1.5))
    return [
        Asked("Rhode Island, cbdp: error of destination tracts", means["cbdp"]["working"], most=7.5),
        Asked("Rhode Island, cbdp: error of distance bands", means["cbdp"]["band"], most=9),
        *found,
        Asked("Rhode Island, margins: mean ratio of the levels' largest errors", float(ratios.mean()), most=1.15),
    ]


def blocks(folder: Path, runs: int) -> list[Asked]:
    """Try the margins of every level of Rhode Island's pairs of blocks, to which the tree is calibrated; no figure was asked for."""
    keys = MARGINS | {"release": MARGINS["release"] | {"finest": "tabblk2010"}}
    comparison = compared(spec_at(folder / "blocks.yaml", RHODE_ISLAND | keys), [DEFAULT, WITHOUT])
    views = {view.terms.name: view.partition for view in comparison.views}
    true, runs = comparison.true_levels[-1], max(runs // 4, 2)
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
    print_errors(mean_errors(errors))
    for name, of_runs in largest.items():
        print(f"largest errors of the levels: {name} {np.mean(of_runs, axis=0).round(1)}")
    return []


def mean_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the mean absolute difference."""
    return float(np.abs(one - other).mean())


def largest_error(comparison: Comparison, true: Frontier, released: Frontier) -> int:
    """Return the largest error over all cells of a level, those without a count too."""
    sizes = comparison.table.tree.sizes(true.level)
    row, back = locate(true.areas, released.areas, sizes), locate(released.areas, true.areas, sizes)
    of_true = np.where(row >= 0, released.counts[row], 0) - true.counts
    return int(max(np.abs(of_true).max(initial=0), released.counts[back < 0].max(initial=0)))


def adult(folder: Path, runs: int) -> list[Asked]:
    """Try all one-way and two-way margins of seven features, under cbdp and under the default mechanism."""
    data = Path(os.environ["TRELLIS_DATA"]) / "adult"
    sizes = json.loads((data / "adult-domain.json").read_text())
    pairs = [(one,) for one in ADULT] + list(combinations(ADULT, 2))
    keys = {
        "name": "adult",
        "dataset": "adult",
        "input": {"table": str(data / "adult.csv"), "features": list(ADULT)},
        "hierarchy": {feature: {"values": sizes[feature]} for feature in ADULT},
        "release": {"order": list(ADULT), "views": {"-".join(of): {one: one for one in of} for of in pairs}},
        "mechanism": "cbdp",
        "privacy": {"unit": "one person", "neighbours": "substitution", **PRIVACY},
    }
    runs = max(runs // 4, 2)
    comparison = compared(spec_at(folder / "adult.yaml", COMMON | keys), ["cbdp", DEFAULT, WITHOUT])
    true = comparison.true_levels[-1]
    records, found = int(true.counts.sum()), {}
    for entry in comparison.entries:
        of_runs = []
        for _ in range(runs):
            released = released_by(comparison, entry)
            of_runs.append(
                [np.abs(deviations(view.partition, true, released)).sum() / records for view in comparison.views]
            )
        ways = np.array([sum(map(bool, view.partition.view.axis_levels)) for view in comparison.views])
        of_views = np.mean(of_runs, axis=0)
        found[entry.name] = of_views[ways == 1].mean(), of_views[ways == 2].mean()
    print(markdown([["", "one-way ℓ₁", "two-way ℓ₁"], ["---", "---:", "---:"], *adult_rows(found)]))
    one, two = min(found.values(), key=lambda of: of[1])
    return [
        Asked("Adult: mean ℓ₁ of one-way margins, share of records", float(one), most=0.010),
        Asked("Adult: mean ℓ₁ of two-way margins, share of records", float(two), most=0.10),
    ]


def adult_rows(found: Mapping[str, tuple[float, float]]) -> Iterator[list[str]]:
    """Yield a row per mechanism."""
    for name, (one, two) in found.items():
        yield [name, f"{one:.4f}", f"{two:.4f}"]


def large(folder: Path, runs: int) -> list[Asked]:  # noqa: ARG001 (the parts have the same arguments)
    """Settle and round a day of the city: 811,200 leaves, and 1, 48, 768 and 576 cells."""
    synthesise_city_answer("weekday", folder / "day", SEED)
    comparison = compared(folder / "day" / "o5.yaml", ["cbdp"])
    tree, true, plan = comparison.table.tree, comparison.true_levels[-1], comparison.plan
    scheme = plan.scheme
    generator = np.random.default_rng(SEED)
    noises, groupings = scheme.of_measured(plan.guarantee.noises), list[Grouping]()
    leaves = Partition(tree, level_view(tree, tree.depth))
    cells, own = leaves.cells(), np.zeros(0)
    for number, noise in noises.items():
        partition = Partition(tree, scheme.view(number))
        noisy = sums_of_leaves(partition, true) + np.rint(generator.laplace(0, noise.scale, len(partition)))
        if number == tree.depth:
            own = noisy
        else:
            cell = partition.places(cells).astype(np.int32)
            groupings.append(Grouping(cell, noisy, 1 / (noise.variance * math.sqrt(len(partition)))))
    del comparison, cells
    began = time.thread_time()
    values = settle_overlapping(own, 1 / (noises[tree.depth].variance * math.sqrt(len(own))), groupings)
    rounded = round_controlled(values, [of.cell for of in groupings])
    seconds, peak = time.thread_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(own):,} leaves in {seconds:.2f} thread seconds; the process has taken {peak:.2f} GiB at most")
    print(f"largest deviations {np.round(rounded.deviations, 3)}, the leaves' last")
    return [
        Asked("811,200 leaves: thread seconds to settle and round", seconds, most=6),
        Asked("811,200 leaves: GiB of the whole process", peak, most=1),
    ]


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


def views_of_city(comparison: Comparison) -> dict[str, Partition]:
    """Return the groupings of the city, and its leaves."""
    return {view.terms.name: view.partition for view in comparison.views} | {"leaf": leaves_of_tree(comparison)}


def deviations(of: Partition, true: Frontier, released: Frontier) -> np.ndarray:
    """Return the errors of all cells of a grouping, zeros too."""
    return sums_of_leaves(of, released) - sums_of_leaves(of, true)


def view_errors(views: Mapping[str, Partition], true: Frontier, released: Frontier) -> Errors:
    """Return the mean absolute error over all cells of each grouping."""
    return {name: float(np.abs(deviations(of, true, released)).mean()) for name, of in views.items()}


def mean_errors(errors: Mapping[str, Sequence[Errors]]) -> dict[str, Errors]:
    """Return the means over the runs."""
    return {key: {name: fmean(run[name] for run in runs) for name in runs[0]} for key, runs in errors.items()}


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


def print_errors(means: Mapping[str, Errors]) -> None:
    """Print mean errors, a row per mechanism."""
    names = list(dict.fromkeys(name for of in means.values() for name in of))
    rows = [[key, *(f"{of[name]:.3g}" for name in names)] for key, of in means.items()]
    print(markdown([["", *names], ["---", *["---:"] * len(names)], *rows]))


if __name__ == "__main__":
    main()
