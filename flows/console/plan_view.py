"""Plans, starter specs, the problems of specs, and synthetic sets, as a person sees them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.console.levels_table import (
    deviations_of,
    format_level_numbers,
    level_table,
    show_bound_note,
    show_threshold_note,
    show_unlisted,
    show_unprotected,
)
from flows.console.terminal import escaped, format_bytes, out, print_line, say, table_of
from storage.tables import SIGNAL, column_name
from tasks.words.levels import place
from tasks.words.numbers import format_left, format_share, format_sigma, format_spent, rounded_up

if TYPE_CHECKING:
    from flows.answers.check import FailedCheck, PassedCheck
    from flows.answers.release_status import ErrorMessage
    from flows.forecast.values import BudgetForecast, DiskUse, Forecast, PlannedDays
    from flows.specification.starters.starter import Starter
    from flows.specification.undecided import Decision
    from flows.synthetic import SyntheticCity, SyntheticGroups, SyntheticSet


_MOST_LEVELS = 8  # that a plan shows without its details


def show_plan(forecast: "Forecast", *, details: bool = True) -> None:
    """Draw a plan: what it protects, what somebody decides by, the levels, and the details where they are asked for."""
    by_map = any(level.epsilon for level in forecast.levels)
    _show_guarantee(forecast, by_map=by_map)
    _show_typical(forecast)
    if not details:
        _show_totals(forecast)
    _show_budget(forecast)
    levels = forecast.levels if details else forecast.levels[-_MOST_LEVELS:]
    possible = {"possible cells": [level.possible_cells for level in levels]}
    out.print(level_table(levels, possible, deviations_of(levels)))
    show_bound_note(levels)
    if forecast.order:
        print_line(f"order: {escaped(', '.join(forecast.order.order))}: {escaped(forecast.order.reason)}")
    if ranges := forecast.ranges:
        print_line(
            f"ranges: the standard deviation of a range is {ranges.mean:,.3g} in the mean of squares and {ranges.worst:,.3g} at most; the mean variance"
            f" is {ranges.gap:.2%} above the bound for any linear mechanism with Gaussian noise"
        )
    show_threshold_note(forecast.levels)
    if details:
        _show_details(forecast, by_map=by_map)
    show_unlisted(forecast.unlisted)
    show_unprotected(forecast.unprotected)
    _show_schedule(forecast.schedule)
    _show_remarks(forecast.remarks)
    if forecast.caution:
        out.print(f"\n[bold yellow]note:[/] {forecast.caution}")
    for warning in forecast.warnings:
        out.print(f"[bold yellow]to settle first:[/] {warning}")
    if wanted := forecast.for_:
        out.print(
            f"\nTo keep every count at {wanted.level} within ± {wanted.max_error:g} of the true count with"
            f" {100 * wanted.confidence:g}% probability takes [bold]ε = {rounded_up(wanted.epsilon)}[/] at"
            f" δ = {forecast.delta:g}{f' (ρ = {rounded_up(wanted.rho)})' if wanted.rho else ''}."
        )
    if forecast.dry_run:
        out.print("[green]rehearsed:[/] table, codebooks and budget are all fine. Nothing was drawn, charged or kept.")
    if not details:
        out.print(
            "[dim]--details shows all levels, views, totals, intervals, disk, other ε and laws, and how far one unit moves a level.[/]"
        )


def _show_details(forecast: "Forecast", *, by_map: bool) -> None:
    """Print what a plan follows from, and what it would be otherwise."""
    if forecast.measure:
        out.print(f"measure: {forecast.measure.asked}: {forecast.measure.rule}")
    _show_views(forecast)
    _show_intervals(forecast)
    if each := forecast.ranges_beside:
        shown = [f"{of.mean:,.3g}" + (f" in {place(of.axes) or 'all'}" if len(each) > 1 else "") for of in each]
        print_line(escaped(f"ranges: the standard deviation of a range, in the mean of squares, is {', '.join(shown)}"))
    if forecast.rows == SIGNAL:
        print_line(
            "rows that stand out: also in tables of their own (signal/), with a remainder row for what they leave of each count above"
            " them; how many stand out depends on the draw"
        )
    _show_disk(forecast.disk)
    if forecast.settling_memory is not None:
        out.print(f"at most {format_bytes(forecast.settling_memory)} of memory to settle all levels and views together")
    out.print(f"\n{'how' if by_map else 'Δ₂, how'} far one unit moves a level:")
    for derivation in dict.fromkeys(level.derivation for level in [*forecast.levels, *forecast.views]):
        of = [level.level for level in forecast.levels if level.derivation == derivation]
        names = [str(view.view) for view in forecast.views if view.derivation == derivation]
        named = [f"view{'s' if names[1:] else ''} {', '.join(names)}"] if names else []
        out.print(f"  {' and '.join([*([format_level_numbers(of)] if of else []), *named])}: {derivation}")
    if forecast.curve:
        out.print("the same noise, read at other ε:")
    for point in forecast.curve:
        out.print(f"  ε = {point.epsilon:.4g}: δ = {point.delta:.2g}")
    _show_laws(forecast)


def _show_totals(forecast: "Forecast") -> None:
    """Print what the totals of each axis cost in noise at its finest level, with views and without."""
    finest = {margin.axis: margin for margin in forecast.margins}
    has_views = forecast.views or any(level.view for level in forecast.levels)
    for margin in finest.values():
        numbers = {"with the spec's views" if has_views else "with release.views: margins": margin.expected_error}
        numbers |= {"without views": margin.without_views}
        said = ", ".join(f"± {number:,.3g} {how}" for how, number in numbers.items() if number is not None)
        name = margin.axis if margin.axis == margin.level else column_name(margin.axis, margin.level)
        print_line(f"mean noise of a total by {name}: {said}")


def _show_guarantee(forecast: "Forecast", *, by_map: bool) -> None:
    out.print(f"[bold]{forecast.name}[/], dataset {forecast.dataset}, mechanism {forecast.mechanism}")
    _show_choice(forecast)
    accounted = "no ρ, by OpenDP's map" if by_map else f"ρ = {rounded_up(forecast.rho)}, {forecast.accountant}"
    out.print(f"ε = {rounded_up(forecast.epsilon)}, δ = {forecast.delta:g}, {accounted}")
    if forecast.tau:
        out.print(f"noise from a table, within τ = {forecast.tau:.2g} of its law: (1 + e^ε) τ is taken off δ")
    out.print(f"{forecast.statement}\n")
    if forecast.supersedes:
        print_line(
            f"supersedes {forecast.supersedes}: a revision is a new measurement and is charged like any release; the charge"
            " for the earlier release stays\n"
        )


def _show_choice(of: "Forecast | PassedCheck") -> None:
    """Print why Trellis chose the mechanism, where the spec names none."""
    if of.mechanism_reason:
        print_line(f"mechanism: the spec names none; {escaped(of.mechanism_reason)}")


def _show_laws(forecast: "Forecast") -> None:
    """Print what either law costs in noise and in the cap, where there is a choice."""
    if len(forecast.laws) < 2:
        return
    out.print("noise at the finest level, and how many such releases the cap holds, by law:")
    for law in forecast.laws:
        sigma, many = f"σ = {law.sigma:.4g} at ε = {rounded_up(law.epsilon, 4)}", f"{law.releases:,}"
        releases = f"{many} release{'' if law.releases == 1 else 's'}"
        out.print(f"  {law.law}: {sigma}, {releases}{' (this plan)' if law.is_chosen else ''}")


def _show_views(forecast: "Forecast") -> None:
    """Draw the views, and the mean noise in the totals of one axis with views and without, before counts are settled."""
    if forecast.views:
        known = deviations_of(forecast.views)
        table = table_of(["view", "of"], ["cells", "σ", *known])
        for number, view in enumerate(forecast.views):
            cells, sigma = f"{view.possible_cells:,}", format_sigma(view.sigma, summed=False)
            table.add_row(
                view.view, place(view.axes) or "everything", cells, sigma, *(of[number] for of in known.values())
            )
        out.print("\nviews beside the tree:")
        out.print(table)
    if forecast.typical and (names := ", ".join(forecast.typical.views_below_noise)):
        out.print(f"[bold yellow]the mean count of a cell is less than the noise in the views {names}[/]")
    if not forecast.margins:
        return
    table = table_of(["totals by"], ["areas", "with views", "without"])
    for margin in forecast.margins:
        numbers = (margin.expected_error, margin.without_views)
        written = ("–" if number is None else f"± {number:,.3g}" for number in numbers)
        name = margin.axis if margin.axis == margin.level else column_name(margin.axis, margin.level)
        table.add_row(name, f"{margin.cells:,}", *written)
    has_views = forecast.views or any(level.view for level in forecast.levels)
    which = "the spec's views" if has_views else "release.views: margins"
    out.print(
        f"\nmean noise of the best sum of measurements for the totals of one axis, in records, with {which} and without, before counts"
        " are settled; settled counts are usually nearer, and further off where many small counts end at zero:"
    )
    out.print(table)


def _show_intervals(forecast: "Forecast") -> None:
    widths = [level.half_width for level in forecast.levels if level.half_width]
    if widths:
        least, most = min(widths), max(widths)
        within = f"± {least:,}" if least == most else f"± {least:,} to ± {most:,}"
        out.print(
            f"intervals: with {100 * forecast.confidence:g}% probability, the true count of a cell that you fix beforehand is within"
            f" {within} of {'its count' if forecast.levels[0].deviations else 'what is measured of it'}"
            f"{'' if forecast.is_grid or forecast.ranges or any(view.deviations for view in forecast.views) else '; the intervals in the tables hold for the rows, and are at least as wide'}"
        )


def _show_typical(forecast: "Forecast") -> None:
    """Print down to which level a typical cell stands above the noise, so that nobody publishes noise unawares."""
    typical, leaf = forecast.typical, forecast.levels[-1]
    if typical is None:
        of_noise = "at which level the noise exceeds a typical count"
        wanted = "how many leaves there can be" if forecast.unlisted else of_noise
        out.print(f"[dim]Set expected_total, a guess that is not published, to see {wanted}.[/]")
        return
    total, threshold = f"{typical.total:,} records ({typical.from_})", leaf.threshold
    if forecast.unlisted and threshold:
        most = typical.total // threshold
        out.print(
            f"{total}, and a leaf is kept if its noisy count is at least {threshold:,}: at most about {most:,} leaves"
        )
        return
    spread = f"{total} spread evenly"
    if threshold and leaf.typical_count is not None:
        few = leaf.typical_count < threshold
        lost = "; [bold yellow]most leaves are left out, and all sums lack them[/]" if few else ""
        out.print(
            f"{spread}: {leaf.typical_count:,.2g} in a leaf, and a leaf is kept if its noisy count is at least {threshold:,}{lost}"
        )
        return
    finest, above = typical.finest_above_noise, "at every level."
    if finest is None:
        above = "at no level; [bold yellow]at all levels it is less[/]"
    elif finest < leaf.level:
        above = f"down to level {finest}; [bold yellow]at levels below {finest} it is less[/]"
    out.print(f"{spread}: the mean count is at least twice the noise {above}")
    if typical.records_above:
        rarely, often = (format_share(share) for share in typical.records_above[-1])
        out.print(
            f"few cells are like the mean: in typical tables, which are uneven, {rarely} to {often} of the records are in cells above"
            f" twice the noise at level {leaf.level}; the report will estimate the share of this release"
        )


def _show_disk(disk: "DiskUse | None") -> None:
    """Print what the release would leave on disk, as an upper bound where no more is known; nothing if nothing is known."""
    if disk is None:
        return
    shards, published, stored = (format_bytes(size) for size in (disk.shards, disk.published, disk.store))
    listed = f"shards {shards}, published {published}, store {stored}"
    if disk.upper_bound:
        out.print(f"at most {format_bytes(disk.total)} on disk, if every possible cell is released: {listed}")
    else:
        out.print(f"about {format_bytes(disk.total)} on disk: {listed}")


def _show_schedule(schedule: "PlannedDays | None") -> None:
    """Print on which days there will be a release, and whether they are one series that is paid for as a whole."""
    if schedule is None:
        return
    days, when = schedule.releases, f"{schedule.cron} ({schedule.timezone})"
    if not schedule.until:
        out.print(f"scheduled at {when}: {', '.join(days)} and so on, each reserved on its own day")
        return
    how = "declared and reserved"
    if not schedule.declared:
        how = "to be declared and reserved as a whole: the budget above counts all of them"
    out.print(f"a series at {when}: {len(days)} releases, {days[0]} to {days[-1]}, {how}")
    if (of := schedule.cumulative) is None:
        return
    out.print(
        f"days are measured together, up to {of.days} in one sum: on the last day, a count of level {of.level} has a standard deviation of about"
        f" {of.together.day:.3g} at most, and its sum over all days {of.together.cumulative:.3g}"
    )
    for what, alone in (
        ("independent releases with the same ρ in all", of.independent),
        ("with the same ρ each, for units whose records are all on one day", of.disjoint),
    ):
        out.print(f"  {what}: {alone.day:.3g}, and {alone.cumulative:.3g}")


def _show_budget(forecast: "Forecast") -> None:
    """Print the cap, what is spent of it, what is left, and whether the release fits."""
    out.print(_budget_line(forecast.budget))
    if forecast.budget.after.epsilon > forecast.budget.cap.epsilon:
        out.print("[bold red]over the cap:[/] this release would be refused, because it exceeds the dataset's cap.")
    out.print()


def _budget_line(budget: "BudgetForecast") -> str:
    spent = f"spent before {rounded_up(budget.before.epsilon)}, after {format_spent(budget.after.epsilon)}"
    left = format_left(budget.left, budget.after.epsilon, budget.cap.epsilon)
    return (
        f"budget (ε at δ = {budget.cap.delta:g}): cap {budget.cap.epsilon:g}, {spent}; {left}\n"
        f"what is spent holds for {budget.holds_for}"
    )


def show_decisions(decisions: "Sequence[Decision]") -> None:
    """Draw the decisions of a spec: each with its value, or that it is undecided, and what it is for."""
    table = table_of(["key", "value", "for"], [])
    for decision in decisions:
        table.add_row(decision.field, decision.value, decision.purpose)
    out.print(table)
    out.print("No cost or accuracy is computed from values that nobody chose.")


def show_starter(starter: "Starter") -> None:
    """Print a starter spec, or where it is."""
    if starter.path is None:
        print(starter.spec, end="")  # noqa: T201 (a file, whatever its lines look like)
        return
    print_line(f"spec: {escaped(starter.path)}")
    say(f"`trellis check {starter.path}` lists what is left to do.")


def show_check(check: "PassedCheck | FailedCheck") -> None:
    """Draw every problem of a spec; or that it can be released, down to which level, and what that spends."""
    _show_problems(check.problems, () if check.ok else check.undecided or ())
    if not check.ok:
        return
    finest = check.levels[-1]
    out.print(f"[green]can be released:[/] {check.name}, dataset {check.dataset}, mechanism {check.mechanism}")
    _show_choice(check)
    out.print(f"levels 0 to {finest.level}; the finest is {place(finest.axes)}")
    out.print(check.statement)
    show_unprotected(check.unprotected)
    out.print(_budget_line(check.budget))
    _show_remarks(check.remarks)
    if check.shapes:
        shaped = ", ".join(f"{of.axis} {of.level} {of.shaped:,} of {of.areas:,}" for of in check.shapes)
        out.print(f"areas with a shape: {shaped}")


def _show_remarks(remarks: Sequence[str]) -> None:
    for remark in remarks:
        print_line(f"[bold yellow]remark:[/] {remark}")


def _show_problems(problems: "Sequence[ErrorMessage]", undecided: Sequence[str]) -> None:
    for problem in problems:
        is_open = problem.field in undecided
        print_line(f"{'[bold yellow]to decide:' if is_open else '[bold red]wrong:'}[/] {problem.error}")
        if problem.hint:
            print_line(f"  {problem.hint}")
    left = sum(problem.field in undecided for problem in problems)
    wrong = len(problems) - left
    listed = [f"{wrong} problem{'' if wrong == 1 else 's'}"] if wrong else []
    listed += [f"{left} key{'' if left == 1 else 's'} left to decide"] if left else []
    if problems:
        out.print(f"\n{' and '.join(listed)}. No row of the confidential table was read.")


def show_synthesised(drawn: "SyntheticSet | SyntheticCity | SyntheticGroups") -> None:
    """Draw what a synthetic set holds, and where its specs are."""
    from flows.synthetic import SyntheticCity, SyntheticSet

    day = ""
    if isinstance(drawn, SyntheticSet):
        of = "trips" if drawn.set == "city" else "people"
        holds = f"{drawn.people:,} {of} in {drawn.pairs:,} pairs of {drawn.areas:,} areas\nspec: {drawn.spec}"
    elif isinstance(drawn, SyntheticCity):
        day = f" ({drawn.day})"
        holds = (
            f"{drawn.trips:,} trips of {drawn.travelled:,} types, of {drawn.trip_types:,} possible ones, between"
            f" {drawn.stops:,} stops in {drawn.zones:,} zones\nspecs: {', '.join(drawn.specs)}"
        )
    else:
        holds = (
            f"{drawn.records:,} records in {drawn.groups:,} groups of {drawn.regions:,} regions; the largest group has"
            f" {drawn.largest:,}\nspecs: {', '.join(drawn.specs)}"
        )
    print_line(f"SYNTHETIC: the set [bold]{drawn.set}[/]{day} with seed {drawn.seed}: {holds}")
