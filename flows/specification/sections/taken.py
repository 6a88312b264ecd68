"""The keys that say how the code of an axis is taken from a column of each record, and where codes go that the codebook lacks."""

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from flows.specification.rules import Columns, Keys, Location, Name, Number, known_timezone, no_boolean, refuse
from storage.tables import edges_of, lists_codes, taken_codes, with_codes
from tasks.ingest.tables import in_nfc
from tasks.tree.ordered import MOST_CODES

Edge = Annotated[Number, Field(allow_inf_nan=False)]  # of a bin

# pydantic adds these names to the path of an error
_BY_NAME, _TAKEN, _BY_EDGE, _BY_STEP = "<columns>", "<taken>", "<edges>", "<steps>"
TAKEN_TAGS = {_BY_NAME, _TAKEN, _BY_EDGE, _BY_STEP}


class Steps(Keys):
    """Bins of equal width.

    Attributes:
        first: The smallest number of the first bin.
        last: That of the last bin, which holds all larger numbers too.
        step: The width of the others, 1 if left out; it may be a fraction.
    """

    first: Edge
    last: Edge
    step: Annotated[Edge, Field(gt=0)] = 1

    @model_validator(mode="after")
    def _reaches_last(self) -> "Steps":
        first, last, step = (Decimal(str(of)) for of in (self.first, self.last, self.step))
        if (last - first) / step >= MOST_CODES:
            refuse(["step must leave at most 2**20 bins."])
        if last <= first or (last - first) % step:
            refuse(["last must be above first by a whole number of steps."])
        return self


def _ascending(bins: list[float]) -> list[float]:
    """Refuse less than two numbers, and numbers that do not ascend."""
    if len(bins) < 2 or sorted(set(bins)) != bins:
        raise ValueError("must list two numbers or more, from the smallest to the largest; the last bin is open.")
    return bins


_Bins = Annotated[
    Annotated[list[Edge], AfterValidator(_ascending), Tag(_BY_EDGE)] | Annotated[Steps, Tag(_BY_STEP)],
    Discriminator(lambda value: _BY_STEP if isinstance(value, dict | Steps) else _BY_EDGE),
]


class Taken(Keys):
    """A column, and the function that takes the code of a record from it. It sees one row, so one record stays one record.

    Attributes:
        column: The column of the table. Alone, its values are the codes.
        take: A part of a date such as 2024-05-17 or a time such as 08:30. hour is 0 to 23; 25:10 in a timetable is hour 25 if the axis lists
            a code above 23, and otherwise hour 1. weekday is 1 (Monday) to 7. month is 1 to 12, quarter 1 to 4, week 1 to 53 and day 1 to
            31; or 2024-05, 2024-Q2, 2024-W20 and 2024-05-17, if the codes of the axis have a hyphen. Weeks are those of ISO 8601.
        zone: The time zone in which to read times that have a zone or an offset, such as Europe/Rome. Left out for other times.
        bins: The smallest number of each bin, such as [0, 18, 65] for the codes 0-17, 18-64 and 65+; or {first: 0, last: 90, step: 5}.
            Larger numbers are in the last bin. Smaller numbers have no code.
        first: How many letters or digits to keep, from the beginning.
    """

    column: Name
    take: Literal["hour", "weekday", "day", "week", "month", "quarter", "year"] | None = None
    zone: Annotated[str, AfterValidator(known_timezone)] | None = None
    bins: _Bins | None = None
    first: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=100, strict=True)] | None = None

    @model_validator(mode="after")
    def _takes_one_way(self) -> "Taken":
        if sum(of is not None for of in (self.take, self.bins, self.first)) > 1:
            refuse(["take must be the only one of take, bins and first: a code is taken in one way."])
        if self.zone and not self.take:
            refuse(["zone must be left out without take, whose times it is for."])
        return self

    @property
    def edges(self) -> tuple[float, ...]:
        """The smallest number of each bin."""
        bins = self.bins.model_dump() if isinstance(self.bins, Steps) else self.bins or []
        return tuple(map(float, edges_of(bins)))


_IS_TAKEN = Discriminator(lambda value: _TAKEN if isinstance(value, dict | Taken) else _BY_NAME)
ColumnsOrTaken = Annotated[Annotated[Columns, Tag(_BY_NAME)] | Annotated[Taken, Tag(_TAKEN)], _IS_TAKEN]
ColumnOrTaken = Annotated[Annotated[Name, Tag(_BY_NAME)] | Annotated[Taken, Tag(_TAKEN)], _IS_TAKEN]


def _as_code(value: object) -> object:
    """Refuse a blank code. YAML reads some codes as numbers."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("must be a code that is not blank.")
    return in_nfc(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else value


class RecodeKeys(Keys):
    """A public table of codes that have changed: a row for each old code, with the new one in its place.

    Attributes:
        table: The table. Files and databases are named as in input.table.
        from: Its column of old codes, those in the records. Several may have the same new code. None may have two: a record would
            be split by weights, and a part of a record is no record.
        to: Its column of new codes, which must be codes of the axis. Codes without a row stay as they are.
    """

    table: Location
    to: Name
    __annotations__["from"] = Name  # a keyword of Python

    @model_validator(mode="after")
    def _names_two_columns(self) -> "RecodeKeys":
        refuse(["to must name another column than from."] if getattr(self, "from") == self.to else ())
        return self


class OfRecords(Keys):
    """What the codes of an axis have to do with the records.

    Attributes:
        unlisted: The code of a public area for records whose code is blank or none of the axis, such as OTHER. It is always there,
            whether or not a record is in it, so that no code is refused. It may be one of the codes.
        recode: A public table of codes that have changed, by which the codes of records are replaced.
        from: For a feature, the column from which its code is taken, and how, if it is not the column of its name: {column: started_at, take:
            hour}. Bins, hours, weekdays, weeks, months and quarters are then `ordered` if no codes are listed. For trips and group sizes,
            input.origin, input.destination and input.region say it.
    """

    unlisted: Annotated[str, BeforeValidator(_as_code)] | None = None
    recode: RecodeKeys | None = None
    __annotations__["from"] = Annotated[Taken | None, Field(default=None)]


def with_taken_codes(keys: Any) -> Any:
    """Return the keys of an ordered feature; where they list no codes, with those that what is taken can have."""
    if not isinstance(keys, dict) or "from" not in keys or lists_codes(keys):
        return keys
    try:
        Taken.model_validate(keys["from"])
    except ValidationError:  # which is refused once more, by its own key
        return keys | {"ordered": 1}
    if codes := taken_codes(keys["from"]):
        return with_codes(keys, codes)
    raise ValueError(
        "must list its codes by table and levels, values or ordered, unless it takes bins or hours, weekdays, weeks, months, quarters."
    )
