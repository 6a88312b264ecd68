"""One plain driver for a whole release. It knows no Prefect: it is given a `submit`.

ingest → grow tree → reserve → walk (measure, seal, optimise) → validate → publish → close the books
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from flows.mechanisms import MECHANISMS
from flows.plan import Plan
from flows.runner import Report, Submit, result_of
from storage.clock import utc_now
from storage.database import store, transaction
from storage.errors import BudgetExceeded, InputError, StoreError, TrellisError
from storage.ledger import advance, charges_of, check_fits, read_accounts, reserve
from storage.published import store_levels
from storage.releases import Release, add_release, claim_id, find_release, record_checks, set_state, state_of
from storage.shards import give_up_claim, shard_folder
from storage.vault import remove_vault
from tasks.ingest.task import ingest
from tasks.noise.accounting import epsilon_from_rho
from tasks.publish.task import publish
from tasks.stage import Outcome
from tasks.tree.task import grow_tree
from tasks.validate.task import validate_level


def new_release(plan: Plan, output: Path | None = None, release_id: str | None = None) -> Release:
    """Return a release to be made; refuse early what could not end well.

    Args:
        plan: what was planned.
        output: the folder below which it is published; the spec's if left out.
        release_id: its id; a new one, from the spec's name and the time, if left out.
    Raises:
        BudgetExceeded: the dataset's cap would be passed. The refusal is recorded.
        SpecError: the spec's unit, neighbours or budget are not the dataset's.
        InputError: the output folder cannot be written.
    """
    spec = plan.file.spec
    output = (output or plan.file.output()).absolute()
    _check_writable(output)
    with store() as con:
        account = read_accounts(con).get(spec.dataset)
        terms = plan.budget_terms(account)
        made = release_id or claim_id(con, spec.name)
    release = Release(
        id=made,
        name=spec.name,
        dataset=spec.dataset,
        state="reserved",
        reason="",
        created=utc_now(),
        spec=plan.file.text,
        terms=plan.stage_terms(),
        folder=str(output / made),
        levels=plan.levels,
    )
    with _refusals_recorded(release):
        check_fits(account, terms, plan.rho)
    return release


def make_release(plan: Plan, release: Release, submit: Submit, report: Report) -> dict[str, float]:
    """Make a release from its plan and return the thread seconds spent in each room.

    Args:
        plan: what was planned.
        release: from `new_release`.
        submit: runs a stage and returns its future.
        report: is told of progress.
    Raises:
        TrellisError: what stopped it; public. Before the reservation nothing is left behind, afterwards the release
            is recorded as failed and keeps what was sealed.
    """
    with store() as con:
        if state_of(con, release.id) is not None:
            raise StoreError(f"{release.id} is in the store already; a release is made once.")
    with _failures_recorded(release.id):
        outcomes = [
            result_of(submit(ingest, release.id, plan.source)),
            result_of(submit(grow_tree, release.id, release.terms["axes"], release.terms["steps"])),
        ]
        _reserve(release, plan)
        outcomes += finish_release(release.id, submit, report)
    return seconds_per_room(outcomes)


def finish_release(release_id: str, submit: Submit, report: Report) -> list[Outcome]:
    """Walk, validate and publish a reserved release, doing only what the store does not hold already."""
    with store() as con:
        release = find_release(con, release_id)
        set_state(con, release_id, "running")
    mechanism = MECHANISMS[release.terms["mechanism"]]
    with _failures_recorded(release_id):
        outcomes = mechanism.traverse(release_id, mechanism.sampler, mechanism.optimiser, submit, report)
        outcomes += _validate(release, submit)
        outcomes.append(result_of(submit(publish, release_id)))
        _close_the_books(release)
    if not release.terms["keep_vault"]:
        remove_vault(release_id)
    return outcomes


@contextmanager
def _failures_recorded(release_id: str) -> Iterator[None]:
    """Leave nothing of a release that stops before it is reserved; record it as failed afterwards, with what it has."""
    try:
        yield
    except BaseException as fault:
        reason = str(fault) if isinstance(fault, TrellisError) else "It was interrupted."
        with store() as con:
            state = state_of(con, release_id)
            if state in {"reserved", "running"}:
                set_state(con, release_id, "failed", reason)
        if state in {None, "refused"}:
            remove_vault(release_id)
            shutil.rmtree(shard_folder(release_id), ignore_errors=True)
        elif isinstance(fault, TrellisError) and not fault.hint:
            fault.hint = f"What was sealed is kept: `trellis show {release_id}` says how far it is."
        raise


def seconds_per_room(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the thread seconds that each room took."""
    seconds: Counter[str] = Counter()
    for outcome in outcomes:
        seconds[outcome.room] += outcome.seconds  # type: ignore[assignment]  # a Counter of floats
    return dict(seconds)


def _reserve(release: Release, plan: Plan) -> None:
    with _refusals_recorded(release), store() as con:
        terms = plan.budget_terms(read_accounts(con).get(release.dataset))
        with transaction(con):
            reserve(con, release.id, terms, release.levels)
            add_release(con, release)


@contextmanager
def _refusals_recorded(release: Release) -> Iterator[None]:
    """Record a release that its dataset's cap refuses; the refusal goes on and names it."""
    try:
        yield
    except BudgetExceeded as refusal:
        refusal.release_id = release.id
        privacy = release.terms["privacy"]
        refusal.left_epsilon = epsilon_from_rho(max(refusal.left, Fraction(0)), privacy["delta"])
        refusal.hint = (
            f"At δ = {privacy['delta']:g} it asks for ε = {privacy['epsilon']:g};"
            f" what is left is enough for ε = {refusal.left_epsilon:.4g}."
        )
        give_up_claim(release.id)
        with store() as con, transaction(con):
            add_release(con, replace(release, state="refused", reason=str(refusal)))
        raise


def _validate(release: Release, submit: Submit) -> list[Outcome]:
    """Run every check, record what was found, and stop where one failed."""
    futures = [submit(validate_level, release.id, terms.level) for terms in release.levels]
    outcomes = [result_of(future) for future in futures]
    checks = [check for outcome in outcomes for check in outcome.value]
    with store() as con, transaction(con):
        record_checks(con, release.id, checks)
    failed = [f"{check} at level {level}" for check, level, passed in checks if not passed]
    if failed:
        raise StoreError(f"Not published: {', '.join(failed)} failed.", hint=f"`trellis show {release.id}` lists all.")
    return outcomes


def _close_the_books(release: Release) -> None:
    """Record in one transaction that a release is out: its levels, its charges, its state."""
    with store() as con:
        charges = charges_of(con, release.id)
        with transaction(con):
            store_levels(con, release.id, Path(release.folder), len(release.levels))
            for level, charge in charges.items():
                if charge.state == "sealed":
                    advance(con, release.id, level, "released")
            set_state(con, release.id, "published")


def _check_writable(folder: Path) -> None:
    """Refuse an output folder that cannot be written, or made; nothing is left there."""
    try:
        there = next(above for above in (folder, *folder.parents) if above.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as fault:
        raise InputError(
            f"output: {folder} cannot be written ({fault.strerror}).",
            field="output",
            hint="Name another with --output.",
        ) from None
