"""The days of a declared series, through the plain driver: each release made once, whatever stops it or is changed between."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from flows.execution.crashes import note_crashes
from flows.execution.ending import abandon_release
from flows.execution.reservation import new_release
from flows.execution.series import declare_series
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.counts.vault import vault_path
from storage.database.connections import store
from storage.errors import BudgetExceeded, InputError, SpecError, StoreError, UsageError
from storage.ledger.events import read_books
from storage.machine.files import sha256_of
from storage.releases.register import find_release, state_of
from storage.releases.seals import list_seals
from tasks.synthesize.country import draw_country
from tests.support import runs
from tests.support.user import REPOSITORY

SPEC = """
name: monthly
dataset: small-country
input: {table: "${TRIPS}/trips.csv", origin: home, destination: work, count: people}
hierarchy: {table: "${CODES}/codebook.csv", levels: [region, municipality]}
release: {tree: destination, finest: region}
mechanism: inftda
privacy: {unit: one commuter, neighbours: substitution, max_records_per_unit: 1, epsilon: 1.0, delta: 1.0e-8, accountant: ACCOUNTANT}
budget: {epsilon: CAP, delta: 1.0e-8}
schedule: {cron: 0 3 1 * *, timezone: Europe/Rome, until: 3 releases}
"""
IDS = ["monthly-2027-02-01", "monthly-2027-03-01", "monthly-2027-04-01"]
MEASURED = (1, 2)

KILLED = """
import os, signal, sys
from tests.support.runs import finish

def killed(stage, arguments):
    if stage.name == "grow_tree":  # the records are in the vault, and the tree is not
        os.kill(os.getpid(), signal.SIGKILL)
    return stage.fn(*arguments)

finish(sys.argv[1], killed)
"""


@dataclass(frozen=True)
class Country:
    """A folder with a codebook, this month's trips, and the spec of a series."""

    folder: Path

    @property
    def spec(self) -> Path:
        """The path of the spec."""
        return self.folder / "spec.yaml"

    def write_trips(self, month: int, folder: str = ".") -> None:
        """Write the trips of a month, in which other people travel than in the one before."""
        codes = pl.read_csv(self.folder / "codebook.csv", infer_schema=False).select("municipality")
        pairs = codes.select(home="municipality").join(codes.select(work="municipality"), how="cross")
        people = np.random.default_rng(month).integers(20, 60, pairs.height)
        (self.folder / folder).mkdir(exist_ok=True)
        pairs.with_columns(people=pl.Series(people)).write_csv(self.folder / folder / "trips.csv")

    def declare(self, accountant: str = "zcdp", cap: float = 2.5) -> None:
        """Write the spec, and declare its series."""
        self.spec.write_text(SPEC.replace("ACCOUNTANT", accountant).replace("CAP", str(cap)))
        series = declare_series(make_plan(load_spec(self.spec)), datetime(2027, 1, 15, tzinfo=UTC))
        assert list(series.releases) == IDS


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Country:
    """Write a small country into a folder, in which its store will be."""
    generator = np.random.default_rng(1)
    drawn = draw_country(regions=2, provinces=2, municipalities=4, people=1, generator=generator)
    drawn.codebook.write_csv(folder / "codebook.csv")
    for name, place in (("TRIPS", folder), ("CODES", folder), ("TRELLIS_HOME", folder / "home")):
        monkeypatch.setenv(name, str(place))
    country = Country(folder)
    country.write_trips(1)
    return country


@pytest.fixture
def country(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Country]:
    """Return a small country, with a store of its own that is open all the time."""
    country = prepare(tmp_path, monkeypatch)
    with store():
        yield country


def make(release_id: str, around: runs.Around = runs.plainly) -> None:
    """Make a release of a series on its day."""
    runs.finish(release_id, around, threads=1)


def state(release_id: str) -> str | None:
    """Return how far a release is."""
    with store() as con:
        return state_of(con, release_id)


def folder_of(release_id: str) -> Path:
    """Return where a release is published."""
    with store() as con:
        return Path(find_release(con, release_id).folder)


