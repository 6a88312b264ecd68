"""A release that fails and is retried, as somebody sees it who has only the UI of `trellis up`."""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import polars as pl
import pytest

from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.server import Prefect
from tests.support.spec import SPEC
from tests.support.up import SCHEDULE, Up, below, bring_up, until
from tests.support.user import User

LEVELS = ["region", "province", "municipality"]
FAILING = "level_6_b01"  # level 6 has more than 30,000 cells, so that there are branches, b01 among them
STAGE = "measure level 6 b01"

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a browser draws pages")]


@dataclass
class Visitor:
    """Somebody in front of the UI: the tab, its text at each step, the addresses it asked, and what this server's API answered, by path."""

    page: Any  # of Playwright
    seen: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: list[tuple[str, int, str]] = field(default_factory=list)

    def hear(self, response):
        """Keep what the API answers."""
        path = urlsplit(response.url).path
        if path.startswith("/api/") and "json" in response.headers.get("content-type", ""):
            self.answers.append((path, response.status, response.text()))

    def look(self, step):
        """Keep the page's text once it has come to rest."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(300)  # animations
        self.seen[step] = self.page.inner_text("body")

    def follow(self, name):
        """Follow a link, or an entry of the menu."""
        self.page.get_by_text(name, exact=True).filter(visible=True).first.click()

    def open_tab(self, name):
        """Open a tab of the run's page."""
        self.page.locator(".p-tabs").get_by_text(name, exact=True).first.click()

    def shows_state(self, state):
        """Wait until the run's page shows a state."""
        self.page.locator(".page-heading-flow-run .state-badge", has_text=state).wait_for(timeout=240_000)


class Story(NamedTuple):
    """What happened in the browser, to which release, who looked at it, and what was in its record and the ledger before and after the retry."""

    up: Up
    release: str
    visitor: Visitor
    failed: dict[str, Any]
    mended: dict[str, Any]


@pytest.fixture(scope="module")
def story(browser, tmp_path_factory):
    """Bring Trellis up over a folder with one spec, on a schedule, whose release is cut into three branches, for somebody who opens the UI."""
    folder = tmp_path_factory.mktemp("visited")
    user = User(folder, Prefect(folder / "home" / "prefect", {}))
    write_country(draw_country(municipalities=300, people=300_000, generator=np.random.default_rng(7)), folder / "data")
    (folder / "specs").mkdir()
    privacy = SPEC["privacy"] | {"epsilon": 9.0}
    (folder / "specs" / "country.yaml").write_text(below(SPEC, name="country", privacy=privacy, schedule=SCHEDULE))
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, locale="en-GB", timezone_id="UTC")
    context.set_default_timeout(20_000)
    visitor = Visitor(context.new_page())
    visitor.page.on("request", lambda request: visitor.asked.append(request.url))
    visitor.page.on("response", visitor.hear)
    up = bring_up(user)
    try:
        yield told(visitor, up)
    finally:
        context.close()
        up.process.kill()


