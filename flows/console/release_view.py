"""Releases, ledgers, folders and answers to questions about areas, as a person sees them."""

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table

from flows.console.levels_table import show_levels, show_unlisted, show_unprotected, show_views
from flows.console.terminal import format_bytes, out, print_line
from storage.machine.files import short_hash
from tasks.words.levels import in_short
from tasks.words.numbers import format_left, rounded_down, rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.answers.audit import AuditReport
    from flows.answers.ledger import AccountStatement, LedgerStatement
    from flows.answers.query import AreaCounted, QueryAnswer, QueryAnswers
    from flows.answers.release_status import MadeRelease, ReleaseList, ShownRelease
    from flows.answers.verify import Verification
    from flows.run.backups import Backup, Restored
    from flows.run.ending import Cleaning, EndedRelease
    from tasks.released.query.comparisons import Compared

_COMPARED = {"difference": "difference to", "share": "share of"}
_MOST_WAYS = 3  # in which the intervals of a column came about, that a table names
_BEGUN = {"running", "failed", "published"}


def show_release(made: "MadeRelease") -> None:
    """Draw a release that was made, or of which a branch was: the levels, seconds per stage, and where it is."""
    print_line(f"[bold]{made.id}[/] {made.state} {made.reason}".rstrip() + "\n")
    show_levels(made.levels)
    show_views(made.views)
    out.print(made.statement)
    show_unprotected(made.unprotected)
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in made.seconds.items() if stage != "total")
    out.print(f"\nthread seconds: {stages}; {made.seconds['total']:.1f} s in total")
    budget = made.budget
    out.print(
        f"budget (ε at δ = {budget.delta:g}): cap {budget.cap:g}, spent {rounded_up(budget.spent)},"
        f" {format_left(budget.left, budget.spent, budget.cap)}"
    )
    print_line(f"store: {made.home}")
    print_line(f"folder: {made.folder or 'not published'}")
    if made.report:
        print_line(f"report: {made.report}")


def show_releases(listed: "ReleaseList") -> None:
    """Draw the list of releases."""
    releases = listed.releases
    if not releases:
        out.print("There are no releases yet.")
        return
    table = Table("release", "dataset", "state", "created", box=None)
    revised = any(release.supersedes for release in releases)
    if revised:
        table.add_column("supersedes")
    for release in releases:
        supersedes = [release.supersedes or ""] if revised else []
        state = _state(release.state) + (", superseded" if release.superseded_by else "")
        if not release.in_ui and release.state in _BEGUN:
            state += ", not in the UI"
        table.add_row(release.id, release.dataset, state, release.created, *supersedes)
    out.print(table)


def show_one(release: "ShownRelease") -> None:
    """Draw one release: levels, branches, checks, charges, seals."""
    out.print(f"[bold]{release.id}[/] {_state(release.state)} {release.reason}")
    if not release.in_ui and release.state in _BEGUN:
        out.print("It was made without a Prefect server, so the UI does not list it.")
    out.print(f"dataset {release.dataset}, created {release.created}")
    if release.supersedes:
        print_line(f"supersedes {release.supersedes}")
    if release.superseded_by:
        print_line(f"superseded by {release.superseded_by}")
    if plan := release.approved_plan:
        print_line(f"approved plan {short_hash(plan.fingerprint)}, made {plan.made}")
    out.print()
    show_levels(release.levels)
    show_views(release.views)
    show_unlisted(release.unlisted)
    show_unprotected(release.unprotected)
    done = sum(branch.state == "optimised" for branch in release.branches)
    out.print(f"\nbranches: {done} of {len(release.branches)} optimised; seals: {len(release.seals)}")
    for branch in release.branches:
        first, last = (in_short([f"{axis} {codes[end]}" for axis, codes in branch.holds.items()]) for end in (0, 1))
        out.print(f"  {branch.branch} {branch.state}: from ({first}) to ({last})")
    out.print(f"checks: {sum(check.passed for check in release.checks)} of {len(release.checks)} passed")
    for check in release.checks:
        if not check.passed:
            out.print(f"  [red]{check.check} failed at level {check.level}[/]")
    for charge in release.charges:
        cost = f"ρ {charge.rho:.6g}"
        if charge.epsilon:
            cost = f"ε {rounded_up(charge.epsilon)}, δ {charge.delta:.2g}"
        measured = f"level {charge.level} (view {charge.view})" if charge.view else f"level {charge.level}"
        out.print(f"charge: {measured} {charge.state}, {cost}, σ {charge.sigma:.4g}")
    print_line(f"folder: {release.folder or 'not published'}")


def show_ledger(ledger: "LedgerStatement") -> None:
    """Draw the accounts: cap, what is spent and left, and a line per release."""
    if not ledger.datasets:
        out.print("The ledger is empty.")
    for account in ledger.datasets:
        _show_account(account)


