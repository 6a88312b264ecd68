"""What is compared, without a server: every mechanism on features, and what cannot be tried."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.cli.run_comparison import new_folder
from flows.console.comparison_view import show_comparison
from flows.execution.reservation import new_release, reserve_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.trials.comparison import MEASURES, make_comparison
from storage.database.connections import store
from storage.errors import SpecError, UsageError
from storage.ledger.events import advance
from tests.support.comparisons import answer_of

KEYS: dict[str, Any] = {
    "name": "features",
    "dataset": "made-up",
    "public_data": True,
    "input": {"table": "people.csv", "features": ["colour", "size"]},
    "hierarchy": {"colour": {"values": 3}, "size": {"values": 4}},
    "release": {"order": ["colour", "size"]},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


def spec_at(folder: Path, **keys: object) -> Path:
    """Write a table of 500 people of 12 kinds, and a spec."""
    generator = np.random.default_rng(6)
    table = {"colour": generator.integers(0, 3, 500), "size": generator.integers(0, 4, 500)}
    pl.DataFrame(table).write_csv(folder / "people.csv")
    (folder / "spec.yaml").write_text(yaml.safe_dump(KEYS | keys))
    return folder / "spec.yaml"


@pytest.mark.thorough
def test_every_mechanism_can_be_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mechanism, with every priority that it has, is tried on every level, gets nearer as ε grows, and is shown."""
    names = [
        f"{name}:{priority}" if len(mechanism.repair) > 1 else name
        for name, mechanism in MECHANISMS.items()
        for priority in list(mechanism.repair) or [""]
        if mechanism.cells != "views" and not mechanism.is_of_sizes
    ]
    comparison = make_comparison(load_spec(spec_at(tmp_path)), names, [0.1, 100.0], runs=2)
    answer = answer_of(comparison, 2)
    assert answer.refused == {}
    assert [(result.mechanism, result.epsilon) for result in answer.results] == [
        (name, epsilon) for name in names for epsilon in (0.1, 100.0)
    ]
    for loose, tight in zip(answer.results[::2], answer.results[1::2], strict=True):
        assert [level.level for level in tight.levels] == [0, 1, 2]
        assert tight.levels[2].l1.mean < loose.levels[2].l1.mean
    show_comparison(answer)
    said = capsys.readouterr().out.split("ε = 100,")[0].splitlines()
    headings = next(number for number, line in enumerate(said) if line.split()[:2] == ["level", "mechanism"])
    assert said[headings].split()[2:] == ["maximum", "mean", "ℓ₁", "discovery", "negative"]
    shown = [line.replace("%", "").split()[-6:] for line in said[headings + 1 : headings + 1 + 3 * len(names)]]
    assert [cells[0] for cells in shown] == names * 3
    coarse = [result for result in answer.results if result.epsilon == 0.1]
    of_finest = [result.levels[2] for result in coarse]
    for cells, level in zip(shown[2 * len(names) :], of_finest, strict=True):
        numbers = [float(cell.replace(",", "")) for cell in cells[1:]]
        means = [level.measure(measure).mean * (100 if measure.startswith("false") else 1) for measure in MEASURES]
        assert numbers == pytest.approx(means, abs=0.051)


def test_intervals_are_shown_where_that_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Coverage and width stand by level, mechanism and true count, at the spec's confidence; a mechanism without has no row."""
    release = {"order": ["colour", "size"], "intervals": {"confidence": 0.5}}
    names = ["inftda", "stability_histogram"]
    usual, answer = (
        answer_of(make_comparison(load_spec(spec_at(tmp_path, **keys)), names, [1.0], runs=2), 2)
        for keys in ({}, {"release": release})
    )
    assert (usual.confidence, answer.confidence) == (0.9, 0.5)
    finest, usual_finest = (of.results[0].levels[2].intervals["more"] for of in (answer, usual))
    assert finest.width.max < usual_finest.width.min
    show_comparison(answer)
    said = capsys.readouterr().out
    assert "intervals of questions" not in said
    of_rows = [line.split() for line in said.split("what a release would say of its rows")[1].splitlines()[3:7]]
    assert "false rows" in said
    show_comparison(answer, intervals=True)
    said = capsys.readouterr().out
    assert "the promise is 50% for each fixed cell" in said
    assert "on average at least 50% where the number of measured cells is public" in said
    assert [cells[:2] for cells in of_rows[:2]] == [["0", "inftda"], ["1", "inftda"]]
    of_finest = answer.results[0].levels[2]
    shares = (of_finest.false_rows, of_finest.false_signal, of_finest.noise_rows, of_finest.noise_rows_at_most)
    told = [
        f"{100 * of_finest.rows_covered.mean:.1f}%",
        f"{of_finest.row_width.mean:,.1f}",
        *(f"{100 * share.mean:.1f}%" for share in shares if share),
        f"{of_finest.max_absolute.mean:,.1f}",
        f"{of_finest.bound_after.mean:,.1f}",
    ]
    assert of_rows[2][-len(told) :] == told
    shown = [line.split() for part in said.split("intervals of questions:")[1:] for line in part.splitlines()[2:6]]
    assert [cells[:2] for cells in shown[:2]] == [["0", "inftda"], ["1", "inftda"]]
    assert f"{finest.width.mean:,.1f}" in shown[6]
    assert f"{100 * finest.coverage.mean:.1f}%" in " ".join(shown[2])
    assert [cells[0] for cells in (shown[3], shown[7])] == ["stability_histogram"] * 2