def total_of(release_id: str) -> int:
    """Return the total that a release has published."""
    return int(pl.read_parquet(folder_of(release_id) / "counts" / "level_0.parquet")["count"].sum())


def charge_events(release_id: str) -> dict[int, list[str]]:
    """Return what became of each charge of a release, by level, as the ledger has it."""
    with store() as con:
        texts = con.execute("SELECT event FROM ledger ORDER BY position").fetchall()
    events = [event for (text,) in texts if (event := json.loads(text)).get("release") == release_id]
    assert [event["event"] for event in events].count("reserved") == 1
    return {level: [event["event"] for event in events if event.get("level") == level] for level in MEASURED}


def assert_published(release_id: str) -> None:
    """Check that a release is out, each level charged and drawn once, and its vault gone."""
    assert state(release_id) == "published"
    assert charge_events(release_id) == {level: ["drawing", "sealed", "released"] for level in MEASURED}
    assert verify_answer(folder_of(release_id)).failures == []
    assert not vault_path(release_id).exists()


def test_a_series_from_its_declaration_to_its_end(country: Country) -> None:
    """Made, failed and finished with its spec gone, and abandoned: each is what its day's table says, charged once."""
    country.declare()
    note_crashes()
    assert [state(release_id) for release_id in IDS] == ["reserved"] * 3
    assert not any(vault_path(release_id).exists() for release_id in IDS)
    with store() as con:
        declared = read_books(con).accounts["small-country"]
    make(IDS[0])
    assert_published(IDS[0])

    country.write_trips(2)
    country.spec.unlink()

    def full(stage: Any, arguments: tuple[Any, ...]) -> Any:
        if stage.name == "grow_tree":
            raise StoreError("The disk is full.")
        return stage.fn(*arguments)

    with pytest.raises(StoreError, match="disk is full"):
        make(IDS[1], full)
    assert state(IDS[1]) == "failed"
    country.write_trips(3)
    make(IDS[1])
    assert_published(IDS[1])
    trips = pl.read_csv(country.folder / "trips.csv")
    assert total_of(IDS[1]) == trips["people"].sum() != total_of(IDS[0])

    make(IDS[1])  # which does nothing
    assert_published(IDS[1])
    abandon_release(IDS[2])
    with pytest.raises(UsageError, match="ended for good"):
        make(IDS[2])
    assert charge_events(IDS[2]) == {level: ["void"] for level in MEASURED}
    with store() as con:
        account = read_books(con).accounts["small-country"]
    assert account.spent == declared.spent * 2 / 3
    assert account.standing.left_rho == account.terms.cap.rho - account.spent
    assert audit_answer().findings == []


