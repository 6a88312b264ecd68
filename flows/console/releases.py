"""Releases, ledgers and folders, as a person sees them."""

from rich.markup import escape
from rich.table import Table

from flows.console.terminal import (
    Answer,
    escaped,
    format_bytes,
    out,
    show_levels,
    show_unlisted,
    show_unprotected,
)
from tasks.words.levels import in_short
from tasks.words.numbers import rounded_down, rounded_up


def show_release(answer: Answer) -> None:
    """Draw a release that was made, or of which a branch was: the levels, seconds per room, and where it is."""
    answer = escaped(answer)
    out.print(f"[bold]{answer['id']}[/] {answer['state']} {answer['reason']}".rstrip() + "\n", soft_wrap=True)
    show_levels(answer["levels"])
    out.print(answer["statement"])
    show_unprotected(answer["unprotected"])
    rooms = ", ".join(f"{room} {seconds:.1f}" for room, seconds in answer["seconds"].items() if room != "total")
    out.print(f"\nthread seconds: {rooms}; {answer['seconds']['total']:.1f} s in all")
    budget = answer["budget"]
    out.print(
        f"budget (ε at δ = {budget['delta']:g}): cap {budget['cap']:g}, spent {rounded_up(budget['spent'])},"
        f" left {rounded_down(budget['left'])}"
    )
    out.print(f"store: {answer['home']}", soft_wrap=True)
    out.print(f"folder: {answer['folder'] or 'not published'}", soft_wrap=True)
    if answer["report"]:
        out.print(f"report: {answer['report']}", soft_wrap=True)


def show_releases(answer: Answer) -> None:
    """Draw the list of releases."""
    answer = escaped(answer)
    if not answer["releases"]:
        out.print("There are no releases yet.")
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
    out.print(table)


def show_one(answer: Answer) -> None:
    """Draw one release: levels, branches, checks, charges, seals."""
    answer = escaped(answer)
    out.print(f"[bold]{answer['id']}[/] {_state(answer['state'])} {answer['reason']}")
    out.print(f"dataset {answer['dataset']}, created {answer['created']}")
    for key in ("supersedes", "superseded_by"):
        if answer[key]:
            out.print(f"{key.replace('_', ' ')} {answer[key]}", soft_wrap=True)
    out.print()
    show_levels(answer["levels"])
    show_unlisted(answer["unlisted"])
    show_unprotected(answer["unprotected"])
    done = sum(branch["state"] == "optimised" for branch in answer["branches"])
    out.print(f"\nbranches: {done} of {len(answer['branches'])} optimised; seals: {len(answer['seals'])}")
    for branch in answer["branches"]:
        first, last = (in_short([f"{axis} {codes[end]}" for axis, codes in branch["holds"].items()]) for end in (0, 1))
        out.print(f"  {branch['branch']} {branch['state']}: from ({first}) to ({last})")
    passed = sum(check["passed"] for check in answer["checks"])
    out.print(f"checks: {passed} of {len(answer['checks'])} passed")
    for check in answer["checks"]:
        if not check["passed"]:
            out.print(f"  [red]{check['check']} failed at level {check['level']}[/]")
    for charge in answer["charges"]:
        cost = f"ρ {charge['rho']:.6g}"
        if charge["epsilon"]:
            cost = f"ε {rounded_up(charge['epsilon'])}, δ {charge['delta']:.2g}"
        out.print(f"charge: level {charge['level']} {charge['state']}, {cost}, σ {charge['sigma']:.4g}")
    out.print(f"folder: {answer['folder'] or 'not published'}", soft_wrap=True)


def show_ledger(answer: Answer) -> None:
    """Draw the accounts: cap, what is spent and left, and a line per release."""
    answer = escaped(answer)
    if not answer["datasets"]:
        out.print("The ledger is empty.")
    for account in answer["datasets"]:
        cap = account["cap"]
        out.print(f"[bold]{account['dataset']}[/]: {account['unit']}, neighbours by {account['neighbours']}")
        if account["same_people"]:
            out.print(f"  the same people: {', '.join(account['same_people'])}")
        if account["unprotected"]:
            out.print("  [bold red]the claim about these people is the weaker one:[/]")
        show_unprotected(account["unprotected"])
        for raised in account["raises"]:
            out.print(
                f"  cap raised {raised['at']} from {raised['before']:g} to {raised['epsilon']:g}: {raised['reason']}"
            )
        for claim in account["releases"]:
            if claim["different_people_from"]:
                others = ", ".join(claim["different_people_from"])
                out.print(f"  {claim['release']}: its table was said to hold other people than those of {others}")
        out.print(
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
        out.print(table)


def show_raised(answer: Answer) -> None:
    """Draw an account whose cap was raised, and what that means."""
    show_ledger({"datasets": [answer]})
    out.print(f"[bold red]{escaped(answer['statement'])}[/]")


def show_audit(answer: Answer) -> None:
    """Draw what the audit found, the first event that does not fit before the others."""
    answer = escaped(answer)
    for found in answer["findings"]:
        where = f"event {found['position']} " if found["position"] is not None else ""
        out.print(f"[red]does not fit:[/] {where}({found['event']}) {found['release']}: {found['reason']}")
    if answer["ok"]:
        out.print(f"[green]audited:[/] {answer['events']} events, every seal, every manifest that is there.")
    out.print(f"head: {answer['head'] or 'the ledger is empty'}")


def show_cleaned(answer: Answer) -> None:
    """Draw what was removed, release by release."""
    for cleaned in answer["cleaned"]:
        out.print(f"{escape(cleaned['release'])}: {cleaned['files']} files, {format_bytes(cleaned['bytes'])}")
    out.print(f"{format_bytes(answer['bytes'])} freed")


def show_synthesised(answer: Answer) -> None:
    """Draw what a made-up set holds, and where its spec is."""
    out.print(
        f"SYNTHETIC: the set [bold]{answer['set']}[/] with seed {answer['seed']}: {answer['people']:,} people in"
        f" {answer['pairs']:,} pairs of {answer['areas']:,} areas\nspec: {escape(answer['spec'])}",
        soft_wrap=True,
    )


def show_ending(answer: Answer) -> None:
    """Draw what became of a release that was abandoned or whose remains were deleted."""
    answer = escaped(answer)
    out.print(
        f"[bold]{answer['id']}[/] {_state(answer['state'])}; deleted: {', '.join(answer['deleted']) or 'nothing'}"
    )


def show_verification(answer: Answer) -> None:
    """Draw what `verify` found."""
    answer = escaped(answer)
    for failure in answer["failures"]:
        out.print(f"[red]failed:[/] {failure}")
    if answer["ok"]:
        out.print(
            "[green]verified:[/] checksums, consistency of every level, manifest complete, (ε, δ) paid for by the noise."
        )


def _state(state: str) -> str:
    colour = {"published": "green", "failed": "red", "refused": "red"}.get(state, "yellow")
    return f"[{colour}]{state}[/]"
