"""`trellis check`: all that is wrong with a spec at once, or that it can be released."""

import json
import re
from datetime import UTC, datetime

import pytest
import yaml

import trellis
from flows.answers.check import check_answer
from flows.cli import main as cli
from flows.forecast.remarks import remarks, remarks_on_unit
from flows.planning.admission import resumable_release
from flows.planning.plan import make_plan
from flows.run.series import declare_series
from flows.specification.file import load_spec
from flows.specification.undecided import left_in, marked_in
from flows.specification.yaml import line_of
from flows.up import _of_specs
from storage.errors import InputError, SpecError
from tests.support.keys import ABSENT, changed, planned_of
from tests.support.spec import SPEC
from tests.support.town import Town

CODEBOOK = "region,town\nnorth,a\nsouth,b\n"
TRIPS = SPEC | {
    "name": "trips",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "towns.csv", "levels": ["region", "town"]},
    "release": {"tree": "destination", "finest": "town"},
    "privacy": SPEC["privacy"] | {"epsilon": 1.0},
    "budget": {"epsilon": 4.0, "delta": 1.0e-7},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a table of trips and its codebook, beside an empty TRELLIS_HOME."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NOT_SET", raising=False)
    (tmp_path / "trips.csv").write_text("home,work,people\na,b,3\nb,b,2\n")
    (tmp_path / "towns.csv").write_text(CODEBOOK)
    return tmp_path


