"""Pages of plans and reports, as somebody sees them who decides: at a desk, on a phone, in the dark, on paper, and read aloud."""

import json
from itertools import pairwise, product

import numpy as np
import pytest
import yaml

from flows.api import plan_page, release
from storage.releases.approvals import read_approved_plan
from storage.releases.register import REPORT
from tasks.pages.report import report
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.browsing import A4, CONTRASTS, SCHEMES, VIEWPORTS, visited
from tests.support.facts import facts_of, manifest_of, terms_of, tree_of_features, tree_of_trips
from tests.support.office import ROWS, Office
from tests.support.spec import SPEC, spec_in
from tests.support.universe import axis_of

GROUND = "getComputedStyle(document.body).backgroundColor"
WIDTH = "document.documentElement.scrollWidth"
PLANS = ["trips", "titled", "features", "ages", "sizes", "series", "refused", "hostile"]
REPORTS = ["release", "many-areas", "many-features"]
SECTIONS = {
    "plan": "How exact, at three ε|What will be published|What the numbers will be worth|What ε means|What is protected, and what is not|"
    "What it costs of the budget|How to approve|What exactly was planned",
    "report": "At a glance|How to read a count|Counts to look at first|What is not protected, because it is published exactly|Details|"
    "What is protected|How wrong can a number be?|Level by level|The tables",
}

