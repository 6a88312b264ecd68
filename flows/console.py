"""What a person sees: tables on stdout, progress and errors on stderr."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from flows.runner import Report
from storage.errors import TrellisError

Answer = dict[str, Any]

_WIDE = 140  # columns where the output goes to a file or a pipe

_out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)
_err = Console(stderr=True, highlight=False, emoji=False)


def show_plan(answer: Answer) -> None:
    """Draw a plan: the levels, what is unprotected, and the budget before and after."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['name']}[/], dataset {answer['dataset']}, mechanism {answer['mechanism']}")
    _out.print(f"ε = {answer['epsilon']:g}, δ = {answer['delta']:g}, ρ = {answer['rho']:.6g}\n")
    table = _level_table(answer["levels"], "possible cells")
    for level in answer["levels"]:
        table.add_row(*_level_cells(level), f"{level['possible_cells']:,}", *_noise_cells(level))
    _out.print(table)
    _say_bound()
    for statement in answer["unprotected"]:
        _out.print(f"[bold red]unprotected:[/] {statement}")
    budget = answer["budget"]
    cap = budget["cap"]
    _out.print(
        f"\nbudget (ε at δ = {cap['delta']:g}): cap {cap['epsilon']:g},"
        f" spent before {budget['before']['epsilon']:.4g}, after {budget['after']['epsilon']:.4g}"
    )
    if budget["after"]["rho"] > cap["rho"]:
        _out.print("[bold red]would be refused:[/] the release would pass the dataset's cap.")


def show_release(answer: Answer) -> None:
    """Draw a release that was made: the levels, seconds per room, and where it is."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['id']}[/] {answer['state']}\n")
    _show_levels(answer["levels"])
    rooms = ", ".join(f"{room} {seconds:.1f}" for room, seconds in answer["seconds"].items() if room != "total")
    _out.print(f"\nthread seconds: {rooms}; {answer['seconds']['total']:.1f} s in all")
    _out.print(f"store: {answer['home']}", soft_wrap=True)
    _out.print(f"folder: {answer['folder']}", soft_wrap=True)


def show_releases(answer: Answer) -> None:
    """Draw the list of releases."""
    answer = _escaped(answer)
    if not answer["releases"]:
        _out.print("There are no releases yet.")
        return
    table = Table("release", "dataset", "state", "created", box=None)
    for release in answer["releases"]:
        table.add_row(release["id"], release["dataset"], _state(release["state"]), release["created"])
    _out.print(table)


def show_one(answer: Answer) -> None:
    """Draw one release: levels, branches, checks, charges, seals."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['id']}[/] {_state(answer['state'])} {answer['reason']}")
    _out.print(f"dataset {answer['dataset']}, created {answer['created']}\n")
    _show_levels(answer["levels"])
    done = sum(branch["state"] == "optimised" for branch in answer["branches"])
    _out.print(f"\nbranches: {done} of {len(answer['branches'])} optimised; seals: {len(answer['seals'])}")
    for branch in answer["branches"]:
        first, last = (", ".join(f"{axis} {codes[end]}" for axis, codes in branch["holds"].items()) for end in (0, 1))
        _out.print(f"  {branch['branch']} {branch['state']}: from ({first}) to ({last})")
    passed = sum(check["passed"] for check in answer["checks"])
    _out.print(f"checks: {passed} of {len(answer['checks'])} passed")
    for check in answer["checks"]:
        if not check["passed"]:
            _out.print(f"  [red]{check['check']} failed at level {check['level']}[/]")
    for charge in answer["charges"]:
        _out.print(f"charge: level {charge['level']} {charge['state']}, ρ {charge['rho']:.6g}, σ {charge['sigma']:.4g}")
    _out.print(f"folder: {answer['folder'] or 'not published'}", soft_wrap=True)