def checked(folder, changes=None, keys=TRIPS):
    """Check a spec with some keys changed."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(changed(keys, changes or {}), sort_keys=False))
    return check_answer(folder / "spec.yaml")


def fields(answer):
    """Return the fields of the problems, in alphabetical order."""
    return sorted(problem.field for problem in answer.problems)


def test_a_spec_that_can_be_released_says_what_it_spends(folder):
    """Nothing wrong: levels, epsilon and the budget before and after are told, and nothing is charged; no row is read."""
    (folder / "trips.csv").write_text('home,work,people\nSECRET,"never closed\x00\n1,2,3,4,5,6\n')
    answer = checked(folder)
    assert (answer.ok, answer.problems) == (True, [])
    assert [level.level for level in answer.levels] == [0, 1, 2, 3, 4]
    assert answer.epsilon == 1.0
    assert answer.budget.before.epsilon == 0 < answer.budget.after.epsilon <= 4
    assert checked(folder).budget == answer.budget


DAYS = {"cron": "0 3 * * *", "until": "2099-12-31", "cumulative": True}
HISTOGRAM = {"mechanism": "stability_histogram", "noise.sampler": "table", "priority": "false_positives"}
HISTOGRAM |= {"release.noisy_counts": True, "privacy.split": {"geometric": 1.5}}
AT_ODDS = {"privacy.rho": 1.0, "privacy.neighbours": "add_remove", "privacy.exact_records_per_unit": True}
AT_ODDS |= {"privacy.invariants": ["region"]}
FAULTY = {"hierarchy.levels": ["country", "town"], "mechanism": "inftdaa", "input.origin": "from"}
BROKEN = {"input.count": "home", "input.destination": "home", "same_people_as": TRIPS["dataset"]}
ENDS = {
    "origin": {"table": "${NOT_SET}/towns.csv", "levels": ["region", "town"]},
    "destination": {"table": "towns.csv", "levels": ["country", "town", "street"]},
}
NO_COLUMNS = {"input.origin": "from", "input.count": "n", "input.unit": "id", "hierarchy": ENDS, "output": "${NOT_SET}"}
OF_VIEWS = {
    "derived.mode": {"table": "gone.csv", "of": ["from.zones", "to"]},
    "release.views": {"leaves": {"from": "zone"}, "one": {"from": "zones"}},
    "privacy.split": {"two": 1},
}


@pytest.mark.parametrize(("changes", "told"), [
    # one mistake is one problem: a key whose default depends on others is none of its own where these are wrong
    ({"mechanism": ABSENT, "input.table": 3}, "input.table"),
    ({"mechanism": ABSENT, "privacy.epsilon": -1.0}, "privacy.epsilon"),
    # every key that a mechanism has no use for, and all rules that keys break together
    (HISTOGRAM, "noise.sampler priority privacy.accountant privacy.split release.noisy_counts"),
    (AT_ODDS, "privacy.epsilon privacy.exact_records_per_unit privacy.invariants privacy.invariants"),
    (BROKEN | {"release.finest": "street", "privacy.distinct": "x"}, "input.count input.destination privacy.distinct release.finest same_people_as"),
    # tables and their columns, of codebooks too
    ({"input.origin": "from", "input.count": "n", "hierarchy": ABSENT}, "hierarchy input.table input.table"),
    (NO_COLUMNS, " ".join([*["hierarchy.destination.table"] * 2, "hierarchy.origin.table", *["input.table"] * 3, "output"])),
    (OF_VIEWS, "derived.mode.of derived.mode.table privacy.split release.views.leaves release.views.one.from"),
    # whatever the keys' own faults are
    (FAULTY | {"release.finest": "street"}, "hierarchy.table input.table mechanism release.finest"),
    (FAULTY | {"input.of": 1, "name": "No Name"}, "hierarchy.table input.of input.table mechanism name"),
    # what the plan and the ledger refuse: no cap for a dataset's first release, or one that is passed
    ({"budget": ABSENT}, "budget"),
    ({"privacy.epsilon": 5.0}, "privacy.epsilon"),
    ({"privacy.epsilon": 4.2, "privacy.delta": 1.0e-9}, ""),  # at the cap's delta it comes to less than the cap
    ({"schedule": {"cron": "0 3 1 * *", "until": "30 releases"}}, "schedule.until"),
    ({"schedule": {"cron": "0 3 1 * *", "until": "2 releases"}}, ""),
    ({"schedule": DAYS | {"until": "2 releases"}, "mechanism": "hierarchical", "privacy.neighbours": "add_remove"}, ""),
    ({"schedule": DAYS, "keep_noisy_counts": False, "noise.sampler": "table", "privacy.distinct": "region"}, "keep_noisy_counts mechanism noise.sampler privacy.distinct privacy.exact_records_per_unit schedule.until"),
])  # fmt: skip
def test_all_problems_of_a_spec_are_told_at_once(folder, changes, told):
    """Whatever is wrong is in one answer, each problem by its own key with its line, and nothing that is right."""
    answer = checked(folder, changes, Town(folder).keys() if changes is OF_VIEWS else TRIPS)
    assert fields(answer) == told.split()
    errors = " ".join(problem.error for problem in answer.problems)
    if changes is NO_COLUMNS:
        assert all(f"has no column {column}." in errors for column in ("from", "n", "id", "country", "street"))
    lines = (folder / "spec.yaml").read_text().splitlines()
    for number, field in ((re.match(r"Line (\d+)\.", of.hint), of.field) for of in answer.problems):
        assert number is None or any(part in lines[int(number[1]) - 1] for part in field.split("."))


def test_the_ledger_of_earlier_releases_is_asked(folder):
    """A series that is declared is paid for, and can be released; a table that another dataset used asks whose people it holds."""
    before = checked(folder, SERIES)
    declare_series(make_plan(load_spec(folder / "spec.yaml")), datetime.now(UTC))
    answer = checked(folder, SERIES)
    assert answer.ok
    assert answer.budget.after.epsilon == before.budget.after.epsilon > 0
    more = {"name": "more", "privacy.epsilon": 3.9}
    assert fields(checked(folder, {"dataset": "others"})) == ["input.table"]
    assert fields(checked(folder, more | {"privacy.unit": "one trip"})) == ["privacy.unit"]
    assert fields(checked(folder, more)) == ["privacy.epsilon"]
    (folder / "towns.csv").write_text(CODEBOOK + "west,b\n")
    assert fields(checked(folder)) == ["hierarchy.table"]


SERIES = {"schedule": {"cron": "0 3 1 * *", "until": "3 releases"}}
OTHER_KEYS = {"privacy.epsilon": 0.5, "release.finest": "region"}
OTHER_SPEC = "was declared with another spec, and 3 of its releases are still due"


@pytest.mark.parametrize(("changes", "said", "ways_out"), [
    (OTHER_KEYS, OTHER_SPEC, ["Put the spec back", "abandon", "another name"]),
    ({"privacy.unit": "one person"}, "privacy.unit must be", ["run `trellis abandon` for", "name another dataset"]),
    ({"budget.epsilon": 50.0}, "budget must be", ["`trellis budget raise`"]),
], ids=["other keys", "unit", "cap"])  # fmt: skip
def test_a_reserved_series_is_answered_for_as_up_and_rerun_do(folder, changes, said, ways_out):
    """Once its spec or its codebook has changed, `check` and `plan` say what `up` says, and `rerun` refuses too; put back, all is well."""
    path = folder / "spec.yaml"
    assert checked(folder, SERIES).ok
    declared = declare_series(make_plan(load_spec(path)), datetime.now(UTC))
    answer = checked(folder, SERIES | changes)
    with pytest.raises(SpecError, match=said) as of_up:
        declare_series(make_plan(load_spec(path)), datetime.now(UTC))
    assert [problem.error for problem in answer.problems] == [str(of_up.value)]
    assert all(way in of_up.value.hint for way in ways_out)
    with pytest.raises(SpecError, match=re.escape(str(of_up.value))):
        trellis.plan(path)
    with pytest.raises(SpecError, match="was edited since"):
        resumable_release(declared.releases[0])
    assert checked(folder, SERIES).ok
    (folder / "towns.csv").write_text(CODEBOOK + "west,c\n")
    with pytest.raises(InputError, match="was changed since") as of_rerun:
        resumable_release(declared.releases[0])
    assert [problem.error for problem in checked(folder, SERIES).problems] == [str(of_rerun.value)]


WEAK_DELTA = {"privacy.delta": 0.01, "budget.delta": 0.01}
PERSON = {"privacy.unit": "one person", "privacy.max_records_per_unit": 6}
KEPT = "input.unit: where a {} has several records, ingest keeps one"
HOPELESS = {"privacy.epsilon": 0.3, "budget.epsilon": 0.6}  # σ is 34
ALL_NOISE = (
    "release.finest: 1 records spread evenly over the 4 cells of level 4 are 0.25 each, less than σ / 100 = 0.34. A table of zeros would be"
    " about as near to the truth there. The finest level that is worth its noise is level 1 ("
)
REMARKED = [  # header, changes of the spec, and what each remark begins with
    ("home,work,people", {}, []),
    ("home,work,people", WEAK_DELTA | {"expected_total": 101}, ["privacy.delta: 0.01 is above 1 / 101"]),
    ("home,work,people", WEAK_DELTA | {"expected_total": 100}, []),
    ("home,work,people", WEAK_DELTA, []),  # nothing is known of the total
    ("home,work,people", {"privacy.epsilon": 4.6, "budget.epsilon": 4.6}, ["privacy.epsilon: ε = 4.6 lets readers"]),
    ("home,work,people", {"privacy.epsilon": 4.5, "budget.epsilon": 4.5}, []),
    ("home,work,people", HOPELESS | {"expected_total": 2}, []),
    ("home,work,people", HOPELESS | {"expected_total": 1}, [ALL_NOISE]),
    ("home,work,people", {"privacy.epsilon": 0.01}, ["budget.epsilon: the cap allows"]),
    ("home,work,people", {"budget.epsilon": 90.0}, ["budget.epsilon: the cap allows"]),
    ("home,work,people,person", {}, ["input.unit: column person seems"]),
    ("home,work,people,person", PERSON | {"privacy.unit": "one trip"}, []),
    ("home,work,people,purpose", {}, []),
    ("home,work,people,PERNO", PERSON | {"privacy.unit": "all trips of one passenger"}, ["input.unit: column PERNO seems"]),
    ("home,work,people,hh_id", PERSON | {"privacy.unit": "whoever is protected"}, ["input.unit: column hh_id seems"]),
    ("home,work,people,hh_id", PERSON, []),
    ("home,work,wt_household", {"input.count": "wt_household"}, ["input.count: wt_household seems to be a weight"]),
    ("home,work,person", {"input.unit": "person", "input.count": ABSENT}, [KEPT.format("person")]),
    (
        "respondent_id,household_id,home,work,people",
        {"privacy.unit": "one household", "input.unit": "respondent_id"},
        [KEPT.format("respondent_id"), "input.unit: column household_id seems to identify the unit one household"],
    ),
    ("home,work,person", {"input.count": ABSENT} | WEAK_DELTA | {"expected_total": 10**6}, ["privacy.delta", "input.unit"]),
]  # fmt: skip


@pytest.mark.parametrize(("header", "changes", "told"), REMARKED)
def test_what_weakens_a_release_is_a_remark(folder, header, changes, told):
    """δ, ε and cap that limit little, and an unused column of persons, households or cards, are a remark each; no row is read."""
    (folder / "trips.csv").write_text(f'{header}\nSECRET,"never closed\x00\n')
    plan = planned_of(folder, TRIPS, changes)
    cap = plan.asked().cap
    found = [*remarks(plan, plan.file.spec.expected_total, cap), *remarks_on_unit(plan)]
    assert all(remark.startswith(begins) for remark, begins in zip(found, told, strict=True))


def test_remarks_are_lines_of_check_and_plan_and_no_refusal(folder, capsys):
    """In commands, in Python and on the page; but for the column, since a plan does not open the confidential table."""
    (folder / "trips.csv").write_text('home,work,person\nSECRET,"never closed\x00\n')
    answer = checked(folder, REMARKED[-1][1])
    assert all(remark.startswith(begins) for remark, begins in zip(answer.remarks, REMARKED[-1][2], strict=True))
    path = str(folder / "spec.yaml")
    assert [*trellis.plan(path).remarks] == answer.remarks[:1]
    for command, lines in (("check", 2), ("plan", 1)):
        assert cli._run([command, path]) == cli.DONE
        assert capsys.readouterr().out.count("remark: ") == lines
    page = trellis.plan_page(path)
    assert page.count("<b>Remark.</b>") == 1
    assert "SECRET" not in page


def test_one_of_the_ways_to_give_an_amount_is_enough(folder):
    """ε, ρ and a target are one decision; texts that only begin like a marker, and codes like one in small letters, are none."""
    assert checked(folder, {"privacy.rho": None, "privacy.target": None}).ok
    assert checked(folder, {"title": "FILL IN forms by town", "description": "Fill in: a form."}).ok
    left = left_in({"privacy": {"epsilon": None, "split": {"targets": {"town": 5}}, "delta": None}})
    assert left == ["privacy.delta"]
    assert not [*marked_in({"values": ["fill in", "other"], "title": "FILL IN-house"})]
    assert [*marked_in({"values": ["FILL IN"], "unit": " fill in "})] == ["values", "unit"]


@pytest.mark.parametrize(("changes", "left"), [
    ({"privacy.unit": "FILL IN", "title": "FILL IN"}, ["privacy.unit", "title"]),  # which any text would do for
    ({"privacy.unit": "FILL IN", "budget.delta": None}, ["privacy.unit", "budget.delta"]),
    ({"dataset": None, "input.count": "FILL IN", "privacy.epsilon": "fill in"}, ["dataset", "input.count", "privacy.epsilon"]),
    ({"input.unit": None, "privacy.epsilon": None, "budget": None}, ["input.unit", "privacy.epsilon", "budget"]),
    (
        {"privacy.epsilon": None, "privacy.rho": None, "privacy.target": None, "privacy.neighbours": None},
        ["privacy.neighbours", "privacy.epsilon", "privacy.rho", "privacy.target"],
    ),
], ids=["two texts", "unit and δ", "dataset, count and ε", "unit, ε and budget", "ε, ρ and target"])  # fmt: skip
def test_nothing_is_released_or_forecast_while_a_key_is_undecided(folder, capsys, changes, left):
    """Every command and Python end with the list of all such keys and their lines, and charge nothing; a plan shows the decisions."""
    answer = checked(folder, changes)
    assert (answer.undecided, [problem.field for problem in answer.problems]) == (left, left)
    path = folder / "spec.yaml"
    text = path.read_text()
    assert all(key.rpartition(".")[2] in text.splitlines()[(line_of(text, key) or 0) - 1] for key in left)
    listed = ", ".join(f"{key} (line {line_of(text, key)})" for key in left)
    said = f"The spec leaves {len(left)} keys undecided: {listed}."
    for command in (["release", "--no-server"], ["release", "--dry-run"], ["compare"], ["plan"]):
        assert cli._run([command[0], str(path), *command[1:], "--json"]) == cli.WRONG
        shown = json.loads(capsys.readouterr().out)
        assert (shown["error"], shown["field"]) == (said, left[0])
    decisions = {decision["field"]: decision["value"] for decision in shown["decisions"]}
    assert [key for key, value in decisions.items() if value == "undecided"] == left
    assert decisions["privacy.max_records_per_unit"] == "1"
    assert decisions["hierarchy.levels"] == "[region, town]"
    assert all(decision["purpose"] for decision in shown["decisions"])
    assert shown.keys() == {"error", "field", "hint", "decisions"}  # no level, no noise, no cost
    assert cli._run(["plan", str(path), "--html", str(folder / "plan.html")]) == cli.WRONG
    drawn = capsys.readouterr().out
    assert drawn.count(" undecided ") == len(left)
    assert "σ" not in drawn
    assert not (folder / "plan.html").exists()
    for ask in (trellis.plan, trellis.release):
        with pytest.raises(SpecError, match=re.escape(said)):
            ask(path)
        with pytest.raises(SpecError, match=f"leaves {len(left)} keys undecided: {left[0]}"):
            ask(yaml.safe_load(path.read_text()))
    told = list[str]()
    assert not [*_of_specs(folder, [], told.append)]
    assert told[0].startswith(f"No deployment: spec.yaml: {said}")
    assert not (folder / "out").exists()
    assert cli._run(["releases", "--json"]) == cli.DONE
    assert json.loads(capsys.readouterr().out) == {"releases": []}


def test_what_cannot_be_read_is_one_problem(folder, capsys):
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
