"""Areas with nested codes for synthetic countries, and the files of such a country."""

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from tasks.tree.axis import FloatArray, IntArray

TITLE = "# A synthetic country"
README = """\
**Synthetic data.** This country does not exist, and no person is in these tables: the {areas} of `codebook.{kind}` and
the {people} people of `trips.{kind}` were drawn at random by Trellis (`tasks/synthesize/`), from a model and not
from any survey, register or census. They show how Trellis works and say nothing about any place. A code that resembles
an official one does so by chance.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Country:
    """A synthetic country.

    Attributes:
        codebook: a row per finest area; a text column per level, coarse to fine, sorted by all columns.
        trips: a row per pair with people; text columns home and work (codes of finest areas) and people, int64, >= 1;
            sorted by home and work.
        places: of the finest areas, shape (areas, 2), float64, km east and north; None where they lie nowhere.
    """

    codebook: pl.DataFrame
    trips: pl.DataFrame
    places: FloatArray | None = None


def write_country(country: Country, folder: Path, kind: Literal["csv", "parquet"] = "csv") -> None:
    """Write the files `codebook` and `trips`, and a `README.md` that says that they are synthetic."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("codebook", country.codebook), ("trips", country.trips)):
        if kind == "csv":
            table.write_csv(folder / f"{name}.csv")
        else:
            table.write_parquet(folder / f"{name}.parquet")
    *upper, finest = (f"{areas.n_unique():,} {_plural(areas.name)}" for areas in country.codebook)
    readme = README.format(
        areas=f"{', '.join(upper)} and {finest}", people=f"{country.trips['people'].sum():,}", kind=kind
    )
    (folder / "README.md").write_text(f"{TITLE}\n\n{textwrap.fill(readme, 120)}\n", encoding="utf-8")


def at_least(field: str, value: int, least: int, rule: str) -> None:
    """Refuse an argument below its least value; `rule` is the least value in words."""
    if value < least:
        raise ValueError(f"{field} must be >= {rule}, got {value}.")


def draw_parents(parents: int, children: int, sigma: float, generator: np.random.Generator) -> IntArray:
    """Return the parent of each child, ascending. Each parent gets one child; the others are drawn by random weights.

    Args:
        parents: at least one.
        children: at least as many.
        sigma: σ of the lognormal weights. A larger σ gives a longer tail.
        generator: the random generator.
    Returns:
        int64, shape (children,).
    """
    favour = generator.lognormal(sigma=sigma, size=parents)
    others = generator.multinomial(children - parents, favour / favour.sum())
    return np.repeat(np.arange(parents, dtype=np.int64), 1 + others)


def extend_codes(path: list[pl.Series], level: str, parent: IntArray, digits: int) -> list[pl.Series]:
    """Return the codes of a path of levels, extended by one level.

    Args:
        path: per level so far, coarse to fine, the code of the area that contains each area of the last level.
        level: the name of the new level.
        parent: for each area of the new level, its row in `path`, ascending, shape (areas,).
        digits: the least number of digits that the level adds to the code of the area above.
    """
    path = [codes.gather(parent) for codes in path]
    numbers = np.arange(1, len(parent) + 1) - np.searchsorted(parent, parent)  # of each child among its siblings
    own = pl.Series(numbers).cast(pl.String).str.zfill(max(digits, len(str(numbers.max()))))
    return [*path, (path[-1] + own).alias(level)]


def _plural(noun: str) -> str:
    if noun[-1:].isdigit():  # levels without names of their own, such as level_1
        return f"areas of {noun}"
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
