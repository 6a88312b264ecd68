"""The maps of a report: their numbers are those of queries, and they call the same areas noise as the explorer does."""

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.explore.payload import payload
from tasks.query.folder import open_folder
from tasks.tabulate import totals
from tasks.verify.folder import verify
from tasks.verify.pages import page_failures
from tests.support.explored import DRAWN, SPEC, asked, land_released
from tests.support.library import Library

Made = Callable[[str], Path]

LOUD = {"privacy": SPEC["privacy"] | {"epsilon": 0.02}}
WITHOUT_NOISY = LOUD | {"release": SPEC["release"] | {"noisy_counts": False}}
KINDS: dict[str, dict[str, Any]] = {  # of the land with a map; others are in the library
    "loud": LOUD,
    "without noisy counts": WITHOUT_NOISY,
    "views of inftda": WITHOUT_NOISY
    | {"mechanism": "inftda", "release": WITHOUT_NOISY["release"] | {"views": "margins"}},
    "views of cbdp": WITHOUT_NOISY | {"mechanism": "cbdp", "release": WITHOUT_NOISY["release"] | {"views": "margins"}},
    "with margins": LOUD | {"release": SPEC["release"] | {"views": "margins"}},
    "settled together": LOUD | {"mechanism": "cbdp", "release": SPEC["release"] | {"views": "margins"}},
    "leaves only": LOUD | {"mechanism": "gaussian"},
    "unbiased": {
        "dataset": "others",
        "mechanism": "unbiased_tree",
        "noise": {},
        "privacy": LOUD["privacy"] | {"neighbours": "add_remove"},
    },
}
SHADES = {"n": "noise", "z": "none"}
ENDS = {"Where trips begin": "origin", "Where trips end": "destination"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, library: Library) -> Made:
    """Return what finds a release with maps: of the land, once, or in the library."""
    place = tmp_path_factory.mktemp("maps")

    @functools.cache
    def of(kind: str) -> Path:
        if kind not in KINDS:
            return library[kind].folder
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRELLIS_HOME", str(place / "home"))
            return land_released(place / kind.replace(" ", "-"), DRAWN, **KINDS[kind])

    return of


def figures(folder: Path) -> dict[str, str]:
    """Return the maps of a report, by axis."""
    page = (folder / "report.html").read_text()
    found = re.findall(r"<figure><h3>(Where trips \w+)</h3>(.*?)</figure>", page, re.DOTALL)
    return {ENDS[title]: figure for title, figure in found}


def numbers(figure: str) -> dict[str, list[str]]:
    """Return the rows of the table behind a map, by the codes of areas."""
    rows = re.findall(r'<tr><th scope="row">[^<]*\((\w+)\)</th>(.*?)</tr>', figure)
    return {code: re.findall(r"<td>([^<]*)</td>", cells) for code, cells in rows}


def shades(figure: str) -> dict[str, str]:
    """Return how the areas of a map are drawn, by their codes."""
    drawn = re.findall(r'<path class="(\w+)"[^>]*><title>[^<]*\((\w+)\): -?[\d,]+</title>', figure)
    return {code: SHADES.get(shade, "signal") for shade, code in drawn}


def kind_of(count: int, low: int | None) -> str:
    """Return how the explorer draws an area."""
    return "none" if count == 0 else "signal" if count > 0 and (low is None or low > 0) else "noise"


@pytest.mark.parametrize(
    "kind",
    [
        *("loud", "trips", "trips shrunk", "trips settled together"),
        *(pytest.param(kind, marks=pytest.mark.thorough) for kind in list(KINDS)[4:]),
    ],
)
def test_maps_say_what_queries_and_the_explorer_say(made: Made, kind: str) -> None:
    """Behind each map are the answers of queries; what it hatches, the explorer hatches, and its words fit what is hatched."""
    folder = made(kind)
    data, found = payload(open_folder(folder)), figures(folder)
    assert found.keys() == {"origin", "destination"}
    for number, (axis, figure) in enumerate(found.items()):
        rows, drawn = numbers(figure), shades(figure)
        levels = [of["codes"] for of in data["axes"][number]["levels"]]
        (level,) = (place for place, codes in enumerate(levels, 1) if {*rows} <= {*codes})
        for code, cells in rows.items():
            answer = asked(folder, {axis: f"{data['axes'][number]['levels'][level - 1]['name']}={code}"})
            assert cells == [f"{value:,}" for value in (answer.count, answer.low, answer.high)]
        of_axis = next(of for of in data["totals"] if (of["axis"], of["level"]) == (number, level))
        codes = data["axes"][number]["levels"][level - 1]["codes"]
        assert drawn == {
            code: kind_of(count, low) for code, count, low in zip(codes, of_axis["count"], of_axis["low"], strict=True)
        }
        assert ("the 90% intervals of their totals reach 0." in figure) == ("noise" in drawn.values())
        assert (">counts 0<" in figure) == ("none" in drawn.values())
    assert verify(folder) == []


@pytest.mark.thorough
def test_without_noisy_counts_a_map_goes_by_the_noise_of_a_sum(made: Made) -> None:
    """Intervals of sums follow from noisy counts. Where these are not published, a total is held to twice the noise of its cells."""
    folder = made("without noisy counts")
    for axis, figure in figures(folder).items():
        level = {"origin": 2, "destination": 1}[axis]
        assert f"added up from level {level}." in figure
        told = re.search(r"(?:at most|above) ([\d,.]+), twice the noise", figure)
        limit = float(told[1].replace(",", "")) if told else 0.0
        assert {code: cells[1] for code, cells in numbers(figure).items()} == {
            code: "yes" if int(cells[0].replace(",", "")) > limit else "no" for code, cells in numbers(figure).items()
        }


@pytest.mark.parametrize("mechanism", [pytest.param("cbdp", marks=pytest.mark.thorough), "inftda"])
def test_a_map_takes_the_intervals_of_a_view(made: Made, mechanism: str) -> None:
    """A margin that is published has its own intervals, also where noisy counts are not published, and σ of the level says less."""
    folder = made(f"views of {mechanism}")
    figure, view = figures(folder)["origin"], pl.read_parquet(folder / "views/origin_county.parquet")
    cells = view.select("origin_county", "count", "low", "high").rows()
    assert numbers(figure) == {code: [f"{value:,}" for value in values] for code, *values in cells}
    assert shades(figure) == {code: kind_of(count, low) for code, count, low, _ in cells}


@pytest.mark.thorough
def test_a_map_of_many_cells_goes_by_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a map would add up more cells than the page is worth, it does without intervals; so does `verify`."""
    monkeypatch.setattr(totals, "MOST_CELLS", 5)
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    folder = land_released(tmp_path / "land", DRAWN, **LOUD)
    found = figures(folder)
    assert "judged by itself" in found["destination"]  # by county, which are three cells
    assert "twice the noise of such a sum" in found["origin"]  # by county, which takes nine
    assert page_failures(folder) == []
