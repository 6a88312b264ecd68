"""How an answer was put together, in words."""

from collections.abc import Mapping

from tasks.format.manifest import LevelEntry
from tasks.words.levels import place


def describe_cells(entry: LevelEntry, cells: Mapping[str, int], level_above: int | None) -> str:
    """Return how measured cells were added up, and what stands for those that were not measured.

    Args:
        entry: of the level of the cells.
        cells: as in `Answer`, all of them known.
        level_above: whose caps are the end of the interval; None where they are not.
    """
    where, measured, dropped = _describe_level(entry), cells["measured"], cells["dropped"]
    under = f"under {_some(cells['dropped_under'], 'cell that was dropped', 'cells that were dropped')}"
    if cells["possible"] == 1:
        told = f"the cell of {where}"
        if not measured:
            told += f" lies under one that was dropped, with the cap {cells['cap']:,}"
    elif not measured:
        told = f"none of {dropped:,} cells of {where} was measured: they lie {under}, {_describe_cap(cells)}"
    else:
        told = f"sum of {_some(measured, 'cell', 'cells')} of {where}"
        if dropped:
            told += f"; {dropped:,} more {'lies' if dropped == 1 else 'lie'} {under}, {_describe_cap(cells)}"
    return told if level_above is None else f"{told}; at most what the cells of level {level_above} that it meets allow"


def describe_leaves(leaves: int, *, are_known: bool = True) -> str:
    """Return how noisy leaves were added up."""
    if are_known:
        return f"sum of the noisy counts of {_some(leaves, 'leaf', 'leaves')}; those of 0 have no row"
    return f"sum of noisy leaves; how many is not published with them, and the noise of all {leaves:,} taken as that of the sum"


def describe_row(entry: LevelEntry) -> str:
    """Return that a cell is answered by its row."""
    return f"the cell of {_describe_level(entry)}, as its row in the table has it"


def describe_unmeasured(rows: int, level: int) -> str:
    """Return how little is known where noisy counts are not published."""
    return (
        f"{_describe_rows(rows, level)}; the noisy counts are not published, and nothing more can be said than that it is at most"
        " everything"
    )


def describe_below_threshold(threshold: int) -> str:
    """Return what is known of a leaf without a row where rows must reach a threshold."""
    return f"a leaf without a row: its noisy count did not reach the threshold of {threshold:,}, or nobody is there"


def explain_missing_interval(rows: int, threshold: int) -> str:
    """Return why a sum of leaves has no interval where they must reach a threshold."""
    return (
        f"sum of {_some(rows, 'row', 'rows')}; no interval: leaves below the threshold of {threshold:,} are missing from it,"
        " and it is not known how many"
    )


def explain_missing_simultaneous(rows: int) -> str:
    """Return why there is no interval that holds together with all others."""
    return f"sum of {_some(rows, 'row', 'rows')}; intervals that hold together are not published for it, and do not follow from what is"


def _describe_cap(cells: Mapping[str, int]) -> str:
    """Return what dropped cells can count."""
    return (
        f"whose cap is {cells['cap']:,}"
        if cells["dropped_under"] == 1
        else f"which count at most {cells['cap']:,} together"
    )


def _describe_rows(rows: int, level: int) -> str:
    return f"sum of {_some(rows, 'row', 'rows')} of level {level}"


def _describe_level(entry: LevelEntry) -> str:
    return f"level {entry.level} ({place(entry.axes) or 'everything'})"


def _some(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"