def _show_account(account: "AccountStatement") -> None:
    cap = account.cap
    out.print(f"[bold]{account.dataset}[/]: {account.unit}, neighbours by {account.neighbours}")
    out.print(f"  what is spent holds for {account.holds_for}")
    if account.same_people:
        out.print(f"  the same people: {', '.join(account.same_people)}")
    if account.unprotected:
        out.print(
            "  [bold red]Some releases about these people state exact counts, which weakens the guarantee of all of them:[/]"
        )
    show_unprotected(account.unprotected)
    for raised in account.raises:
        out.print(f"  cap raised {raised.at} from {raised.before:g} to {raised.epsilon:g}: {raised.reason}")
    for claim in account.releases:
        if claim.different_people:
            others = ", ".join(claim.different_people_from) or "any dataset that had used it"
            out.print(
                f"  {claim.release}: the caller declared that its table holds other people than those of {others}"
            )
    out.print(
        f"  ε at δ = {cap.delta:g}: cap {cap.epsilon:g}, spent {rounded_up(account.spent.epsilon)},"
        f" {format_left(account.left.epsilon, account.spent.epsilon, cap.epsilon)}\n"
        f"  ρ, which adds up: cap {cap.rho:.6g}, spent {rounded_up(account.spent.rho)}, left {rounded_down(account.left.rho)}"
    )
    table = Table("release", "ε", "δ", "levels", "state", "mechanism", "ρ", box=None, pad_edge=True)
    for claim in account.releases:
        if charges := [charge for charge in account.charges if charge.release == claim.release]:
            states = ", ".join(dict.fromkeys(charge.state for charge in charges))
            drawn = ", ".join(dict.fromkeys(charge.mechanism.replace("_", " ") for charge in charges))
            spent = rounded_up(sum(charge.rho for charge in charges if charge.state != "void"))
            own = rounded_up(claim.epsilon), f"{claim.delta:g}"
            table.add_row(claim.release, *own, str(len(charges)), states, drawn, spent)
    out.print(table)
    if account.spent.rho > sum(of.rho for of in account.charges if of.state != "void") * (1 + 1e-9):
        out.print(
            "  Each line is what a release was charged, for units with the records that it promises itself. What is spent counts all"
            f" releases for {account.holds_for}. What is left is for a release that promises as many."
        )


def show_raised(account: "AccountStatement") -> None:
    """Draw an account whose cap was raised, and what that means."""
    _show_account(account)
    out.print(f"[bold red]{account.statement}[/]")


def show_audit(report: "AuditReport") -> None:
    """Draw what the audit found, the first event that does not fit before the others."""
    for finding in report.findings:
        where = f"event {finding.position} " if finding.position is not None else ""
        out.print(f"[red]problem:[/] {where}({finding.event}) {finding.release}: {finding.reason}")
    if report.ok:
        out.print(f"[green]audited:[/] {report.events} events, every seal, and every manifest that was found")
    if report.given_up:
        out.print(f"given up: {report.given_up:,} draws that nobody has read, each drawn anew")
    out.print(f"head: {report.head or 'the ledger is empty'}")


def show_cleaned(cleaning: "Cleaning") -> None:
    """Draw what was removed, release by release."""
    for cleaned in cleaning.cleaned:
        out.print(f"{cleaned.release}: {cleaned.files} files, {format_bytes(cleaned.bytes)}")
    out.print(f"{format_bytes(cleaning.bytes)} freed")
    if cleaning.runs is not None:
        out.print(f"{cleaning.runs:,} runs deleted from Prefect's database")


def show_backup(backup: "Backup") -> None:
    """Draw what a backup holds."""
    held = "with the vaults, which are true counts" if backup.vaults else "without vaults"
    print_line(
        f"[green]backed up[/] to [bold]{backup.folder}[/]: {backup.releases:,} releases,"
        f" {format_bytes(backup.bytes)}, {held}"
    )
    out.print(f"head: {backup.head or 'the ledger is empty'}")


def show_restored(restored: "Restored") -> None:
    """Draw what was restored, and what the ledger does not know."""
    print_line(f"[green]restored[/] to [bold]{restored.home}[/]: {restored.backup.releases:,} releases")
    out.print(f"head: {restored.backup.head or 'the ledger is empty'}")
    print_line(f"[yellow]{restored.statement}[/]")


def show_ending(ended: "EndedRelease") -> None:
    """Draw what became of a release that was abandoned or whose remains were deleted."""
    out.print(
        f"[bold]{ended.id}[/] {_state(ended.state)}; deleted: {', '.join(ended.deleted) or 'nothing'}. {ended.charge}"
    )


def show_verification(verification: "Verification") -> None:
    """Draw what `verify` found."""
    for failure in verification.failures:
        out.print(f"[red]failed:[/] {failure}")
    for files in verification.unread or ():
        out.print(f"[yellow]not read:[/] {files}")
    if verification.ok:
        out.print(
            "[green]verified:[/] the checksums match, every level is consistent, the manifest is complete, and the noise"
            " gives the stated (ε, δ)"
        )


def _state(state: str) -> str:
    colour = {"published": "green", "failed": "red", "refused": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/]"


