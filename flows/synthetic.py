"""Writes synthetic tables with a spec that is ready to release them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from storage.errors import UsageError
from tasks.synthesize.areas import Country, write_country
from tasks.synthesize.country import draw_country
from tasks.synthesize.paper_sets import Density, Kind, draw_paper_set
from tasks.synthesize.survey import draw_survey

SPEC = """\
# SYNTHETIC: a country that does not exist, see data/README.md.
name: {name}
dataset: {dataset}
public_data: true
input:
  table: data/trips.csv
  origin: home
  destination: work
  count: people
hierarchy:
  table: data/codebook.csv
  levels: [{levels}]
release:
  tree: destination
  finest: {finest}
mechanism: inftda
privacy:
  unit: {unit}
  neighbours: substitution
  max_records_per_unit: 1
  epsilon: {epsilon}
  delta: 1.0e-8
budget: {{epsilon: 10.0, delta: 1.0e-7}}
output: out
"""


def write_ready(
    country: Country, folder: Path, name: str, dataset: str, epsilon: float, unit: str = "one commuter"
) -> Path:
    """Write a country's tables into `data/`, and a spec that releases them into `folder`; return the path of the spec."""
    write_country(country, folder / "data")
    levels = country.codebook.columns
    text = SPEC.format(
        name=name, dataset=dataset, levels=", ".join(levels), finest=levels[-1], epsilon=epsilon, unit=unit
    )
    spec = folder / "spec.yaml"
    spec.write_text(text, encoding="utf-8")
    return spec


@dataclass(frozen=True, slots=True)
class SyntheticSet:
    """A synthetic set of trips, and its spec.

    Attributes:
        set: which set.
        seed: that it was drawn with.
        spec: the file of the spec that releases it.
        areas: how many it has; likewise `pairs`, of areas between which people go, and `people`.
    """

    set: str
    seed: int
    spec: str
    areas: int
    pairs: int
    people: int


def synthesise_answer(
    kind: Kind | Literal["country", "survey"], density: Density | None, folder: Path, seed: int
) -> SyntheticSet:
    """Draw a set into a new folder, with a spec, and return a description.

    Args:
        kind: one of the paper's sets, the country of the demonstration, or a survey.
        density: of the paper's sets; `complete` where left out. The others have none.
        folder: where it is written.
        seed: the same seed draws the same set.

    Raises:
        UsageError: the folder exists and is not empty, or a set that has no density is given one.
    """
    if kind in {"country", "survey"} and density:
        raise UsageError(
            f"--density is for the sets binary and random; a {kind} has none, got {density}.", field="density"
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"--out must be a new or empty folder, got {folder}.", field="out")
    generator = np.random.default_rng(seed)
    if kind == "country":
        drawn, words, unit = draw_country(generator=generator), ["country"], "one commuter"
    elif kind == "survey":
        drawn, words, unit = draw_survey(generator=generator), ["survey"], "one respondent"
    else:
        words, unit = [kind, density or "complete"], "one commuter"
        drawn = draw_paper_set(kind, density or "complete", generator=generator)
    name = "-".join(words)
    spec = write_ready(drawn, folder, name, f"synthetic-{name}-{seed}", epsilon=1.0, unit=unit)
    people = int(drawn.trips["people"].sum())
    return SyntheticSet(" ".join(words), seed, str(spec), drawn.codebook.height, drawn.trips.height, people)
