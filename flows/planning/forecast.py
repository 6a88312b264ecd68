"""What `trellis plan` says: the plan of a release, beside what is known of its people, its disk and its days."""

from datetime import UTC, datetime
from fractions import Fraction
from itertools import islice
from typing import Any

from flows.planning.budget import composed_epsilon
from flows.planning.charging import agreed_terms, users_of_table
from flows.planning.guarantee import Guarantee, guarantee_for
from flows.planning.plan import Plan
from flows.planning.revision import check_supersedes
from flows.spec.file import is_same_spec
from flows.spec.privacy import Target
from flows.spec.schedule import days, days_of_series, scheduled_id
from storage.counts.published import published_total
from storage.database.connections import Connection, store
from storage.errors import SpecError, UsageError
from storage.ledger.books import Books, Cap, Spending
from storage.ledger.events import read_books
from storage.releases.register import published_specs
from tasks.publish.published_levels import IntervalTerms, margins_by_level
from tasks.validate.bounds import finest_above_noise
from tasks.validate.size import disk_size, expected_leaves

_NEXT_DAYS = 3  # of a schedule without an end that a plan shows


def plan_answer(plan: Plan, target: Target | None = None) -> dict[str, Any]:
    """Return what `trellis plan` says.

    Args:
        plan: the plan.
        target: the error bound whose ε is asked for besides.
    """
    spec = plan.file.spec
    with store() as con:
        books = read_books(con)
        check_supersedes(con, plan, books)
        total, source = _public_total(con, books, plan)
        repeated = _repeated(con, plan)
    guarantee, intervals = plan.guarantee, spec.release.intervals
    margins = margins_by_level(plan.levels, IntervalTerms(intervals.confidence, simultaneous=False, rounded=False))
    answer = {
        "name": spec.name,
        "dataset": spec.dataset,
        "supersedes": spec.supersedes,
        "mechanism": spec.mechanism,
        "neighbours": spec.privacy.neighbours,
        **plan.stated(),
        "levels": [
            {
                "level": level.level,
                "axes": dict(level.axes),
                "possible_cells": level.possible_cells,
                "rho": float(level.rho),
                "sigma": level.sigma,
                "l2_sensitivity": level.l2_sensitivity,
                "derivation": level.derivation,
                "bound": level.bound,
                "half_width": margins[0][level.level].own if margins else None,
                "typical_count": total / level.possible_cells
                if total is not None and level.possible_cells is not None
                else None,
                **level.charge_details,
            }
            for level in plan.levels
        ],
        "confidence": intervals.confidence,
        "unprotected": plan.unprotected,
        "unlisted": plan.unlisted,
        "curve": guarantee.curve(),
        "typical": _typical(plan, total, source),
        "disk": _disk(plan, books, total),
        "schedule": _schedule(plan, books),
        "caution": " ".join(filter(None, (plan.mechanism.caution, repeated))),
        "warnings": _warnings(plan, books),
        "budget": _budget_summary(plan, books),
    }
    if target:
        wanted = _wanted(plan, target)
        answer["for"] = target.model_dump() | {"epsilon": wanted.epsilon, "rho": float(wanted.rho)}
    return answer


def _repeated(con: Connection, plan: Plan) -> str:
    """Say so where the same spec was released before, on no schedule, and by none that it supersedes."""
    spec = plan.file.spec
    if spec.schedule or spec.supersedes:
        return ""
    same = [release for release, text in published_specs(con, spec.dataset) if is_same_spec(text, plan.file.text)]
    if not same:
        return ""
    return (
        f"{same[-1]} was released by this very spec: another release is a new measurement, charged again. One that takes its"
        f" place says supersedes: {same[-1]}."
    )


def _wanted(plan: Plan, target: Target) -> Guarantee:
    """Return the guarantee that an error bound takes; what is wrong with it is the fault of `--for`, not of the spec."""
    try:
        return guarantee_for(plan.scheme, target)
    except SpecError as fault:
        of_target = fault.field.startswith("privacy.target")
        told = str(fault).removeprefix(fault.field) if of_target else f": {fault}"
        raise UsageError(f"--for{told}", field="--for", hint=fault.hint) from None
    except ValueError as fault:
        raise UsageError(f"--for: {fault}", field="--for") from None