def test_a_comparison_takes_no_other_ones_place(tmp_path: Path) -> None:
    """Where no folder is named, each comparison has a new one, however soon it follows on another."""
    spec = load_spec(spec_at(tmp_path))
    folders = []
    for _ in range(3):
        folders.append(new_folder(spec))
        folders[-1].mkdir(parents=True)
    assert len(set(folders)) == 3
    assert all(folder.name.startswith("compare-features-2") for folder in folders)


def test_what_cannot_be_tried_is_told(tmp_path: Path) -> None:
    """A mechanism that refuses the universe is left out with its reason; where it is the only one, nothing is compared.

    Where one cannot be tried at one ε, it is at the others, and the reason names the ε.
    """
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


def test_what_holds_otherwise_for_a_mechanism_is_told(tmp_path: Path) -> None:
    """The spec's priority, split, sampler and invariants hold for those that have them; the others say what is left out."""
    privacy = KEYS["privacy"] | {"split": [1, 2], "invariants": [], "accountant": "zcdp"}
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
    no_priority = "priority is left out"
    assert told == {
        "inftda": ["priority is least_squares."],
        "inftda_reconciled": [no_priority],
        "gaussian": ["privacy.split is left out", no_priority],
        "stability_histogram": [
            *("privacy.accountant is left out", "privacy.split is left out", "noise.sampler is opendp", no_priority),
        ],
    }


@pytest.mark.parametrize("said_public", [False, True])
def test_a_table_that_was_charged_is_compared_only_if_that_release_said_it_may_be_seen(
    said_public: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that has charged the file, under whatever name, by a spec without public_data stands against a new one."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    plan = make_plan(load_spec(spec_at(tmp_path, public_data=said_public)))
    charged = new_release(plan)
    reserve_release(charged, plan)
    (tmp_path / "linked.csv").hardlink_to(tmp_path / "people.csv")
    specs = []
    for name in ("people.csv", "linked.csv"):
        keys = KEYS | {"dataset": "another", "input": KEYS["input"] | {"table": name}}
        (tmp_path / f"of_{name}.yaml").write_text(yaml.safe_dump(keys))
        specs.append(load_spec(tmp_path / f"of_{name}.yaml"))
    with store() as con:
        advance(con, charged.id, 1, "void")  # of two levels: the other one is still charged
    for spec in specs if not said_public else []:
        said = f"charged by release {charged.id}, whose spec did not set public_data"
        with pytest.raises(SpecError, match=said) as refused:
            make_comparison(spec, ["inftda"], [1.0], runs=1)
        assert refused.value.field == "input.table"
        assert "synthesise" in refused.value.hint
    if not said_public:
        with store() as con:
            advance(con, charged.id, 2, "void")
    for spec in specs:
        assert make_comparison(spec, ["inftda"], [1.0], runs=1).entries


def test_too_many_leaves_are_told_as_they_are_to_be_read(tmp_path: Path) -> None:
    """Flat features have no coarser level to name, and a number of eighty digits is written as a power of ten."""
    features = [f"f{number}" for number in range(40)]
    keys = {
        "mechanism": "gaussian",
        "input": {"table": "people.csv", "features": features},
        "hierarchy": {name: {"values": 100} for name in features},
        "release": {"order": features},
    }
    with pytest.raises(SpecError, match=r"input.features must leave at most .*, got 1\.000e\+80\.(\n|$)") as refused:
        make_plan(load_spec(spec_at(tmp_path, **keys)))
    assert refused.value.field == "input.features"
    assert "Leave a feature out, or choose mechanism inftda" in refused.value.hint


def test_what_is_no_comparison_is_refused(tmp_path: Path) -> None:
    """Without public_data the table is not even opened; gaussian has no levels to split over."""
    spec = load_spec(spec_at(tmp_path))
    for name in ("magic", "inftda:magic", "gaussian:false_positives"):
        with pytest.raises(UsageError, match="--mechanisms"):
            make_comparison(spec, [name], [1.0], runs=1)
    split = spec_at(tmp_path, mechanism="gaussian", privacy=KEYS["privacy"] | {"split": [1, 2]})
    with pytest.raises(SpecError, match=r"privacy\.split must be left out with mechanism gaussian: one level"):
        make_plan(load_spec(split))
    path = spec_at(tmp_path, public_data=False)
    (tmp_path / "people.csv").write_text("not what it was")
    with pytest.raises(SpecError, match="public_data must be true"):
        make_comparison(load_spec(path), ["inftda"], [1.0], runs=1)
