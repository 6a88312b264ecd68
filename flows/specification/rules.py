"""Rules for single values of a spec, the base class of its sections, and keys that hold one value for all axes or one per axis."""

import math
from collections.abc import Iterable
from typing import Annotated, Any
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from storage.errors import SpecError
from storage.tables import ENDS
from tasks.ingest.sources.databases import fault_of_url


class Keys(BaseModel):
    """A section of a spec. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Faults(ValueError):
    """Several faults of keys that do not fit together; as text, the first of them.

    Attributes:
        messages: all of them. Each begins with the key at fault, followed by must, needs or would.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = tuple(messages)
        super().__init__(self.messages[0])


def refuse(messages: Iterable[str]) -> None:
    """Raise all faults at once, if there are any.

    Raises:
        Faults: with all messages.
    """
    if faults := tuple(messages):
        raise Faults(faults)


def wrong_key(key: str, rest: str, hint: str = "") -> SpecError:
    """Return the error of a key of the spec, whose message begins with the key and goes on with the rule."""
    return SpecError(f"{key} {rest}", field=key, hint=hint)


def no_boolean(value: object) -> object:
    """Refuse true and false."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {str(value).lower()}.")  # noqa: TRY004 (pydantic wants a ValueError)
    return value


def as_list(value: object) -> object:
    """Return a single text as a list with one entry."""
    return [value] if isinstance(value, str) else value


def known_timezone(name: str) -> str:
    """Refuse a name that is not a time zone."""
    if name not in available_timezones():
        raise ValueError(f"must be a time zone such as Europe/Rome, got {name}.")
    return name


def differ(names: list[str]) -> list[str]:
    """Refuse repeated names."""
    if len(set(names)) < len(names):
        raise ValueError("must name each column once.")
    return names


def _positive(value: float) -> float:
    """Refuse anything but a finite number > 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"must be a finite number > 0, got {value:g}.")
    return value


def _between(value: float) -> float:
    """Refuse anything but a number > 0 and < 1."""
    if not 0 < value < 1:
        raise ValueError(f"must be > 0 and < 1, got {value:g}.")
    return value


def _without_credentials(location: str) -> str:
    """Refuse a user, a password or settings in the location of a database."""
    if fault := fault_of_url(location):  # which does not repeat the location
        raise ValueError(fault)
    return location


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank.")
    return text


Number = Annotated[float, BeforeValidator(no_boolean)]
Positive = Annotated[Number, AfterValidator(_positive)]
Delta = Annotated[Number, AfterValidator(_between)]
Confidence = Annotated[Number, AfterValidator(_between)]
Name = Annotated[str, Field(min_length=1)]
Text = Annotated[Name, AfterValidator(_not_blank)]  # for readers
Location = Annotated[str, AfterValidator(_without_credentials)]
ONE_PLACE, PLACES = "<one place>", "<places>"  # as pydantic tags them
Locations = Annotated[
    Annotated[Location, Tag(ONE_PLACE)] | Annotated[list[Location], Field(min_length=1), Tag(PLACES)],
    Discriminator(lambda value: PLACES if isinstance(value, list) else ONE_PLACE),
]
Slug = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", description="lower-case letters, digits and hyphens, at most 64"),
]
Columns = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1), AfterValidator(differ)]


# which of these a value is, as pydantic tags it
ONE, PER_AXIS = "<one for both ends>", "<one per axis>"


class PerAxis(dict[str, Any]):
    """The value of a key that holds one entry per axis, under their names."""


def one_or_each(value: object) -> str:
    """Return whether a key holds one value for both ends of a trip, or one per axis."""
    has_ends = isinstance(value, dict) and not set(ENDS).isdisjoint(value)
    return PER_AXIS if has_ends or isinstance(value, PerAxis) else ONE
