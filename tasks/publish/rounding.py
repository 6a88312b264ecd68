"""Budgets as people read them: what is spent rounded up, what is left rounded down; error bounds; and cells."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_UNREADABLE = 10**15  # cells


def rounded_up(value: float, digits: int = 6) -> str:
    """Return a cost as it is read, never less than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def rounded_down(value: float, digits: int = 6) -> str:
    """Return what is left as it is read, never more than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"


def said_bound(sigma: float, bound: float | None) -> str:
    """Return a level's error bound as it is read."""
    if not sigma:
        return "exact"
    return "none" if bound is None else f"± {bound:,.0f}"


def said_cells(number: int) -> str:
    """Return a number of cells as it is read: whole as long as it can be."""
    return f"{number:,}" if number < _UNREADABLE else f"{Decimal(number):.3e}"
