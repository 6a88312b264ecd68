"""Plans, starter specs and what is wrong with specs, as a person sees them."""

from rich.markup import escape

from flows.console.terminal import (
    Answer,
    escaped,
    format_bytes,
    format_level_numbers,
    level_table,
    out,
    say,
    show_bound_note,
    show_threshold_note,
    show_unlisted,
    show_unprotected,
)
from tasks.words.levels import place as place_of
from tasks.words.numbers import rounded_up


def show_plan(answer: Answer) -> None:
    """Draw a plan: the levels, what is unprotected, and the budget before and after."""
    answer = escaped(answer)
    out.print(f"[bold]{answer['name']}[/], dataset {answer['dataset']}, mechanism {answer['mechanism']}")
    by_map = any(level.get("threshold") for level in answer["levels"])
    accounted = "no ρ, by OpenDP's map" if by_map else f"ρ = {rounded_up(answer['rho'])}, {answer['accountant']}"
    out.print(f"ε = {rounded_up(answer['epsilon'])}, δ = {answer['delta']:g}, {accounted}")
    if answer["tau"]:
        out.print(f"noise from a table, within τ = {answer['tau']:.2g} of its law: (1 + e^ε) τ is taken off δ")
    out.print(f"{answer['statement']}\n")
    if answer["supersedes"]:
        out.print(
            f"supersedes {answer['supersedes']}: a revision is a new measurement, charged like any release, and what the"
            " earlier one has cost stays charged\n",
            soft_wrap=True,
        )
    out.print(level_table(answer["levels"], {"possible_cells": "possible cells"}))
    show_bound_note(answer["levels"])
    _show_intervals(answer)
    show_unlisted(answer["unlisted"])
    show_threshold_note(answer["levels"])
    _show_typical(answer)
    _show_disk(answer["disk"])
    out.print(f"\n{'how' if by_map else 'Δ₂, how'} far one unit moves a level:")
    for derived in dict.fromkeys(level["derivation"] for level in answer["levels"]):
        of = [level["level"] for level in answer["levels"] if level["derivation"] == derived]
        out.print(f"  {format_level_numbers(of)}: {derived}")
    if answer["curve"]:
        out.print("the same noise, read at other ε:")
    for point in answer["curve"]:
        out.print(f"  ε = {point['epsilon']:.4g}: δ = {point['delta']:.2g}")
    show_unprotected(answer["unprotected"])
    if "for" in answer:
        wanted = answer["for"]
        out.print(
            f"\n{wanted['level']} within ± {wanted['max_error']:g} with {100 * wanted['confidence']:g} % takes"
            f" [bold]ε = {rounded_up(wanted['epsilon'])}[/] at δ = {answer['delta']:g} (ρ = {rounded_up(wanted['rho'])})"
        )
    budget = answer["budget"]
    cap = budget["cap"]
    out.print(
        f"\nbudget (ε at δ = {cap['delta']:g}): cap {cap['epsilon']:g},"
        f" spent before {rounded_up(budget['before']['epsilon'])}, after {rounded_up(budget['after']['epsilon'])}"
    )
    _show_schedule(answer["schedule"])
    if budget["after"]["epsilon"] > cap["epsilon"]:
        out.print("[bold red]would be refused:[/] the release would pass the dataset's cap.")
    if answer["caution"]:
        out.print(f"\n[bold yellow]mind:[/] {answer['caution']}")
    for warning in answer["warnings"]:
        out.print(f"[bold yellow]must be answered:[/] {warning}")
    if answer.get("dry_run"):
        out.print("[green]rehearsed:[/] table, codebooks and budget would do. Nothing was drawn, charged or kept.")


def _show_intervals(answer: Answer) -> None:
    widths = [level["half_width"] for level in answer["levels"] if level["half_width"]]
    if widths:
        least, most = min(widths), max(widths)
        within = f"± {least:,}" if least == most else f"± {least:,} to ± {most:,}"
        out.print(
            f"intervals: with {100 * answer['confidence']:g} % the truth of any one cell is within {within} of its measurement"
        )


