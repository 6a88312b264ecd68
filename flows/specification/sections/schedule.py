"""The section `schedule`: the days of a cron expression in a time zone, and where a series ends. Knows no Prefect."""

import re
from collections.abc import Iterator
from datetime import date, datetime
from itertools import islice, pairwise, takewhile
from typing import Annotated
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BeforeValidator

from flows.specification.rules import Keys, known_timezone

MOST_RELEASES = 1000  # of a series

# A cron runs at the same times on each of its days, except when clocks change. The years have a 29 February and many such
# changes; a cron that runs every day is followed through two of them, a rarer one to the end.
_FROM, _TO, _RUNS = 2024, 2033, 800


def checked_cron(cron: str) -> str:
    """Return a cron expression; refuse text that is not one or that matches no day.

    Raises:
        ValueError: the text is refused.
    """
    try:
        next(CronSim(cron, datetime(2000, 1, 1, tzinfo=ZoneInfo("UTC"))))
    except (CronSimError, StopIteration):
        raise ValueError(f"must be five fields such as 0 3 1 * *, got {cron}.") from None
    return cron


def second_run_of_a_day(cron: str, timezone: str) -> tuple[datetime, datetime] | None:
    """Return two moments at which a schedule runs on one day of its time zone; None if it runs once on each of its days."""
    zone = ZoneInfo(timezone)
    moments = takewhile(lambda moment: moment.year < _TO, CronSim(cron, datetime(_FROM, 1, 1, tzinfo=zone)))
    return next((both for both in pairwise(islice(moments, _RUNS)) if both[0].date() == both[1].date()), None)


def parse_until(until: str) -> int | date:
    """Return how many releases a series has, or its last day.

    Raises:
        ValueError: it is neither.
    """
    number = re.fullmatch(r"(\d+) releases?", until)
    try:
        end = int(number[1]) if number else date.fromisoformat(until)
    except ValueError:
        end = 0
    if isinstance(end, int) and not 1 <= end <= MOST_RELEASES:
        raise ValueError(
            f"must be a number of releases, such as 12 releases (at most {MOST_RELEASES:,}), or a day such as 2027-12-31, got {until}."
        )
    return end


def days(cron: str, timezone: str, after: datetime) -> Iterator[date]:
    """Yield each day, in the schedule's time zone, on which a schedule runs after a moment."""
    last = None
    for moment in CronSim(cron, after.astimezone(ZoneInfo(timezone))):
        if moment.date() != last:
            last = moment.date()
            yield last


def days_of_series(cron: str, timezone: str, until: str, after: datetime) -> list[date]:
    """Return all days of a series that begins after a moment, but at most `MOST_RELEASES` + 1."""
    end, coming = parse_until(until), days(cron, timezone, after)
    if isinstance(end, int):
        return list(islice(coming, end))
    return list(islice(takewhile(lambda day: day <= end, coming), MOST_RELEASES + 1))


def scheduled_id(name: str, day: date) -> str:
    """Return the id of the release that runs on a day."""
    return f"{name}-{day.isoformat()}"


def day_of(moment: datetime, timezone: str) -> date:
    """Return the day of a moment in a time zone."""
    return moment.astimezone(ZoneInfo(timezone)).date()


def _as_text(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else value  # YAML reads a day as a date


def _end_of_series(until: str) -> str:
    """Refuse a value that is neither a number of releases nor a day."""
    parse_until(until)
    return until


class ScheduleKeys(Keys):
    """When releases run, and when they end.

    Attributes:
        cron: Minute, hour, day of the month, month and day of the week. It runs at most once a day.
        timezone: The time zone of the cron expression.
        until: The number of releases, or the last day. The releases are then a series, and the budget is reserved for all of
            them at once. If left out, the schedule has no end, and each release is reserved on its own day.
        cumulative: Whether the counts of all days are measured together, so that cumulative counts since the first day stay accurate.
            The guarantee is then for the records that a unit has in the tables of all days together.
    """

    cron: Annotated[str, AfterValidator(checked_cron)]
    timezone: Annotated[str, AfterValidator(known_timezone)] = "UTC"
    until: Annotated[str, BeforeValidator(_as_text), AfterValidator(_end_of_series)] | None = None
    cumulative: bool = False

    @property
    def measured_days(self) -> int:
        """How many days are measured together; 0 where each release stands alone."""
        days = parse_until(self.until) if self.cumulative and self.until else 0
        return days if isinstance(days, int) else 0
