"""The days of a declared series, through the plain driver: each release made once, whatever stops it or is changed between."""

import signal
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.answers.audit import audit_answer
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.planning.plan import make_plan
from flows.run.crashes import note_crashes
from flows.run.ending import abandon_release
from flows.run.series import declare_series
from flows.specification.file import load_spec
from storage.counts.vault import list_vaults, vault_path
from storage.database.connections import store
from storage.errors import SpecError, StoreError, UsageError
from storage.ledger.events import read_books
from storage.releases.shards import list_shards
from tasks.format.manifest import published_manifest
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tasks.synthesize.country import draw_country
from tests.support import runs
from tests.support.draws import read_books as read_release
from tests.support.exposure import Made, Watch, hidden
from tests.support.laws import drawn_by
from tests.support.making import no_noise

SPEC = """
name: monthly
dataset: small-country
input: {table: trips.csv, origin: home, destination: work, count: people}
hierarchy: {table: codebook.csv, levels: [region, municipality]}
release: {tree: destination, finest: region}
mechanism: inftda
privacy: {unit: one commuter, neighbours: substitution, max_records_per_unit: 1, epsilon: 1.0, delta: 1.0e-8, accountant: zcdp}
budget: {epsilon: 2.5, delta: 1.0e-8}
schedule: {cron: 0 3 1 * *, timezone: Europe/Rome, until: 3 releases}
"""
IDS = ["monthly-2027-02-01", "monthly-2027-03-01", "monthly-2027-04-01"]
MEASURED = (1, 2)
TOGETHER = (
    SPEC.replace("inftda", "unbiased_tree")
    .replace("substitution", "add_remove")
    .replace("3 releases", "4 releases, cumulative: true")
)


@dataclass(frozen=True)
class Country:
    """A folder with a codebook, this month's trips, and the spec of a series."""

    folder: Path

    @property
    def spec(self):
        """The path of the spec."""
        return self.folder / "spec.yaml"

    def write_trips(self, month, times=1):
        """Write the trips of a month, in which other people travel than in the one before, and return how many there are."""
        codes = pl.read_csv(self.folder / "codebook.csv", infer_schema=False).select("municipality")
        pairs = codes.select(home="municipality").join(codes.select(work="municipality"), how="cross")
        people = np.random.default_rng(month).integers(20, 60, pairs.height) * times
        pairs.with_columns(people=pl.Series(people)).write_csv(self.folder / "trips.csv")
        return int(people.sum())


@pytest.fixture
def country(tmp_path, own_home, request):
    """Write a small country, and declare its series, or that of a parameter, in a store of its own."""
    generator = np.random.default_rng(1)
    drawn = draw_country(regions=2, provinces=2, municipalities=4, people=1, generator=generator)
    drawn.codebook.write_csv(tmp_path / "codebook.csv")
    country = Country(tmp_path)
    country.write_trips(1)
    country.spec.write_text(getattr(request, "param", SPEC))
    series = declare_series(make_plan(load_spec(country.spec)), datetime(2027, 1, 15, tzinfo=UTC))
    assert list(series.releases)[:3] == IDS
    return country


def make(release_id, around=runs.plainly):
    """Make a release of a series on its day."""
    runs.finish(release_id, around, threads=1)


def total(folder):
    """Return the published count of everything."""
    return pl.read_parquet(folder / "counts" / "level_0.parquet")["count"].sum()


