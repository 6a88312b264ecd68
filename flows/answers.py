"""What commands answer, as plain values: `--json` prints them, the console draws them."""

from pathlib import Path
from typing import Any

from storage.database import store
from storage.errors import BudgetExceeded, TrellisError, UsageError
from storage.home import home
from storage.ledger import Account, charges_of, read_accounts
from storage.releases import find_release, list_checks, list_releases
from storage.seals import level_entries, list_branches, list_frontiers, list_seals
from tasks.noise.accounting import epsilon_from_rho


def release_answer(release_id: str, seconds: dict[str, float]) -> dict[str, Any]:
    """Return what `trellis release` says of a release that it has made."""
    shown = show_answer(release_id)
    return {
        "id": release_id,
        "state": shown["state"],
        "folder": shown["folder"],
        "levels": shown["levels"],
        "seconds": {room: round(taken, 3) for room, taken in seconds.items()},
        "home": str(home()),
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
    with store() as con:
        return {"releases": list_releases(con)}


def show_answer(release_id: str) -> dict[str, Any]:
    """Return one release with its levels, branches, seals, checks and charges."""
    with store() as con:
        release = find_release(con, release_id)
        levels, seals = level_entries(con, release), list_seals(con, release_id)
        branches, frontiers = list_branches(con, release_id), list_frontiers(con, release_id)
        checks, charges = list_checks(con, release_id), charges_of(con, release_id)
    finest = release.levels[-1].level
    return {
        "id": release.id,
        "dataset": release.dataset,
        "state": release.state,
        "reason": release.reason,
        "created": release.created,
        "levels": levels,
        "branches": [
            {
                "branch": branch.name,
                "state": "optimised" if (finest, branch.name) in frontiers else "open",
                "holds": dict(branch.holds),
            }
            for branch in branches.values()
        ],
        "seals": [{"level": seal.level, "branch": seal.branch, "sha256": seal.sha256} for seal in seals.values()],
        "checks": checks,
        "charges": [
            {"level": charge.level, "state": charge.state, "rho": float(charge.rho), "sigma": charge.sigma}
            for charge in charges.values()
        ],
        "folder": release.folder if Path(release.folder).is_dir() else None,
    }


def ledger_answer(dataset: str | None) -> dict[str, Any]:
    """Return the accounts of all datasets, or of one.

    Raises:
        UsageError: there is no such dataset.
    """
    with store() as con:
        accounts = read_accounts(con)
    if dataset is not None and dataset not in accounts:
        raise UsageError(
            f"The ledger has no dataset {dataset}.", field="DATASET", hint="`trellis ledger` lists those it has."
        )
    return {"datasets": [_account(accounts[name]) for name in accounts if dataset in {None, name}]}


def _account(account: Account) -> dict[str, Any]:
    terms = account.terms
    return {
        "dataset": terms.dataset,
        "unit": terms.unit,
        "neighbours": terms.neighbours,
        "cap": {"epsilon": terms.cap_epsilon, "delta": terms.cap_delta, "rho": float(terms.cap_rho)},
        "spent": {"epsilon": epsilon_from_rho(account.spent, terms.cap_delta), "rho": float(account.spent)},
        "left": {"epsilon": epsilon_from_rho(account.left, terms.cap_delta), "rho": float(account.left)},
        "charges": [
            {
                "release": charge.release,
                "level": charge.level,
                "state": charge.state,
                "rho": float(charge.rho),
                "sigma": charge.sigma,
            }
            for charge in account.charges.values()
        ],
    }
