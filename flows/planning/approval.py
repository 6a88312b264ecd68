"""Approvals: what a plan states for somebody to approve, and whether a release still is what was approved."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from math import isfinite
from typing import Any, Literal

from flows.planning.composition import composed_epsilon, standing_of
from flows.planning.plan import Plan
from flows.specification.file import keys_of_release, places_in, without_paths
from storage.errors import BudgetNotAsApproved, InputError, SpecError
from storage.ledger.accounts import Account, DatasetTerms
from storage.ledger.books import Books
from storage.machine.clock import utc_now
from storage.machine.files import short_hash
from storage.releases.approvals import OPTION, Approval, ApprovedBudget, canonical, fingerprint_of, sha256_of_value
from tasks.ingest.tables import Table
from tasks.ingest.task import TableSource
from tasks.words.levels import in_short
from tasks.words.numbers import rounded_up


def approval_of(plan: Plan, terms: DatasetTerms, account: Account | None) -> Approval:
    """Return what a plan states, with its fingerprint, given its people's terms and their account, if they have one."""
    keys, guarantee, cap = keys_of_release(plan.file), plan.guarantee, terms.cap
    before = account.spendings if account else []
    after = composed_epsilon([*before, plan.spending], cap.delta, cap)
    stated = Approval(
        fingerprint="",
        made=utc_now(),
        trellis=version("trellis"),
        name=plan.file.spec.name,
        dataset=plan.file.spec.dataset,
        spec=sha256_of_value(keys),
        keys=canonical(without_paths(keys)),
        places={key: sha256_of_value(place) for key, place in places_in(keys)},
        codebooks=plan.source.codebooks,
        tables=other_tables(plan.source),
        mechanism=plan.mechanism.name,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rho=float(guarantee.rho),
        budget=replace(_budget(terms, account), after=after if isfinite(after) else None),
    )
    return replace(stated, fingerprint=fingerprint_of(asdict(stated)))


def _budget(terms: DatasetTerms, account: Account | None) -> ApprovedBudget:
    """Return where some people's budget stands, given their account, if they have one; any further or lesser charge shows."""
    cap, charges = terms.cap, [of for of in (account.charges.values() if account else ()) if of.state != "void"]
    charged = sorted(
        [of.release, of.level, of.mechanism, str(of.rho), repr(of.epsilon), repr(of.delta)] for of in charges
    )
    return ApprovedBudget(
        dataset=terms.dataset,
        cap={"epsilon": cap.epsilon, "delta": cap.delta},
        releases=tuple(dict.fromkeys(of.release for of in charges)),
        charged=sha256_of_value(charged),
        spent=composed_epsilon(account.spendings if account else [], cap.delta, cap),
        after=None,
    )


def other_tables(source: TableSource) -> dict[str, str]:
    """Return the sha256 of every public table that is no codebook, by its key."""
    codebooks = {axis.codebook.field for axis in source.axes if isinstance(axis.codebook, Table)}
    return {key: sha256 for key, sha256 in source.hashes.items() if key not in codebooks}


_ABSENT = object()
_LONGEST = 60  # characters of a value
_MOST = 8  # differences that an error names
_SLACK = 1e-6  # an accountant's newer version may differ in the last digits

