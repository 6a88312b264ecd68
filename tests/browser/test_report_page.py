"""The report of a published folder, as somebody sees it at a desk, on a phone, and on paper.

What each page looked like is kept in `build/report/`, for people to judge.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
import yaml

from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.releases.register import REPORT
from tasks.report.release_page import report
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.contrast import CONTRASTS
from tests.support.facts import facts_of, manifest_of, terms_of, tree_of_features, tree_of_trips
from tests.support.pictures import keep_picture
from tests.support.spec import SPEC
from tests.support.universe import axis_of
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = REPOSITORY / "build" / "report"
VIEWPORTS = {"desk": (1200, 900), "phone": (390, 844)}
A4 = 690  # pixels between the margins
PAGES = ["release", "many-areas", "many-features"]


@dataclass(frozen=True)
class Look:
    """What a browser made of a page.

    Attributes:
        asked: the addresses that it asked.
        said: what its console said.
        width: of all that is on the page, at this viewport, pixels.
        pictures: the widths of the pictures.
        small: the size of the smallest text of a picture, pixels.
        headings: of the sections.
        pdf: at the desk, the page as it is printed, and how wide all of it is on paper.
    """

    asked: list[str]
    said: list[str]
    width: int
    pictures: list[float]
    small: float
    headings: list[str]
    pdf: tuple[bytes, int] | None


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return a real release's report, one with a matrix of forty areas with long codes, and one of sixty features."""
    place = tmp_path_factory.mktemp("reported")
    country = draw_country(regions=3, provinces=6, municipalities=30, people=3000, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as threads:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        plan = make_plan(load_spec(place / "spec.yaml"))
        release = new_release(plan)
        make_release(plan, release, submit_to(threads), report_nothing)
    trips, draw = (
        tree_of_trips(axis_of, 1, 60, [f"area of a long name {number:02}" for number in range(60)]),
        np.random,
    )
    counts = draw.default_rng(3).integers(0, 3000, (60, 60))
    matrix = facts_of(trips, dict(np.ndenumerate(counts)), terms_of(trips))
    features = tree_of_features(axis_of, 60)
    wide = facts_of(features, {(0,) * 60: 5000, (1,) * 60: 70}, terms_of(features))
    for name, tree, facts in [("many-areas", trips, matrix), ("many-features", features, wide)]:
        (place / f"{name}.html").write_text(report(manifest_of(terms_of(tree), facts), facts, {}))
    made = {name: place / f"{name}.html" for name in ("many-areas", "many-features")}
    return made | {"release": Path(release.folder) / REPORT}


@pytest.fixture(scope="module")
def looks(browser: "Browser", pages: Mapping[str, Path]) -> dict[tuple[str, str], Look]:
    """Look at every page at every viewport, and keep what it looked like."""
    found = {}
    for place, (width, height) in VIEWPORTS.items():
        context = browser.new_context(viewport={"width": width, "height": height})
        for name, path in pages.items():
            page, asked, said = context.new_page(), list[str](), list[str]()
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.goto(path.as_uri())
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
            found[name, place] = Look(asked, said, *seen, _printed(page, name) if place == "desk" else None)
            page.close()
        context.close()
    return found


def _printed(page: "Page", name: str) -> tuple[bytes, int]:
    """Return a page as a PDF, and how wide all of it is on a sheet."""
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = false)")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": A4, "height": 1000})
    width = page.evaluate("document.documentElement.scrollWidth")
    keep_picture(page, SCREENSHOTS / f"{name}-paper.png")
    return page.pdf(format="A4"), width


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
@pytest.mark.parametrize("place", VIEWPORTS)
def test_a_report_fits_the_screen(name: str, place: str, looks: dict[tuple[str, str], Look]) -> None:
    """Nothing is wider than a desk's screen or a phone's, no picture shrinks to nothing, and its text can be read."""
    look = looks[name, place]
    assert look.width <= VIEWPORTS[place][0]
    assert min(look.pictures) > 250
    assert look.small > 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_texts_stand_out(
    scheme: Literal["light", "dark"], name: str, pages: Mapping[str, Path], browser: "Browser"
) -> None:
    """Every text outside of pictures stands out by 4.5 to 1 in the scheme that the reader prefers; pictures keep their own colours, on white."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
    page.goto(pages[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    keep_picture(page, SCREENSHOTS / f"{name}-{scheme}.png")
    page.evaluate("document.querySelectorAll('svg').forEach(picture => picture.remove())")
    worst, *_ = page.evaluate(CONTRASTS)
    page.close()
    assert worst[0] >= 4.5, worst


def test_the_largest_flows_fit_a_phone(browser: "Browser", tmp_path: Path) -> None:
    """Of tracts in counties, with codes of eleven digits, counts and intervals are seen at once; a wider table has a shadow."""
    codes = [f"440070{number:05}" for number in range(20)]
    tree = tree_of_trips(axis_of, 3, 20, codes)
    terms = terms_of(tree, sigma=0.1)
    facts = facts_of(tree, {(area, 19 - area): 1_000 * (area + 3) for area in range(20)}, terms)
    (tmp_path / "flows.html").write_text(report(manifest_of(terms, facts), facts, {}))
    page = browser.new_page(viewport={"width": VIEWPORTS["phone"][0], "height": VIEWPORTS["phone"][1]})
    page.goto((tmp_path / "flows.html").as_uri())
    keep_picture(page, SCREENSHOTS / "flows-phone.png")
    largest, tables = (page.locator(f".scroll:has(.{kind})") for kind in ("largest", "tables"))
    hidden = "frame => frame.scrollWidth - frame.clientWidth"
    assert "44007000019" in largest.inner_text()
    assert largest.evaluate(hidden) == 0
    assert tables.evaluate(hidden) > 0
    assert "local, local, scroll, scroll" in tables.evaluate("frame => getComputedStyle(frame).backgroundAttachment")
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_report_asks_nobody(name: str, looks: dict[tuple[str, str], Look], pages: Mapping[str, Path]) -> None:
    """The browser asks for the file and for nothing else, and its console has nothing to say."""
    for place in VIEWPORTS:
        assert looks[name, place].asked == [pages[name].as_uri()]
        assert looks[name, place].said == []


@pytest.mark.parametrize("name", PAGES)
def test_a_report_prints(name: str, looks: dict[tuple[str, str], Look]) -> None:
    """It makes a PDF, and on paper, where nothing scrolls, nothing is wider than the sheet."""
    printed = looks[name, "desk"].pdf
    assert printed is not None
    assert printed[0].startswith(b"%PDF")
    assert printed[1] <= A4
