"""Numbers as people read them: budgets, spent rounded up and left rounded down; noise, error bounds, cells and counts."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_UNREADABLE = 10**15  # cells

_LONG = 1e7  # records: from here on digits are no longer read one by one


def rounded_up(value: float, digits: int = 6) -> str:
    """Return a cost as it is read, never less than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(value))):.{digits}g}"


def rounded_down(value: float, digits: int = 6) -> str:
    """Return what is left as it is read, never more than it is."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(value))):.{digits}g}"


def format_sigma(sigma: float, *, summed: bool, digits: int = 3) -> str:
    """Return the noise of a level as it is read; `none` is told of a sum for which no σ is stated."""
    if not sigma:
        return "none" if summed else "exact"
    return f"{sigma:.{digits}f}" if sigma < _LONG else f"{sigma:.3e}"


def format_bound(sigma: float, bound: float | None, *, summed: bool) -> str:
    """Return a level's error bound as it is read."""
    if not (sigma or summed):
        return "exact"
    if bound is None:
        return "none"
    return f"± {bound:,.0f}" if bound < _LONG else f"± {rounded_up(bound, 4)}"


def format_cells(number: int | None) -> str:
    """Return a number of cells as it is read: whole as long as it can be."""
    if number is None:
        return "unknown"
    return f"{number:,}" if number < _UNREADABLE else f"{Decimal(number):.3e}"


def format_rounded(value: float, digits: int = 3) -> str:
    """Return a number >= 0 to some digits, and whole where it has as many before the point."""
    if value >= _LONG or 0 < value < 1e-3:
        return f"{value:.2e}"
    return f"{value:,.0f}" if value >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def format_short(count: int) -> str:
    """Return a count as it is read where there is little room."""
    if abs(count) < 100_000:
        return f"{count:,}"
    for unit, size in (("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12)):
        if abs(count) < 999.5 * size:
            return f"{count / size:.3g}{unit}"
    return f"{count:.2e}"


def format_percent(share: float) -> str:
    """Return a share as it is read, in HTML: the sign stays on the line of its number."""
    return f"{100 * share:.6g}&nbsp;%"
