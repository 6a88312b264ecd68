"""The made-up nation of Italy's shape, or of a share of its size, drawn once with one seed: in memory, and as files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import repository  # noqa: F401, for tests.support
from compute import trips_tree
from drawn_nation import ITALY, draw_nation
from results import FOLDER

from tasks.synthesize.areas import Country, write_country
from tasks.tree.axis import IntArray, axis_from_codebook
from tasks.tree.order import Tree

FLOWS, PEOPLE = 14_300_000, 31_000_000
SEED = 2025


@dataclass(frozen=True, slots=True, eq=False)
class Nation:
    """A made-up nation, and what the mechanism needs of it."""

    country: Country

    def trips(self, finest: str = "section") -> tuple[Tree, list[IntArray], IntArray]:
        """Return the tree of its trips down to a level, the areas of the records at both ends, and their counts."""
        levels = self.country.codebook.columns
        codebook = self.country.codebook.select(levels[: levels.index(finest) + 1]).unique().sort(pl.all())
        axis = axis_from_codebook("area", codebook)
        digits = codebook[finest].str.len_chars()[0]
        number = codebook.select(code=finest).with_row_index("area")
        ends = [self._areas(end, digits, number) for end in ("home", "work")]
        trips = pl.DataFrame({"home": ends[0], "work": ends[1], "people": self.country.trips["people"]})
        trips = trips.group_by("home", "work").agg(pl.col("people").sum()).sort("home", "work")
        home, work, people = (trips[column].to_numpy() for column in trips.columns)
        return trips_tree(axis), [home, work], people

    def _areas(self, end: str, digits: int, number: pl.DataFrame) -> pl.Series:
        codes = self.country.trips.select(code=pl.col(end).str.head(digits))
        return codes.join(number, on="code", how="left", maintain_order="left")["area"].cast(pl.Int64)


def draw_share(share: float) -> Nation:
    """Return a nation with a share of Italy's flows and people, and the root of the share of its areas."""
    areas = tuple(max(1, round(count * share**0.5)) for count in ITALY)
    country = draw_nation(
        areas=areas,
        flows=max(1, round(FLOWS * share)),
        people=max(1, round(PEOPLE * share)),
        generator=np.random.default_rng(SEED),
    )
    return Nation(country)


def folder_of(share: float) -> Path:
    """Return the folder with the nation's codebook.parquet and trips.parquet, drawn the first time that is asked."""
    folder = FOLDER / f"italy-{share:g}"
    if not (folder / "README.md").exists():  # which is written last
        write_country(draw_share(share).country, folder, "parquet")
    return folder


def read(folder: Path) -> Nation:
    """Return the nation in a folder."""
    return Nation(Country(*(pl.read_parquet(folder / f"{name}.parquet") for name in ("codebook", "trips"))))
