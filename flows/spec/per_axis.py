"""Keys that hold one value for both ends of trips, one per end, or one per feature."""

from typing import Any

from flows.spec.rules import Keys
from storage.counts.columns import ENDS

# which of these a value is, as pydantic tags it
ONE, PER_END, PER_FEATURE = "<one for both ends>", "<one per end>", "<one per feature>"


class PerEnd(Keys):
    """A value for each end of a trip, under the names of the ends."""


class PerFeature(dict[str, Any]):
    """The value of a key that holds one entry per feature, under any names."""


def one_or_each(value: object) -> str:
    """Return whether a key holds one value for both ends of a trip, one per end, or one per feature."""
    if isinstance(value, PerFeature):
        return PER_FEATURE
    both = isinstance(value, PerEnd) or (isinstance(value, dict) and not set(ENDS).isdisjoint(value))
    return PER_END if both else ONE
