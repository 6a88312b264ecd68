"""Writes synthetic tables with specs that are ready to release them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from storage.errors import UsageError
from tasks.synthesize.areas import (
    NAMES,
    SHAPES,
    Country,
    PaperDensity,
    PaperKind,
    draw_paper_set,
    write_country,
    write_land,
)
from tasks.synthesize.city import draw_day
from tasks.synthesize.country import draw_country, draw_survey
from tasks.synthesize.households import draw_households, draw_taxis
from tasks.synthesize.shuttle import ZONES, Day, draw_city, draw_trips, periods_of, write_shuttle

SPEC = """\
# SYNTHETIC: a country that does not exist, see data/README.md.
name: {name}
title: Trips in a country that does not exist
description: Synthetic data. No person is in these tables, and they say nothing about any place.
source: drawn at random by Trellis
dataset: {dataset}
public_data: true
{keys}privacy:
  unit: {unit}
  neighbours: substitution
  max_records_per_unit: 1
  epsilon: {epsilon}
  delta: 1.0e-8
budget: {{epsilon: 10.0, delta: 1.0e-7}}
output: out
"""
PAIRS = """\
input:
  table: data/trips.csv
  origin: home
  destination: work
  count: people
hierarchy:
  table: data/codebook.csv
  levels: [{levels}]
{land}release:
  tree: destination
  finest: {finest}
mechanism: inftda
"""
BY_MODE_AND_HOUR = """\
expected_total: 200000
input:
  table: data/trips.csv
  origin: origin
  destination: destination
  features: [mode, hour]
  count: trips
hierarchy:
  origin: &zones {{table: data/codebook.csv, levels: [{levels}], labels: data/{names}, boundaries: data/{shapes}}}
  destination: *zones
  mode: [bike, bus, car, walk]
  hour: {{ordered: 24, branching: 24}}  # one level, and ranges such as 7..9
release: {{}}  # Trellis chooses the order and the views, and `trellis plan` says why
"""

SHUTTLE_SPEC = """\
# SYNTHETIC: a city that does not exist, see README.md. Stops, zones and modes are public and do not depend on the trips.
name: {name}
dataset: {dataset}
public_data: true
input:
  table: trips.parquet
  features: [period, origin, destination]
  count: trips
hierarchy:
  period: {{values: [{periods}]}}
  origin: {{table: stops.csv, levels: [zone, stop]}}
  destination: {{table: stops.csv, levels: [zone, stop]}}
{derived}release:
  order: [period, origin, destination]
  views:
    {views}
mechanism: cbdp
noise: {{law: laplace}}
privacy:
  unit: one trip
  neighbours: add_remove
  max_records_per_unit: 1
  epsilon: 1.0
  delta: 1.0e-8
budget: {{epsilon: 10.0, delta: 1.0e-7}}
utility:
  fleet: {{period: period, minutes: 30, capacity: 8, durations: minutes.csv}}
output: out
"""
DERIVED = """\
derived:
  mode: {table: modes.csv, of: [origin.stop, destination.stop]}
"""
HOUSEHOLDS_SPEC = """\
# SYNTHETIC: a country that does not exist, see README.md.
name: households-by-<name>
dataset: <dataset>
public_data: true
input: {<input>}
hierarchy:
  region: {table: counties.csv, levels: [state, county]}
<codes>release:
  group_sizes: {region: county, largest: 20}
mechanism: group_sizes
privacy:
  unit: one person
  neighbours: add_remove
  max_records_per_unit: 1
  epsilon: 1.0
  delta: 1.0e-8
  split: {finest: 4}
budget: {epsilon: 10.0, delta: 1.0e-7}
output: out
"""
HOUSEHOLDS = {  # the name of each spec, and its section input: a row a person; a row a household; with all addresses; by tenure
    "people": "table: people.csv.gz, group: address",
    "homes": "table: homes.parquet, group: address, count: people",
    "addresses": "table: people.csv.gz, group: address, groups: {table: addresses.csv.gz, levels: county}",
    "tenure": "table: people.csv.gz, group: address, features: [tenure]",
}
TENURES = "  tenure: [own, rent]\n"
TAXIS_SPEC = """\
# SYNTHETIC: a city that does not exist, see README.md. What a taxi does in one zone is a group, so that a group lies in one region.
name: taxis
dataset: <dataset>
public_data: true
input: {table: pickups.parquet, group: [medallion, zone], count: pickups}
hierarchy:
  region: {table: zones.csv, levels: [borough, zone]}
release:
  group_sizes: {region: zone, largest: 200}
mechanism: group_sizes
privacy:
  unit: one trip
  neighbours: add_remove
  max_records_per_unit: 1
  epsilon: 1.0
  delta: 1.0e-8
  split: {finest: 4}
budget: {epsilon: 10.0, delta: 1.0e-7}
output: out
"""
GROUPS_README = """\
SYNTHETIC: {what} that do not exist, drawn at random by `trellis synthesise {set} --seed {seed}`.

