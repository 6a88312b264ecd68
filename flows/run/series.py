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
from storage.ledger.accounts import Series
from storage.ledger.events import read_books
from storage.ledger.spending import Spending
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
    spec = plan.file.spec
    with store() as con:
        declared = declared_already(con, plan)
    if declared:
        return declared
    ids = _ids_to_come(plan, now)
    output = plan.file.output()
    with store() as con:
        whole = _cost(con, plan, len(ids))
        with transaction(con):
            if declared := declared_already(con, plan):  # by another process, a moment ago
                return declared
            _check_admitted(con, plan, ids, whole)
            of_days = [plan.of_day(before) for before in range(len(ids))]
            declare(con, spec.name, [of_day.reservation(id_) for of_day, id_ in zip(of_days, ids, strict=True)], whole)
            for of_day, id_ in zip(of_days, ids, strict=True):
                forget_refusal(con, id_)
                add_release(con, reserved_release(of_day, id_, output, series=ids[0]))
        account = read_books(con).account_of(ids[0])
    if account is None:
        raise StoreError(f"{ids[0]} was declared and is not in the ledger.")
    return account.series[ids[0]]


def foresee_series(plan: Plan, now: datetime) -> tuple[Sequence[str], bool]:
    """Return the releases of the series that a spec declares, and whether they are reserved already. Reserve nothing.

    Arguments and errors are those of `declare_series`.
    """
    with store() as con:
        if declared := declared_already(con, plan):
            return declared.releases, True
    ids = _ids_to_come(plan, now)
    with store() as con:
        _check_admitted(con, plan, ids, _cost(con, plan, len(ids)))
    return ids, False


def _ids_to_come(plan: Plan, now: datetime) -> list[str]:
    """Return the ids of the releases of a series that begins after a moment."""
    spec, schedule = plan.file.spec, plan.file.spec.schedule
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
    check_writable(plan.file.output())
    return [scheduled_id(spec.name, day) for day in days]


def _cost(con: Connection, plan: Plan, releases: int) -> Spending:
    """Return what a series costs altogether, at the δ of its dataset, which never changes."""
    return plan.spending_of_series(releases, agreed_terms(read_books(con), plan.asked()).cap.delta)


def _check_admitted(con: Connection, plan: Plan, ids: Sequence[str], whole: Spending) -> None:
    """Refuse a series that does not fit what is left, or of which the store has a release already."""
    _check_not_taken(con, ids)
    admission(con, plan, plan.place_of_table, series=whole).check("people", "budget")


def _check_not_taken(con: Connection, ids: Sequence[str]) -> None:
    """Refuse a series if the store has one of its releases: made by hand, or abandoned with an earlier series."""
    taken = [id_ for id_ in ids if state_of(con, id_) not in {None, "refused"}]
    if taken:
        raise SpecError(
            f"name: the store already has {taken[0]} (state: {state_of(con, taken[0])}). Trellis makes each release only once.",
            field="name",
            hint="Give the spec another name.",
        )