def _public_total(con: Connection, books: Books, plan: Plan) -> tuple[int | None, str]:
    """Return a public guess of the total and where it is from: the spec, or the last release about the same people."""
    spec = plan.file.spec
    if spec.expected_total is not None:
        return spec.expected_total, "expected_total"
    account = books.account(spec.dataset) or books.account(spec.same_people_as)
    for release in reversed(account.claims if account else {}):
        total = published_total(con, release)
        if total is not None:
            return max(total, 0), release  # the sum of noisy leaves may be below zero
    return None, ""


def _typical(plan: Plan, total: int | None, source: str) -> dict[str, Any] | None:
    if total is None:
        return None
    sigmas, possible = [level.sigma for level in plan.levels], [level.possible_cells for level in plan.levels]
    finest = finest_above_noise(total, sigmas, possible, plan.levels[-1].threshold)
    return {"total": total, "from": source, "finest_above_noise": finest}


def _possible_cells(plan: Plan) -> list[int]:
    """Return the possible cells of levels 0 to T; nothing where some are unknown."""
    possible = [level.possible_cells for level in plan.levels if level.possible_cells is not None]
    return possible if len(possible) == len(plan.levels) else []


def _disk(plan: Plan, books: Books, total: int | None) -> dict[str, Any] | None:
    """Return the bytes that a release is expected to leave on disk, or may at most where nothing is known of the total.

    None where nothing is known of the codes either.
    """
    possible = _possible_cells(plan)
    if not possible:
        return None
    codes = [codes for axis in plan.tree.axes for codes in axis.codes]
    size = disk_size(
        possible,
        [level.sigma for level in plan.levels],
        total,
        finest_areas=plan.tree.sizes(plan.tree.depth),
        code_bytes=sum(int(of_level.str.len_bytes().sum()) / len(of_level) + 1 for of_level in codes),
        noisy_counts_kept=plan.file.spec.keep_noisy_counts,
        store_is_new=not books.charged_to,
        csv=plan.file.spec.release.csv,
        cells=expected_leaves(possible, total, plan.levels[-1].threshold) if plan.scheme.is_summed else None,
        records=plan.file.spec.release.records,
        bounds=4 if plan.file.spec.release.intervals.simultaneous else 2,
        noisy_counts=plan.noisy_counts_asked,
    )
    return {
        "shards": size.shards,
        "published": size.published,
        "store": size.store,
        "total": size.total,
        "upper_bound": size.upper_bound,
    }


def _schedule(plan: Plan, books: Books) -> dict[str, Any] | None:
    """Return the days of a schedule: those that a series was declared for, or would be, or else the next ones."""
    spec, keys = plan.file.spec, plan.file.spec.schedule
    if keys is None:
        return None
    declared = books.declared_series(spec.dataset, spec.name)
    now = datetime.now(UTC)
    if declared:
        ids: list[str] = list(declared.releases)
    elif keys.until:
        ids = [scheduled_id(spec.name, day) for day in days_of_series(keys.cron, keys.timezone, keys.until, now)]
    else:
        ids = [scheduled_id(spec.name, day) for day in islice(days(keys.cron, keys.timezone, now), _NEXT_DAYS)]
    return keys.model_dump() | {"declared": declared is not None, "releases": ids}


def _warnings(plan: Plan, books: Books) -> list[str]:
    users = users_of_table(books, plan.asked(), plan.table)
    return [
        f"input.table was used by dataset {user}: say same_people_as: {user} in the spec, or release with"
        " --different-people if it holds other people."
        for user in users
    ]


def _budget_summary(plan: Plan, books: Books) -> dict[str, Any]:
    """Return the cap, what is spent before a release, and what would be after it."""
    terms = agreed_terms(books, plan.asked())
    account = books.accounts.get(terms.dataset)
    before = account.spendings if account else []
    cap, scheduled = terms.cap, _schedule(plan, books)
    releases = len(scheduled["releases"]) if scheduled and scheduled["until"] and not scheduled["declared"] else 1
    cost = [] if scheduled and scheduled["declared"] else [plan.spending(releases, cap.delta)]
    return {
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "rho": float(cap.rho)},
        "before": _stand(before, cap),
        "after": _stand([*before, *cost], cap),
    }


def _stand(spendings: list[Spending], cap: Cap) -> dict[str, float]:
    rho = sum((spending.rho for spending in spendings), Fraction(0))
    return {"epsilon": composed_epsilon(spendings, cap.delta, cap), "rho": float(rho)}