def _show_typical(answer: Answer) -> None:
    """Say down to which level a typical cell stands above the noise, so that nobody publishes noise unawares."""
    typical = answer["typical"]
    if typical is None:
        wanted = "how many leaves there can be" if answer["unlisted"] else "where counts begin to drown in the noise"
        out.print(f"[dim]give expected_total, a public guess, to see {wanted}[/]")
        return
    finest, deepest = typical["finest_above_noise"], answer["levels"][-1]["level"]
    spread = f"{typical['total']:,} records ({typical['from']}) spread evenly"
    leaf = answer["levels"][-1]
    if answer["unlisted"]:
        most, kept = typical["total"] // leaf["threshold"], f"kept from {leaf['threshold']:,} on"
        out.print(
            f"{typical['total']:,} records ({typical['from']}), a leaf {kept}: no more than about {most:,} leaves"
        )
        return
    if leaf.get("threshold"):
        drown = leaf["typical_count"] < leaf["threshold"]
        lost = "; [bold yellow]most leaves are left out, and with them all sums[/]" if drown else ""
        out.print(f"{spread}: {leaf['typical_count']:,.2g} in a leaf, kept from {leaf['threshold']:,} on{lost}")
        return
    if finest == deepest:
        out.print(f"{spread}: a typical cell stands above the noise down to the finest level.")
        return
    below = f"levels below {finest}" if finest is not None else "all levels"
    above = f"down to level {finest}" if finest is not None else "at no level"
    out.print(f"{spread}: a typical cell stands above the noise {above}; [bold yellow]{below} are mostly noise[/]")


def _show_disk(disk: Answer | None) -> None:
    """Say what the release would leave on disk, and where that is only an upper bound, why; nothing if nothing is known."""
    if disk is None:
        return
    parts = ", ".join(f"{part} {format_bytes(disk[part])}" for part in ("shards", "published", "store"))
    if disk["upper_bound"]:
        out.print(f"at most {format_bytes(disk['total'])} on disk, if every possible cell is released: {parts}")
    else:
        out.print(f"about {format_bytes(disk['total'])} on disk: {parts}")


def _show_schedule(schedule: Answer | None) -> None:
    """Say on which days there will be a release, and whether they are one series that is paid for as a whole."""
    if schedule is None:
        return
    first, last = schedule["releases"][0], schedule["releases"][-1]
    when = f"{schedule['cron']} ({schedule['timezone']})"
    if not schedule["until"]:
        out.print(f"scheduled at {when}: {', '.join(schedule['releases'])} and so on, each reserved on its own day")
        return
    how = "declared and reserved" if schedule["declared"] else "to be declared and reserved as a whole, see after"
    out.print(f"a series at {when}: {len(schedule['releases'])} releases, {first} to {last}, {how}")


def show_starter(answer: Answer) -> None:
    """Print a starter spec, or say where it is."""
    if answer["path"] is None:
        print(answer["spec"], end="")  # noqa: T201 (a file, whatever its lines look like)
        return
    out.print(f"spec: {escape(answer['path'])}", soft_wrap=True)
    say(f"`trellis check {answer['path']}` says what is left to do.")


def show_check(answer: Answer) -> None:
    """Draw all that is wrong with a spec; or that it can be released, down to which level, and what that spends."""
    answer = escaped(answer)
    for problem in answer["problems"]:
        out.print(f"[bold red]wrong:[/] {problem['error']}", soft_wrap=True)
        if problem["hint"]:
            out.print(f"  {problem['hint']}", soft_wrap=True)
    if not answer["ok"]:
        many = len(answer["problems"])
        out.print(
            f"\n{many} {'problem' if many == 1 else 'problems'}; nothing was read of the confidential table but its header."
        )
        return
    finest, budget = answer["levels"][-1], answer["budget"]
    out.print(
        f"[green]can be released:[/] {answer['name']}, dataset {answer['dataset']}, mechanism {answer['mechanism']}"
    )
    out.print(f"levels 0 to {finest['level']}, the finest of {place_of(finest['axes'])}")
    out.print(answer["statement"])
    show_unprotected(answer["unprotected"])
    out.print(
        f"budget (ε at δ = {budget['cap']['delta']:g}): cap {budget['cap']['epsilon']:g}, spent before"
        f" {rounded_up(budget['before']['epsilon'])}, after {rounded_up(budget['after']['epsilon'])}"
    )
