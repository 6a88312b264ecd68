"""Codes taken from a column by a closed list of functions: parts of a time, bins of a number, the beginning of a longer code.

Guarantees:
    Each sees one row, and yields one code or none; a row without a code is refused, or is in the public area that the spec names. So one
    record stays one record of one cell: units, sensitivity and charges are those of a table that has the code in a column.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from storage.tables import bin_codes, taken_codes
from tasks.ingest.tables import literal

_DAY, _CLOCK = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}", r"[ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
_ZONE = r" ?(Z|UTC|GMT|[-+]\d{2}(:?\d{2}){0,2}|[A-Za-z]+(/[\w+-]+)+)"
_HOUR_ALONE = r"^(\d{1,2}):[0-5]\d(:[0-5]\d(\.\d+)?)?$"  # also those of timetables, beyond 24
_GIVES = {  # examples of the codes that parts of a time can be, and their form where they have no end
    "hour": ("8 or 08", ""),
    "weekday": ("1 for Monday", ""),
    "day": ("17 or 2024-05-17", r"\d{4}-\d\d-\d\d"),
    "week": ("7 or 2024-W07", r"\d{4}-W(0[1-9]|[1-4]\d|5[0-3])"),
    "month": ("5 or 2024-05", r"\d{4}-(0[1-9]|1[0-2])"),
    "quarter": ("2 or 2024-Q2", r"\d{4}-Q[1-4]"),
    "year": ("2024", r"\d{4,}"),
}
_PERIODS = {"day": "strftime({0}, '%Y-%m-%d')", "week": "strftime({0}, '%G-W%V')", "month": "strftime({0}, '%Y-%m')"}
_PERIODS |= {"quarter": "strftime({0}, '%Y-Q') || quarter({0})"}

EITHER = "[+-]?[1-9][0-9]{0,2}[.][0-9]{3}"  # a number with a fraction, or one whose thousands are set apart


@dataclass(frozen=True, slots=True)
class Take:
    """How a code is taken from a column, as the spec's keys of these names say; what is empty is not asked for."""

    take: str = ""
    zone: str = ""
    bins: tuple[float, ...] = ()
    first: int = 0

    def fault(self, codes: Collection[str], unlisted: str | None = None) -> str:
        """Return what is wrong with the codes of an axis, in words that follow what lists them; empty where records can have them.

        Of bins and of parts of a time that come again, all must be listed. The codes are public, so this does not depend on the records,
        which would otherwise be refused, or be in the area of all others.

        Args:
            codes: without `unlisted`, the code of that area, which may be one that is taken.
        """
        if self.first:
            fits = any(len(code) <= self.first for code in codes)
            return "" if fits else f"must list codes of at most {self.first} letters or digits, as first says"
        possible = self._possible(codes)
        if self.take:
            example, form = _GIVES[self.take]
            odd = [code for code in codes if not (code in possible or re.fullmatch(form, code))]
            if odd or not codes:
                said = f"must list codes that take: {self.take} gives, such as {example}"
                return f"{said}; {odd[0]} is none" if odd else said
        lacking = [code for code in possible if code not in codes and code != unlisted]
        why = "the code of a bin" if self.bins else "which records can have"
        return f"must list {' and '.join(lacking[:3])}, {why}" if lacking else ""

    def _possible(self, codes: Collection[str]) -> list[str]:
        """Return all codes that records can have, written as those of the axis; none where they have no end."""
        if not self.take:
            return taken_codes({"bins": self.bins})
        if self.take in _PERIODS and any("-" in code for code in codes):
            return []
        numbers = [str(day) for day in range(1, 32)] if self.take == "day" else taken_codes({"take": self.take})
        if self.take == "hour" and not self.zone:  # also those of timetables
            last = max((int(code) for code in codes if code.isdecimal() and len(code) < 3), default=0)
            numbers += map(str, range(len(numbers), last + 1))
        return [number.zfill(_width(codes)) for number in numbers]

    def sql(
        self, text: str, codes: Collection[str], number_of: Callable[[str], str] = str, *, is_sure: bool = True
    ) -> str:
        """Return the SQL of the code that is taken, given that of a text; null where there is none. `number_of` is `TableRows.number`.

        The codes of the axis, which are public, say how numbers are written: with zeros before them, or as 2024-05. Unless it is sure that
        a point is before a fraction, 1.250, which may be 1250, has a code where both are in the same bin.
        """
        if self.bins:
            number = number_of(text)
            code, grouped = self._bin_of(number), self._bin_of(f"replace({number}, '.', '')")
            is_same = f"NOT regexp_full_match(trim({number}), '{EITHER}') OR {code} IS NOT DISTINCT FROM {grouped}"
            return code if is_sure else f"CASE WHEN {is_same} THEN {code} END"
        if not self.take:
            return f"left({text}, {self.first})" if self.first else text
        moment, numbers = self._moment(text := f"trim({text})"), [code for code in codes if code.isdecimal()]
        if self.take in _PERIODS and any("-" in code for code in codes):
            return _PERIODS[self.take].format(moment)
        number = f"date_part('{'isodow' if self.take == 'weekday' else self.take}', {moment})"
        if self.take == "hour" and not self.zone:
            alone = f"TRY_CAST(regexp_extract({text}, '{_HOUR_ALONE}', 1) AS BIGINT)"
            is_long = any(int(code) > 23 for code in numbers)
            number = f"coalesce({number}, {alone if is_long else f'CASE WHEN {alone} < 48 THEN {alone} % 24 END'})"
        return f"printf('%0{_width(codes)}d', ({number})::BIGINT)"

    def _bin_of(self, number: str) -> str:
        """Return the SQL of the bin of a number, given that of its text."""
        number = f"TRY_CAST({number} AS DOUBLE)"
        cases = zip(self.bins, map(literal, bin_codes(self.bins)), strict=True)
        whens = [f"WHEN {number} >= {low} THEN {code}" for low, code in cases]
        return f"CASE WHEN isfinite({number}) THEN CASE {' '.join(whens[::-1])} END END"

    def _moment(self, text: str) -> str:
        """Return the SQL of a local time. DuckDB passes over what it does not know behind one, such as PM, and a day alone has no hour."""
        form = _DAY + (_CLOCK + _ZONE if self.zone else _CLOCK if self.take == "hour" else f"({_CLOCK})?")
        local, instant = (f"TRY_CAST({text} AS {kind})" for kind in ("TIMESTAMP", "TIMESTAMPTZ"))
        moment = f"timezone({literal(self.zone)}, {instant})" if self.zone else local
        return f"CASE WHEN regexp_full_match({text}, '{form}') THEN {moment} END"


def _width(codes: Collection[str]) -> int:
    """Return how many digits the shortest number among codes has, with zeros before it."""
    return min((len(code) for code in codes if code.isdecimal()), default=1)
