"""Declared series of releases, which are reserved together before their first day."""

from collections.abc import Sequence
from datetime import datetime

from flows.planning.admission import admission, check_writable, releases_to_come
from flows.planning.budget import agreed_terms, declare
from flows.planning.plan import Plan
from flows.run.reservation import reserved_release
from flows.specification.file import is_same_spec
from flows.specification.sections.schedule import MOST_RELEASES, days_of_series, scheduled_id
from storage.database.connections import Connection, store, transaction
from storage.errors import SpecError, StoreError
from storage.ledger.books import Series
from storage.ledger.events import read_books
from storage.ledger.spending import Spending
from storage.releases.register import add_release, find_release, forget_refusal, state_of


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
        declared = _declared_already(con, plan)
    if declared:
        return declared
    ids = _ids_to_come(plan, now)
    output = plan.file.output()
    with store() as con:
        with transaction(con):
            if declared := _declared_already(con, plan):  # by another process, a moment ago
                return declared
            whole = _admitted(con, plan, ids)
            declare(con, spec.name, [plan.reservation(id_) for id_ in ids], whole)
            for id_ in ids:
                forget_refusal(con, id_)
                add_release(con, reserved_release(plan, id_, output, series=ids[0]))
        account = read_books(con).account_of(ids[0])
    if account is None:
        raise StoreError(f"{ids[0]} was declared and is not in the ledger.")
    return account.series[ids[0]]


def foresee_series(plan: Plan, now: datetime) -> tuple[Sequence[str], bool]:
    """Return the releases of the series that a spec declares, and whether they are reserved already. Reserve nothing.

    Arguments and errors are those of `declare_series`.
    """
    with store() as con:
        if declared := _declared_already(con, plan):
            return declared.releases, True
    ids = _ids_to_come(plan, now)
    with store() as con:
        _admitted(con, plan, ids)
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


def _admitted(con: Connection, plan: Plan, ids: Sequence[str]) -> Spending:
    """Return what a series costs altogether, at the δ of its dataset, which never changes; refuse it if it does not fit."""
    whole = plan.spending_of_series(len(ids), agreed_terms(read_books(con), plan.asked()).cap.delta)
    _check_not_taken(con, ids)
    admission(con, plan, plan.place_of_table, series=whole).check("people", "budget")
    return whole


def _declared_already(con: Connection, plan: Plan) -> Series | None:
    """Return the series that was declared with this very spec; None if there is none, or if the last one is over."""
    series = read_books(con).declared_series(plan.file.spec.dataset, plan.file.spec.name)
    if series is None or is_same_spec(find_release(con, series.id).spec, plan.file.text):
        return series
    left = releases_to_come(con, series)
    if left:
        raise SpecError(
            f"The series {series.name} was declared with another spec, and {len(left)} of its releases are still due.",
            field="schedule",
            hint=f"Put the spec back (`trellis show {series.id} --spec` prints it), or abandon those with `trellis abandon` and"
            " give this spec another name.",
        )
    return None


def _check_not_taken(con: Connection, ids: Sequence[str]) -> None:
    """Refuse a series if the store has one of its releases: made by hand, or abandoned with an earlier series."""
    taken = [id_ for id_ in ids if state_of(con, id_) not in {None, "refused"}]
    if taken:
        raise SpecError(
            f"name: the store already has {taken[0]} (state: {state_of(con, taken[0])}). Trellis makes each release only once.",
            field="name",
            hint="Give the spec another name.",
        )
