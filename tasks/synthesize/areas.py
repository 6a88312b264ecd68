"""Areas with nested codes for synthetic countries, their made-up names and shapes, the files of such a country, and the six sets of the O/D paper."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from tasks.tree.axis import FloatArray, IntArray

TITLE = "# A synthetic country"
README = """\
**Synthetic data.** This country does not exist, and no person is in these tables: the {areas} of `codebook.{kind}` and
the {people} of `trips.{kind}` were drawn at random by Trellis (`tasks/synthesize/`), from a model and not
from any survey, register or census. They show how Trellis works and say nothing about any place. A code that resembles
an official one does so by chance.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Country:
    """A synthetic country.

    Attributes:
        codebook: a row per finest area; a text column per level, coarse to fine, sorted by all columns.
        trips: a row per pair with people; text columns home and work (codes of finest areas) and people, int64, >= 1;
            sorted by home and work. Of a day in a city, text columns origin, destination and mode, hour, and trips.
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
    counts = country.trips.to_series(-1)
    *upper, finest = (f"{areas.n_unique():,} {_plural(areas.name)}" for areas in country.codebook)
    readme = README.format(
        areas=f"{', '.join(upper)} and {finest}", people=f"{counts.sum():,} {counts.name}", kind=kind
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


NAMES, SHAPES, README_FILE = "names.csv", "areas.geojson", "README.md"

_BEGIN: tuple[str, ...] = ("Al", "Ber", "Cor", "Dor", "El", "Fal", "Gre", "Hol", "Is", "Kar")
_BEGIN += ("Lor", "Mar", "Nor", "Or", "Pel", "Ros", "Sel", "Tor", "Ul", "Ver")
_MIDDLE = ("a", "be", "di", "en", "i", "la", "mo", "ne", "o", "ra", "ti", "va")
_END = ("bury", "dale", "ford", "ham", "mere", "mouth", "port", "stead", "ton", "vale", "wick", "worth")
_KILOMETRES = 111.0  # in a degree of latitude, and of longitude at the equator, where the country lies
_ROOM = 8.0  # km around the outermost places, which belong to their cells


def write_land(folder: Path, codebook: pl.DataFrame, places: FloatArray) -> None:
    """Write `names.csv`, a name for every area of every level, and `areas.geojson`, a shape for every finest area; say so in the README.

    Args:
        codebook: a row per finest area; a text column per level, coarse to fine.
        places: of the finest areas, in the order of the codebook, shape (areas, 2), float64, km east and north.
    """
    names(codebook).write_csv(folder / NAMES)
    finest = codebook[codebook.columns[-1]].to_list()
    features = [
        {"type": "Feature", "properties": {"code": code}, "geometry": cell}
        for code, cell in zip(finest, cells(places), strict=True)
    ]
    (folder / SHAPES).write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    with (folder / README_FILE).open("a", encoding="utf-8") as readme:
        readme.write(f"\n`{NAMES}` and `{SHAPES}` give the areas names and shapes that were made up likewise.\n")


def names(codebook: pl.DataFrame) -> pl.DataFrame:
    """Return the columns level, code and name: a name of its own for every area of every level, in the order of codes.

    The same codebook always gets the same names.
    """
    areas = [(level, code) for level in codebook.columns for code in codebook[level].unique().sort().to_list()]
    generator, words = np.random.default_rng(len(areas)), dict[str, None]()
    while len(words) < len(areas):
        syllables = [part[generator.integers(len(part))] for part in (_BEGIN, _MIDDLE, _END)]
        word = "".join(syllables if generator.random() < 0.5 else syllables[::2])
        if len(words) >= len(_BEGIN) * len(_MIDDLE) * len(_END) // 2:
            word = f"{word} {len(words)}"
        words[word] = None
    levels, codes = zip(*areas, strict=True)
    return pl.DataFrame({"level": levels, "code": codes, "name": list(words)})


def cells(places: FloatArray) -> list[dict[str, Any]]:
    """Return the cell around each place, which is nearer to it than to any other, as a polygon of GeoJSON in degrees."""
    import shapely  # which only writing needs

    points = shapely.MultiPoint(places / _KILOMETRES)
    land = points.convex_hull.buffer(_ROOM / _KILOMETRES, quad_segs=3)
    around = shapely.voronoi_polygons(points, extend_to=land, ordered=True)
    clipped = shapely.set_precision(shapely.intersection(list(around.geoms), land), 1e-5)
    return [shapely.geometry.mapping(cell) for cell in clipped]


PaperKind = Literal["binary", "random"]
PaperDensity = Literal["complete", "dense", "sparse"]

# of the pairs of areas, those that have people
SHARES: dict[PaperDensity, float] = {"complete": 1.0, "dense": 0.5, "sparse": 0.01}
BINARY_LEVELS, RANDOM_LEVELS = 8, 4
FEWEST, MOST = 2, 10  # children of an area of the random hierarchy
RANDOM_AREAS = 435  # at its finest level, as in the paper: 189,225 pairs
EXPONENT = 3.0  # of the Pareto law of people
LARGEST = 1000  # people of one pair


def draw_paper_set(kind: PaperKind, density: PaperDensity, *, generator: np.random.Generator) -> Country:
    r"""Return one of the sets, drawn again by the method of its authors.

    .. math:: \text{people} = \lfloor 1 + 999 x / \max x \rfloor, \quad P(x > t) = (1 + t)^{-3}

    The hierarchy is drawn before the people, so all densities of one seed have the same hierarchy.

    Args:
        kind: binary, 8 levels of two children each, 65,536 pairs; or random, 4 levels of 2 to 10 children, 189,225 pairs.
        density: whether all pairs, half of them, or one in a hundred have people.
    Source:
        Boninsegna and Silvestri (2025), Table 1. Their published code has the Pareto law and its scaling.
    """
    path = [pl.Series("", [""])]  # of codes, from everything down to the level
    halves = (np.repeat(np.arange(2**level), 2) for level in range(BINARY_LEVELS))
    for level, parent in enumerate(halves if kind == "binary" else _random_parents(generator), start=1):
        path = extend_codes(path, f"level_{level}", parent, 1)
    areas = len(path[-1])
    pairs = np.sort(generator.choice(areas**2, round(SHARES[density] * areas**2), replace=False))
    x = generator.pareto(EXPONENT, len(pairs))
    people = np.floor(1 + (LARGEST - 1) * (x / x.max())).astype(np.int64)
    home, work = np.divmod(pairs, areas)
    trips = {"home": path[-1].gather(home), "work": path[-1].gather(work), "people": people}
    return Country(pl.DataFrame(path[1:]), pl.DataFrame(trips))


def _random_parents(generator: np.random.Generator) -> list[IntArray]:
    """Return, per level, the parent of each area. Draws hierarchies until one has as many areas as the paper's."""
    while True:
        parents = [np.zeros(generator.integers(FEWEST, MOST + 1), dtype=np.int64)]
        while len(parents) < RANDOM_LEVELS:
            above = len(parents[-1])
            parents.append(np.repeat(np.arange(above), generator.integers(FEWEST, MOST + 1, size=above)))
        if len(parents[-1]) == RANDOM_AREAS:
            return parents
