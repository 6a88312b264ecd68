"""What a person sees."""

import signal
from contextlib import nullcontext, suppress

import pytest

from flows import cli, console, terminal
from storage.errors import SpecError

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
    console.show_ledger({"datasets": [ACCOUNT]})
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
    console.show_release(answer)
    said = capsys.readouterr().out
    assert said.splitlines()[0] == "jobs-1 failed Still missing: b00, b01."
    assert said.splitlines()[-1] == "folder: not published"
    assert "None" not in said


def test_errors_stand_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A long path is not broken, so that it can be copied."""
    path = "/somewhere/[deep]" * 20
    terminal.error(SpecError(f"There is no spec at {path}.", field="SPEC", hint=f"See {path}."))
    assert capsys.readouterr().err.splitlines() == [f"Error: There is no spec at {path}.", f"See {path}."]
