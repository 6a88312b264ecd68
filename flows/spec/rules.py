"""The rules of single values in a spec, and what all its keys have in common."""

import math
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Keys(BaseModel):
    """Some keys of a spec. Others are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Faults(ValueError):
    """What is wrong with several keys together; reads as the first of it.

    Attributes:
        messages: all of it.
    """

    def __init__(self, messages: Iterable[str]) -> None:
        self.messages = tuple(messages)
        super().__init__(self.messages[0])


def refuse(messages: Iterable[str]) -> None:
    """Raise what is wrong, if anything is, all at once.

    Raises:
        Faults: of the messages.
    """
    if found := tuple(messages):
        raise Faults(found)


def no_boolean(value: object) -> object:
    """Refuse true and false, which would count as numbers."""
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {str(value).lower()}.")  # noqa: TRY004 (pydantic wants a ValueError)
    return value


def as_list(value: object) -> object:
    """Return one text as a list of it."""
    return [value] if isinstance(value, str) else value


def differ(names: list[str]) -> list[str]:
    """Refuse names of which one stands twice."""
    if len(set(names)) < len(names):
        raise ValueError("must name each column once.")
    return names


def _positive(value: float) -> float:
    """Refuse what is not a finite number > 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"must be a finite number > 0, got {value:g}.")
    return value


def _between(value: float) -> float:
    """Refuse what is not > 0 and < 1."""
    if not 0 < value < 1:
        raise ValueError(f"must be > 0 and < 1, got {value:g}.")
    return value


Number = Annotated[float, BeforeValidator(no_boolean)]
Positive = Annotated[Number, AfterValidator(_positive)]
Delta = Annotated[Number, AfterValidator(_between)]
Confidence = Annotated[Number, AfterValidator(_between)]
Name = Annotated[str, Field(min_length=1)]
Slug = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$", description="lower-case letters, digits and hyphens, at most 64"),
]
Columns = Annotated[list[str], BeforeValidator(as_list), Field(min_length=1), AfterValidator(differ)]
