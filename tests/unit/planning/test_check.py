"""`trellis check`: all that is wrong with a spec at once, or that it can be released."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.cli import main as cli
from flows.execution.series import declare_series
from flows.forecast.check import FailedCheck, PassedCheck, check_answer
from flows.planning.plan import make_plan
from flows.spec.file import faults_of, load_spec, parse_spec
from flows.spec.starter import FILL_IN, starter
from storage.errors import SpecError

TRIPS = "home,work,people\na,b,3\nb,b,2\n"
CODEBOOK = "region,town\nnorth,a\nsouth,b\n"
SPEC: dict[str, Any] = {
    "name": "trips",
    "dataset": "people",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "towns.csv", "levels": ["region", "town"]},
    "release": {"tree": "destination", "finest": "town"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 1.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 4.0, "delta": 1.0e-7},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a table of trips and its codebook, beside an empty TRELLIS_HOME."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "trips.csv").write_text(TRIPS)
    (tmp_path / "towns.csv").write_text(CODEBOOK)
    return tmp_path


def checked(folder: Path, **sections: object) -> PassedCheck | FailedCheck:
    """Check the spec with some keys, or keys of its sections, changed; None takes one out."""
    keys = dict(SPEC)
    for section, value in sections.items():
        keys[section] = {**keys.get(section, {}), **value} if isinstance(value, dict) else value
    (folder / "spec.yaml").write_text(yaml.safe_dump({key: value for key, value in keys.items() if value is not None}))
    return check_answer(folder / "spec.yaml")


def fields(answer: PassedCheck | FailedCheck) -> list[str]:
    """Return the fields of the problems, in their order."""
    return [problem.field for problem in answer.problems]


def test_a_spec_that_can_be_released_says_what_it_spends(folder: Path) -> None:
    """Nothing wrong: levels, epsilon and the budget before and after are told, and nothing is charged."""
    answer = checked(folder)
    assert (answer.ok, answer.problems) == (True, [])
    assert [level.level for level in answer.levels] == [0, 1, 2, 3, 4]
    assert answer.epsilon == 1.0
    assert answer.budget.before.epsilon == 0 < answer.budget.after.epsilon <= 4
    assert checked(folder).budget == answer.budget


WRONG = """\
name: Bad Name
dataset: people
nonsense: 1
noize: {sampler: table}
input: {table: gone.csv, origin: a, features: [b], unknown: 2}
hierarchy: {a: {values: 0}}
release: {tree: up, finest: q}
mechanism: 7
privacy: {neighbours: sub, max_records_per_unit: 0, epsilon: 1, delta: 5}
budget: {epsilon: -1}
noise: {sampler: dice}
expected_total: true
"""
WRONG_FIELDS = {
    *("input.table", "input.origin", "input.unknown", "name", "nonsense", "noize", "mechanism", "expected_total"),
    *("hierarchy.a", "hierarchy.b", "hierarchy.a.values", "release.tree", "release.order", "release.finest"),
    *("privacy.unit", "privacy.neighbours", "privacy.max_records_per_unit", "privacy.delta"),
    *("budget.epsilon", "budget.delta", "noise.sampler"),
}


def test_every_fault_of_the_keys_is_told_at_once(folder: Path) -> None:
    """Wrong values, missing and unknown keys, and keys that do not fit together, in one answer, each once and with a next step."""
    (folder / "spec.yaml").write_text(WRONG)
    answer = check_answer(folder / "spec.yaml")
    assert {*fields(answer)} == WRONG_FIELDS
    errors = [problem.error for problem in answer.problems]
    assert len({*errors}) == len(errors)
    hints = {problem.field: problem.hint for problem in answer.problems}
    lines = WRONG.splitlines()
    line = next(number for number, line in enumerate(lines, 1) if line.startswith("noize:"))
    assert hints["noize"].startswith(f"Line {line}. Did you mean noise? noise: ")
    assert "unit: Who or what is protected" in hints["privacy.unit"]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"input": {"table": 3}}, "input.table"),
        ({"privacy": {"epsilon": -1.0}}, "privacy.epsilon"),
        ({"name": "No Name"}, "name"),
        ({"release": {"csv": 3}}, "release.csv"),
        ({"input": {"table": "postgresql://me:pw@host/d::a.b"}}, "input.table"),
    ],
)
def test_one_mistake_is_one_problem(folder: Path, wrong: dict[str, Any], field: str) -> None:
    """A key whose default depends on others is no problem of its own where these are wrong; a password is not repeated."""
    (problem,) = checked(folder, mechanism=None, **wrong).problems
    assert problem.field == field
    with pytest.raises(SpecError) as refused:
        load_spec(folder / "spec.yaml").source()
    assert refused.value.field == field
    if "postgresql" in str(wrong):
        assert "must hold no user and no password" in problem.error
        assert "set PGUSER and PGPASSWORD" in problem.hint
        assert "pw" not in problem.error + problem.hint


def test_keys_without_meaning_for_a_mechanism_are_told_at_once(folder: Path) -> None:
    """Every key that a mechanism has no use for is a problem of its own, and an unknown mechanism beside a missing table."""
    answer = checked(
        folder,
        mechanism="stability_histogram",
        release={"noisy_counts": True},
        privacy={"accountant": "zcdp", "split": {"geometric": 1.5}},
        noise={"sampler": "table"},
        priority="false_positives",
    )
    meaningless = {"privacy.accountant", "privacy.split", "release.noisy_counts", "noise.sampler", "priority"}
    assert {*fields(answer)} == meaningless
    assert len(fields(answer)) == 5
    assert fields(checked(folder, mechanism="magic", input={"table": "gone.csv"})) == ["mechanism", "input.table"]


def test_rules_between_keys_are_told_at_once(folder: Path) -> None:
    """Several rules that keys break together are all told, of the privacy section and of the whole spec alike."""
    privacy = {"rho": 1.0, "neighbours": "add_remove", "exact_records_per_unit": True, "invariants": ["region"]}
    assert len(checked(folder, privacy=privacy).problems) == 4
    broken = {"count": "home", "destination": "home"}
    answer = checked(
        folder, input=broken, same_people_as="people", release={"finest": "street"}, privacy={"distinct": "x"}
    )
    told = {"same_people_as", "input.destination", "input.count", "privacy.distinct", "release.finest"}
    assert {*fields(answer)} == told


@pytest.mark.parametrize(
    "text", [WRONG, "name: x\n", yaml.safe_dump(SPEC | {"release": {"finest": "x", "tree": "origin"}})]
)
def test_the_first_fault_is_the_one_that_stops_a_release(text: str) -> None:
    """What a release is refused for stands first among all that is wrong."""
    with pytest.raises(SpecError) as refusal:
        parse_spec(text, Path("spec.yaml"))
    first = faults_of(text)[0]
    assert (str(first), first.field) == (str(refusal.value), refusal.value.field)


def test_every_table_and_column_that_is_missing_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset variables, files that are not there, and each column that a header lacks, of table and codebook, in one answer."""
    monkeypatch.delenv("NOT_SET", raising=False)
    ends = {
        "origin": {"table": "${NOT_SET}/towns.csv", "levels": ["region", "town"]},
        "destination": {"table": "towns.csv", "levels": ["country", "town", "street"]},
    }
    answer = checked(folder, input={"origin": "from", "count": "n"}, hierarchy=None, release={"finest": "town"})
    assert fields(answer) == ["hierarchy", "input.table", "input.table"]
    keys = SPEC | {"input": SPEC["input"] | {"origin": "from", "count": "n", "unit": "id"}, "hierarchy": ends}
    (folder / "spec.yaml").write_text(yaml.safe_dump(keys | {"output": "${NOT_SET}"}))
    answer = check_answer(folder / "spec.yaml")
    errors = " ".join(problem.error for problem in answer.problems)
    assert sorted(fields(answer)) == sorted(
        ["input.table"] * 3 + ["hierarchy.origin.table"] + ["hierarchy.destination.table"] * 2 + ["output"]
    )
    for column in ("from", "n", "id", "country", "street"):
        assert f"has no column {column}." in errors


