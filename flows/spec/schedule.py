"""The days of a schedule: a cron expression in a time zone, and where a series ends. Knows no Prefect."""

import re
from collections.abc import Iterator
from datetime import date, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MOST_RELEASES = 1000  # of a series


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
            f"must be a number of releases, such as 12 releases, or a day such as 2027-12-31, got {until}."
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
