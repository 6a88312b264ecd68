"""Declared series of releases, which are reserved together before their first day."""

from collections.abc import Sequence
from datetime import datetime

from flows.planning.admission import admission, check_writable, declared_already
from flows.planning.budget import agreed_terms, declare
from flows.planning.plan import Plan
from flows.run.reservation import reserved_release
from flows.specification.sections.schedule import MOST_RELEASES, days_of_series, scheduled_id
from storage.database.connections import Connection, store, transaction
from storage.errors import SpecError, StoreError
from storage.ledger.books import Series
from storage.ledger.events import read_books
from storage.releases.register import add_release, forget_refusal, state_of


def declare_series(plan: Plan, now: datetime) -> Series:
    """Return the series that a spec declares; the first call reserves all its releases.

    Args:
        plan: of a spec whose schedule has an end.
        now: the series begins after this moment.
    Raises:
        BudgetExceeded: the series would exceed the dataset's cap; nothing is reserved.
        SpecError: it was declared with another spec and is not over, it has no day left or too many days, or releases of
            its name and days exist already.
        UsageError: another dataset has used the table.
    """
    spec, schedule = plan.file.spec, plan.file.spec.schedule
    with store() as con:
        declared = declared_already(con, plan)
    if declared:
        return declared
    if schedule is None or schedule.until is None:
        raise ValueError("the spec declares no series.")
    days = days_of_series(schedule.cron, schedule.timezone, schedule.until, now)
    if not days:
        raise SpecError(f"schedule.until: there is no day left until {schedule.until}.", field="schedule.until")
    if len(days) > MOST_RELEASES:
        raise SpecError(
            f"schedule.until: a series has at most {MOST_RELEASES} releases; until {schedule.until} there are more.",
            field="schedule.until",
        )
    ids = [scheduled_id(spec.name, day) for day in days]
    output = plan.file.output()
    check_writable(output)
    with store() as con:
        delta = agreed_terms(read_books(con), plan.asked()).cap.delta  # which a dataset never changes
        whole = plan.spending_of_series(len(ids), delta)
        with transaction(con):
            if declared := declared_already(con, plan):  # by another process, a moment ago
                return declared
            _check_not_taken(con, ids)
            admission(con, plan, plan.place_of_table, series=whole).check("people", "budget")
            declare(con, spec.name, [plan.reservation(id_) for id_ in ids], whole)
            for id_ in ids:
                forget_refusal(con, id_)
                add_release(con, reserved_release(plan, id_, output, series=ids[0]))
        account = read_books(con).account_of(ids[0])
    if account is None:
        raise StoreError(f"{ids[0]} was declared and is not in the ledger.")
    return account.series[ids[0]]


def _check_not_taken(con: Connection, ids: Sequence[str]) -> None:
    """Refuse a series if the store has one of its releases: made by hand, or abandoned with an earlier series."""
    taken = [id_ for id_ in ids if state_of(con, id_) not in {None, "refused"}]
    if taken:
        raise SpecError(
            f"name: the store already has {taken[0]} (state: {state_of(con, taken[0])}). Trellis makes each release only once.",
            field="name",
            hint="Give the spec another name.",
        )
