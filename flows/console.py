"""What a person sees: tables on stdout, progress and errors on stderr."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from flows.runner import Report
from storage.errors import TrellisError
from tasks.publish.refinement import in_short, level_columns
from tasks.publish.refinement import place as place_of
from tasks.publish.rounding import rounded_down, rounded_up, said_bound, said_cells, said_sigma

Answer = dict[str, Any]

_MANY = 10  # numbers to be listed
_WIDE = 140  # columns where the output goes to a file or a pipe

_out = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _WIDE)
_err = Console(stderr=True, highlight=False, emoji=False)


def show_plan(answer: Answer) -> None:
    """Draw a plan: the levels, what is unprotected, and the budget before and after."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['name']}[/], dataset {answer['dataset']}, mechanism {answer['mechanism']}")
    by_map = any(level.get("threshold") for level in answer["levels"])
    accounted = "no ρ, by OpenDP's map" if by_map else f"ρ = {rounded_up(answer['rho'])}, {answer['accountant']}"
    _out.print(f"ε = {rounded_up(answer['epsilon'])}, δ = {answer['delta']:g}, {accounted}")
    if answer["tau"]:
        _out.print(f"noise from a table, within τ = {answer['tau']:.2g} of its law: (1 + e^ε) τ is taken off δ")
    _out.print(f"{answer['statement']}\n")
    if answer["supersedes"]:
        _out.print(
            f"supersedes {answer['supersedes']}: a revision is a new measurement, charged like any release, and what the"
            " earlier one has cost stays charged\n",
            soft_wrap=True,
        )
    _out.print(_level_table(answer["levels"], {"possible_cells": "possible cells"}))
    _say_bound(answer["levels"])
    _say_intervals(answer)
    _say_unlisted(answer["unlisted"])
    _say_threshold(answer["levels"])
    _say_typical(answer)
    _say_disk(answer["disk"])
    _out.print(f"\n{'how' if by_map else 'Δ₂, how'} far one unit moves a level:")
    for derived in dict.fromkeys(level["derivation"] for level in answer["levels"]):
        of = [level["level"] for level in answer["levels"] if level["derivation"] == derived]
        _out.print(f"  {_levels(of)}: {derived}")
    if answer["curve"]:
        _out.print("the same noise, read at other ε:")
    for point in answer["curve"]:
        _out.print(f"  ε = {point['epsilon']:.4g}: δ = {point['delta']:.2g}")
    _say_unprotected(answer["unprotected"])
    if "for" in answer:
        wanted = answer["for"]
        _out.print(
            f"\n{wanted['level']} within ± {wanted['max_error']:g} with {100 * wanted['confidence']:g} % takes"
            f" [bold]ε = {rounded_up(wanted['epsilon'])}[/] at δ = {answer['delta']:g} (ρ = {rounded_up(wanted['rho'])})"
        )
    budget = answer["budget"]
    cap = budget["cap"]
    _out.print(
        f"\nbudget (ε at δ = {cap['delta']:g}): cap {cap['epsilon']:g},"
        f" spent before {rounded_up(budget['before']['epsilon'])}, after {rounded_up(budget['after']['epsilon'])}"
    )
    _say_schedule(answer["schedule"])
    if budget["after"]["epsilon"] > cap["epsilon"]:
        _out.print("[bold red]would be refused:[/] the release would pass the dataset's cap.")
    if answer["caution"]:
        _out.print(f"\n[bold yellow]mind:[/] {answer['caution']}")
    for warning in answer["warnings"]:
        _out.print(f"[bold yellow]must be answered:[/] {warning}")
    if answer.get("dry_run"):
        _out.print("[green]rehearsed:[/] table, codebooks and budget would do. Nothing was drawn, charged or kept.")