_AGAIN = "new plan with `trellis plan SPEC --html plan.html` and have it approved. Nothing is reserved."


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not as it was approved.

    Attributes:
        kind: which error it makes of the refusal.
        field: the key at fault.
        text: the key, and what it was and is, in words.
    """

    kind: Literal["spec", "codebook", "budget"]
    field: str
    text: str


def check_approved(plan: Plan, books: Books) -> None:
    """Refuse a release whose spec or codebooks are not those that were approved; a plan without an approval passes.

    Raises:
        SpecError: the spec differs; the error names every difference, those of codebooks and budget too.
        InputError: only a codebook does, or another public table.
    """
    if plan.approved is None:
        return
    approval = plan.approved.approval
    wrong = [*_of_spec(approval, plan), *_of_codebooks(approval, plan)] or list(_of_guarantee(approval, plan))
    if wrong:
        kind = SpecError if any(difference.kind == "spec" for difference in wrong) else InputError
        message = _in_words(approval, [*wrong, *_of_budget(approval, books)])
        raise kind(message, field=wrong[0].field, hint=f"Put it back as it was, or make a {_AGAIN}")
    schedule = plan.file.spec.schedule
    if schedule and schedule.until:
        raise SpecError(
            f"schedule.until: {OPTION} is for single releases, and this spec declares a series, which `trellis up` reserves as a whole.",
            field="schedule.until",
            hint="Have the plan of a series signed by hand.",
        )


def check_budget_approved(plan: Plan, books: Books) -> None:
    """Refuse a release whose people's budget is not as it was approved; a plan without an approval passes.

    Inside the transaction that reserves the release, with books that were read there, no two releases pass on one approval.

    Raises:
        BudgetNotAsApproved: something was charged or given back since then, or the cap was changed.
    """
    if plan.approved is None:
        return
    approval = plan.approved.approval
    wrong = list(_of_budget(approval, books))
    if not wrong:
        return
    refusal = BudgetNotAsApproved(_in_words(approval, wrong), field=wrong[0].field, hint=f"Make a {_AGAIN}")
    account = books.account(approval.budget.dataset)
    if account:
        standing = standing_of(account.spendings, account.terms.cap)
        refusal.left, refusal.left_epsilon = standing.left_rho, standing.left_epsilon
    raise refusal


def _of_spec(approval: Approval, plan: Plan) -> list[Difference]:
    keys = keys_of_release(plan.file)
    wrong = list(_of_keys(approval.keys, canonical(without_paths(keys)), ""))
    named = {difference.field for difference in wrong}
    places = {key: sha256_of_value(place) for key, place in places_in(keys)}
    wrong += [
        Difference("spec", key, f"{key}: a file of the same name → in another place")
        for key in sorted(approval.places.keys() & places.keys())
        if places[key] != approval.places[key] and key not in named
    ]
    if not wrong and sha256_of_value(keys) != approval.spec:
        wrong.append(Difference("spec", "SPEC", "the spec: a place that it names → another place"))
    return wrong


def _of_keys(before: Mapping[str, Any], now: Mapping[str, Any], path: str) -> Iterator[Difference]:
    """Yield the keys of a section that differ, and those of the sections in it."""
    for key in dict.fromkeys([*before, *now]):
        was, is_now, name = before.get(key, _ABSENT), now.get(key, _ABSENT), f"{path}{key}"
        if isinstance(was, Mapping) and isinstance(is_now, Mapping):
            yield from _of_keys(was, is_now, f"{name}.")
        elif was != is_now:
            yield Difference("spec", name, f"{name}: {_written(was)} → {_written(is_now)}")


def _of_codebooks(approval: Approval, plan: Plan) -> Iterator[Difference]:
    source = plan.source
    pairs = ((approval.codebooks, source.codebooks, "the codebook of "), (approval.tables, other_tables(source), ""))
    for before, now, called in pairs:
        for name in dict.fromkeys([*before, *now]):
            was, is_now = before.get(name, "none"), now.get(name, "none")
            if was != is_now:
                text = f"{called}{name}: sha256 {was[:12]}… → {is_now[:12]}…"
                yield Difference("codebook", "hierarchy" if called else name, text)


def _of_guarantee(approval: Approval, plan: Plan) -> Iterator[Difference]:
    """Yield what another version of Trellis makes of the same spec."""
    guarantee = plan.guarantee
    was_named, is_named = approval.mechanism, plan.mechanism.name
    if was_named != is_named:
        yield Difference("spec", "mechanism", f"mechanism: {was_named} → {is_named}")
    pairs = (
        ("privacy.epsilon", approval.epsilon, guarantee.epsilon),
        ("privacy.delta", approval.delta, guarantee.delta),
        ("privacy.rho", approval.rho, float(guarantee.rho)),
    )
    for key, was, is_now in pairs:
        if not math.isclose(was, is_now, rel_tol=_SLACK):
            yield Difference("spec", key, f"{key}, as this Trellis computes it: {was:.8g} → {is_now:.8g}")


def _of_budget(approval: Approval, books: Books) -> Iterator[Difference]:
    before, account = approval.budget, books.account(approval.budget.dataset)
    if account is None:
        if before.releases:  # a restored, older ledger
            yield Difference("budget", "budget", f"the ledger: {len(before.releases)} releases charged → none")
        return
    now = _budget(account.terms, account)
    if now.dataset != before.dataset:
        yield Difference("budget", "dataset", f"the account that is charged: {before.dataset} → {now.dataset}")
    if now.cap != before.cap:
        yield Difference("budget", "budget", f"the cap: {_cap_in_words(before.cap)} → {_cap_in_words(now.cap)}")
    if now.charged != before.charged:
        more = [release for release in now.releases if release not in before.releases]
        less = [release for release in before.releases if release not in now.releases]
        why = [f"charged since: {in_short(more)}"] if more else []
        why += [f"given back: {in_short(less)}"] if less else []
        changed = f"what is spent of the budget: ε = {rounded_up(before.spent)} → {rounded_up(now.spent)}"
        yield Difference("budget", "budget", f"{changed} ({', '.join(why) or 'a part was given back'})")


def _in_words(approval: Approval, wrong: list[Difference]) -> str:
    shown = [difference.text for difference in wrong[:_MOST]]
    further = [f"{len(wrong) - _MOST} more"] if len(wrong) > _MOST else []
    plan = f"plan {short_hash(approval.fingerprint)}"
    return f"This is not what was approved ({plan}): {'; '.join([*shown, *further])}."


def _written(value: Any) -> str:
    if value is _ABSENT:
        return "left out"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _cap_in_words(cap: Mapping[str, float]) -> str:
    return f"ε = {cap['epsilon']:g} at δ = {cap['delta']:g}"
