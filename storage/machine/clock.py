"""The time of day, as records show it."""

from datetime import UTC, datetime


def utc_now() -> str:
    """Return the time in UTC to the second, ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