@pytest.mark.parametrize("country", [TOGETHER], indirect=True)
def test_days_that_are_measured_together(country, monkeypatch):
    """Without noise days and sums are exact; a day waits for those before, true counts for those after; a table counts once, and after an abandoned day all begins anew."""
    people, quiet = [], drawn_by("unbiased_tree", {"opendp": Sampling(no_noise)})
    monkeypatch.setitem(MECHANISMS, "unbiased_tree", quiet)
    with pytest.raises(UsageError, match=f"{IDS[0]} is not published"):
        make(IDS[1])
    for month, id_ in ((0, IDS[0]), (1, IDS[1]), (3, "monthly-2027-05-01")):
        if month == 3:
            abandon_release(IDS[2])
            assert list_vaults() == []
        if people:
            with pytest.raises(UsageError, match=f"same records as that of {IDS[min(month - 1, 1)]}"):
                make(id_)
        people.append(country.write_trips(month))
        make(id_)
        folder = country.folder / "out" / id_
        assert (total(folder), total(folder / "cumulative")) == (people[-1], sum(people))
        assert list_vaults() == ([] if month == 3 else IDS[: month + 1])
        assert verify_answer(folder).failures == audit_answer().findings == []
    days = published_manifest(folder).days
    assert (days.runs, days.since, days.missing) == ([2, 1], IDS[0], [IDS[2]])
    asked = query_answer(folder / "cumulative", None, None, [], simultaneous=False)
    assert f"{IDS[0]} to {id_}, except for abandoned days ({IDS[2]})" in asked.period
    readme = " ".join((folder / "README.md").read_text().split())
    assert all(words in readme for words in (asked.period, "tables of all days together"))
    assert verify_answer(folder / "cumulative").failures[0].endswith("it checks both.")
    with store() as con:
        charges = read_books(con).accounts["small-country"].charges.values()
    assert {charge.release for charge in charges if charge.rho} == {IDS[0]}


@pytest.mark.parametrize("country", [TOGETHER], indirect=True)
def test_days_that_are_measured_together_are_given_back_at_once(country):
    """The first day pays for all, and its charge comes back with the last day that is abandoned."""
    for left, id_ in enumerate([IDS[1], IDS[0], IDS[2], "monthly-2027-05-01"]):
        with store() as con:
            charges = read_books(con).accounts["small-country"].charges_of(IDS[0])
        assert {charge.state for charge in charges.values()} == {"reserved"}, left
        abandon_release(id_)
    with store() as con:
        assert read_books(con).accounts["small-country"].spent == 0


@pytest.mark.thorough
@pytest.mark.parametrize("country", [TOGETHER], indirect=True)
def test_no_true_count_of_any_day_leaves_the_vaults(country, monkeypatch):
    """With so much noise that no count is right, no day leaves a total, a count or a weighted sum in any other file or record."""
    watch = Watch(country.folder, least=10**6)
    sampling = Sampling(watch.on(lambda sums, scale: hidden(sums, 10**5 * scale)))
    monkeypatch.setitem(MECHANISMS, "unbiased_tree", drawn_by("unbiased_tree", {"opendp": sampling}))
    for month, id_ in enumerate(IDS[:2]):
        watch.secrets.add(country.write_trips(month, times=7_654_321))
        make(id_)
        watch.secrets.update(pl.read_csv(country.folder / "trips.csv")["people"])
        Made(id_, country.folder, watch.secrets, None, "", watch.meanwhile).assert_hidden()


MOMENTS = ("before link level_1_trunk.noisy.parquet", "after commit noisy 1 trunk", "before commit turn open 0 trunk", "after rename monthly-2027-03-01", "before commit releases published")  # fmt: skip


@pytest.mark.parametrize("country", [TOGETHER], indirect=True)
@pytest.mark.parametrize(
    "moment", [*MOMENTS[:2], *(pytest.param(of, marks=pytest.mark.thorough) for of in MOMENTS[2:])]
)
def test_a_day_that_is_measured_with_others_survives_a_kill(moment, country, launch, own_home):
    """What was sealed stays, nothing is drawn twice, and the table is not read again; no true count is kept once the series has ended."""
    people, how = [country.write_trips(1)], {"release_id": IDS[1], "sampler": "opendp", "mechanism": "unbiased_tree"}
    make(IDS[0])
    people.append(country.write_trips(2))
    assert launch.run(own_home, "finish", **how, kill_at=moment).code == -signal.SIGKILL
    before, _ = read_release(IDS[1]).seals, people.append(country.write_trips(3))
    drawn = {(level, branch) for level, branch, _ in launch.run(own_home, "finish", **how).result}
    assert drawn == {(0, "trunk"), (1, "trunk"), (2, "trunk")} - before.keys()
    assert before.items() <= read_release(IDS[1]).seals.items()
    assert charge_events(IDS[1]) == {level: ["drawing", "sealed", "released"] for level in MEASURED}
    assert list_vaults() == IDS[:2]
    make(IDS[2])
    assert abs(total(country.folder / "out" / IDS[2] / "cumulative") - sum(people)) < 200
    abandon_release("monthly-2027-05-01")
    assert list_vaults() == audit_answer().findings == []


