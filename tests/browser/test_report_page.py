"""The report of a published folder, as somebody sees it at a desk, on a phone, and on paper.

What each page looked like is kept in `build/report/`, for people to judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml

from flows.api import release
from storage.releases.register import REPORT
from tasks.report.release_page import report
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.browsing import (
    A4,
    CONTRASTS,
    SCHEMES,
    VIEWPORTS,
    Scheme,
    Visit,
    keep_picture,
    on_paper,
    visited,
)
from tests.support.facts import facts_of, manifest_of, terms_of, tree_of_features, tree_of_trips
from tests.support.spec import SPEC
from tests.support.universe import axis_of
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCREENSHOTS = REPOSITORY / "build" / "report"
PAGES = ["release", "many-areas", "many-features"]

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@dataclass(frozen=True)
class Look:
    """What a browser made of a page.

    Attributes:
        visit: what it asked, and what its console said.
        width: of all that is on the page, at this viewport, pixels.
        pictures: the widths of the pictures.
        small: the size of the smallest text of a picture, pixels.
        headings: of the sections.
        printed: at the desk, the page as it is printed, and how wide all of it is on paper.
    """

    visit: Visit
    width: int
    pictures: list[float]
    small: float
    headings: list[str]
    printed: tuple[bytes, int] | None


Looks = dict[tuple[str, str], Look]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return a real release's report, one with a matrix of forty areas with long codes, and one of sixty features."""
    place = tmp_path_factory.mktemp("reported")
    country = draw_country(regions=3, provinces=6, municipalities=30, people=3000, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        folder = release(place / "spec.yaml").folder
    trips = tree_of_trips(axis_of, 1, 60, [f"area of a long name {number:02}" for number in range(60)])
    counts = np.random.default_rng(3).integers(0, 3000, (60, 60))
    matrix = facts_of(trips, dict(np.ndenumerate(counts)), terms_of(trips))
    features = tree_of_features(axis_of, 60)
    wide = facts_of(features, {(0,) * 60: 5000, (1,) * 60: 70}, terms_of(features))
    for name, tree, facts in [("many-areas", trips, matrix), ("many-features", features, wide)]:
        (place / f"{name}.html").write_text(report(manifest_of(terms_of(tree), facts), facts, {}))
    made = {name: place / f"{name}.html" for name in ("many-areas", "many-features")}
    return made | {"release": folder / REPORT}


@pytest.fixture(scope="module")
def looks(browser: "Browser", pages: Mapping[str, Path]) -> Looks:
    """Look at every page at every viewport, and keep what it looked like."""
    found = {}
    for name, place in product(PAGES, VIEWPORTS):
        with visited(browser, pages[name], VIEWPORTS[place]) as visit:
            page = visit.page
            keep_picture(page, SCREENSHOTS / f"{name}-{place}.png")
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            seen = (
                page.evaluate("document.documentElement.scrollWidth"),
                page.evaluate("[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().width)"),
                page.evaluate(
                    "Math.min(...[...document.querySelectorAll('.pictures svg text')].map(text =>"
                    " parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"
                ),
                [heading.inner_text() for heading in page.locator("h2").all()],
            )
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = false)")
            printed = on_paper(visit, SCREENSHOTS / f"{name}-paper.png") if place == "desk" else None
        found[name, place] = Look(visit, *seen, printed)
    return found


def test_what_is_looked_at_is_the_report(looks: dict[tuple[str, str], Look]) -> None:
    """Every page has its sections and all of its pictures."""
    sections = [
        "What is protected",
        "How wrong can a number be?",
        "Level by level",
        "Counts to look at first",
        "The tables",
        "Details",
    ]
    for look in looks.values():
        assert look.headings == sections
        assert len(look.pictures) == 5


@pytest.mark.parametrize("name", PAGES)
def test_a_report_asks_nobody_and_fits_screens_and_paper(name: str, looks: Looks, pages: Mapping[str, Path]) -> None:
    """Nothing is wider than a desk's screen, a phone's or a sheet, no picture shrinks to nothing, and its text can be read."""
    for place, (width, _) in VIEWPORTS.items():
        look = looks[name, place]
        assert (look.visit.asked, look.visit.said) == ([pages[name].as_uri()], [])
        assert look.width <= width
        assert min(look.pictures) > 250
        assert look.small > 8
    printed = looks[name, "desk"].printed
    assert printed is not None
    assert printed[0].startswith(b"%PDF")
    assert printed[1] <= A4


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_texts_stand_out(scheme: Scheme, name: str, pages: Mapping[str, Path], browser: "Browser") -> None:
    """Every text outside of pictures stands out by 4.5 to 1 in the scheme that the reader prefers; pictures keep their own colours, on white."""
    with visited(browser, pages[name], VIEWPORTS["desk"], scheme) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        keep_picture(visit.page, SCREENSHOTS / f"{name}-{scheme}.png")
        visit.page.evaluate("document.querySelectorAll('svg').forEach(picture => picture.remove())")
        worst, *_ = visit.page.evaluate(CONTRASTS)
    assert worst[0] >= 4.5, worst


def test_the_largest_flows_fit_a_phone(browser: "Browser", tmp_path: Path) -> None:
    """Of tracts in counties, with codes of eleven digits, counts and intervals are seen at once; a wider table has a shadow."""
    codes = [f"440070{number:05}" for number in range(20)]
    tree = tree_of_trips(axis_of, 3, 20, codes)
    terms = terms_of(tree, sigma=0.1)
    facts = facts_of(tree, {(area, 19 - area): 1_000 * (area + 3) for area in range(20)}, terms)
    (tmp_path / "flows.html").write_text(report(manifest_of(terms, facts), facts, {}))
    with visited(browser, tmp_path / "flows.html", VIEWPORTS["phone"]) as visit:
        keep_picture(visit.page, SCREENSHOTS / "flows-phone.png")
        largest, tables = (visit.page.locator(f".scroll:has(.{kind})") for kind in ("largest", "tables"))
        hidden = "frame => frame.scrollWidth - frame.clientWidth"
        assert "44007000019" in largest.inner_text()
        assert largest.evaluate(hidden) == 0
        assert tables.evaluate(hidden) > 0
        assert "local, local, scroll, scroll" in tables.evaluate(
            "frame => getComputedStyle(frame).backgroundAttachment"
        )
