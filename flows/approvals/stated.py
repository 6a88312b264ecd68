"""What a plan states for somebody to approve: the spec, the codebooks and the budget, as they are when it is made."""

from dataclasses import asdict, replace
from importlib.metadata import version
from math import isfinite
from typing import Any

from flows.planning.composition import composed_epsilon
from flows.planning.plan import Plan
from flows.spec.file import SpecFile, keys_of_release, places_in
from storage.ledger.books import Account, Cap, DatasetTerms
from storage.machine.clock import utc_now
from storage.releases.approvals import Approval, ApprovedBudget, canonical, fingerprint_of, sha256_of_value
from tasks.ingest.tables import Table
from tasks.ingest.task import Source


def approval_of(plan: Plan, terms: DatasetTerms, account: Account | None) -> Approval:
    """Return what a plan states, with its fingerprint, given its people's terms and their account, if they have one."""
    keys, guarantee = keys_of_release(plan.file), plan.guarantee
    stated = Approval(
        fingerprint="",
        made=utc_now(),
        trellis=version("trellis"),
        name=plan.file.spec.name,
        dataset=plan.file.spec.dataset,
        spec=sha256_of_value(keys),
        keys=published_keys(plan.file),
        places={key: sha256_of_value(place) for key, place in places_in(keys)},
        codebooks=plan.source.codebooks,
        tables=other_tables(plan.source),
        mechanism=plan.mechanism.name,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rho=float(guarantee.rho),
        budget=_budget(plan, terms, account),
    )
    return replace(stated, fingerprint=fingerprint_of(asdict(stated)))


def published_keys(file: SpecFile) -> dict[str, Any]:
    """Return the keys of a spec on which its release depends, with file names in place of paths, as JSON has them."""
    keys: dict[str, Any] = canonical(file.published())
    if file.spec.release.records:  # `--records` sets it, whatever the file says
        keys["release"] = keys["release"] | {"records": True}
    return keys


def charges_digest(account: Account | None) -> str:
    """Return the sha256 over all charges to some people that count, so that any further or lesser charge shows."""
    charges = account.charges.values() if account else ()
    return sha256_of_value(
        sorted(
            [charge.release, charge.level, charge.mechanism, str(charge.rho), repr(charge.epsilon), repr(charge.delta)]
            for charge in charges
            if charge.state != "void"
        )
    )


def charged_releases(account: Account | None) -> tuple[str, ...]:
    """Return the releases that have spent or reserved a part of some people's budget, in the order of the ledger."""
    charges = account.charges.values() if account else ()
    return tuple(dict.fromkeys(charge.release for charge in charges if charge.state != "void"))


def cap_stated(cap: Cap) -> dict[str, float]:
    """Return a cap as approvals state it."""
    return {"epsilon": cap.epsilon, "delta": cap.delta}


def _budget(plan: Plan, terms: DatasetTerms, account: Account | None) -> ApprovedBudget:
    cap = terms.cap
    before = account.spendings if account else []
    after = composed_epsilon([*before, plan.spending], cap.delta, cap)
    return ApprovedBudget(
        dataset=terms.dataset,
        cap=cap_stated(cap),
        releases=charged_releases(account),
        charged=charges_digest(account),
        spent=composed_epsilon(before, cap.delta, cap),
        after=after if isfinite(after) else None,
    )


def other_tables(source: Source) -> dict[str, str]:
    """Return the sha256 of every public table that is no codebook, by its key."""
    codebooks = {axis.codebook.field for axis in source.axes if isinstance(axis.codebook, Table)}
    return {key: sha256 for key, sha256 in source.hashes.items() if key not in codebooks}