def charge_events(release_id):
    """Return what became of each charge of a release, by level, as the ledger has it."""
    return {level: read_release(release_id).events_of(level) for level in MEASURED}


def assert_published(release_id, people):
    """Check that a release of so many people is out, each level charged and drawn once, and its vault gone."""
    books = read_release(release_id)
    assert books.state == "published"
    assert [event["event"] for event in books.events].count("reserved") == 1
    assert charge_events(release_id) == {level: ["drawing", "sealed", "released"] for level in MEASURED}
    [folder] = {Path(file).parent for file in books.published if file.endswith("manifest.json")}
    assert verify_answer(folder).failures == []
    assert total(folder) == people
    assert not vault_path(release_id).exists()


def test_a_series_from_its_declaration_to_its_end(country):
    """Made, refused while its spec is edited, failed and finished with it gone, and abandoned: each is what its day's table says, charged once."""
    note_crashes()
    assert [read_release(release_id).state for release_id in IDS] == ["reserved"] * 3
    assert not any(vault_path(release_id).exists() for release_id in IDS)
    with store() as con:
        declared = read_books(con).accounts["small-country"]
    first = country.write_trips(1)
    make(IDS[0])
    assert_published(IDS[0], first)

    text = country.spec.read_text()
    country.spec.write_text(text.replace("epsilon: 1.0", "epsilon: 5.0"))
    with pytest.raises(SpecError, match="was edited") as refusal:
        make(IDS[1])
    assert (refusal.value.field, f"trellis abandon {IDS[1]}" in refusal.value.hint) == ("SPEC", True)
    assert charge_events(IDS[1]) == {level: [] for level in MEASURED}
    country.write_trips(2)
    country.spec.unlink()

    def full(stage, arguments):
        if stage.name == "grow_tree":
            raise StoreError("The disk is full.")
        return stage.fn(*arguments)

    with pytest.raises(StoreError, match="disk is full"):
        make(IDS[1], full)
    assert read_release(IDS[1]).state == "failed"
    people = country.write_trips(3)
    make(IDS[1])
    assert people != first
    assert_published(IDS[1], people)

    make(IDS[1])  # which does nothing
    assert_published(IDS[1], people)
    abandon_release(IDS[2])
    with pytest.raises(UsageError, match="ended for good"):
        make(IDS[2])
    assert charge_events(IDS[2]) == {level: ["void"] for level in MEASURED}
    with store() as con:
        account = read_books(con).accounts["small-country"]
    assert account.spent == declared.spent * 2 / 3
    assert account.standing.left_rho == account.terms.cap.rho - account.spent
    assert audit_answer().findings == []


def test_a_release_that_was_killed_while_it_was_ingested_is_ingested_anew(country, launch, own_home):
    """The crash is seen, unlike the others' wait for their day; nothing was drawn, and the table is read as it is now."""
    at = {"release_id": IDS[0], "sampler": "opendp", "kill_at": "before commit CREATE true_level_0"}
    assert launch.run(own_home, "finish", **at).code == -signal.SIGKILL
    with store() as con:
        assert vault_path(IDS[0]).exists()
        assert read_release(IDS[0]).state == "running"
        note_crashes()
        assert [read_release(release_id).state for release_id in IDS] == ["failed", "reserved", "reserved"]
        assert list_shards(con, IDS[0])["noisy"] == {}
        people = country.write_trips(7)
        make(IDS[0])
        assert_published(IDS[0], people)
        assert audit_answer().findings == []
