"""What is compared, without a server: every mechanism on features and on made-up tables, measures of the leaves, and what cannot be tried."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from flows.api import compare
from flows.cli.arguments import json_object
from flows.cli.runs import new_folder
from flows.console.comparison_view import show_comparison
from flows.planning.plan import make_plan
from flows.run.reservation import new_release, reserve_release
from flows.specification.file import load_spec
from flows.trials.comparison import MEASURES, comparison_answer, make_comparison
from flows.trials.made_up import made_up_of, made_up_table
from flows.trials.measures import utility_rows
from storage.database.connections import store
from storage.errors import InputError, SpecError, UsageError
from storage.ledger.events import advance
from tasks.ingest.sources.files import FileTable
from tasks.mechanisms import MECHANISMS
from tasks.pages.comparison import comparison_page
from tasks.pages.trial_results import MadeUp
from tasks.synthesize import like
from tasks.validate.utility import UTILITIES
from tests.support.comparisons import answer_of, rows_of
from tests.support.households import LISTED, draw_homes, write_tables
from tests.support.households import SPEC as HOMES
from tests.support.keys import PRIVACY as OF_PEOPLE
from tests.support.keys import features_of
from tests.support.spec import SPEC, spec_in

PRIVACY = OF_PEOPLE | {"neighbours": "substitution", "accountant": "zcdp"}
KEYS = features_of({"colour": 3, "size": 4}, public_data=True, privacy=PRIVACY)


def spec_at(folder, **keys):
    """Write a table of 500 people of 12 kinds, and a spec."""
    generator = np.random.default_rng(6)
    table = {"colour": generator.integers(0, 3, 500), "size": generator.integers(0, 4, 500)}
    pl.DataFrame(table).write_csv(folder / "people.csv")
    return spec_in(folder, KEYS | keys)


@pytest.mark.thorough
def test_every_mechanism_can_be_tried(tmp_path, capsys):
    """Every mechanism of several axes, with every priority that it has, is tried on every level, gets nearer as ε grows, and is shown."""
    names = [
        f"{name}:{priority}" if len(mechanism.repair) > 1 else name
        for name, mechanism in MECHANISMS.items()
        for priority in list(mechanism.repair) or [""]
        if mechanism.cells != "views" and not (mechanism.counts_groups or mechanism.is_dense)
    ]
    comparison = make_comparison(load_spec(spec_at(tmp_path)), names, [0.1, 100.0], runs=2)
    answer = answer_of(comparison, 2)
    assert answer.refused == {}
    tried = [(name, epsilon) for name in names for epsilon in (0.1, 100.0)]
    assert [(result.mechanism, result.epsilon) for result in answer.results] == tried
    for loose, tight in zip(answer.results[::2], answer.results[1::2], strict=True):
        assert [level.level for level in tight.levels] == [0, 1, 2]
        assert tight.levels[2].l1.mean < loose.levels[2].l1.mean
    show_comparison(answer)
    shown = [line.replace("%", "").split()[-7:] for line in capsys.readouterr().out.split("ε = 100,")[0].splitlines()]
    level = answer.results[0].levels[2]
    means = [100 * level.measure(of).mean if of.startswith("false") else level.measure(of).mean for of in MEASURES]
    assert [
        names[0],
        *(f"{mean:,.1f}" for mean in means),
        "0.0",
    ] in shown  # the last one of violations, which others have


def test_the_specs_confidence_is_that_of_the_intervals(tmp_path):
    """At half the confidence intervals are narrower, and the comparison says which confidence it is."""
    release = {"order": ["colour", "size"], "intervals": {"confidence": 0.5}}
    usual, answer = (
        answer_of(make_comparison(load_spec(spec_at(tmp_path, **keys)), ["inftda"], [1.0], runs=2), 2)
        for keys in ({}, {"release": release})
    )
    assert (usual.confidence, answer.confidence) == (0.9, 0.5)
    finest, usual_finest = (of.results[0].levels[2].intervals["more"] for of in (answer, usual))
    assert finest.width.max < usual_finest.width.min


def test_a_comparison_takes_no_other_ones_place(tmp_path):
    """Where no folder is named, each comparison has a new one, however soon it follows on another."""
    spec, folders = load_spec(spec_at(tmp_path)), set()
    for number in range(1, 4):
        (folder := new_folder(spec)).mkdir(parents=True)
        folders.add(folder)
        assert len(folders) == number


def test_what_cannot_be_tried_is_told(tmp_path):
    """What a mechanism cannot do, at one ε or at all, is left out with its reason; where it is the only one, nothing is compared."""
    spec = load_spec(spec_at(tmp_path, hierarchy={"colour": {"values": 30_000}, "size": {"values": 30_000}}))
    comparison = make_comparison(spec, ["inftda", "gaussian"], [1.0], runs=1)
    assert [entry.name for entry in comparison.entries] == ["inftda"]
    assert "at most 100,000,000 leaves with mechanism gaussian" in comparison.refused["gaussian"]
    assert "At epsilon" not in comparison.refused["gaussian"]
    with pytest.raises(UsageError, match="none of them can be tried"):
        make_comparison(spec, ["gaussian"], [1.0], runs=1)
    names = ["stability_histogram", "tda_l2"]
    comparison = make_comparison(load_spec(spec_at(tmp_path)), names, [1.0, 1e-300], runs=1)
    assert [(entry.name, entry.epsilon) for entry in comparison.entries] == [(name, 1.0) for name in names]
    assert list(comparison.refused) == names
    assert all(reason.startswith("At epsilon 1e-300: privacy.epsilon") for reason in comparison.refused.values())


def test_what_holds_otherwise_for_a_mechanism_is_told(tmp_path):
    """The spec's priority, split, sampler and invariants hold for those that have them; the others say what is left out."""
    privacy = PRIVACY | {"split": [1, 2], "invariants": [], "accountant": "zcdp"}
    keys = {"privacy": privacy, "priority": "least_squares", "noise": {"sampler": "table"}}
    names = ["inftda", "inftda:false_positives", "inftda_reconciled", "gaussian", "stability_histogram"]
    comparison = make_comparison(load_spec(spec_at(tmp_path, **keys)), names, [1.0], runs=1)
    assert comparison.refused == {}
    plans = {entry.name: entry.plan for entry in comparison.entries}
    optimisers = {name: plan.mechanism.optimiser(plan.terms.priority) for name, plan in plans.items()}
    of_inftda = MECHANISMS["inftda"].repair
    assert optimisers["inftda"] is of_inftda["least_squares"]
    assert optimisers["inftda:false_positives"] is of_inftda["false_positives"]
    assert optimisers["inftda_reconciled"] is of_inftda["false_positives"]
    told = {name: [re.split("[:,]", note)[0] for note in notes] for name, notes in comparison.notes.items()}
    no_priority, no_split = "priority is left out", "privacy.split is left out"
    assert told == {
        "inftda": ["priority is least_squares."],
        "inftda_reconciled": [no_priority],
        "gaussian": [no_split, no_priority],
        "stability_histogram": ["privacy.accountant is left out", no_split, "noise.sampler is opendp", no_priority],
    }