{tables}
"""
Set = PaperKind | Literal["country", "survey", "city", "shuttle", "households", "taxis"]

PICKUPS_OF_A_TAXI = 100  # on average
VIEWS = (  # in the paper's order: its O3 has the first two, O4 one more, O5 all
    "total: {}",
    "by_period: {period: period}",
    "by_zones: {period: period, origin: zone, destination: zone}",
    "by_mode: {period: period, mode: mode}",
)


def write_ready(
    country: Country,
    folder: Path,
    name: str,
    dataset: str,
    epsilon: float,
    unit: str = "one commuter",
    keys: str = PAIRS,
) -> Path:
    """Write a country's tables into `data/`, and a spec with given keys that releases them into `folder`; return the path of the spec.

    Areas of a country that lie somewhere get names and shapes.
    """
    write_country(country, folder / "data")
    levels, land = country.codebook.columns, ""
    if country.places is not None:
        write_land(folder / "data", country.codebook, country.places)
        land = f"  labels: data/{NAMES}\n  boundaries: data/{SHAPES}\n"
    keys = keys.format(levels=", ".join(levels), land=land, finest=levels[-1], names=NAMES, shapes=SHAPES)
    text = SPEC.format(name=name, dataset=dataset, keys=keys, epsilon=epsilon, unit=unit)
    spec = folder / "spec.yaml"
    spec.write_text(text, encoding="utf-8")
    return spec


@dataclass(frozen=True, slots=True)
class SyntheticSet:
    """A synthetic set of trips, and its spec.

    Attributes:
        spec: the file of the spec that releases it.
        areas: how many it has; likewise `pairs`, of areas between which people go, and `people`, or their trips.
    """

    set: str
    seed: int
    spec: str
    areas: int
    pairs: int
    people: int


@dataclass(frozen=True, slots=True)
class SyntheticCity:
    """A made-up city and the trips of a day in it, and its specs.

    Attributes:
        set: always `shuttle`.
        day: the part of the week that was drawn.
        specs: the files of the specs that release it: O3, O4 and O5 of the paper, with two, three and four views.
        stops: how many it has; likewise `zones`.
        trip_types: the number of combinations of period, origin and destination; `travelled` is the number of those with trips.
        trips: how many there are.
    """

    set: str
    day: Day
    seed: int
    specs: tuple[str, ...]
    stops: int
    zones: int
    trip_types: int
    travelled: int
    trips: int


@dataclass(frozen=True, slots=True)
class SyntheticGroups:
    """A synthetic set of groups, and its specs.

    Attributes:
        set: `households` or `taxis`.
        specs: the files of the specs that release it.
        regions: how many finest regions it has; likewise `groups`, `records` in them, and the `largest` group.
    """

    set: str
    seed: int
    specs: tuple[str, ...]
    regions: int
    groups: int
    records: int
    largest: int


def synthesise_answer(
    kind: Set,
    folder: Path,
    seed: int,
    *,
    density: PaperDensity | None = None,
    day: Day | None = None,
    groups: int | None = None,
    regions: int | None = None,
) -> SyntheticSet | SyntheticCity | SyntheticGroups:
    """Draw a set into a new folder, with the specs that release it, and return a description.

    Args:
        seed: the same seed draws the same set; of a city also the same weekday for its morning as for the whole day.
        density: of the paper's sets; `complete` where left out.
        day: of the shuttle; `morning` where left out.
        groups: how many households, or taxis; 20,000 and 400 where left out.
        regions: how many counties, or zones, these have; 40 where left out.
    Raises:
        UsageError: the folder exists and is not empty, a set is given a choice that it does not have, or a number is below 1.
    """
    _check_choices(kind, density, day, {"groups": groups, "regions": regions})
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"--out must be a new or empty folder, got {folder}.", field="out")
    generator = np.random.default_rng(seed)
    if kind == "shuttle":
        return _synthesise_city(day or "morning", folder, seed, generator)
    if kind == "households" or kind == "taxis":
        return _synthesise_groups(kind, groups, regions or 40, folder, seed, generator)
    return _synthesise_trips(kind, density or "complete", folder, seed, generator)


def _check_choices(kind: Set, density: PaperDensity | None, day: Day | None, numbers: dict[str, int | None]) -> None:
    for name, number in numbers.items():
        if number is not None and kind not in {"households", "taxis"}:
            raise UsageError(
                f"--{name} is for the sets households and taxis; the set {kind} has none, got {number}.", field=name
            )
        if number is not None and number < 1:
            raise UsageError(f"--{name} must be >= 1, got {number}.", field=name)
    if density and kind not in {"binary", "random"}:
        raise UsageError(
            f"--density is for the sets binary and random; a {kind} has none, got {density}.", field="density"
        )
    if day and kind != "shuttle":
        raise UsageError(f"--day is for the set shuttle; the set {kind} has none, got {day}.", field="day")


def _synthesise_trips(
    kind: PaperKind | Literal["country", "survey", "city"],
    density: PaperDensity,
    folder: Path,
    seed: int,
    generator: np.random.Generator,
) -> SyntheticSet:
    if kind == "country":
        drawn, called = draw_country(generator=generator), "country"
    elif kind == "survey":
        drawn, called = draw_survey(generator=generator), "survey"
    elif kind == "city":
        drawn, called = draw_day(generator=generator), "city"
    else:
        drawn, called = draw_paper_set(kind, density, generator=generator), f"{kind} {density}"
    unit, name = {"survey": "one respondent", "city": "one trip"}.get(kind, "one commuter"), called.replace(" ", "-")
    keys = BY_MODE_AND_HOUR if kind == "city" else PAIRS
    spec = write_ready(drawn, folder, name, f"synthetic-{name}-{seed}", epsilon=1.0, unit=unit, keys=keys)
    pairs = drawn.trips.select(drawn.trips.columns[:2]).n_unique()
    people = int(drawn.trips.to_series(-1).sum())
    return SyntheticSet(called, seed, str(spec), drawn.codebook.height, pairs, people)


def _synthesise_city(day: Day, folder: Path, seed: int, generator: np.random.Generator) -> SyntheticCity:
    """Draw the geography first, and the trips after it: a grouping that is made from confidential trips is confidential itself."""
    city = draw_city(generator=generator)
    trips = draw_trips(city, day, generator=generator)
    write_shuttle(city, trips, folder)
    dataset, periods = f"synthetic-shuttle-{day}-{seed}", periods_of(day)
    specs = tuple(_write_shuttle_spec(folder, dataset, periods, views) for views in (2, 3, 4))
    stops = len(city.zone)
    types = len(periods) * stops * stops
    return SyntheticCity("shuttle", day, seed, specs, stops, len(ZONES), types, trips.height, int(trips["trips"].sum()))


def _write_shuttle_spec(folder: Path, dataset: str, periods: tuple[str, ...], views: int) -> str:
    """Write the spec that has the first of `VIEWS`, and return its path. The leaves are one partition more."""
    name = f"o{views + 1}"
    shown = "\n    ".join(VIEWS[:views])
    text = SHUTTLE_SPEC.format(
        name=f"shuttle-{name}",
        dataset=dataset,
        periods=", ".join(f'"{period}"' for period in periods),
        derived=DERIVED if "mode" in shown else "",
        views=shown,
    )
    spec = folder / f"{name}.yaml"
    spec.write_text(text, encoding="utf-8")
    return str(spec)


def _synthesise_groups(
    kind: Literal["households", "taxis"],
    groups: int | None,
    regions: int,
    folder: Path,
    seed: int,
    generator: np.random.Generator,
) -> SyntheticGroups:
    folder.mkdir(parents=True, exist_ok=True)
    draw = _draw_households if kind == "households" else _draw_taxis
    table, specs, tables = draw(folder, groups, regions, generator)
    what = "households and their people" if kind == "households" else "taxis and their pickups"
    (folder / "README.md").write_text(
        GROUPS_README.format(what=what, set=kind, seed=seed, tables=tables), encoding="utf-8"
    )
    paths = []
    for name, text in specs.items():
        path = folder / f"{name}.yaml"
        path.write_text(text.replace("<dataset>", f"synthetic-{kind}-{seed}"), encoding="utf-8")
        paths.append(str(path))
    sizes = table.to_series(-1)
    return SyntheticGroups(
        kind, seed, tuple(paths), regions, table.height, int(sizes.sum()), int(str(sizes.max() if len(sizes) else 0))
    )


def _draw_households(
    folder: Path, groups: int | None, regions: int, generator: np.random.Generator
) -> tuple[pl.DataFrame, dict[str, str], str]:
    """Write the tables of a country; return its households, its specs by their names, and what the tables are."""
    drawn = draw_households(states=min(6, regions), counties=regions, households=groups or 20_000, generator=generator)
    drawn.codebook.write_csv(folder / "counties.csv")
    drawn.homes.write_parquet(folder / "homes.parquet")
    for name, table in (("people", drawn.people()), ("addresses", drawn.addresses)):
        table.write_csv(folder / f"{name}.csv.gz", compression="gzip")
    specs = {
        name: HOUSEHOLDS_SPEC.replace("<name>", name)
        .replace("<input>", given)
        .replace("<codes>", TENURES if "features" in given else "")
        for name, given in HOUSEHOLDS.items()
    }
    tables = (
        "- `people.csv.gz`: a row per person. `homes.parquet`: a row per household, with its people.\n"
        "- `addresses.csv.gz`: all addresses, those where nobody lives too. `counties.csv`: the codebook of the regions."
    )
    return drawn.homes, specs, tables


def _draw_taxis(
    folder: Path, groups: int | None, regions: int, generator: np.random.Generator
) -> tuple[pl.DataFrame, dict[str, str], str]:
    """Write the tables of a city; return what its taxis do in each zone, its spec, and what the tables are."""
    taxis = groups or 400
    drawn = draw_taxis(
        boroughs=min(6, regions), zones=regions, taxis=taxis, pickups=PICKUPS_OF_A_TAXI * taxis, generator=generator
    )
    drawn.codebook.write_csv(folder / "zones.csv")
    drawn.pickups.write_parquet(folder / "pickups.parquet")
    tables = "- `pickups.parquet`: how many pickups a taxi has in a zone. `zones.csv`: the codebook of the regions."
    return drawn.pickups, {"taxis": TAXIS_SPEC}, tables
