"""Releases with levels of which every cell above holds one: they cost nothing, read nothing, and say what they repeat."""

import shutil
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
import yaml

import tasks.noise.task
import tasks.tree.branches
from flows.answers.ledger import ledger_answer
from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.api import release
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.record import load_record
from tasks.format.manifest import Manifest
from tests.support.folders import changed, first, stated, table_of
from tests.support.passes import check_rows, try_spec
from tests.support.spec import SPEC, spec_in

WITH_PAGES = True

LEVELS = ["nation", "state", "county", "town", "street"]
# one nation; a county in each state; a street in each town
AREAS = [("N", f"S{k // 6}", f"C{k // 6}", f"T{k}", f"R{k}") for k in range(24)]
REPEATED = {1: 0, 2: 0, 5: 4, 6: 4, 9: 8, 10: 8}  # the end whose turn it is to be refined: destination, then origin


@dataclass
class Maker:
    """Makes releases of one table in a folder."""

    folder: Path

    def spec(self, levels, **keys):
        """Write the codebook with some of the levels, and a spec."""
        columns = [LEVELS.index(level) for level in levels]
        rows = [",".join(area[column] for column in columns) for area in AREAS]
        (self.folder / "areas.csv").write_text("\n".join([",".join(levels), *rows]) + "\n")
        finest = AREAS[0].index("R0") if levels[-1] == "street" else AREAS[0].index("T0")
        trips = [f"{AREAS[(k * 7) % 24][finest]},{AREAS[(k * k) % 24][finest]}" for k in range(4_000)]
        (self.folder / "trips.csv").write_text("\n".join(["home,work", *trips]) + "\n")
        written = SPEC | {
            "name": "trips",
            "dataset": f"people-{len(list(self.folder.glob('out*/*')))}",
            "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
            "hierarchy": {"table": "areas.csv", "levels": levels},
            "release": {"tree": "destination", "finest": levels[-1]},
            "privacy": SPEC["privacy"] | {"epsilon": 4.0},
            "keep_noisy_counts": True,
        }
        for key, value in keys.items():
            written[key] = written[key] | value if isinstance(value, dict) and key in written else value
        written["privacy"] = {key: value for key, value in written["privacy"].items() if value is not None}
        return spec_in(self.folder, written)

    def make(self, levels=LEVELS, **keys):
        """Make a release; return its folder and its manifest."""
        made = release(self.spec(levels, **keys), different_people=True)
        return Path(made.folder), made.manifest


@pytest.fixture
def maker(tmp_path, own_home):
    """Give a folder and a store."""
    return Maker(tmp_path)


class Made(NamedTuple):
    """A release with repeated levels, in branches, and the levels whose true counts the noise stage has asked the vault for."""

    maker: Maker
    folder: Path
    manifest: Manifest
    read: frozenset[int]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make that release."""
    place, read = tmp_path_factory.mktemp("repeated"), set[int]()
    families = tasks.noise.task._Vault.families

    def noted(vault, level, *others):
        read.add(level + 1)
        return families(vault, level, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        patch.setattr(tasks.tree.branches, "BRANCH_CELLS", 2)
        patch.setattr(tasks.noise.task._Vault, "families", noted)
        maker = Maker(place)
        at_once = {"intervals": {"simultaneous": True}}
        return Made(maker, *maker.make(mechanism="inftda_reconciled", release=at_once), frozenset(read))


def test_a_repeated_level_has_the_rows_of_the_level_above(made, monkeypatch):
    """Every published row is that of the level above, with one code more; the folder is verified, and so is its cost."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.maker.folder / "home"))
    folder, manifest = made.folder, made.manifest
    with store() as con:
        assert load_record(con, manifest.id).branches
    assert {entry.level: entry.same_as for entry in manifest.levels if entry.same_as is not None} == REPEATED
    for level, same in REPEATED.items():
        above, own = table_of(folder, level - 1), table_of(folder, level)
        assert own.select(above.columns).equals(above)
        entry, source = manifest.levels[level], manifest.levels[same]
        assert (entry.rho, entry.epsilon, entry.l2_sensitivity) == (0.0, 0.0, 0.0)
        for name in ("sigma", "bound", "bound_after", "half_width", "noise_rows"):
            assert getattr(entry, name) == getattr(source, name)
    assert verify_answer(folder).failures == []
    (charges,) = (account.charges for account in ledger_answer(None).datasets)
    assert {charge.level for charge in charges} == {entry.level for entry in manifest.levels if entry.rho}
    for end, pair in product(("origin", "destination"), (("state=S1", "county=C1"), ("town=T1", "street=R1"))):
        one, other = (query_answer(folder, None, None, [f"{end}={area}"], simultaneous=False) for area in pair)
        assert one.count == other.count


def test_true_counts_of_repeated_levels_are_never_read(made):
    """The noise stage asks the vault for the children of the levels above measured levels, and for no others."""
    assert made.read == {entry.level for entry in made.manifest.levels if entry.rho}


def test_plan_and_pages_say_what_is_repeated(made, maker):
    """The plan, the README and the report say it; nothing calls such a level unprotected, or published exactly."""
    forecast = plan_answer(make_plan(load_spec(maker.spec(LEVELS))))
    assert {level.level: level.same_as for level in forecast.levels if level.same_as is not None} == REPEATED
    assert forecast.levels[5].derivation.startswith("same as level 4: each of its cells holds one cell of this level")
    assert [text.split(":")[0] for text in forecast.unprotected] == ["level 0"]
    assert [text.split(":")[0] for text in made.manifest.unprotected] == ["level 0"]
    readme, report = (made.folder / "README.md").read_text(), (made.folder / "report.html").read_text()
    assert "same as level 4" in readme
    assert "same as level 4" in report
    assert "does not protect at all" not in readme


def of_level(**values):
    """Return what changes what the manifest states of level 5."""
    return stated(lambda manifest: manifest["levels"][5].update(values))


ROWS = "counts/level_5.parquet"
LIES = {
    "cost": (of_level(rho=0.1), "must cost nothing"),
    "another level": (of_level(same_as=2), "must be the same as the nearest level above"),
    "noise": (of_level(sigma=1.0), "must state the noise"),
    "bound": (of_level(bound_after=0), "must state the noise"),
    "another interval": (changed(ROWS, first("low", -1)), "level_5"),
    "another mark": (changed(ROWS, lambda of: of.with_columns(~pl.col("signal"))), "level_5"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_repeated_level_states_is_verified(made, tmp_path, lie):
    """A cost, another noise or another bound is found, another level that it is said to repeat, and rows that are not repeated."""
    change, told = LIES[lie]
    folder = Path(shutil.copytree(made.folder, tmp_path / made.folder.name))
    change(folder)
    assert any(told in failure for failure in verify_answer(folder).failures)


def test_below_levels_that_are_published_exactly(maker):
    """With invariants over several single areas, what repeats them repeats the last of them."""
    exact = {"invariants": ["nation"], "i_accept_unprotected": True}
    plan, _, trial = try_spec(maker.spec(["nation", "county", "town"], privacy=exact))
    assert [terms.same_as for terms in plan.levels] == [None] * 7
    check_rows(trial)
    (maker.folder / "areas.csv").write_text("\n".join(["nation,state,town", *(f"N,S,T{k}" for k in range(24))]) + "\n")
    keys = yaml.safe_load((maker.folder / "spec.yaml").read_text())
    keys["hierarchy"]["levels"] = ["nation", "state", "town"]
    plan, _, trial = try_spec(spec_in(maker.folder, keys))
    assert [terms.same_as for terms in plan.levels] == [None, None, None, 2, 2, None, None]
    check_rows(trial)