def show_ledger(answer: Answer) -> None:
    """Draw the accounts: cap, what is spent and left, and a line per release."""
    answer = _escaped(answer)
    if not answer["datasets"]:
        _out.print("The ledger is empty.")
    for account in answer["datasets"]:
        cap = account["cap"]
        _out.print(f"[bold]{account['dataset']}[/]: {account['unit']}, neighbours by {account['neighbours']}")
        _out.print(
            f"  ε at δ = {cap['delta']:g}: cap {cap['epsilon']:g}, spent {account['spent']['epsilon']:.4g}\n"
            f"  ρ: cap {cap['rho']:.6g}, spent {account['spent']['rho']:.6g}, left {account['left']['rho']:.6g}"
            f" (enough for ε = {account['left']['epsilon']:.4g} at that δ)"
        )
        table = Table("release", "levels", "state", "ρ", box=None, pad_edge=True)
        for release in dict.fromkeys(charge["release"] for charge in account["charges"]):
            charges = [charge for charge in account["charges"] if charge["release"] == release]
            states = ", ".join(dict.fromkeys(charge["state"] for charge in charges))
            table.add_row(release, str(len(charges)), states, f"{sum(charge['rho'] for charge in charges):.6g}")
        _out.print(table)


def show_verification(answer: Answer) -> None:
    """Draw what `verify` found."""
    answer = _escaped(answer)
    for failure in answer["failures"]:
        _out.print(f"[red]failed:[/] {failure}")
    if answer["ok"]:
        _out.print("[green]verified:[/] checksums, consistency of every level, manifest complete.")


def error(fault: TrellisError) -> None:
    """Say on stderr what is wrong and what to do next."""
    _err.print(f"[bold red]Error:[/] {escape(str(fault))}", soft_wrap=True)
    if fault.hint:
        _err.print(escape(fault.hint), soft_wrap=True)


def warn(text: str) -> None:
    """Say on stderr what is odd and stops nothing."""
    _err.print(f"[yellow]Warning:[/] {escape(text)}", soft_wrap=True)


def say(text: str) -> None:
    """Say on stderr what is being done."""
    _err.print(escape(text), soft_wrap=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Show a bar per level on stderr, cells measured of cells known; nothing where stderr is no terminal."""
    columns = TextColumn("level {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("cells")
    with Progress(*columns, TimeElapsedColumn(), console=_err, disable=not sys.stderr.isatty()) as bars:
        bar_of: dict[int, TaskID] = {}

        def report(level: int, measured: int, known: int) -> None:
            if level not in bar_of:
                bar_of[level] = bars.add_task(str(level))
            bars.update(bar_of[level], completed=measured, total=known)

        yield report


def _show_levels(levels: list[Answer]) -> None:
    table = _level_table(levels, "cells measured", "non-zero")
    for level in levels:
        table.add_row(*_level_cells(level), f"{level['cells']:,}", f"{level['nonzero']:,}", *_noise_cells(level))
    _out.print(table)
    _say_bound()


def _level_table(levels: list[Answer], *counted: str) -> Table:
    table = Table("level", box=None)
    for axis in levels[0]["axes"]:
        table.add_column(axis, overflow="fold")
    for heading in (*counted, "ρ", "σ", "bound"):
        table.add_column(heading, justify="right")
    return table


def _level_cells(level: Answer) -> list[str]:
    return [str(level["level"]), *(name or "all" for name in level["axes"].values())]


def _noise_cells(level: Answer) -> list[str]:
    if not level["sigma"]:
        return ["0", "exact", "exact"]
    return [f"{level['rho']:.4g}", f"{level['sigma']:.3f}", f"± {level['bound']:,.0f}"]


def _say_bound() -> None:
    _out.print("[dim]bound: with 95 % every count of the level is within so many records of the truth[/]")


def _state(state: str) -> str:
    colour = {"published": "green", "failed": "red", "refused": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/]"


def _escaped(value: Any) -> Any:
    """Return an answer with its texts as they are to be read: what looks like Rich's markup is none."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
