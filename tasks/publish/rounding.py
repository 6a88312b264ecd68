"""Budgets as people read them: what is spent rounded up, what is left rounded down."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def rounded_up(value: float, digits: int = 6) -> str:
    """Return a cost as it is read, never less than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def rounded_down(value: float, digits: int = 6) -> str:
    """Return what is left as it is read, never more than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"
