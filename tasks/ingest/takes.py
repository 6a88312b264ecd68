"""Codes that are taken from a column: parts of a time, bins of a number, the beginning of a longer code. A closed list of functions.

Guarantees:
    Each is a function of one row, which yields one code, or none, and then the row is refused or is in a public area that the spec names. So
    one record stays one record of one cell: privacy units, sensitivity and charges are those of a table that has the code in a column.
"""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal

from storage.errors import InputError
from storage.tables import bin_codes
from tasks.ingest.tables import literal

_DAY, _CLOCK = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}", r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
_ZONE = r" ?(Z|UTC|GMT|[-+]\d{2}(:?\d{2}){0,2}|[A-Za-z]+(/[\w+-]+)+)"
_HOUR_ALONE = r"(\d{1,2}):[0-5]\d(:[0-5]\d(\.\d+)?)?"  # also those of timetables, beyond 24
_CALENDAR = {"day": "'%Y-%m-%d'", "month": "'%Y-%m'"}  # as DuckDB writes them, where codes have a hyphen
_PART = {"weekday": "isodow"}  # DuckDB's names of parts, where they are others


@dataclass(frozen=True, slots=True)
class Take:
    """How the code of a record is taken from a column.

    Attributes:
        part: hour, weekday, day, month, quarter or year; empty for none.
        zone: in which times that have a zone or an offset are read; empty where they have none.
        bins: the smallest number of each bin, ascending.
        first: how many characters are kept, from the beginning; 0 for all.
    """

    part: str = ""
    zone: str = ""
    bins: tuple[Decimal, ...] = ()
    first: int = 0

    @property
    def called(self) -> str:
        """What is taken, in words that follow "no"."""
        return self.part or ("bin" if self.bins else "code")

    def sql(self, text: str, codes: Collection[str]) -> str:
        """Return the SQL of the code that is taken; null where none can be.

        Args:
            text: the SQL of the column as text.
            codes: those of the axis, which are public, and say how numbers are written: with zeros before them, or as 2024-05.
        """
        if self.bins:
            number = f"TRY_CAST({text} AS DOUBLE)"
            cases = [
                f"WHEN {number} >= {low} THEN {literal(code)}"
                for low, code in zip(self.bins, bin_codes(self.bins), strict=True)
            ]
            return f"CASE WHEN isfinite({number}) THEN CASE {' '.join(reversed(cases))} END END"
        if self.first:
            return f"left({text}, {self.first})"
        return self._of_time(f"trim({text})", codes) if self.part else text

    def _of_time(self, text: str, codes: Collection[str]) -> str:
        numbers = [code for code in codes if code.isdecimal()]
        digits = min(map(len, numbers), default=1)
        moment = self._moment(text)
        if self.part in {"day", "month", "quarter"} and any("-" in code for code in codes):
            if self.part == "quarter":
                return f"strftime({moment}, '%Y') || '-Q' || quarter({moment})"
            return f"strftime({moment}, {_CALENDAR[self.part]})"
        number = f"date_part('{_PART.get(self.part, self.part)}', {moment})"
        if self.part == "hour":
            alone = f"TRY_CAST(regexp_extract({text}, '^{_HOUR_ALONE}$', 1) AS BIGINT)"
            if not any(int(code) > 23 for code in numbers):
                alone = f"CASE WHEN {alone} < 48 THEN {alone} % 24 END"
            number = f"coalesce({number}, {alone})" if not self.zone else number
        return f"printf('%0{digits}d', ({number})::BIGINT)"

    def _moment(self, text: str) -> str:
        """Return the SQL of a local date and time; null for anything else, and for a time with a zone where there must be none."""
        if self.zone:
            return f"CASE WHEN {self._is_zoned(text)} THEN timezone({literal(self.zone)}, TRY_CAST({text} AS TIMESTAMPTZ)) END"
        return f"CASE WHEN {self._is_local(text)} THEN TRY_CAST({text} AS TIMESTAMP) END"

    def _is_local(self, text: str) -> str:
        # DuckDB passes over what it does not know behind a time, such as PM, and a day alone is no hour
        clock = f"[ T]{_CLOCK}"
        return f"regexp_full_match({text}, '{_DAY}{clock if self.part == 'hour' else f'({clock})?'}')"

    def _is_zoned(self, text: str) -> str:
        return f"regexp_full_match({text}, '{_DAY}[ T]{_CLOCK}{_ZONE}')"

    def faults_of_zone(self, text: str) -> tuple[str, str] | None:
        """Return the SQL of whether a value has a time zone and should not, or the other way round, and the rule; None if it does not matter."""
        if not self.part:
            return None
        text = f"trim({text})"
        if self.zone:
            return self._is_local(text), "must hold times with a time zone or an offset, since the spec names a zone."
        return self._is_zoned(
            text
        ), "must hold times without a time zone, or the spec must name the zone in which to read them."

    def check_codes(self, codes: Collection[str], field: str) -> None:
        """Refuse codes of an axis, which are public, that cannot be those that are taken.

        Raises:
            InputError: the code of a bin is missing, or the first day, weekday, month or quarter is 0.
        """
        lacking = [code for code in (bin_codes(self.bins) if self.bins else ()) if code not in codes]
        if lacking:
            raise InputError(f"{field} must list the codes of all bins, and lacks {', '.join(lacking)}.", field=field)
        if self.part in {"weekday", "day", "month", "quarter"} and "0" in codes:
            raise InputError(f"{field} must list codes from 1 on, as {self.part} gives them, and lists 0.", field=field)
