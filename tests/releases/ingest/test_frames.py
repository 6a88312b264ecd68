"""Python: data frames in place of files, releases that are continued, lists of questions, and comparisons."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import flows.run.walk
import trellis
from flows import api
from flows.answers.audit import audit_answer
from flows.planning.plan import make_plan
from flows.run.ending import clean
from flows.specification import frames
from flows.specification.frames import frames_in_files
from storage.errors import Interrupted, SpecError, UsageError
from tasks.ingest.task import read_in_memory
from tests.support.ages import EXACT, SPEC, draw_people

KINDS = {
    "Polars": lambda frame: frame,
    "a plan of Polars": lambda frame: frame.lazy(),
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "pandas with an index": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)).set_index(frame.columns[0]),
    "pandas with categories": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)).astype("category"),
    "Arrow": lambda frame: frame.to_arrow(),
}
ZONES = pl.DataFrame({"side": ["up", "up", "down"], "zone": ["n", "e", "s"]})


@pytest.fixture
def home(own_home, monkeypatch):
    """Return a store, beside the working directory."""
    monkeypatch.chdir(own_home.parent)
    return own_home


def spec_of(kind, people, **keys):
    """Return a spec whose table and codebook are data frames of a kind."""
    made = KINDS[kind]
    return {
        **SPEC,
        "input": {"table": made(people), "features": ["zone", "age"]},
        "hierarchy": {"zone": {"table": made(ZONES), "levels": ["side", "zone"]}, "age": {"ordered": 10}},
        **EXACT,
        **keys,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_data_frame_is_a_table_and_a_codebook(home, kind):
    """Of every kind: the records are its rows, what is published has no path, and no file of it is left."""
    people = draw_people()
    with api._file(spec_of(kind, people)) as file:
        plan = make_plan(file)
        codebooks, areas, counts = read_in_memory(plan.source, plan.units, plan.promised)
        assert file.published()["input"]["table"] == "input-table.parquet"
    codes = (of[:, -1].gather(area) for of, area in zip(codebooks.values(), areas, strict=True))
    found = dict(zip(zip(*codes, strict=True), counts.tolist(), strict=True))
    assert found == Counter(people.select("zone", "age").iter_rows())
    assert not list((home / "tmp").glob("frames-*"))


@pytest.mark.parametrize(
    "kind", ["pandas with an index", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("Polars", "Arrow"))]
)
def test_what_nobody_looks_at_is_in_no_file(home, monkeypatch, kind):
    """No row of a confidential data frame for `check` and `plan`; for releases the columns that a spec names or the ledger knows."""
    people = draw_people().with_columns(name=pl.lit("Mario Rossi"), mode=pl.lit("walks"))
    spec, written = spec_of(kind, people), list[pl.DataFrame]()
    spec["input"] = spec["input"] | {"table": [KINDS[kind](people)]}
    delete = frames.rmtree

    def kept(folder, **keys):
        written.extend(map(pl.read_parquet, folder.glob("input-table*.parquet")))
        delete(folder, **keys)

    monkeypatch.setattr(frames, "rmtree", kept)
    assert trellis.check(spec).ok
    trellis.plan(spec)
    trellis.plan_page(spec)
    assert [table.height for table in written] == [0, 0, 0]
    trellis.release(spec)
    of_mode = {"name": "modes", "dataset": "modes", "hierarchy": {"mode": {"values": ["walks", "rides"]}}}
    of_mode |= {"input": {"table": KINDS[kind](people), "features": ["mode"]}, "release": {"order": ["mode"]}}
    with pytest.raises(UsageError, match="was used by dataset"):
        trellis.release(spec | of_mode)
    for table, columns in zip(written[3:], ({"zone", "age"}, {"zone", "age", "mode"}), strict=True):
        assert {*table.columns} == {*people.columns}
        assert {name for name in table.columns if table[name].null_count() < table.height} == columns


def test_what_a_killed_process_left_of_a_data_frame_is_deleted(home):
    """By `clean`, which leaves the data frames of a process that goes on."""
    left = "import os, signal, polars; from flows.specification.frames import frames_in_files as written\n"
    left += "with written({'table': polars.DataFrame({'zone': ['a']})}): os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", left], check=False).returncode == -signal.SIGKILL
    (killed,) = (home / "tmp").glob("frames-*/table.parquet")
    with frames_in_files({"table": draw_people()}) as keys:
        clean()
        assert Path(keys["table"]).exists()
        assert not killed.parent.exists()
    assert not list((home / "tmp").glob("frames-*"))


def test_a_list_of_data_frames_is_one_table(home):
    """Their rows are released together, whatever holds each of them."""
    people = draw_people()
    spec = spec_of("Polars", people)
    spec["input"] = spec["input"] | {"table": [people[:100], people[100:].to_arrow()]}
    found = trellis.release(spec)
    counted = dict(found.table("zone").select("zone_zone", "count").iter_rows())
    assert counted == dict(people["zone"].value_counts().iter_rows())
    assert trellis.verify(found.folder).ok


def test_paths_and_numpy_are_keys_as_texts_and_numbers_are(home):
    """Notebooks have both: a table is a path, ε comes out of an array, and levels are one; anything else is refused."""
    people = draw_people()
    people.write_parquet("people.parquet")
    plain = spec_of("Polars", people)
    spec = plain | {
        "input": {"table": home.parent / "people.parquet", "features": np.array(["zone", "age"])},
        "privacy": plain["privacy"] | {"epsilon": np.float64(plain["privacy"]["epsilon"])},
        "expected_total": np.int64(1000),
    }
    assert trellis.check(spec).ok
    with pytest.raises(SpecError, match="must be texts, numbers, lists and mappings"):
        trellis.check(spec | {"title": object()})


def test_a_data_frame_of_mixed_codes_is_refused_without_a_value(home):
    """The key is named and the cast, and what the library said of the value is not kept."""
    mixed = pd.DataFrame({"zone": pd.Series(["n", 4711], dtype=object), "age": ["1", "2"]})
    spec = {**spec_of("Polars", draw_people()), "input": {"table": mixed, "features": ["zone", "age"]}}
    for work in (trellis.check, trellis.plan, trellis.release):
        with pytest.raises(UsageError, match=r"^input.table: the data frame cannot be written") as refusal:
            work(spec)
        assert "4711" not in f"{refusal.value}{refusal.value.hint}{refusal.value.__context__}"


def test_checks_and_plans_are_shown_in_a_line(home):
    """With the name, the mechanism and what it costs; or with the number of problems, and where they are."""
    spec = spec_of("Polars", draw_people())
    wrong = {**spec, "mechanism": "none", "privacy": {**spec["privacy"], "delta": 2}}
    for shown, words in (
        (trellis.plan(spec), ["plan of ages", "cascade", "epsilon 500"]),
        (trellis.check(spec), ["can be released", "ages", "epsilon 500"]),
        (trellis.check(wrong), ["cannot be released", "2 problems", "privacy.delta", "mechanism"]),
        (trellis.ledger(), ["ledger of"]),
        (trellis.releases(), ["0 releases"]),
    ):
        assert len(repr(shown)) < 160
        assert all(word in repr(shown) for word in words)


WITH_VIEWS = {
    "mechanism": "unbiased_tree",
    "release": SPEC["release"] | {"views": {"sides": {"zone": "side", "age": "age_2"}}},
}


@pytest.mark.parametrize(("keys", "before"), [({}, "driver._finish"), (WITH_VIEWS, "walk.add_shard")])
def test_a_stopped_release_is_listed_and_continued(home, monkeypatch, keys, before):
    """`releases` says that it failed, at its start or while a view is measured, and `rerun` publishes it; once more it is the same."""
    record = flows.run.walk.add_shard

    def interrupt(*of):
        if before == "driver._finish" or (of[2].kind, of[2].level) == ("noisy", 7):
            raise Interrupted("stopped")
        return record(*of)

    with monkeypatch.context() as patch:
        patch.setattr(f"flows.run.{before}", interrupt)
        with pytest.raises(Interrupted):
            trellis.release(spec_of("Polars", draw_people(), **keys))
    (listed,) = trellis.releases().releases
    assert listed.state == "failed"
    for _ in range(2):
        found = trellis.rerun(listed.id)
        assert found.id == listed.id
        assert found.query()["count"].to_list() == [600]
    assert trellis.verify(found.folder).failures == audit_answer([found.folder]).findings == []
    assert [of.state for of in trellis.releases().releases] == ["published"]
    with pytest.raises(UsageError):
        trellis.rerun("nothing")


def test_lists_of_questions_and_of_areas(home):
    """A list of mappings is answered one by one; arrays, series and tuples are lists of areas; anything else is refused by name."""
    people = draw_people()
    found = trellis.release(spec_of("Polars", people))
    one_by_one = found.query([{"zone": "n", "age": "1"}, {"zone": "s"}])
    assert one_by_one["zone"].to_list() == ["n", "s"]
    assert one_by_one["count"].to_list() == [people.filter(zone="n", age="1").height, people.filter(zone="s").height]
    for as_list in (list, tuple, np.array, pl.Series, pd.Series, lambda zones: dict.fromkeys(zones).keys()):
        assert found.query(zone=as_list(["n", "s"]))["count"].sum() == 600
    for wrong in (["zone"], "zone", 3):
        with pytest.raises(UsageError, match="where must map axes to areas"):
            found.query(wrong)  # type: ignore[arg-type]
    for level in ("street", 99, -1, None, 1.5, True, [1]):
        with pytest.raises(UsageError, match="level must be 0 to"):
            found.table(level)  # type: ignore[arg-type]
    assert found.table("side").equals(found.table(1))
    assert found.table(np.int64(2)).equals(found.table("zone"))