@pytest.mark.parametrize(
    "also",
    [{"release": {"finest": "street"}}, {"nonsense": 1}, {"input": {"origin": "from", "of": 1}}, {"name": "No Name"}],
    ids=["keys at odds", "an unknown key", "one of a section", "a wrong value"],
)
def test_a_fault_of_the_keys_hides_no_other(folder: Path, also: dict[str, Any]) -> None:
    """Tables, columns, levels and mechanism are looked at whatever the keys' faults are, each in one answer."""
    broken = {
        "hierarchy": {"table": "towns.csv", "levels": ["country", "town"]},
        "mechanism": "inftdaa",
    }
    there = checked(folder, **broken, **({"input": {"origin": "from"}} | also))
    errors = [problem.error for problem in there.problems]
    for told in (
        "input.table: trips.csv has no column from.",
        "hierarchy.table: towns.csv has no column country.",
        "mechanism must be one of",
    ):
        assert len([error for error in errors if told in error]) == 1, told
    assert len(errors) == 4
    gone = checked(folder, **broken, **(also | {"input": {"table": "gone.csv"}}))
    assert {"input.table", "hierarchy.table", "mechanism"} <= {*fields(gone)}


def test_what_the_plan_and_the_ledger_refuse_is_told(folder: Path) -> None:
    """A codebook that breaks a rule; no cap for a dataset's first release; a release, and a series, beyond the cap."""
    (folder / "towns.csv").write_text(CODEBOOK + "west,b\n")
    assert fields(checked(folder)) == ["hierarchy.table"]
    (folder / "towns.csv").write_text(CODEBOOK)
    assert fields(checked(folder, budget=None)) == ["budget"]
    answer = checked(folder, privacy={"epsilon": 5.0})
    assert fields(answer) == ["privacy.epsilon"]
    assert "its cap is 4" in answer.problems[0].error
    loose = {"epsilon": 4.2, "delta": 1.0e-9}  # at the cap's delta it comes to less than the cap
    assert fields(checked(folder, privacy=loose)) == []
    series = {"cron": "0 3 1 * *", "until": "30 releases"}
    assert fields(checked(folder, schedule=series)) == ["schedule.until"]
    assert checked(folder, schedule=series | {"until": "2 releases"}).ok