# What a reader of screens needs: a language, one h1 and no heading that skips a rank, headers with a scope, regions with a name.
FACTS = """() => ({
    language: document.documentElement.lang,
    ranks: [...document.querySelectorAll('h1, h2, h3')].map(heading => +heading.tagName[1]),
    headers: [...document.querySelectorAll('th')].map(head => head.getAttribute('scope')),
    captions: [...document.querySelectorAll('table')].map(table => !!table.caption && !!table.caption.textContent),
    regions: [...document.querySelectorAll('[role=region]')].map(region => region.getAttribute('aria-label')),
    landmarks: [...document.querySelectorAll('header, main, footer')].map(of => of.tagName),
    ids: [...document.querySelectorAll('[id]')].map(of => of.id),
    labelled: [...document.querySelectorAll('[aria-labelledby]')].every(of => document.getElementById(of.getAttribute('aria-labelledby'))),
    wide: [...document.querySelectorAll('.scroll')].filter(of => of.scrollWidth > of.clientWidth).map(of => of.getAttribute('aria-label')),
    cut: [...document.querySelectorAll('caption')].map(caption => {
        const text = document.createRange();
        text.selectNodeContents(caption);
        return text.getBoundingClientRect().right - caption.closest('.scroll').getBoundingClientRect().right;
    }),
    approval: JSON.parse(document.getElementById('approval').textContent),
})"""
PICTURES = "[...document.querySelectorAll('svg')].map(svg => svg.getBoundingClientRect().width)"
IN_CELLS = """document.querySelectorAll("svg text:not([fill=currentColor]), .matrix text, .shades text").forEach(text => text.remove())"""
REST = "document.querySelector('.annex, details.details').getBoundingClientRect().top + scrollY"  # where it begins
SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('.pictures svg text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return plans of releases of every kind, of one that the cap refuses and of a spec whose texts look like HTML, and reports."""
    # Of those one is of a real release, one has a matrix of sixty areas with long codes, one sixty features, one codes of eleven digits.
    place = tmp_path_factory.mktemp("pages")
    country = draw_country(regions=3, provinces=6, municipalities=30, people=3000, generator=np.random.default_rng(5))
    write_country(country, place / "data")
    (place / "people.csv").write_text("home,work\n" + ROWS)
    (place / "ages.csv").write_text("age,county,address\n5,c1,h1\n7,c2,h2\n")
    (place / "counties.csv").write_text("state,county\ns1,c1\ns1,c2\n")
    trips, small = SPEC | {"expected_total": 3000}, SPEC["privacy"] | {"epsilon": 1.0}
    alone = small | {"neighbours": "add_remove"}
    specs = {
        "trips": trips,
        "titled": trips
        | {
            "title": "Commuters of a country, from home to work",
            "description": "Counted are all <who> commute & work.",
            "source": 'The "office"',
            "hierarchy": SPEC["hierarchy"] | {"called": {"municipality": "town"}},
        },
        "ages": SPEC
        | {
            "input": {"table": "ages.csv", "features": ["age"]},
            "hierarchy": {"age": {"ordered": 101}},
            "release": {"order": ["age"]},
            "mechanism": "unbiased_tree",
            "privacy": alone,
        },
        "sizes": SPEC
        | {
            "input": {"table": "ages.csv", "group": "address"},
            "hierarchy": {"region": {"table": "counties.csv", "levels": ["state", "county"]}},
            "release": {"group_sizes": {"region": "county", "largest": 20}},
            "mechanism": "group_sizes",
            "privacy": {key: value for key, value in alone.items() if key != "accountant"},
        },
        "series": trips
        | {"schedule": {"cron": "0 3 1 * *", "timezone": "Europe/Rome", "until": "3 releases"}, "privacy": small},
        "refused": trips | {"budget": {"epsilon": 1.0, "delta": 1e-7}},
        "hostile": trips
        | {"privacy": SPEC["privacy"] | {"unit": 'one </script><script>alert(1)</script><b title="x"> job'}},
    }
    found = {name: place / f"{name}.html" for name in (*PLANS, "many-areas", "many-features", "flows")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        Office(place).spec("features", "people.csv", budget={"epsilon": 5.0, "delta": 1e-6})
        for name, keys in specs.items():
            (place / f"{name}.yaml").write_text(yaml.safe_dump(keys))
        for name in PLANS:
            found[name].write_text(plan_page(place / f"{name}.yaml"))
        found["release"] = release(spec_in(place, SPEC)).folder / REPORT
    areas = tree_of_trips(axis_of, 1, 60, [f"area of a long name {number:02}" for number in range(60)])
    tracts = tree_of_trips(axis_of, 3, 20, [f"440070{number:05}" for number in range(20)])
    counts = np.random.default_rng(3).integers(0, 3000, (60, 60))
    made = {
        "many-areas": (areas, {(one, other): int(counts[one, other]) for one, other in np.ndindex(60, 60)}, 3.0),
        "many-features": (tree_of_features(axis_of, 60), {(0,) * 60: 5000, (1,) * 60: 70}, 3.0),
        "flows": (tracts, {(area, 19 - area): 1_000 * (area + 3) for area in range(20)}, 0.1),
    }
    for name, (tree, leaves, sigma) in made.items():
        terms = terms_of(tree, sigma=sigma)
        facts = facts_of(tree, leaves, terms)
        found[name].write_text(report(manifest_of(terms, facts), facts, []))
    return found


@pytest.mark.parametrize("name", [*PLANS, *REPORTS])
def test_a_page_asks_nobody_fits_screens_and_paper_and_can_be_read(name, pages, browser):
    """Of hostile texts neither has a console anything to say; at every viewport nothing is too wide, and texts stand out by 4.5 to 1."""
    # So they do in the scheme that the reader prefers, in a report's pictures too, but for those with shades, which the eye checks.
    grounds, kind = {}, "plan" if name in PLANS else "report"
    for place, scheme in product(VIEWPORTS, SCHEMES):
        with visited(browser, pages[name], VIEWPORTS[place], scheme) as visit:
            page = visit.page
            assert page.locator("h2").all_text_contents() == SECTIONS[kind].split("|")
            grounds[scheme] = page.evaluate(GROUND)
            if kind == "plan" and scheme == "light":
                _check_plan(page.evaluate(FACTS), pages[name], is_phone=place == "phone")
            assert kind == "plan" or page.evaluate(REST) <= {"desk": 2400, "phone": 4800}[place]
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            assert page.evaluate(WIDTH) <= VIEWPORTS[place][0]
            if kind == "report":
                assert len(page.evaluate(PICTURES)) == 5
                assert min(page.evaluate(PICTURES)) > 250
                assert page.evaluate(SMALLEST_TEXT) > 8
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = false)")
            if (place, scheme) == ("desk", "dark"):
                page.emulate_media(media="print")
                page.set_viewport_size({"width": A4, "height": 1000})
                assert page.evaluate(WIDTH) <= A4
                assert kind == "report" or page.evaluate(REST) <= 1015  # of A4, with its margins
                assert page.evaluate(GROUND) in {"rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"}  # paper stays white
                assert page.pdf(format="A4").startswith(b"%PDF")
                page.emulate_media(media="screen")
            page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
            page.evaluate(IN_CELLS)
            worst, *_ = page.evaluate(CONTRASTS)
            assert worst[0] >= 4.5, (place, scheme, worst)
        assert (visit.asked, visit.said) == ([pages[name].as_uri()], [])
        assert kind == "report" or len(set(grounds.values())) == len(grounds)


def _check_plan(facts, path, *, is_phone):
    """Check that a plan can be read aloud, that captions are whole on a phone, and that what is read in it is what a release is held to."""
    assert facts["language"] == "en"
    ranks = facts["ranks"]
    assert (ranks.count(1), ranks[0]) == (1, 1)
    assert all(later <= rank + 1 for rank, later in pairwise(ranks))
    assert set(facts["headers"]) == {"col", "row"}
    assert all([*facts["captions"], *facts["regions"], facts["labelled"]])
    assert len(facts["regions"]) == len(facts["captions"])
    assert facts["landmarks"] == ["HEADER", "MAIN", "FOOTER"]
    assert len(facts["ids"]) == len(set(facts["ids"]))
    if is_phone:  # only the table with many columns is wider than it, and scrolls
        assert max(facts["cut"]) <= 1
        assert all(label.startswith("As planned") for label in facts["wide"])
    approval = read_approved_plan(path).approval
    assert json.loads(json.dumps(facts["approval"]["keys"])) == approval.keys
    assert facts["approval"]["fingerprint"] == approval.fingerprint


def test_the_largest_flows_fit_a_phone(browser, pages):
    """Counts and intervals are seen at once; a wider table has a shadow."""
    with visited(browser, pages["flows"], VIEWPORTS["phone"]) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
        largest, tables = (visit.page.locator(f".scroll:has(.{kind})") for kind in ("largest", "tables"))
        hidden = "frame => frame.scrollWidth - frame.clientWidth"
        assert "44007000019" in largest.inner_text()
        assert largest.evaluate(hidden) == 0
        assert tables.evaluate(hidden) > 0
        shadow = tables.evaluate("frame => getComputedStyle(frame).backgroundAttachment")
        assert "local, local, scroll, scroll" in shadow
