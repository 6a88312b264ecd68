"""Explanations of answers: which counts were added up, and what the interval rests on."""

from collections.abc import Mapping

from tasks.format.entries import LevelEntry
from tasks.words.levels import place


def describe_cells(entry: LevelEntry, cells: Mapping[str, int], level_above: int | None) -> str:
    """Return how measured cells were added up, and what limits the cells that were not measured.

    Args:
        cells: as in `Answer`, with every number known.
        level_above: the level whose cells set the upper end of the interval; None if no level above does.
    """
    where, measured, dropped = describe_level(entry), cells["measured"], cells["dropped"]
    under = f"under {_some(cells['dropped_under'], 'cell that was dropped', 'cells that were dropped')}"
    if cells["possible"] == 1:
        text = f"the cell of {where}"
        if not measured:
            text += f" was not measured: it lies under a cell that was dropped, whose cap is {cells['cap']:,}"
    elif not measured:
        text = f"none of the {dropped:,} cells of {where} was measured: they lie {under}, {_describe_cap(cells)}"
    else:
        text = f"sum of {_some(measured, 'cell', 'cells')} of {where}"
        if dropped:
            text += f"; {dropped:,} more {'lies' if dropped == 1 else 'lie'} {under}, {_describe_cap(cells)}"
    above = "" if level_above is None else f"; the cells of level {level_above} that overlap it set the upper end"
    return text + above


def describe_leaves(leaves: int, *, are_known: bool = True) -> str:
    """Return how noisy leaves were added up."""
    if are_known:
        return f"sum of the noisy counts of {_some(leaves, 'leaf', 'leaves')}; leaves with a count of 0 have no row"
    return f"sum of noisy leaves; their number is not published, so the interval allows for the noise of all {leaves:,}"


def describe_pieces(pieces: int, *, simultaneous: bool) -> str:
    """Return how a sum was put together from parts whose noise is not added up."""
    if simultaneous:
        return f"sum of {pieces:,} parts, whose intervals all hold at once"
    return (
        f"sum of {pieces:,} parts at different levels; which cells were measured at one depends on the noise of another, so their noise is"
        f" not added up: each interval misses with 1/{pieces:,} of the probability"
    )


def describe_row(entry: LevelEntry) -> str:
    """Return that the answer is a cell's row in the table."""
    return f"the cell of {describe_level(entry)}, from its row in the table"


def describe_unmeasured(rows: int, level: int) -> str:
    """Return what is known where noisy counts are not published."""
    return (
        f"sum of {_some(rows, 'row', 'rows')} of level {level};"
        " the noisy counts are not published, so all that is known is that it is at most the total"
    )


def describe_below_threshold(threshold: int) -> str:
    """Return what is known about a leaf without a row, where rows must reach a threshold."""
    return f"a leaf without a row: its noisy count did not reach the threshold of {threshold:,}, or it has no records"


def explain_missing_interval(rows: int, threshold: int) -> str:
    """Return why a sum of leaves has no interval, where leaves must reach a threshold."""
    return (
        f"sum of {_some(rows, 'row', 'rows')}; no interval: leaves below the threshold of {threshold:,} are missing from it,"
        " and their number is unknown"
    )


def explain_missing_simultaneous(rows: int) -> str:
    """Return why there is no simultaneous interval."""
    return f"sum of {_some(rows, 'row', 'rows')}; no simultaneous interval is published for it, and none follows from what is published"


def _describe_cap(cells: Mapping[str, int]) -> str:
    """Return how many records dropped cells can hold."""
    cap = f"{cells['cap']:,}"
    return f"whose cap is {cap}" if cells["dropped_under"] == 1 else f"which count at most {cap} together"


def describe_level(entry: LevelEntry) -> str:
    """Return a level by its number and its areas."""
    return f"level {entry.level} ({place(entry.axes) or 'everything'})"


def _some(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"