def show_query(answer: "QueryAnswer | QueryAnswers") -> None:
    """Draw an answer in a few lines, several as a table with the codes that were asked for."""
    from flows.answers.query import QueryAnswers

    if isinstance(answer, QueryAnswers):
        _show_several(answer.answers)
        return
    asked = [f"{axis} {_called(area)} ({area.level})" for axis, area in answer.where.items() if area]
    print_line(f"[bold]{', '.join(asked) or 'everything'}[/]")
    print_line(f"count: [bold]{answer.count:,}[/]")
    if answer.period:
        print_line(f"period: {answer.period}")
    if answer.sd is not None:
        print_line(f"standard deviation: {answer.sd:,.3g}" if answer.sd else "standard deviation: 0")
    if answer.low is None or answer.high is None or answer.confidence is None:
        print_line("interval: none can be stated")
    elif answer.exact:
        print_line("interval: none, because the count is published exactly")
    else:
        held = (
            "it and the intervals of all other questions hold their true counts"
            if answer.simultaneous
            else "it holds the true count of a question that was fixed beforehand"
        )
        within = f"with {100 * answer.confidence:g}% probability, over all noise"
        print_line(f"interval: {answer.low:,} to {answer.high:,}; {within}, {held}")
        if answer.count < answer.high == 0:
            print_line(
                "the count is further below 0 than its noise usually takes it: the true count is small, if not 0"
            )
        elif answer.sd is None and answer.count > 0 and answer.count in {answer.low, answer.high}:
            print_line(
                "the count is at the end: the interval is around what was measured of it alone, and the count follows from others too"
            )
    print_line(f"how: {answer.how}")
    _show_compared(answer)


def _show_compared(answer: "QueryAnswer") -> None:
    """Draw a difference to another release, and a share of a whole."""
    for name, written in _COMPARED.items():
        if (of := getattr(answer, name)) is not None:
            value, low, high = _compared_numbers(of, is_share=name == "share")
            ends = "none can be stated" if of.low is None else f"{low} to {high}"
            print_line(f"{written} {of.other} ({of.count:,}): [bold]{value}[/]; interval: {ends}; {of.how}")


def _compared_numbers(of: "Compared", *, is_share: bool) -> list[str]:
    """Return a difference or a share, and the ends of its interval, as people read them."""
    numbers = of.value, of.low, of.high
    if not is_share:
        return ["–" if number is None else f"{number:+,}" for number in numbers]
    ends = [100 * (end or 0.0) for end in (of.low, of.high)]
    # as many digits as tell the ends apart
    digits = next((many for many in range(3, 9) if len({f"{end:.{many}g}" for end in ends}) == len({*ends})), 9)
    return ["–" if number is None else f"{100 * number:.{digits}g}%" for number in numbers]


def _called(area: "AreaCounted") -> str:
    """Return the name of an area, if it has one, and its codes, without those of made ranges above it."""
    from tasks.tree.ordered import RANGE

    *above, own = area.path
    codes = " ".join([*(code for code in above if RANGE not in code), own])
    if area.name is None or area.name == codes:
        return codes
    return area.name if area.name.startswith(f"{codes} ") else f"{area.name}, {codes}"


def _show_several(answers: "Sequence[QueryAnswer]") -> None:
    first = answers[0]
    axes = [axis for axis in first.where if any(answer.where[axis] for answer in answers)]
    table = Table(box=None, pad_edge=False)
    for axis in axes:
        table.add_column(axis)
    deviations = any(answer.sd is not None for answer in answers)
    compared = [name for name in ("difference", "share") if getattr(first, name) is not None]
    more = [heading for name in compared for heading in (name, "low", "high")]
    for heading in ("count", *(["sd"] if deviations else []), "low", "high", *more):
        table.add_column(heading, justify="right")
    for answer in answers:
        areas = (answer.where[axis] for axis in axes)
        count, *ends = ("–" if number is None else f"{number:,}" for number in (answer.count, answer.low, answer.high))
        deviation = [f"{answer.sd or 0:,.3g}"] if deviations else []
        of_each = [(getattr(answer, name), name == "share") for name in compared]
        more = [number for of, is_share in of_each for number in _compared_numbers(of, is_share=is_share)]
        table.add_row(*(_called(area) if area else "all" for area in areas), count, *deviation, *ends, *more)
    out.print(table)
    for name in compared:
        of_rows = [getattr(answer, name) for answer in answers]
        ways = Counter(of.how for of in of_rows)
        for way, rows in ways.most_common(_MOST_WAYS):
            where = f" ({rows:,} of {len(of_rows):,} rows)" if len(ways) > 1 else ""
            print_line(f"{_COMPARED[name]} {of_rows[0].other}{where}: {way}")
    if first.confidence is not None:
        held = "all at once" if first.simultaneous else "each by itself, if it was asked for beforehand"
        print_line(f"intervals: with {100 * first.confidence:g}% probability, over all noise, {held}")
