"""Levels that repeat the level above them: what is known of a level of its own is known of those that repeat it."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

V = TypeVar("V")


class MayRepeat(Protocol):
    """A level of a release, in the store or in a manifest."""

    @property
    def level(self) -> int:
        """The number of the level."""

    @property
    def same_as(self) -> int | None:
        """The level above that it repeats; None for a level of its own."""


L = TypeVar("L", bound=MayRepeat)


def own_levels(levels: Sequence[L]) -> list[L]:
    """Return the levels that repeat no other."""
    return [level for level in levels if level.same_as is None]


def for_every_level(levels: Sequence[L], of_own: Sequence[V]) -> list[V]:
    """Return for every level what is known of the level that it repeats, or of itself.

    Args:
        levels: 0 to T.
        of_own: for those that repeat no other, in the same order.
    """
    found = {level.level: value for level, value in zip(own_levels(levels), of_own, strict=True)}
    return [found[level.level if level.same_as is None else level.same_as] for level in levels]