def told(visitor, up):
    """Trigger a release of which one shard cannot be written, look at what the UI shows, mend it, and press Retry."""
    page, release = visitor.page, f"country-{datetime.now(UTC).date()}"
    in_the_way = up.user.folder / "home" / "shards" / release / f"{FAILING}.noisy.parquet"
    in_the_way.parent.mkdir(mode=0o700, parents=True)
    in_the_way.mkdir(mode=0o700)

    page.goto(up.api.removesuffix("/api"))
    visitor.follow("Deployments")
    page.get_by_text("3 Deployments").wait_for()
    visitor.look("deployments")
    visitor.follow("country")
    visitor.open_tab("Description")
    visitor.look("deployment")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Quick run").click()
    page.get_by_role("dialog").wait_for()
    visitor.look("run")
    page.get_by_role("dialog").get_by_role("button", name="Run").click()
    (run, *_) = until(lambda: [run for run in up.call("/flow_runs/filter", {}) if not run["auto_scheduled"]])
    up.ended(run["id"])  # the run that no schedule has made
    visitor.follow("Dashboard")
    page.get_by_text("Flow Runs").first.wait_for()
    visitor.look("dashboard")
    visitor.follow("Runs")
    page.get_by_placeholder("Search by flow run name").filter(visible=True).first.fill(release)
    page.get_by_role("link", name=release).filter(visible=True).first.wait_for()
    visitor.look("runs")
    visitor.follow(release)
    visitor.shows_state("Failed")
    visitor.look("failed")
    visitor.open_tab("Task Runs")
    page.get_by_role("link", name=STAGE).wait_for()
    visitor.look("failed-task-runs")
    _look_at_artifacts(visitor, "failed", {"levels": "so far", "failure": "What failed"})
    failed = _books(up, release)

    in_the_way.rmdir()
    page.get_by_role("button", name="Retry", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    visitor.look("retry")
    dialog.get_by_role("button", name="Retry").click()
    visitor.shows_state("Completed")
    visitor.look("completed")
    page.reload()  # the page asks for new artifacts only now and then
    _look_at_artifacts(visitor, "completed", {"levels": "as published", "statement": "What the release protects"})
    return Story(up, release, visitor, failed, _books(up, release))


def _look_at_artifacts(visitor, state, artifacts):
    """Open the artifacts of a run's page, one after the other, and come back."""
    visitor.open_tab("Artifacts")
    visitor.page.get_by_text("Flow run", exact=True).first.wait_for()
    visitor.look(f"{state}-artifacts")
    for name, title in artifacts.items():
        visitor.page.get_by_role("link").filter(has_text=title).click()
        visitor.page.get_by_text("Show raw data").wait_for()
        visitor.look(f"{state}-{name}")
        visitor.page.go_back()
        visitor.page.locator(".p-tabs").wait_for()
        visitor.open_tab("Artifacts")


def _books(up, release):
    ledger = up.user.run("ledger", "--json").json()["datasets"]
    return up.user.run("show", release, "--json").json() | {"ledger": ledger}


def secrets_of(up):
    """Return what is true of the table and not public, and no noisy number shown can be by chance: its rows, and large counts of its levels."""
    data = up.user.folder / "data"
    codebook = pl.read_csv(data / "codebook.csv", infer_schema=False)
    trips = pl.read_csv(data / "trips.csv", schema_overrides={"home": pl.String, "work": pl.String})
    for end_ in ("home", "work"):
        areas = codebook.rename({level: f"{end_}_{level}" for level in LEVELS})
        trips = trips.join(areas, left_on=end_, right_on=f"{end_}_municipality")
    found = set()
    for home, work in [(0, 1), (1, 1), (1, 2), (2, 2)]:
        by = [f"home_{level}" for level in LEVELS[:home]] + [f"work_{level}" for level in LEVELS[:work]]
        found |= set(trips.group_by(by).agg(pl.col("people").sum())["people"].to_list())
    return {trips.height} | {count for count in found if count > 40_000}  # above the cells of any level


def numbers(text):
    """Return the whole numbers of a text; not those within names, times, fractions and hexadecimal digits."""
    found = re.findall(r"(?<![\w.:,-])\d{1,3}(?:,\d{3})+(?![\w,-])|(?<![\w.:-])\d+(?![\w:-]|\.\d)", text)
    return {int(number.replace(",", "")) for number in found}


def test_a_failed_release_is_found_with_what_failed_and_what_to_press(story):
    """By the release's name, from the page of deployments on; its artifacts name the branch, and how far each level came."""
    seen = story.visitor.seen
    assert {"country", "release", "rerun"} <= set(seen["deployments"].splitlines())
    assert "the release of each day at 0 3 1 1 * (UTC)" in seen["deployment"]
    assert story.release in seen["runs"]
    assert "Failed" in seen["failed"]
    assert seen["failed-task-runs"].partition(STAGE)[2].split()[0] == "Failed"
    assert "18 Completed, 1 Failed" in seen["failed-task-runs"]
    failure = [f"{story.release} failed", "Not finished: b01, of 3 branches.", "press Retry"]
    failure.append(f"trellis rerun {story.release}")
    assert [words for words in failure if words not in seen["failed-failure"]] == []
    levels = ["2 of 3 branches", "origin", "destination", "done", "sigma"]
    assert [words for words in levels if words not in seen["failed-levels"]] == []


def test_retry_finishes_the_release_and_measures_and_charges_nothing_twice(story):
    """What was sealed is sealed as it was, and one seal has joined; the ledger holds the same charges; the page states what it protects."""
    assert story.failed["state"] == "failed"
    released = story.up.user.run("releases", "--json").json()["releases"]
    assert [(entry["id"], entry["state"]) for entry in released] == [(story.release, "published")]
    statement = story.visitor.seen["completed-statement"]
    stated = [f"{story.release} is published", story.mended["statement"], story.mended["folder"]]
    assert [words for words in stated if words not in statement] == []
    before, after = (books["seals"] for books in (story.failed, story.mended))
    joined = [seal for seal in after if seal not in before]
    assert [seal for seal in before if seal not in after] == []
    assert [(seal["level"], seal["branch"]) for seal in joined] == [(6, "b01")]
    ((was,), (now,)) = (books["ledger"] for books in (story.failed, story.mended))
    assert [charge["level"] for charge in now["charges"]] == [1, 2, 3, 4, 5, 6]
    assert [charge["rho"] for charge in was["charges"]] == [charge["rho"] for charge in now["charges"]]
    assert was["spent"] == now["spent"]


def test_no_page_shows_what_is_true(story):
    """No page, and nothing that the server has sent for one, holds the table's rows or a true count."""
    secrets = secrets_of(story.up)
    assert len(secrets) > 5
    assert numbers("7 of 12,345 rows, 07:22:05, 1.2345, b-1234, 3456.") == {7, 12345, 3456}
    pages = {f"page {step}": text for step, text in story.visitor.seen.items()}
    answers = {f"{path} {number}": text for number, (path, _, text) in enumerate(story.visitor.answers)}
    assert len(pages) > 10
    assert len(answers) > 50
    shown = {place: numbers(text) & secrets for place, text in (pages | answers).items()}
    assert not any(shown.values()), shown


def test_the_browser_asks_this_server_alone(story):
    """The UI reaches this server's API and nobody else's: no banner, no telemetry, no advertisement."""
    server = story.up.api.removesuffix("/api")
    elsewhere = {url for url in story.visitor.asked if not url.startswith((f"{server}/", f"blob:{server}/", "data:"))}
    assert elsewhere == set()
    assert f"{server}/api/flow_runs/filter" in story.visitor.asked
    assert [(path, status) for path, status, _ in story.visitor.answers if status >= 400] == []
    settings = next(json.loads(text) for path, _, text in story.visitor.answers if path == "/api/admin/settings")
    assert settings["server"]["analytics_enabled"] is False
    assert settings["server"]["ui"]["show_promotional_content"] is False
    unwanted = ("Can't connect", "Upgrade", "Prefect Cloud", "Switch to V2 UI")
    assert [(step, word) for step, text in story.visitor.seen.items() for word in unwanted if word in text] == []