@pytest.mark.thorough
def test_what_was_declared_may_not_be_changed_between_two_days(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited spec is refused with its field and what to do, another codebook with both hashes; nothing is drawn."""
    country.declare()
    make(IDS[0])
    text = country.spec.read_text()
    country.spec.write_text(text.replace("epsilon: 1.0", "epsilon: 5.0"))
    with pytest.raises(SpecError, match="was edited") as refusal:
        make(IDS[1])
    assert refusal.value.field == "SPEC"
    assert f"trellis abandon {IDS[1]}" in refusal.value.hint
    with pytest.raises(SpecError, match="declared with another spec, and 2 of its releases are still due"):
        declare_series(make_plan(load_spec(country.spec)), datetime(2027, 2, 15, tzinfo=UTC))
    country.spec.write_text(text + "# the same, with a remark\n")

    codebook = country.folder / "codebook.csv"
    lines, reserved = codebook.read_text(), sha256_of(codebook)
    codebook.write_text(lines + lines.splitlines()[-1].replace("-", "x") + "9\n")
    with pytest.raises(InputError) as changed:
        make(IDS[1])
    assert changed.value.field == "hierarchy.table"
    assert reserved in str(changed.value)
    assert sha256_of(codebook) in str(changed.value)
    codebook.write_text(lines)

    (country.folder / "other").mkdir()  # the old codebook is as it was, and the environment names another
    monkeypatch.setenv("CODES", str(country.folder / "other"))
    (country.folder / "other" / "codebook.csv").write_text(lines + "\n")
    with pytest.raises(InputError) as elsewhere:
        make(IDS[1])
    assert reserved in str(elsewhere.value)
    assert sha256_of(country.folder / "other" / "codebook.csv") in str(elsewhere.value)
    assert charge_events(IDS[1]) == {level: [] for level in MEASURED}
    assert not vault_path(IDS[1]).exists()
    monkeypatch.setenv("CODES", str(country.folder))
    make(IDS[1])
    assert_published(IDS[1])


@pytest.mark.thorough
def test_a_table_elsewhere_is_recorded_and_another_datasets_is_refused(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the path leads to another file by now, the ledger learns of it; one that others have used must be answered for."""
    country.declare()
    country.write_trips(2, "february")
    monkeypatch.setenv("TRIPS", str(country.folder / "february"))
    make(IDS[0])
    table = str(country.folder / "february" / "trips.csv")
    with store() as con:
        assert read_books(con).accounts["small-country"].claims[IDS[0]].table == table

    country.write_trips(3, "others")
    monkeypatch.setenv("TRIPS", str(country.folder / "others"))
    others = SPEC.replace("ACCOUNTANT", "zcdp").replace("CAP", "2.5").replace("small-country", "other-country")
    (country.folder / "others.yaml").write_text(others.split("schedule")[0].replace("monthly", "others"))
    plan = make_plan(load_spec(country.folder / "others.yaml"))
    runs.make(plan, new_release(plan), threads=1)
    with pytest.raises(UsageError, match="was used by dataset other-country"):
        make(IDS[1])
    monkeypatch.setenv("TRIPS", str(country.folder))
    make(IDS[1])
    assert_published(IDS[1])
    assert audit_answer().findings == []


@pytest.mark.thorough
def test_a_series_by_its_own_statement_gives_nothing_back(country: Country) -> None:
    """Once one of it is drawn, an abandoned release stays charged and nothing follows; the third is still made."""
    country.declare("pld", cap=1.8)
    with store() as con:
        account = read_books(con).accounts["small-country"]
    assert account.spent > account.terms.cap.rho
    make(IDS[0])
    abandon_release(IDS[1])
    assert charge_events(IDS[1]) == {level: [] for level in MEASURED}
    by_hand = country.folder / "by-hand.yaml"
    by_hand.write_text(
        country.spec.read_text()
        .replace("epsilon: 1.0", "epsilon: 0.01")
        .replace("pld", "zcdp")
        .replace("name: monthly", "name: by-hand")
    )
    with pytest.raises(BudgetExceeded):
        new_release(make_plan(load_spec(by_hand)))
    make(IDS[2])
    assert_published(IDS[2])
    with store() as con:
        assert read_books(con).accounts["small-country"].spent == account.spent
    assert audit_answer().findings == []


@pytest.mark.thorough
def test_a_release_that_was_killed_while_it_was_ingested_is_ingested_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crash is seen, unlike the others' wait for their day; nothing was drawn, and the table is read as it is now."""
    country = prepare(tmp_path, monkeypatch)
    country.declare()
    child = subprocess.run([sys.executable, "-c", KILLED, IDS[0]], cwd=REPOSITORY, timeout=240, check=False)
    assert child.returncode == -signal.SIGKILL
    with store() as con:
        assert vault_path(IDS[0]).exists()
        assert state(IDS[0]) == "running"
        note_crashes()
        assert [state(release_id) for release_id in IDS] == ["failed", "reserved", "reserved"]
        assert list_seals(con, IDS[0]) == {}
        country.write_trips(7)
        make(IDS[0])
        assert_published(IDS[0])
        assert total_of(IDS[0]) == pl.read_csv(country.folder / "trips.csv")["people"].sum()
        assert audit_answer().findings == []
