"""What somebody may have meant who misspelt a name."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the question whether somebody meant the known name that is closest; empty where none is close.

    Args:
        name: as it was written.
        known: the names that there are; they must be public.
        cutoff: how similar names must be, between 0 and 1, as difflib measures it, whatever the case of their letters.
    """
    folded = {one.casefold(): one for one in known}
    closest = get_close_matches(name.casefold(), folded, 1, cutoff)
    return f"Did you mean {folded[closest[0]]}?" if closest else ""


def with_question(fault: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence on an unknown name, with `did_you_mean` behind it."""
    return f"{fault} {did_you_mean(name, known)}".rstrip()
