"""The page of a plan, as somebody sees it who decides: at a desk, on a phone, in the dark, and on paper.

What each page looked like is kept in `build/plan/`, for people to judge.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

from flows.api import plan_page
from storage.releases.plan_file import read_approved_plan
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.browsing import A4, CONTRASTS, SCHEMES, VIEWPORTS, Visit, keep_picture, on_paper, visited
from tests.support.office import ROWS, Office
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCREENSHOTS = REPOSITORY / "build" / "plan"
GROUND = "getComputedStyle(document.body).backgroundColor"
PAGES = ["trips", "titled", "features", "ages", "sizes", "series", "refused", "hostile"]
SECTIONS = [
    "What will be published",
    "What the numbers will be worth",
    "What ε means",
    "What is protected, and what is not",
    "What it costs of the budget",
    "How to approve",
    "What exactly was planned",
]

# What a reader of screens needs: a language, one h1 and no heading that skips a rank, headers with a scope, regions with a name.
FACTS = """() => ({
    language: document.documentElement.lang,
    ranks: [...document.querySelectorAll('h1, h2, h3')].map(heading => +heading.tagName[1]),
    sections: [...document.querySelectorAll('h2')].map(heading => heading.innerText),
    headers: [...document.querySelectorAll('th')].map(head => head.getAttribute('scope')),
    captions: [...document.querySelectorAll('table')].map(table => !!table.caption && !!table.caption.innerText),
    regions: [...document.querySelectorAll('[role=region]')].map(region => region.getAttribute('aria-label')),
    landmarks: [...document.querySelectorAll('header, main, footer')].map(of => of.tagName),
    ids: [...document.querySelectorAll('[id]')].map(of => of.id),
    labelled: [...document.querySelectorAll('[aria-labelledby]')].every(of => document.getElementById(of.getAttribute('aria-labelledby'))),
    width: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll('.scroll')].filter(of => of.scrollWidth > of.clientWidth).map(of => of.getAttribute('aria-label')),
    cut: [...document.querySelectorAll('caption')].map(caption => {
        const text = document.createRange();
        text.selectNodeContents(caption);
        return text.getBoundingClientRect().right - caption.closest('.scroll').getBoundingClientRect().right;
    }),
    approval: JSON.parse(document.getElementById('approval').textContent),
})"""

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@dataclass(frozen=True)
class Look:
    """What a browser made of a page: what is on it, the text that stands out least, the ground, and its print."""

    visit: Visit
    facts: dict[str, Any]
    worst: tuple[float, str, str, str]
    ground: str
    printed: tuple[bytes, int, str] | None


Looks = dict[tuple[str, str, str], Look]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return pages of releases of every kind, of one that the cap refuses, and of a spec whose texts look like HTML."""
    place = tmp_path_factory.mktemp("planned")
    country = draw_country(regions=3, provinces=6, municipalities=30, people=3000, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    (place / "people.csv").write_text("home,work\n" + ROWS)
    (place / "ages.csv").write_text("age,county,address\n5,c1,h1\n7,c2,h2\n")
    (place / "counties.csv").write_text("state,county\ns1,c1\ns1,c2\n")
    trips = SPEC | {"expected_total": 3000}
    small = SPEC["privacy"] | {"epsilon": 1.0}
    ages = {
        "input": {"table": "ages.csv", "features": ["age"]},
        "hierarchy": {"age": {"ordered": 101}},
        "release": {"order": ["age"]},
        "mechanism": "unbiased_tree",
        "privacy": small | {"neighbours": "add_remove"},
    }
    sizes = {
        "input": {"table": "ages.csv", "group": "address"},
        "hierarchy": {"region": {"table": "counties.csv", "levels": ["state", "county"]}},
        "release": {"group_sizes": {"region": "county", "largest": 20}},
        "mechanism": "group_sizes",
        "privacy": {key: value for key, value in small.items() if key != "accountant"} | {"neighbours": "add_remove"},
    }
    series = {"schedule": {"cron": "0 3 1 * *", "timezone": "Europe/Rome", "until": "3 releases"}, "privacy": small}
    hostile = {"privacy": SPEC["privacy"] | {"unit": 'one </script><script>alert(1)</script><b title="x"> job'}}
    titled = {
        "title": "Commuters of a country, from home to work",
        "description": "Counted are all <who> commute & work.",
        "source": 'The "office"',
        "hierarchy": SPEC["hierarchy"] | {"called": {"municipality": "town"}},
    }
    specs = {
        "trips": trips,
        "titled": trips | titled,
        "ages": SPEC | ages,
        "sizes": SPEC | sizes,
        "series": trips | series,
        "refused": trips | {"budget": {"epsilon": 1.0, "delta": 1e-7}},
        "hostile": trips | hostile,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        for name, keys in specs.items():
            (place / f"{name}.yaml").write_text(yaml.safe_dump(keys))
        made = {name: place / f"{name}.yaml" for name in specs}
        made["features"] = Office(place).spec("features", "people.csv", budget={"epsilon": 5.0, "delta": 1e-6})
        for name, spec in made.items():
            (place / f"{name}.html").write_text(plan_page(spec))
    return {name: place / f"{name}.html" for name in PAGES}


@pytest.fixture(scope="module")
def looks(browser: "Browser", pages: Mapping[str, Path]) -> Looks:
    """Look at every page at every viewport, light and dark, and keep what it looked like."""
    found = {}
    for name, place, scheme in product(PAGES, VIEWPORTS, SCHEMES):
        with visited(browser, pages[name], VIEWPORTS[place], scheme) as visit:
            page = visit.page
            keep_picture(page, SCREENSHOTS / f"{name}-{place}-{scheme}.png")
            facts, (worst, *_), ground = page.evaluate(FACTS), page.evaluate(CONTRASTS), page.evaluate(GROUND)
            printed = None
            if (place, scheme) == ("desk", "dark"):
                printed = *on_paper(visit, SCREENSHOTS / f"{name}-paper.png"), page.evaluate(GROUND)
        found[name, place, scheme] = Look(visit, facts, worst, ground, printed)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_a_plan_asks_nobody_and_fits_every_screen(name: str, looks: Looks, pages: Mapping[str, Path]) -> None:
    """Of hostile texts neither, a console has anything to say; texts can be read, in the light and in the dark, on a phone too."""
    for place, scheme in product(VIEWPORTS, SCHEMES):
        look = looks[name, place, scheme]
        assert (look.visit.asked, look.visit.said) == ([pages[name].as_uri()], [])
        assert look.facts["width"] <= VIEWPORTS[place][0]
        assert look.worst[0] >= 4.5, (place, scheme, look.worst)
    assert all(looks[name, place, "dark"].ground != looks[name, place, "light"].ground for place in VIEWPORTS)


@pytest.mark.parametrize("name", PAGES)
def test_captions_are_whole_on_a_phone(name: str, looks: Looks) -> None:
    """A table that is wider than a phone scrolls below a caption that is not cut off, and only the one with many columns is so wide."""
    facts = looks[name, "phone", "light"].facts
    assert max(facts["cut"]) <= 1
    assert all(label.startswith("As planned") for label in facts["wide"])


@pytest.mark.parametrize("name", PAGES)
def test_a_plan_can_be_read_aloud(name: str, looks: Looks) -> None:
    """It has a language, its sections in order, no heading that skips a rank, and tables whose headers and regions have names."""
    facts = looks[name, "desk", "light"].facts
    assert facts["language"] == "en"
    assert facts["sections"] == SECTIONS
    ranks = facts["ranks"]
    assert (ranks.count(1), ranks[0]) == (1, 1)
    assert all(later <= rank + 1 for rank, later in pairwise(ranks))
    assert set(facts["headers"]) == {"col", "row"}
    assert all([*facts["captions"], *facts["regions"], facts["labelled"]])
    assert len(facts["regions"]) == len(facts["captions"])
    assert facts["landmarks"] == ["HEADER", "MAIN", "FOOTER"]
    assert len(facts["ids"]) == len(set(facts["ids"]))


@pytest.mark.parametrize("name", PAGES)
def test_a_plan_prints(name: str, looks: Looks) -> None:
    """It makes a PDF that no sheet cuts off, and paper stays white where the screen is dark."""
    printed = looks[name, "desk", "dark"].printed
    assert printed is not None
    assert printed[0].startswith(b"%PDF")
    assert printed[1] <= A4
    assert printed[2] == "rgb(255, 255, 255)"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_approval(name: str, looks: Looks, pages: Mapping[str, Path]) -> None:
    """What a browser reads in the page is what a release is held to."""
    stated = looks[name, "desk", "light"].facts["approval"]
    approval = read_approved_plan(pages[name]).approval
    assert json.loads(json.dumps(stated["keys"])) == approval.keys
    assert stated["fingerprint"] == approval.fingerprint