def test_the_ledger_of_earlier_releases_is_asked(folder: Path) -> None:
    """A series that is declared is paid for, and can be released; a table that another dataset used asks whose people it holds."""
    series = {"cron": "0 3 1 * *", "until": "3 releases"}
    before = checked(folder, schedule=series)
    declare_series(make_plan(load_spec(folder / "spec.yaml")), datetime.now(UTC))
    answer = checked(folder, schedule=series)
    assert answer.ok
    assert answer.budget.after.epsilon == before.budget.after.epsilon > 0
    assert fields(checked(folder, dataset="others")) == ["input.table"]
    answer = checked(folder, name="more", privacy={"unit": "one trip", "epsilon": 3.5})
    assert fields(answer) == ["privacy.unit"]
    assert fields(checked(folder, name="more", privacy={"epsilon": 3.9})) == ["privacy.epsilon"]


def test_no_row_of_the_confidential_table_is_read(folder: Path) -> None:
    """Rows that no reader would take, below a header that is right, are not noticed: only a release reads them."""
    (folder / "trips.csv").write_text('home,work,people\nSECRET,"never closed\x00\n1,2,3,4,5,6\n')
    assert checked(folder).ok


def test_a_starter_can_be_released_once_it_is_decided(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` lists what `new` left open, and nothing any more once codebook and levels are named and the marks are gone."""
    begun = starter(str(folder / "trips.csv"), folder).text
    path = folder / "begun.yaml"
    path.write_text(begun)
    assert cli._run(["check", str(path), "--json"]) == cli.WRONG
    answer = json.loads(capsys.readouterr().out)
    undecided = [problem["field"] for problem in answer["problems"] if "FILL IN" in problem["error"]]
    assert len(undecided) == begun.count(f"# {FILL_IN}")
    assert [problem["field"] for problem in answer["problems"]][len(undecided) :] == ["hierarchy.table"]
    decided = begun.replace("codebook.csv", "towns.csv").replace("[region, area]", "[region, town]")
    decided = re.sub(
        rf" # {FILL_IN}",
        "",
        decided.replace("finest: area", "finest: town").replace("#accountant: pld", "accountant: zcdp"),
    )
    path.write_text(decided)
    assert cli._run(["check", str(path)]) == cli.DONE
    said = capsys.readouterr().out
    assert said.startswith("can be released: trips, dataset trips, mechanism inftda_reconciled\nlevels 0 to 4")
    assert re.search(r"cap 4, spent before 0, after (0[.]\d|1)", said)
    assert make_plan(load_spec(path)).guarantee.epsilon == 1.0


def test_what_cannot_be_read_is_one_problem(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No file, no YAML, and a key that stands twice end with 2, and say so for people and as JSON."""
    for text in (None, "name: [", "name: a\nname: b\n", "- 1\n"):
        if text is not None:
            (folder / "odd.yaml").write_text(text)
        assert cli._run(["check", str(folder / "odd.yaml")]) == cli.WRONG
        assert "1 problem." in capsys.readouterr().out
    assert cli._run(["check", str(folder / "odd.yaml"), "--json"]) == cli.WRONG
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"ok", "problems"}
    assert [problem.keys() for problem in answer["problems"]] == [{"error", "field", "hint"}]
