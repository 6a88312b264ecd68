"""What a person sees, and what `--json` prints."""

import json
import signal
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import pytest

from flows.answers.ledger import AccountStatement, LedgerStatement, LevelCharge, ReleaseClaim
from flows.answers.query import QueryAnswer
from flows.cli import main as cli
from flows.cli.arguments import json_object, print_answer
from flows.console import levels_table, terminal
from flows.console.comparison_view import show_comparison
from flows.console.release_view import show_ledger, show_query
from storage.errors import SpecError
from storage.ledger.accounts import CapRaise
from storage.ledger.spending import CapTerms, Contributions, Cost
from storage.record import ReleasedPart
from tasks.pages.trial_results import CoverageSpread, GroupIntervals, MechanismResult, Spread
from tasks.released.query.comparisons import Compared
from tasks.validate.coverage import GROUPS
from tests.support.comparisons import level_result, results_of

ONE_RECORD = Contributions("promise", distinct=None, exact_records_per_unit=True, max_records_per_unit=1)
COST = {"rho": 0.1, "sigma": 2.0, "l2_sensitivity": 1.0}
CHARGED = {"release": "a[b]", "level": 1, "state": "released", "mechanism": "discrete_gaussian"}
ACCOUNT = AccountStatement(
    dataset="jobs",
    same_people=["jobs-2020"],
    unit="one job [/tax] [red]of[/] one :smile: person",
    neighbours="substitution",
    holds_for="every unit with exactly 1 record, as the data owner promises",
    max_records_per_unit=1,
    unprotected=["level 1 [red]cty[/]"],
    cap=CapTerms(10.0, 1e-7, 1.2),
    spent=Cost(1.0, 0.1),
    left=Cost(9.0, 1.1),
    raises=[CapRaise("2026", 5.0, 10.0, "decree [7]")],
    releases=[ReleaseClaim("a[b]", "jobs", 1.0, 1e-8, "zcdp", [], True, ["other"], ONE_RECORD)],
    charges=[LevelCharge(**CHARGED, epsilon=0.0, delta=0.0, **COST)],
)
LEVEL = ReleasedPart(level=0, axes={"origin": None}, cells=1, nonzero=1, derivation="", bound=None, **COST)


def test_data_is_printed_as_it_is(capsys):
    """Brackets in a unit or a name are no markup: nothing disappears, and nothing fails."""
    print_answer(LedgerStatement([ACCOUNT]), as_json=False, show=show_ledger)
    said = capsys.readouterr().out
    for text in (ACCOUNT.unit, "a[b]", "level 1 [red]cty[/]", "from 5 to 10: decree [7]"):
        assert text in said
    assert "which weakens the guarantee of all of them:\nunprotected: level 1 [red]cty[/]\n" in said


@pytest.mark.parametrize("code", [cli.DONE, cli.FAILED, None])
def test_ctrl_c_is_no_success(monkeypatch, code):
    """Ctrl-C ends with 130 wherever it comes, unless the command had done all that it was asked for."""

    def run(arguments):
        with suppress(KeyboardInterrupt) if code is not None else nullcontext():
            signal.raise_signal(signal.SIGINT)
        return code or cli.DONE

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(cli, "quiet_prefect", lambda: None)  # what the other tests of this process have is theirs
    monkeypatch.setattr("os.umask", lambda mask: mask)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(["releases"]) == (cli.DONE if code == cli.DONE else cli.INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_share_of_few_intervals_is_no_broken_promise(capsys):
    """What is promised holds within sampling error, and of fewer than a hundred intervals the share is in brackets."""
    spread = Spread(2 / 3, 0.0, 1.0)
    coverage = CoverageSpread(2 / 3, 0.0, 1.0, standard_error=None)
    groups = [GroupIntervals(many, coverage, spread) for many in (100 / 3, 33.0)] + [GroupIntervals(0.0, None, None)]
    known = {"rows_covered": spread, "row_width": spread, "false_rows": spread}
    intervals = enumerate(dict.fromkeys(GROUPS, group) for group in groups)
    levels = [level_result(level, spread, intervals=of, **known) for level, of in intervals]
    show_comparison(results_of([MechanismResult("inftda", 1.0, [], spread, levels)]), intervals=True)
    said = capsys.readouterr().out
    assert "the promise is 90% for each fixed cell, and so, within sampling error, for each true count\n" in said
    assert "on average at least 90% where the number of measured cells is public" in said
    assert ["0", "inftda", "66.7%", "0.7", "66.7%", "0.7"] in [line.split() for line in said.splitlines()]
    lines = [line.split() for line in said.partition("intervals of questions:")[2].splitlines()]
    assert ["0", "inftda", *(["66.7%"] * 5)] in lines
    assert ["1", "inftda", *(["(66.7%)"] * 5)] in lines
    assert ["2", "inftda"] in lines


def test_a_sentence_that_is_piped_stands_on_one_line(capsys):
    """Where the output is no terminal a sentence is searched for, not read at a width: it is never broken, and a table keeps its own."""
    told = "unprotected: " + " ".join(["level"] * 60)
    levels_table.show_unprotected([told.removeprefix("unprotected: ")])
    names = [f"{number:03}" for number in range(200)]
    levels_table.show_levels([replace(LEVEL, axes={"origin": None, "destination": "-".join(names)})])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == told
    assert 100 < max(map(len, said[1:])) <= 140


@pytest.mark.parametrize(("count", "high"), [(-24, 0), (-13, 10), (0, 0)])
def test_an_interval_of_nothing_but_zero_is_explained(capsys, count, high):
    """A count far below 0 has an interval that ends at 0, which would read as certainty; ends of a share have as many digits as tell them apart."""
    share = Compared("age=all", 9, 0.20122, 0.20105, 0.20134, 0.9, "added up")
    rest = (False, 0.9, False, "question", 0, {}, {}, "added up", 12.1, None, share)
    show_query(QueryAnswer("id", {}, count, 0, high, *rest))
    said = capsys.readouterr().out
    assert ("further below 0" in said) == (count == -24)
    assert "20.12%; interval: 20.11% to 20.13%; added up" in said


def test_errors_stand_on_one_line(capsys):
    """A long path is not broken, so that it can be copied."""
    path = "/somewhere/[deep]" * 20
    terminal.error(SpecError(f"There is no spec at {path}.", field="SPEC", hint=f"See {path}."))
    assert capsys.readouterr().err.splitlines() == [f"Error: There is no spec at {path}.", f"See {path}."]


@dataclass(frozen=True, slots=True)
class Inner:
    """A value in a value, with a key that Python keeps for itself."""

    from_: str
    low: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """A value with an optional key in front of the others."""

    release: str | None = None
    found: bool
    parts: tuple[Inner, ...]
    by_name: dict[str, Inner | None]


def test_keys_of_json_are_the_fields_in_their_order():
    """The underscore of `from_` is no part of the key; a field whose default is None is left out while it is None, and no other."""
    value = Outer(release="a", found=True, parts=(Inner("x", 1),), by_name={"some": Inner("y", 2), "none": None})
    assert json.dumps(json_object(value)) == (
        '{"release": "a", "found": true, "parts": [{"from": "x", "low": 1}],'
        ' "by_name": {"some": {"from": "y", "low": 2}, "none": null}}'
    )
    value = Outer(found=False, parts=(Inner("x", None),), by_name={})
    assert json_object(value) == {"found": False, "parts": [{"from": "x", "low": None}], "by_name": {}}
