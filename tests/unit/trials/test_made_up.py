"""Comparisons on a made-up table: of every shape of release, without the confidential table, which need not even be there."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import yaml

from flows.api import compare
from flows.console.comparison_view import show_comparison
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from flows.trials.made_up import made_up_of, made_up_table
from storage.errors import InputError, SpecError, UsageError
from tasks.ingest.sources.files import FileTable
from tasks.pages.comparison import comparison_page
from tasks.pages.trial_results import MadeUp
from tasks.synthesize import like
from tests.support.comparisons import answer_of
from tests.support.households import LISTED, draw_homes, write_tables
from tests.support.households import SPEC as HOMES
from tests.support.keys import features_of
from tests.support.spec import SPEC

ORDERED = {"age": {"ordered": 12}, "hour": {"ordered": 6}}
MODES = {"by_mode": {"mode": "mode"}, "by_zone": {"from": "zone"}}
ZONES = {"table": "zones.csv", "levels": ["district", "zone"]}
SHAPES = {
    "features": features_of({"from": ZONES, "mode": 3}, noise={"sampler": "table"}),
    "views": features_of({"from": ZONES, "to": ZONES, "mode": 3}, mechanism="cbdp", noise={"sampler": "table"})
    | {"release": {"order": ["from", "to", "mode"], "views": MODES}},
    "a grid": features_of(ORDERED, mechanism="unbiased_tree", noise={"sampler": "table"})
    | {"release": {"grid": ["age", "hour"]}},
    "trips": SPEC
    | {"hierarchy": ZONES, "release": {"tree": "origin", "finest": "zone"}, "noise": {"sampler": "table"}},
    "sizes": HOMES | {"noise": {"sampler": "table"}},
    "sizes within a list": HOMES | LISTED | {"noise": {"sampler": "table"}},
}
TRIED = {
    "a grid": ["unbiased_tree", "inftda"], "sizes": (), "sizes within a list": (), "views": ["cbdp", "inftda_shrunk"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with public tables alone; whoever opens the confidential one, were it there, fails."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    write_tables(tmp_path, draw_homes(50))
    (tmp_path / "people.csv").unlink()
    numbers = np.arange(12)
    zones = {"district": numbers // 4, "zone": numbers}
    pl.DataFrame(zones).with_columns(pl.all().cast(pl.String).str.zfill(2)).write_csv(tmp_path / "zones.csv")
    for way in (FileTable.rows, FileTable.sha256):

        def closed(table, *given, _way=way, **named):
            assert table.field != "input.table"
            return _way(table, *given, **named)

        monkeypatch.setattr(FileTable, way.__name__, closed)
    return tmp_path


def compared(folder, shape, total=900, skew=None, **keys):
    """Return a comparison on a table like that of a spec."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(SHAPES[shape] | keys))
    file = load_spec(folder / "spec.yaml")
    made_up = made_up_of(file.spec, like=True, total=total, skew=skew)
    return make_comparison(file, TRIED.get(shape, ["inftda"]), [1.0], 2, (), made_up)