@pytest.mark.parametrize("said_public", [False, True])
def test_a_table_that_was_charged_is_compared_only_if_that_release_said_it_may_be_seen(
    said_public, tmp_path, monkeypatch
):
    """A ledger that has charged the file, under whatever name, by a spec without public_data stands against a new one."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    plan = make_plan(load_spec(spec_at(tmp_path, public_data=said_public)))
    charged = new_release(plan)
    reserve_release(charged, plan)
    (tmp_path / "linked.csv").hardlink_to(tmp_path / "people.csv")
    specs = []
    for name in ("people.csv", "linked.csv"):
        keys = KEYS | {"dataset": "another", "input": KEYS["input"] | {"table": name}}
        specs.append(load_spec(spec_in(tmp_path, keys, f"of_{name}.yaml")))
    with store() as con:
        advance(con, charged.id, 1, "void")  # of two levels: the other one is still charged
    for spec in specs if not said_public else []:
        said = f"charged by release {charged.id}, whose spec did not set public_data"
        with pytest.raises(SpecError, match=said) as refused:
            make_comparison(spec, ["inftda"], [1.0], runs=1)
        assert refused.value.field == "input.table"
        assert "--like" in refused.value.hint
    if not said_public:
        with store() as con:
            advance(con, charged.id, 2, "void")
    for spec in specs:
        assert make_comparison(spec, ["inftda"], [1.0], runs=1).entries


def test_what_is_no_comparison_is_refused(tmp_path):
    """Without public_data the table is not even opened."""
    spec = load_spec(spec_at(tmp_path))
    for name in ("magic", "inftda:magic", "gaussian:false_positives"):
        with pytest.raises(UsageError, match="--mechanisms"):
            make_comparison(spec, [name], [1.0], runs=1)
    path = spec_at(tmp_path, public_data=False)
    (tmp_path / "people.csv").write_text("not what it was")
    with pytest.raises(SpecError, match="public_data must be true"):
        make_comparison(load_spec(path), ["inftda"], [1.0], runs=1)


# measures of the leaves ------------------------------------------------------------------------------------------------

NUMBERS = ["busy", "flow", "pooled"]
STOPS = {"table": "stops.csv", "levels": ["zone", "stop"]}


def trips_at(folder, **keys):
    """Write trips between six stops in three zones in four periods, the minutes between stops, and a spec."""
    generator = np.random.default_rng(8)
    numbers = np.arange(6)
    pl.DataFrame({"zone": numbers % 3, "stop": numbers}).write_csv(folder / "stops.csv")
    pairs = pl.DataFrame({"from": np.repeat(numbers, 6), "to": np.tile(numbers, 6)})
    pairs.with_columns(minutes=5 + 4 * (pl.col("from") - pl.col("to")).abs()).write_csv(folder / "minutes.csv")
    trips = {name: generator.integers(0, size, 400) for name, size in (("period", 4), ("from", 2), ("to", 6))}
    pl.DataFrame(trips).write_csv(folder / "trips.csv")
    spec = SPEC | {
        "input": {"table": "trips.csv", "features": ["period", "from", "to"]},
        "hierarchy": {"period": {"values": 4}, "from": STOPS, "to": STOPS},
        "release": {"order": ["period", "from", "to"]},
        "public_data": True,
        "utility": {"fleet": {"period": "period", "minutes": 15, "capacity": 4, "durations": "minutes.csv"}},
    }
    return spec_in(folder, {key: of for key, of in (spec | keys).items() if of is not None})


def test_tables_that_do_not_fit_are_refused_before_any_trial(tmp_path):
    """Durations that lack a pair, or are not there, are refused by the key of the spec."""
    file = load_spec(trips_at(tmp_path))
    comparison = make_comparison(file, ["inftda"], [1e3], 1, ["fleet"])
    written = utility_rows(comparison.utilities, rows_of(comparison))
    assert written.filter(utility="fleet").select("number", "value").rows() == [(number, 1.0) for number in NUMBERS]
    pl.read_csv(tmp_path / "minutes.csv")[:-1].write_csv(tmp_path / "minutes.csv")
    told = r"^utility\.fleet\.durations must list each pair .* 5 to 5 is there 0"
    with pytest.raises(InputError, match=told) as refused:
        make_comparison(file, ["inftda"], [1.0], 1, ["fleet"])
    assert refused.value.field == "utility.fleet.durations"
    with pytest.raises(UsageError, match="--utility must be among fleet, got flet"):
        make_comparison(file, ["inftda"], [1.0], 1, ["flet"])
    (tmp_path / "minutes.csv").unlink()
    with pytest.raises(InputError, match=r"^utility\.fleet\.durations: there is no file"):
        make_comparison(file, ["inftda"], [1.0], 1, ["fleet"])
    assert not [column for column in rows_of(make_comparison(file, ["inftda"], [1.0], 1)).columns if "fleet" in column]


def test_a_measure_of_ones_own_has_its_keys_and_tables(tmp_path, monkeypatch, capsys):
    """A function that is added to the table gets its section: keys as written, tables read as text, listed codes in order, and null for no number."""
    seen = []

    def own(tree, true, released, terms):
        seen.append(terms)
        return {"kept": released.counts.sum() / true.counts.sum(), "never": None}

    monkeypatch.setitem(UTILITIES, "own", own)
    hierarchy = {"period": {"values": ["3", "1", "0", "2"]}, "from": STOPS, "to": STOPS}
    section = {"own": {"weight": 2, "name": "x", "zones": "stops.csv"}}
    file = load_spec(trips_at(tmp_path, hierarchy=hierarchy, utility=section))
    comparison = make_comparison(file, ["inftda"], [1.0], 2, ["own", "own"])
    rows = rows_of(comparison, 2)
    assert utility_rows(comparison.utilities, rows).filter(number="never")["value"].to_list() == [None, None]
    answer = comparison_answer(comparison, rows, "nowhere")
    found = json_object(answer.results[0])["utility"]["own"]
    assert (found["kept"]["mean"], found["never"]) == (1, None)  # the total is public
    assert seen[-1].keys == {"weight": 2, "name": "x"}
    assert seen[-1].tables["zones"].rows()[4] == ("1", "4")
    assert seen[-1].listed == {"period": ("3", "1", "0", "2")}
    show_comparison(answer)
    assert "–" in capsys.readouterr().out.split("utility own")[1].split("what a release")[0]
    assert "<td>–</td>" in comparison_page(answer)


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
    file = load_spec(spec_in(folder, SHAPES[shape] | keys))
    made_up = made_up_of(file.spec, like=True, total=None if file.spec.input.groups else total, skew=skew)
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
    assert answer.made_up == (MadeUp() if shape == "sizes within a list" else MadeUp(900, 2.0))
    assert answer.results
    assert answer.verdicts[0].leads["leaves"].best
    assert all(words in comparison_page(answer) for words in ("made-up table like", answer.made_up.in_words))
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
    plan = make_plan(replace(load_spec(spec_in(folder, keys)), is_closed=True))  # its table stays closed
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


def test_what_cannot_be_made_up_is_refused(folder):
    """Nobody says how many records there are, numbers out of range, codes that only the records have; and a table that is read must be there."""
    for total, skew, said in (
        (None, None, "--total must be given, since the spec has no expected_total"),
        (0, None, "--total must be from 1"),
        (9, -1.0, "--skew must be from 0 to 6"),
    ):
        with pytest.raises(UsageError, match=said):
            compared(folder, "features", total, skew)
    listed = load_spec(spec_in(folder, SHAPES["sizes within a list"])).spec
    with pytest.raises(UsageError, match="--total must be left out where input"):
        made_up_of(listed, like=True, total=9, skew=None)
    keys = features_of({"mode": {"levels": ["mode"]}}, mechanism="stability_histogram", noise={"law": "laplace"})
    spec = load_spec(spec_in(folder, keys)).spec
    with pytest.raises(SpecError, match=r"hierarchy\.mode must have a codebook for --like") as refused:
        made_up_of(spec, like=True, total=9, skew=None)
    assert refused.value.field == "hierarchy.mode"
    with pytest.raises(UsageError, match="--skew must be left out without --like"):
        made_up_of(spec, like=False, total=None, skew=1.0)
    path = spec_in(folder, SHAPES["features"] | {"public_data": True})
    with pytest.raises(InputError, match=r"input\.table"):
        make_comparison(load_spec(path), ["inftda"], [1.0], 1)
