"""The keys that say how the code of an axis is taken from a column of each record, and where codes go that the codebook lacks."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from flows.specification.rules import Columns, Keys, Name, known_timezone, no_boolean, refuse
from storage.tables import taken_codes

# pydantic adds these names to the path of an error
_BY_NAME, _TAKEN = "<columns>", "<taken>"
TAKEN_TAGS = {_BY_NAME, _TAKEN}


def _as_number(value: object) -> object:
    """Return a number that was kept as it was written; refuse true and false."""
    return str(value) if isinstance(no_boolean(value), float) else value


def _ascending(bins: list[Decimal]) -> list[Decimal]:
    """Refuse less than two numbers, and numbers that do not ascend."""
    if len(bins) < 2 or sorted(set(bins)) != bins:
        raise ValueError(
            "must list two numbers or more, from the smallest to the largest; the last bin has an open end."
        )
    return bins


class Taken(Keys):
    """A column, and the function that takes the code of a record from it. It sees one row at a time, so one record stays one record.

    Attributes:
        column: The column of the table. Alone, its values are the codes.
        take: A part of a date or time. hour is 0 to 23; an hour such as 25:10 of a timetable is 25 if the axis lists a code above 23,
            and otherwise 1. weekday is 1 (Monday) to 7. month is 1 to 12, quarter 1 to 4 and day 1 to 31; or 2024-05, 2024-Q2 and
            2024-05-17, if the codes of the axis have a hyphen. Dates are written 2024-05-17, times 08:30 or 08:30:00.
        zone: The time zone in which to read values that have a time zone or an offset, such as Europe/Rome. It must be given
            for such values, and left out for others.
        bins: The smallest number of each bin, such as [0, 18, 65] for the codes 0-17, 18-64 and 65+. Numbers below the
            first have no code.
        first: How many letters or digits of a code to keep, from its beginning.
    """

    column: Name
    take: Literal["hour", "weekday", "day", "month", "quarter", "year"] | None = None
    zone: Annotated[str, AfterValidator(known_timezone)] | None = None
    bins: Annotated[list[Annotated[Decimal, BeforeValidator(_as_number)]], AfterValidator(_ascending)] | None = None
    first: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=100, strict=True)] | None = None

    @model_validator(mode="after")
    def _takes_one_way(self) -> "Taken":
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        if sum(of is not None for of in (self.take, self.bins, self.first)) > 1:
            yield "take must be the only one of take, bins and first: a code is taken in one way."
        if self.zone and not self.take:
            yield "zone must be left out without take, whose times it is for."


_IS_TAKEN = Discriminator(lambda value: _TAKEN if isinstance(value, dict | Taken) else _BY_NAME)
ColumnsOrTaken = Annotated[Annotated[Columns, Tag(_BY_NAME)] | Annotated[Taken, Tag(_TAKEN)], _IS_TAKEN]
ColumnOrTaken = Annotated[Annotated[Name, Tag(_BY_NAME)] | Annotated[Taken, Tag(_TAKEN)], _IS_TAKEN]


class OfRecords(Keys):
    """What the codes of an axis have to do with the records.

    Attributes:
        from: For a feature, the column of the table from which its code is taken, and how, if it is not the column of its name: {column:
            started_at, take: hour}. The codes of bins, hours, weekdays, months and quarters need not be listed: they are then
            `ordered`. For trips and group sizes, input.origin, input.destination and input.region say it.
    """

    __annotations__ = {"from": Annotated[Taken | None, Field(default=None)]}  # a keyword of Python

    @property
    def taken(self) -> Taken | None:
        """The column from which the codes of a feature are taken, and how."""
        taken: Taken | None = getattr(self, "from")
        return taken


def with_taken_codes(keys: Any) -> Any:
    """Return the keys of an ordered feature; where they list no codes, with those that what is taken gives."""
    if not isinstance(keys, dict) or "ordered" in keys:
        return keys
    try:
        Taken.model_validate(keys.get("from"))
        codes = taken_codes(keys["from"])
    except ValidationError:  # which is refused once more, by its own key
        codes = ["0"]
    if not codes:
        raise ValueError(
            "must list its codes by table and levels, values or ordered; only bins, hours, weekdays, months and quarters need no list."
        )
    return keys | {"ordered": codes}