def drawn(comparison):
    """Yield the areas and counts of the made-up table."""
    leaves = comparison.true_levels[-1]
    return ([*of] for of in (*leaves.areas, leaves.counts))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_made_up_without_the_table(folder, shape):
    """It is not there; where it is, it is not opened, and nothing depends on it. The answer and the page say that the table is made up."""
    comparison = compared(folder, shape)
    without = [*drawn(comparison)]
    for name in ("people.csv", "data/trips.csv"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("no,table,of,this,spec\n")
    assert [*drawn(compared(folder, shape))] == without
    answer = answer_of(comparison, 2)
    assert answer.made_up == MadeUp(900, 2.0)
    assert answer.results
    assert answer.verdicts[0].leads["leaves"].best
    assert "made-up table like" in comparison_page(answer)
    assert "of the public table" not in comparison_page(answer)
    tree = comparison.table.tree
    assert all(axis.areas(level) for axis in tree.axes for level in range(axis.depth + 1))


def test_the_terminal_and_python_say_that_it_is_made_up(folder, capsys):
    """The first line is about the table, and the last but one is the verdict; Python has the same choices."""
    show_comparison(answer_of(compared(folder, "features"), 2))
    said = capsys.readouterr().out
    assert said.startswith("made up: the table was drawn at random")
    from_python = compare(folder / "spec.yaml", ["inftda"], [1.0], runs=1, like=True, total=900)
    assert from_python.made_up == MadeUp(900, 2.0)
    assert "verdict: At ε = 1, only inftda was tried" in said


def test_it_has_as_many_records_as_are_asked_for_and_the_skew_is_that_of_its_cells(folder):
    """The total is that of the option, before that of the spec; without skew all cells are alike, and with it few have most."""
    assert compared(folder, "trips", 5_000, 0.0, expected_total=77).true_levels[0].counts.tolist() == [5_000]
    assert compared(folder, "trips", None, expected_total=77).true_levels[0].counts.tolist() == [77]
    largest = [compared(folder, "trips", 100_000, skew).true_levels[-1].counts.max() for skew in (0.0, 1.0, 2.0)]
    even = 100_000 / 144
    assert largest[0] < even + 6 * even**0.5
    assert largest[0] < largest[1] < largest[2]


def test_logarithms_of_expected_counts_have_the_skew(folder, monkeypatch):
    """Over many leaves their σ is that which was asked for, drawn at once or axis by axis; a list gives each region its groups."""
    codes = {"a": {"values": 300}, "b": {"values": 300}}
    keys = features_of(codes, expected_total=10**9)
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys))
    plan = make_plan(load_spec_closed(folder))
    logs = np.log(made_up_table(plan, MadeUp(10**9, 1.5)).levels[-1].true_counts)
    assert np.std(logs) == pytest.approx(1.5, rel=0.1)
    monkeypatch.setattr(like, "MOST_DRAWN", 10)
    one = made_up_table(plan, MadeUp(200_000, 1.5))
    assert one.levels[0].true_counts.tolist() == [200_000]
    per_code = np.bincount(one.levels[-1].areas[0], one.levels[-1].true_counts, 300)
    assert np.std(np.log(per_code[per_code > 30])) > 0.7
    listed = compared(folder, "sizes within a list")
    groups = listed.table.groups
    sizes = listed.true_levels[-1]
    assert np.bincount(sizes.areas[0], sizes.counts, len(groups)).tolist() == groups.tolist()


def load_spec_closed(folder):
    """Return the spec of a folder, whose table stays closed."""
    return replace(load_spec(folder / "spec.yaml"), is_closed=True)


def test_what_cannot_be_made_up_is_refused(folder):
    """Nobody says how many records there are, numbers out of range, codes that only the records have; and a table that is read must be there."""
    for total, skew, said in (
        (None, None, "--total must be given, since the spec has no expected_total"),
        (0, None, "--total must be from 1"),
        (9, -1.0, "--skew must be from 0 to 6"),
    ):
        with pytest.raises(UsageError, match=said):
            compared(folder, "features", total, skew)
    keys = features_of({"mode": {"levels": ["mode"]}}, mechanism="stability_histogram", noise={"law": "laplace"})
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys))
    spec = load_spec(folder / "spec.yaml").spec
    with pytest.raises(SpecError, match=r"hierarchy\.mode must have a codebook for --like") as refused:
        made_up_of(spec, like=True, total=9, skew=None)
    assert refused.value.field == "hierarchy.mode"
    with pytest.raises(UsageError, match="--skew must be left out without --like"):
        made_up_of(spec, like=False, total=None, skew=1.0)
    (folder / "spec.yaml").write_text(yaml.safe_dump(SHAPES["features"] | {"public_data": True}))
    with pytest.raises(InputError, match=r"input\.table"):
        make_comparison(load_spec(folder / "spec.yaml"), ["inftda"], [1.0], 1)
