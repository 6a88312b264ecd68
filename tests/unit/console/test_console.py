"""What a person sees."""

import signal
from contextlib import nullcontext, suppress

import pytest

from flows.cli import main as cli
from flows.console import terminal
from flows.console.comparisons import show_comparison
from flows.console.releases import show_ledger, show_release
from flows.trials.comparison import MEASURES
from storage.errors import SpecError
from tasks.validate.coverage import GROUPS

ACCOUNT = {
    "dataset": "jobs",
    "unit": "one job [/tax] [red]of[/] one :smile: person",
    "neighbours": "substitution",
    "same_people": ["jobs-2020"],
    "unprotected": ["level 1 [red]cty[/]"],
    "cap": {"epsilon": 10.0, "delta": 1e-7, "rho": 1.2},
    "spent": {"epsilon": 1.0, "rho": 0.1},
    "left": {"epsilon": 9.0, "rho": 1.1},
    "raises": [{"at": "2026", "before": 5.0, "epsilon": 10.0, "reason": "decree [7]"}],
    "releases": [{"release": "a[b]", "epsilon": 1.0, "delta": 1e-8, "different_people_from": ["other"]}],
    "charges": [{"release": "a[b]", "level": 1, "state": "released", "mechanism": "discrete_gaussian", "rho": 0.1}],
}


def test_data_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets in a unit or a name are no markup: nothing disappears, and nothing fails."""
    show_ledger({"datasets": [ACCOUNT]})
    said = capsys.readouterr().out
    assert "one job [/tax] [red]of[/] one :smile: person" in said
    assert "a[b]" in said
    assert "level 1 [red]cty[/]" in said
    assert "from 5 to 10: decree [7]" in said
    assert "the claim about these people is the weaker one:\nunprotected: level 1 [red]cty[/]\n" in said


@pytest.mark.parametrize("code", [cli.DONE, cli.FAILED, None])
def test_ctrl_c_is_no_success(monkeypatch: pytest.MonkeyPatch, code: int | None) -> None:
    """Ctrl-C ends with 130 wherever it comes, unless the command had done all that it was asked for."""

    def run(arguments: list[str]) -> int:
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


def test_a_release_that_lacks_branches_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    """After `rerun --branch` it is failed because others are missing, and not published: that reads as no folder None."""
    level = {"level": 0, "axes": {"origin": None}, "cells": 1, "nonzero": 1, "rho": 0.0, "sigma": 0.0, "bound": 0.0}
    answer = {
        "id": "jobs-1",
        "state": "failed",
        "reason": "Still missing: b00, b01.",
        "folder": None,
        "report": None,
        "levels": [level],
    }
    answer |= {"statement": "", "unprotected": [], "seconds": {"noise": 1.0, "total": 2.0}, "home": "/home"}
    answer["budget"] = {"delta": 1e-7, "cap": 4.0, "spent": 1.23456789, "left": 2.7654321}
    show_release(answer)
    said = capsys.readouterr().out
    assert "budget (ε at δ = 1e-07): cap 4, spent 1.23457, left 2.76543" in said
    assert said.splitlines()[0] == "jobs-1 failed Still missing: b00, b01."
    assert said.splitlines()[-1] == "folder: not published"
    assert "None" not in said


def test_a_share_of_few_intervals_is_no_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """What is promised holds within sampling error, and of fewer than a hundred intervals the share is in brackets."""
    spread = {"mean": 2 / 3, "min": 0.0, "max": 1.0}
    groups = [
        {"cells": cells, "coverage": measured, "width": measured}
        for cells, measured in ((100 / 3, spread), (33.0, spread), (0.0, None))
    ]
    levels = [
        {"level": level, "intervals": dict.fromkeys(GROUPS, group)} | dict.fromkeys(MEASURES, spread)
        for level, group in enumerate(groups)
    ]
    answer = {"name": "jobs", "delta": 1e-8, "runs": 3, "confidence": 0.9, "levels": levels, "folder": "out"}
    answer |= {"results": [{"mechanism": "inftda", "epsilon": 1.0, "seconds": spread, "levels": levels}]}
    show_comparison(answer | {"refused": {}, "notes": {}}, intervals=True)
    said = capsys.readouterr().out
    assert "90 % are promised for each fixed cell, and so, within sampling error, for each true count\n" in said
    lines = [line.split() for line in said.partition("intervals:")[2].splitlines()]
    assert ["0", "inftda", *(["66.7", "%"] * 6)] in lines
    assert ["1", "inftda", *(["(66.7", "%)"] * 6)] in lines
    assert ["2", "inftda"] in lines


def test_a_sentence_that_is_piped_stands_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the output is no terminal a sentence is searched for, not read at a width: it is never broken, and a table keeps its own."""
    told = "unprotected: " + " ".join(["level"] * 60)
    terminal.show_unprotected([told.removeprefix("unprotected: ")])
    names = [f"{number:03}" for number in range(200)]
    level = {"level": 0, "cells": 1, "nonzero": 1, "rho": 0.0, "sigma": 0.0, "bound": None}
    terminal.show_levels([level | {"axes": {"origin": None, "destination": "-".join(names)}}])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == told
    assert 100 < max(map(len, said[1:])) <= 140


def test_errors_stand_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A long path is not broken, so that it can be copied."""
    path = "/somewhere/[deep]" * 20
    terminal.error(SpecError(f"There is no spec at {path}.", field="SPEC", hint=f"See {path}."))
    assert capsys.readouterr().err.splitlines() == [f"Error: There is no spec at {path}.", f"See {path}."]