def _say_intervals(answer: Answer) -> None:
    widths = [level["half_width"] for level in answer["levels"] if level["half_width"]]
    if widths:
        least, most = min(widths), max(widths)
        within = f"± {least:,}" if least == most else f"± {least:,} to ± {most:,}"
        _out.print(
            f"intervals: with {100 * answer['confidence']:g} % the truth of any one cell is within {within} of its measurement"
        )


def show_starter(answer: Answer) -> None:
    """Print a starter spec, or say where it is."""
    if answer["path"] is None:
        print(answer["spec"], end="")  # noqa: T201 (a file, whatever its lines look like)
        return
    _out.print(f"spec: {escape(answer['path'])}", soft_wrap=True)
    say(f"`trellis check {answer['path']}` says what is left to do.")


def show_check(answer: Answer) -> None:
    """Draw all that is wrong with a spec; or that it can be released, down to which level, and what that spends."""
    answer = _escaped(answer)
    for problem in answer["problems"]:
        _out.print(f"[bold red]wrong:[/] {problem['error']}", soft_wrap=True)
        if problem["hint"]:
            _out.print(f"  {problem['hint']}", soft_wrap=True)
    if not answer["ok"]:
        many = len(answer["problems"])
        _out.print(
            f"\n{many} {'problem' if many == 1 else 'problems'}; nothing was read of the confidential table but its header."
        )
        return
    finest, budget = answer["levels"][-1], answer["budget"]
    _out.print(
        f"[green]can be released:[/] {answer['name']}, dataset {answer['dataset']}, mechanism {answer['mechanism']}"
    )
    _out.print(f"levels 0 to {finest['level']}, the finest of {place_of(finest['axes'])}")
    _out.print(answer["statement"])
    _say_unprotected(answer["unprotected"])
    _out.print(
        f"budget (ε at δ = {budget['cap']['delta']:g}): cap {budget['cap']['epsilon']:g}, spent before"
        f" {rounded_up(budget['before']['epsilon'])}, after {rounded_up(budget['after']['epsilon'])}"
    )


