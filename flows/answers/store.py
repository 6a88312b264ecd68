"""What commands answer, as plain values: `--json` prints them, the console draws them."""

import math
from pathlib import Path
from typing import Any

from flows.execution.crashes import note_crashes
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, TrellisError, UsageError
from storage.ledger.books import Account, Books, Charge, Claim
from storage.ledger.events import charges_of, read_books
from storage.machine.home import home
from storage.releases.register import REPORT, find_release, list_checks, list_releases, superseding
from storage.releases.seals import level_entries, list_branches, list_frontiers, list_seals, walkers


def release_answer(release_id: str, seconds: dict[str, float]) -> dict[str, Any]:
    """Return what `trellis release` says of a release that it has made."""
    shown = show_answer(release_id)
    return {
        "id": release_id,
        "state": shown["state"],
        "reason": shown["reason"],
        "folder": shown["folder"],
        "report": shown["report"],
        "levels": shown["levels"],
        "unprotected": shown["unprotected"],
        "statement": shown["statement"],
        "budget": _budget(shown["dataset"]),
        "seconds": {room: round(taken, 3) for room, taken in seconds.items()},
        "home": str(home()),
    }


def _budget(dataset: str) -> dict[str, float]:
    """Return what the people of a dataset have, have spent, and have left, as ε at the cap's δ."""
    account = ledger_answer(dataset)["datasets"][0]
    return {
        "delta": account["cap"]["delta"],
        "cap": account["cap"]["epsilon"],
        "spent": account["spent"]["epsilon"],
        "left": account["left"]["epsilon"],
    }


def error_answer(fault: TrellisError) -> dict[str, Any]:
    """Return what is said of an error, or of a release that its dataset's cap refuses."""
    if isinstance(fault, BudgetExceeded):
        return {
            "id": fault.release_id,
            "state": "refused",
            "reason": str(fault),
            "left": {"epsilon": fault.left_epsilon, "rho": float(fault.left)},
        }
    return {"error": str(fault), "field": fault.field, "hint": fault.hint}


def releases_answer() -> dict[str, Any]:
    """Return every release with its state, the newest last."""
    note_crashes()
    with store() as con:
        return {"releases": list_releases(con)}


def show_answer(release_id: str) -> dict[str, Any]:
    """Return one release with its levels, branches, seals, checks and charges."""
    note_crashes()
    with store() as con:
        release = find_release(con, release_id)
        levels, seals = level_entries(con, release), list_seals(con, release_id)
        branches, frontiers = list_branches(con, release_id), list_frontiers(con, release_id)
        checks, charges = list_checks(con, release_id), charges_of(con, release_id)
        later = [id_ for id_, state in superseding(con, release_id).items() if state == "published"]
    finest = release.levels[-1].level
    last = walkers(branches, finest)
    return {
        "id": release.id,
        "dataset": release.dataset,
        "state": release.state,
        "reason": release.reason,
        "created": release.created,
        "supersedes": release.supersedes,
        "superseded_by": later[-1] if later else None,
        "levels": levels,
        "branches": [
            {
                "branch": branch.name,
                "state": "cut"
                if branch.name not in last
                else "optimised"
                if (finest, branch.name) in frontiers
                else "open",
                "holds": dict(branch.holds),
            }
            for branch in branches.values()
        ],
        "seals": [{"level": seal.level, "branch": seal.branch, "sha256": seal.sha256} for seal in seals.values()],
        "checks": checks,
        "charges": [_charge(charge) for charge in charges.values()],
        "unprotected": release.terms["unprotected"],
        "unlisted": release.terms.get("unlisted", []),
        "statement": release.terms["privacy"].get("statement", ""),
        "folder": release.folder if Path(release.folder).is_dir() else None,
        "report": str(report) if (report := Path(release.folder, REPORT)).is_file() else None,
    }


def reserved_spec(release_id: str) -> str:
    """Return the spec that a release was reserved with, as it was written."""
    with store() as con:
        return find_release(con, release_id).spec


def ledger_answer(dataset: str | None) -> dict[str, Any]:
    """Return the accounts of all datasets, or of the one to which a dataset's releases are charged.

    Raises:
        UsageError: there is no such dataset.
    """
    with store() as con:
        books = read_books(con)
    if dataset is None:
        return {"datasets": [_account(account) for account in books.accounts.values()]}
    return {"datasets": [_account(_known_account(books, dataset))]}


def budget_answer(dataset: str, epsilon: float, reason: str) -> dict[str, Any]:
    """Raise the cap of a dataset's people and return their account.

    Raises:
        UsageError: there is no such dataset, the cap would not rise, or no reason is given.
    """
    from flows.planning.budget import cap_of
    from flows.planning.charging import raise_cap

    if not reason.strip():
        raise UsageError("--reason must say why: it is recorded for good.", field="--reason")
    with store() as con:
        delta = _known_account(read_books(con), dataset).terms.cap.delta
        try:
            cap = cap_of(epsilon, delta)
        except ValueError as fault:
            raise UsageError(f"--{fault}", field="--epsilon") from None
        with transaction(con):
            raise_cap(con, dataset, cap, reason.strip())
    raised: dict[str, Any] = ledger_answer(dataset)["datasets"][0]
    return raised | {
        "statement": f"From now on only the new cap is true: the releases about these people may come to ε ="
        f" {cap.epsilon:g} at δ = {cap.delta:g}, whatever was said before."
    }


def _known_account(books: Books, dataset: str) -> Account:
    account = books.account(dataset)
    if account is None:
        raise UsageError(
            f"The ledger has no dataset {dataset}.", field="DATASET", hint="`trellis ledger` lists those it has."
        )
    return account


def _account(account: Account) -> dict[str, Any]:
    terms, standing = account.terms, account.standing
    cap = terms.cap
    return {
        "dataset": terms.dataset,
        "same_people": account.datasets[1:],
        "unit": terms.unit,
        "neighbours": terms.neighbours,
        "unprotected": account.unprotected,
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "rho": float(cap.rho)},
        "spent": {"epsilon": standing.epsilon, "rho": float(account.spent)},
        "left": {"epsilon": standing.left_epsilon, "rho": float(standing.left_rho)},
        "raises": account.raises,
        "releases": [_claim(claim) for claim in account.claims.values()],
        "charges": [{"release": charge.release} | _charge(charge) for charge in account.charges.values()],
    }


def _claim(claim: Claim) -> dict[str, Any]:
    return {
        "release": claim.release,
        "dataset": claim.dataset,
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "accountant": claim.accountant,
        "unprotected": list(claim.unprotected),
        "different_people_from": list(claim.different_people_from),
        "contributions": dict(claim.contributions),
    }


def _charge(charge: Charge) -> dict[str, Any]:
    return {
        "level": charge.level,
        "state": charge.state,
        "mechanism": charge.mechanism,
        "rho": float(charge.rho),
        "sigma": charge.sigma,
        "l2_sensitivity": math.sqrt(charge.l2_sensitivity_squared),
        "epsilon": charge.epsilon,
        "delta": charge.delta,
    }