def show_release(answer: Answer) -> None:
    """Draw a release that was made, or of which a branch was: the levels, seconds per room, and where it is."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['id']}[/] {answer['state']} {answer['reason']}".rstrip() + "\n", soft_wrap=True)
    _show_levels(answer["levels"])
    _out.print(answer["statement"])
    _say_unprotected(answer["unprotected"])
    rooms = ", ".join(f"{room} {seconds:.1f}" for room, seconds in answer["seconds"].items() if room != "total")
    _out.print(f"\nthread seconds: {rooms}; {answer['seconds']['total']:.1f} s in all")
    _out.print(f"store: {answer['home']}", soft_wrap=True)
    _out.print(f"folder: {answer['folder'] or 'not published'}", soft_wrap=True)
    if answer["report"]:
        _out.print(f"report: {answer['report']}", soft_wrap=True)


def show_releases(answer: Answer) -> None:
    """Draw the list of releases."""
    answer = _escaped(answer)
    if not answer["releases"]:
        _out.print("There are no releases yet.")
        return
    table = Table("release", "dataset", "state", "created", box=None)
    revised = any(release["supersedes"] for release in answer["releases"])
    if revised:
        table.add_column("supersedes")
    for release in answer["releases"]:
        supersedes = [release["supersedes"] or ""] if revised else []
        superseded = ", superseded" if release["superseded_by"] else ""
        told = _state(release["state"]) + superseded
        table.add_row(release["id"], release["dataset"], told, release["created"], *supersedes)
    _out.print(table)


def show_one(answer: Answer) -> None:
    """Draw one release: levels, branches, checks, charges, seals."""
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['id']}[/] {_state(answer['state'])} {answer['reason']}")
    _out.print(f"dataset {answer['dataset']}, created {answer['created']}")
    for key in ("supersedes", "superseded_by"):
        if answer[key]:
            _out.print(f"{key.replace('_', ' ')} {answer[key]}", soft_wrap=True)
    _out.print()
    _show_levels(answer["levels"])
    _say_unlisted(answer["unlisted"])
    _say_unprotected(answer["unprotected"])
    done = sum(branch["state"] == "optimised" for branch in answer["branches"])
    _out.print(f"\nbranches: {done} of {len(answer['branches'])} optimised; seals: {len(answer['seals'])}")
    for branch in answer["branches"]:
        first, last = (in_short([f"{axis} {codes[end]}" for axis, codes in branch["holds"].items()]) for end in (0, 1))
        _out.print(f"  {branch['branch']} {branch['state']}: from ({first}) to ({last})")
    passed = sum(check["passed"] for check in answer["checks"])
    _out.print(f"checks: {passed} of {len(answer['checks'])} passed")
    for check in answer["checks"]:
        if not check["passed"]:
            _out.print(f"  [red]{check['check']} failed at level {check['level']}[/]")
    for charge in answer["charges"]:
        cost = f"ρ {charge['rho']:.6g}"
        if charge["epsilon"]:
            cost = f"ε {rounded_up(charge['epsilon'])}, δ {charge['delta']:.2g}"
        _out.print(f"charge: level {charge['level']} {charge['state']}, {cost}, σ {charge['sigma']:.4g}")
    _out.print(f"folder: {answer['folder'] or 'not published'}", soft_wrap=True)


def show_ledger(answer: Answer) -> None:
    """Draw the accounts: cap, what is spent and left, and a line per release."""
    answer = _escaped(answer)
    if not answer["datasets"]:
        _out.print("The ledger is empty.")
    for account in answer["datasets"]:
        cap = account["cap"]
        _out.print(f"[bold]{account['dataset']}[/]: {account['unit']}, neighbours by {account['neighbours']}")
        if account["same_people"]:
            _out.print(f"  the same people: {', '.join(account['same_people'])}")
        if account["unprotected"]:
            _out.print("  [bold red]the claim about these people is the weaker one:[/]")
        _say_unprotected(account["unprotected"])
        for raised in account["raises"]:
            _out.print(
                f"  cap raised {raised['at']} from {raised['before']:g} to {raised['epsilon']:g}: {raised['reason']}"
            )
        for claim in account["releases"]:
            if claim["different_people_from"]:
                others = ", ".join(claim["different_people_from"])
                _out.print(f"  {claim['release']}: its table was said to hold other people than those of {others}")
        _out.print(
            f"  ε at δ = {cap['delta']:g}: cap {cap['epsilon']:g}, spent {rounded_up(account['spent']['epsilon'])}\n"
            f"  ρ: cap {cap['rho']:.6g}, spent {rounded_up(account['spent']['rho'])},"
            f" left {rounded_down(account['left']['rho'])}"
            f" (enough for ε = {rounded_down(account['left']['epsilon'], 4)} at that δ by zcdp)"
        )
        table = Table("release", "ε", "δ", "levels", "state", "mechanism", "ρ", box=None, pad_edge=True)
        stated = {claim["release"]: claim for claim in account["releases"]}
        for release in dict.fromkeys(charge["release"] for charge in account["charges"]):
            charges = [charge for charge in account["charges"] if charge["release"] == release]
            states = ", ".join(dict.fromkeys(charge["state"] for charge in charges))
            drawn = ", ".join(dict.fromkeys(charge["mechanism"].replace("_", " ") for charge in charges))
            spent = sum(charge["rho"] for charge in charges if charge["state"] != "void")
            claim = stated[release]
            own = [rounded_up(claim["epsilon"]), f"{claim['delta']:g}"] if claim["epsilon"] is not None else ["", ""]
            table.add_row(release, *own, str(len(charges)), states, drawn, rounded_up(spent))
        _out.print(table)


def show_raised(answer: Answer) -> None:
    """Draw an account whose cap was raised, and what that means."""
    show_ledger({"datasets": [answer]})
    _out.print(f"[bold red]{_escaped(answer['statement'])}[/]")


def show_audit(answer: Answer) -> None:
    """Draw what the audit found, the first event that does not fit before the others."""
    answer = _escaped(answer)
    for found in answer["findings"]:
        where = f"event {found['position']} " if found["position"] is not None else ""
        _out.print(f"[red]does not fit:[/] {where}({found['event']}) {found['release']}: {found['reason']}")
    if answer["ok"]:
        _out.print(f"[green]audited:[/] {answer['events']} events, every seal, every manifest that is there.")
    _out.print(f"head: {answer['head'] or 'the ledger is empty'}")


def show_cleaned(answer: Answer) -> None:
    """Draw what was removed, release by release."""
    for cleaned in answer["cleaned"]:
        _out.print(f"{escape(cleaned['release'])}: {cleaned['files']} files, {_bytes(cleaned['bytes'])}")
    _out.print(f"{_bytes(answer['bytes'])} freed")


def show_synthesised(answer: Answer) -> None:
    """Draw what a made-up set holds, and where its spec is."""
    _out.print(
        f"SYNTHETIC: the set [bold]{answer['set']}[/] with seed {answer['seed']}: {answer['people']:,} people in"
        f" {answer['pairs']:,} pairs of {answer['areas']:,} areas\nspec: {escape(answer['spec'])}",
        soft_wrap=True,
    )


def show_ending(answer: Answer) -> None:
    """Draw what became of a release that was abandoned or whose remains were deleted."""
    answer = _escaped(answer)
    _out.print(
        f"[bold]{answer['id']}[/] {_state(answer['state'])}; deleted: {', '.join(answer['deleted']) or 'nothing'}"
    )


def show_verification(answer: Answer) -> None:
    """Draw what `verify` found."""
    answer = _escaped(answer)
    for failure in answer["failures"]:
        _out.print(f"[red]failed:[/] {failure}")
    if answer["ok"]:
        _out.print(
            "[green]verified:[/] checksums, consistency of every level, manifest complete, (ε, δ) paid for by the noise."
        )


def tell(markup: str) -> None:
    """Print a line of an answer, however long."""
    _out.print(markup, soft_wrap=True)


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


@contextmanager
def trials_progress(trials: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, of trials; nothing where stderr is no terminal. Yields what is told how many more are done."""
    columns = TextColumn("trials"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=_err, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("", total=trials)
        yield lambda more: bars.advance(bar, more)


def show_comparison(answer: Answer, *, intervals: bool = False) -> None:
    """Draw a comparison: per ε and level the mean of every measure of each mechanism, and where the rest is.

    Args:
        answer: what is said of it.
        intervals: whether coverage and width of the intervals are drawn too.
    """
    answer = _escaped(answer)
    _out.print(f"[bold]{answer['name']}[/], δ = {answer['delta']:g}, runs: {answer['runs']}; nothing was charged")
    for epsilon in dict.fromkeys(result["epsilon"] for result in answer["results"]):
        at = [result for result in answer["results"] if result["epsilon"] == epsilon]
        _out.print(f"\n[bold]ε = {epsilon:g}[/], means of the runs; errors in records")
        _out.print(_error_table(answer["levels"], at))
        seconds = ", ".join(f"{result['mechanism']} {result['seconds']['mean']:.2f}" for result in at)
        _out.print(f"seconds of a trial: {seconds}")
        if intervals:
            _show_coverage(answer["confidence"], at)
    _out.print()
    for mechanism, reason in answer["refused"].items():
        _out.print(f"[bold yellow]not tried:[/] {mechanism}: {reason}")
    for mechanism, notes in answer["notes"].items():
        _out.print(f"[bold yellow]mind:[/] for {mechanism} {' '.join(notes)}")
    _out.print(f"page: {answer['folder']}/index.html", soft_wrap=True)


def _error_table(levels: list[Answer], results: list[Answer]) -> Table:
    """Return a table of errors: a row per mechanism, those of a level beneath one another, and a column per measure."""
    table = Table("level", "mechanism", box=None)
    for heading in ("maximum", "mean", "ℓ₁", "false\ndiscovery", "false\nnegative"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        for place, result in enumerate(results):
            of_level = result["levels"][number]
            table.add_row(
                "" if place else str(level["level"]),
                result["mechanism"],
                *(f"{of_level[measure]['mean']:,.1f}" for measure in ("max_absolute", "mean_absolute", "l1")),
                *(f"{100 * of_level[measure]['mean']:.1f} %" for measure in ("false_discovery", "false_negative")),
            )
    return table


def _show_coverage(confidence: float, results: list[Answer]) -> None:
    """Draw, by true count, how many intervals hold the truth and how wide they are, and say what of that is promised."""
    from tasks.validate.coverage import SELECTED, TRUE_COUNTS

    stated = [result for result in results if any(level["intervals"] for level in result["levels"])]
    if not stated:
        return
    promised = f"{100 * confidence:g} % are promised for each fixed cell, and so for each true count"
    _out.print(f"\n[bold]intervals[/]: share that holds the truth, by true count; {promised}")
    _out.print(_group_table(stated, "coverage", (*TRUE_COUNTS, *SELECTED), lambda mean: f"{100 * mean:.1f} %"))
    _out.print(
        "non-zero: released so; zeroed: released as 0, while the true count is not; nothing is promised for either"
    )
    _out.print("\n[bold]intervals[/]: mean width, by true count; records")
    _out.print(_group_table(stated, "width", TRUE_COUNTS, lambda mean: f"{mean:,.1f}"))


def _group_table(results: list[Answer], measure: str, groups: Sequence[str], said: Callable[[float], str]) -> Table:
    """Return a table of a measure of intervals: a row per level and mechanism that states some, a column per group."""
    table = Table("level", "mechanism", box=None)
    for group in groups:
        table.add_column("non-zero" if group == "nonzero" else group, justify="right")
    for of_level in zip(*(result["levels"] for result in results), strict=True):
        rows = [
            (result["mechanism"], level) for result, level in zip(results, of_level, strict=True) if level["intervals"]
        ]
        for place, (mechanism, level) in enumerate(rows):
            measures = [level["intervals"][group][measure] for group in groups]
            table.add_row(
                "" if place else str(level["level"]),
                mechanism,
                *(said(spread["mean"]) if spread else "" for spread in measures),
            )
    return table


def _show_levels(levels: list[Answer]) -> None:
    _out.print(_level_table(levels, {"cells": "cells measured", "nonzero": "non-zero"}))
    _say_bound(levels)
    _say_threshold(levels)


def _levels(numbers: list[int]) -> str:
    """Return levels in words: many that follow one another by the first and the last."""
    if len(numbers) == 1:
        return f"level {numbers[0]}"
    if len(numbers) > _MANY and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"levels {numbers[0]} to {numbers[-1]}"
    return f"levels {', '.join(map(str, numbers))}"


def _level_table(levels: list[Answer], counted: dict[str, str]) -> Table:
    """Return a table of levels: what tells them apart, some of their numbers under headings, and their noise."""
    table, columns = Table("level", box=None), level_columns([level["axes"] for level in levels])
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for heading in (*counted.values(), "ρ", "σ", "bound"):
        table.add_column(heading, justify="right")
    for level, *where in zip(levels, *columns.values(), strict=True):
        table.add_row(str(level["level"]), *where, *(said_cells(level[key]) for key in counted), *_noise_cells(level))
    return table


def _noise_cells(level: Answer) -> list[str]:
    summed = bool(level.get("summed"))
    rho = "summed" if summed else "none" if level.get("threshold") else f"{level['rho']:.4g}"
    sigma, bound = level["sigma"], level["bound"]
    return [rho, said_sigma(sigma, summed=summed), said_bound(sigma, bound, summed=summed)]


def _say_typical(answer: Answer) -> None:
    """Say down to which level a typical cell stands above the noise, so that nobody publishes noise unawares."""
    typical = answer["typical"]
    if typical is None:
        wanted = "how many leaves there can be" if answer["unlisted"] else "where counts begin to drown in the noise"
        _out.print(f"[dim]give expected_total, a public guess, to see {wanted}[/]")
        return
    finest, deepest = typical["finest_above_noise"], answer["levels"][-1]["level"]
    spread = f"{typical['total']:,} records ({typical['from']}) spread evenly"
    leaf = answer["levels"][-1]
    if answer["unlisted"]:
        most, kept = typical["total"] // leaf["threshold"], f"kept from {leaf['threshold']:,} on"
        _out.print(
            f"{typical['total']:,} records ({typical['from']}), a leaf {kept}: no more than about {most:,} leaves"
        )
        return
    if leaf.get("threshold"):
        drown = leaf["typical_count"] < leaf["threshold"]
        lost = "; [bold yellow]most leaves are left out, and with them all sums[/]" if drown else ""
        _out.print(f"{spread}: {leaf['typical_count']:,.2g} in a leaf, kept from {leaf['threshold']:,} on{lost}")
        return
    if finest == deepest:
        _out.print(f"{spread}: a typical cell stands above the noise down to the finest level.")
        return
    below = f"levels below {finest}" if finest is not None else "all levels"
    above = f"down to level {finest}" if finest is not None else "at no level"
    _out.print(f"{spread}: a typical cell stands above the noise {above}; [bold yellow]{below} are mostly noise[/]")


def _say_unlisted(axes: list[str]) -> None:
    if axes:
        _out.print(
            f"no codebook lists the codes of {', '.join(axes)}: they come from the records, and of them only those above the"
            " threshold are seen",
            soft_wrap=True,
        )


def _say_disk(disk: Answer | None) -> None:
    """Say what the release would leave on disk, and where that is only an upper bound, why; nothing if nothing is known."""
    if disk is None:
        return
    parts = ", ".join(f"{part} {_bytes(disk[part])}" for part in ("shards", "published", "store"))
    if disk["upper_bound"]:
        _out.print(f"at most {_bytes(disk['total'])} on disk, if every possible cell is released: {parts}")
    else:
        _out.print(f"about {_bytes(disk['total'])} on disk: {parts}")


def _bytes(size: float) -> str:
    """Return bytes as they are read, with two digits or three."""
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:,.0f} {units[0]}"


def _say_schedule(schedule: Answer | None) -> None:
    """Say on which days there will be a release, and whether they are one series that is paid for as a whole."""
    if schedule is None:
        return
    first, last = schedule["releases"][0], schedule["releases"][-1]
    when = f"{schedule['cron']} ({schedule['timezone']})"
    if not schedule["until"]:
        _out.print(f"scheduled at {when}: {', '.join(schedule['releases'])} and so on, each reserved on its own day")
        return
    how = "declared and reserved" if schedule["declared"] else "to be declared and reserved as a whole, see after"
    _out.print(f"a series at {when}: {len(schedule['releases'])} releases, {first} to {last}, {how}")


def _say_unprotected(statements: list[str]) -> None:
    for statement in statements:
        _out.print(f"[bold red]unprotected:[/] {statement}")


def _say_bound(levels: list[Answer]) -> None:
    if any(level["bound"] is not None for level in levels):
        _out.print("[dim]bound: with 95 % every count of the level is within so many records of the truth[/]")


def _say_threshold(levels: list[Answer]) -> None:
    if threshold := levels[-1].get("threshold"):
        told = f"leaves are kept from a noisy count of {threshold:,} on; the others are missing from every sum, which has no σ"
        _out.print(f"[dim]{told}[/]")


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
