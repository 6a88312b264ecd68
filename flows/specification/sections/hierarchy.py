"""The keys of a spec that say where the codes of an axis are listed, and how its levels nest."""

from codecs import lookup
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from io import BytesIO, TextIOWrapper
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from flows.specification.rules import (
    ONE_PLACE,
    PLACES,
    Keys,
    Location,
    Name,
    as_list,
    differ,
    no_boolean,
    refuse,
)
from flows.specification.sections.taken import OfRecords, with_taken_codes
from tasks.ingest.codebook import MOST_CHILDREN
from tasks.ingest.sources.csv_files import Dialect
from tasks.ingest.tables import in_nfc
from tasks.tree.ordered import (
    MOST_CODES,
    RANGE,
    OrderedAxis,
    codes_beside,
    faults_of_calendar,
    ordered_axis,
    ordered_codes,
)

# pydantic adds these names to the path of an error
_BY_TABLE, _BY_LIST, _BY_ORDER = "<by table>", "<by list>", "<by order>"
_PER_LEVEL = "<per level>"
DOMAIN_TAGS = {_BY_TABLE, _BY_LIST, _BY_ORDER, ONE_PLACE, PLACES, _PER_LEVEL}


def _kind_of_domain(value: object) -> str:
    """Return whether the codes of a feature are in a table or in the spec itself, and whether they have an order."""
    if isinstance(value, dict):
        if "ordered" in value or ("from" in value and value.keys().isdisjoint({"values", "table", "levels"})):
            return _BY_ORDER
        return _BY_LIST if "values" in value else _BY_TABLE
    return _BY_ORDER if isinstance(value, Ordered) else _BY_TABLE if isinstance(value, Hierarchy) else _BY_LIST


def _as_values(value: object) -> object:
    """Return a number of codes, or codes as text; refuse blank and repeated codes. YAML reads some codes as numbers."""
    if isinstance(value, list):
        if not value:
            raise ValueError("must list at least one code.")
        wrong = next((code for code in value if isinstance(code, bool) or not isinstance(code, str | int)), None)
        if wrong is not None or None in value:
            raise ValueError(f"must list codes as text, got {wrong}; put it in quotes.")
        codes = tuple(in_nfc(str(code)) for code in value)
        blank = any(not code.strip() for code in codes)
        if blank or len(set(codes)) < len(codes):
            raise ValueError("must list each code once, and no blank code.")
        return codes
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CHILDREN:
        raise ValueError(f"must be a number of codes from 1 to 2**20, or a list of codes, got {value}.")
    return value


def _text_or_keys(value: object) -> object:
    """Return a text, or what a key holds for each level."""
    if isinstance(value, str | dict | None):
        return value
    raise ValueError(f"must be text or {{level: text}}, got {'a list' if isinstance(value, list) else value}.")


_OneOrPerLevel = Annotated[
    Annotated[str, Tag(ONE_PLACE)] | Annotated[dict[str, str], Tag(_PER_LEVEL)],
    Discriminator(lambda value: _PER_LEVEL if isinstance(value, dict) else ONE_PLACE),
]


def _one_character(separator: str) -> str:
    """Refuse anything but one character that no field needs for itself."""
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(f'must be one character, such as ";" or "\\t" for a tab, got {separator!r}.')
    return separator


def _known_encoding(encoding: str) -> str:
    """Refuse a name that is no encoding of text."""
    try:
        TextIOWrapper(BytesIO(), encoding=encoding)
    except (LookupError, ValueError):
        raise ValueError(f"must be an encoding such as windows-1252 or iso-8859-15, got {encoding}.") from None
    return encoding


class Csv(Keys):
    """How a CSV file is written, where Trellis does not see it.

    Attributes:
        separator: The character between columns; a comma if left out. "\\t" is a tab.
        encoding: The encoding, such as windows-1252; UTF-8 if left out. UTF-16 is seen from the first bytes of a file.
        decimal: The mark before the fraction of a number; a point if left out. With a comma, 12,0 is 12. A number such as 1.000 in
            counts and bins needs it: without it, that may be 1 or 1000.
        null: A text that stands for a missing value, or a list of such texts.
    """

    separator: Annotated[str, AfterValidator(_one_character)] | None = None
    encoding: Annotated[str, AfterValidator(_known_encoding)] | None = None
    decimal: Literal[".", ","] | None = None
    null: Annotated[list[str], BeforeValidator(as_list)] = Field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        """The same as reading takes it."""
        is_utf8 = self.encoding is None or lookup(self.encoding).name == "utf-8"
        encoding = None if is_utf8 else self.encoding
        return Dialect(self.separator or ",", encoding, self.decimal or "", tuple(self.null))


class Hierarchy(OfRecords):
    """A public codebook and its columns, coarse to fine.

    Attributes:
        table: The codebook, a public table with a row per finest area. Files and databases are named as in input.table. If left out, the codes are those in the records, and they are as confidential as the records.
        csv: How the codebook is written, if it is CSV, as in input.csv.
        levels: The columns of the codebook, coarse to fine.
        called: What readers call an area of a level, in the singular, where the column's name is no word: {trct: tract}. The
            report, the explorer and the workbook use it; columns keep their names.
        blank: What a blank code at a level above the finest is: an error (refuse), or own_area: the area stands alone at that
            level, with its own code, as districts do in a country without regions.
        labels: The names of areas: {level: column of the codebook}, or a table with the columns code and name, and level if there are
            several levels.
        boundaries: The shapes of areas, to draw maps with: a .geojson file, or {level: file}. If one file is given, its level is the one that
            has its codes. .parquet (GeoParquet) and .gpkg files need the extra trellis[maps].
        code: The property of the shapes that holds the code of the area; code if left out.
    """

    table: Location | None = None
    csv: Csv | None = None
    levels: Annotated[list[str], Field(min_length=1), AfterValidator(differ)]
    called: dict[str, Name] = Field(default_factory=dict)
    blank: Literal["refuse", "own_area"] = "refuse"
    labels: Annotated[_OneOrPerLevel | None, BeforeValidator(_text_or_keys)] = None
    boundaries: Annotated[_OneOrPerLevel | None, BeforeValidator(_text_or_keys)] = None
    code: str | None = None

    @model_validator(mode="after")
    def _names_levels(self) -> "Hierarchy":
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[str]:
        for key in ("called", "labels", "boundaries"):
            given = getattr(self, key)
            for level in given if isinstance(given, dict) else ():
                if level not in self.levels:
                    yield f"{key} must name levels ({', '.join(self.levels)}), got {level}."
        if self.csv and self.table is None:
            yield "csv must be left out without table, whose file it describes."
        for key in ("labels", "boundaries", "unlisted", "recode"):
            if getattr(self, key) and self.table is None:
                yield f"{key} must be left out without table: the areas are then those in the records."
        if self.code and not self.boundaries:
            yield "code must be left out without boundaries, whose property it names."


class Values(OfRecords):
    """The codes of a feature without levels. They are text.

    Attributes:
        values: A number n, for the codes 0 to n − 1; or a list of all possible codes, such as [f, m].
        labels: The names of the codes: a table with the columns code and name.
    """

    values: Annotated[int | tuple[str, ...], BeforeValidator(_as_values)]
    labels: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return {"values": value} if isinstance(value, list) else value


def _in_order(value: object) -> object:
    """Return a list of codes as text; refuse what names no codes in an order."""
    codes = ordered_codes(value)
    return codes if isinstance(value, list | tuple) else value


class Order(Keys):
    """Codes in an order, from a first to a last one or listed, and those beside it.

    Attributes:
        first: A day such as 2024-01-01, or a number.
        last: The last day or number, included.
        step: day or week between two days; or the difference of two numbers, 1 if left out. The codes of weeks are those of ISO 8601, such
            as 2024-W05.
        codes: In place of these, a number n, for the codes 0 to n − 1, or a list of all codes in their order.
        beside: Codes that stand outside of the order, such as unknown. No range counts them.
    """

    first: float | int | str | None = None
    last: float | int | str | None = None
    step: float | int | Literal["day", "week"] | None = None
    codes: int | tuple[str, ...] | None = None
    beside: tuple[str, ...] | None = None


class Ordered(OfRecords):
    """The codes of an ordered feature, such as ages, hours or days. Its levels are made by halving.

    Attributes:
        ordered: A number n, for the codes 0 to n − 1; a list of all codes in their order; {first: 2024-01-01, last:
            2026-12-31, step: day}; or {codes: 101, beside: [unknown]}, where no range counts what is beside. The levels are `<feature>_1`, `<feature>_2`, … and, for single codes, the feature's name.
        branching: Into how many parts an area is cut at the next level.
        calendar: For days, the levels above those, of year, quarter and month; or week.
        round: Whether the first code follows on the last one, so that a range such as 22..2 goes over midnight. If left out, so it is for
            all hours, weekdays, months or quarters that the name or the codes tell.
        labels: The names of single codes: a table with the columns code and name. With a column level it names areas of the other
            levels too.
    """

    ordered: Annotated[int | tuple[str, ...] | Order, BeforeValidator(_in_order)]
    branching: Annotated[int, BeforeValidator(no_boolean), Field(ge=2, le=MOST_CODES, strict=True)] = 2
    calendar: list[Literal["year", "quarter", "month", "week"]] = Field(default_factory=list)
    round: bool | None = None
    labels: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_codes(cls, value: object) -> object:
        return with_taken_codes(value)

    @model_validator(mode="after")
    def _fits_together(self) -> "Ordered":
        beside = codes_beside(self._ordered)
        is_other = self.unlisted is not None and self.unlisted not in ordered_codes(self._ordered)
        refuse(faults_of_calendar(self._ordered, self.calendar))
        if RANGE in (self.unlisted or ""):
            refuse([f"unlisted must be a code that has no {RANGE} in it."])
        if is_other and self.calendar and not beside:
            refuse(
                ["unlisted must be left out with calendar, since it is no day; or name it in ordered, under beside."]
            )
        if self.round and self.calendar:
            refuse(["round must be left out with calendar, whose codes do not go round."])
        if self.round and is_other and not beside:
            refuse(
                [
                    "round must be left out with unlisted, whose code comes after the last one; or name it in ordered, under beside."
                ]
            )
        return self

    def axis(self, name: str) -> OrderedAxis:
        """Return the axis under the name of its feature."""
        return replace(self._axis, name=name)

    def levels(self, name: str) -> list[str]:
        """Return the levels of a feature of that name, coarse to fine."""
        return [*self.calendar, *(f"{name}_{number}" for number in range(1, self._made)), name]

    @property
    def _ordered(self) -> object:
        return self.ordered.model_dump() if isinstance(self.ordered, Order) else self.ordered

    @cached_property
    def _axis(self) -> OrderedAxis:
        domain = {"ordered": self._ordered, "unlisted": self.unlisted}
        return ordered_axis("", domain | {"branching": self.branching, "calendar": self.calendar})

    @cached_property
    def _made(self) -> int:
        """The number of levels below those of the calendar."""
        return len(self._axis.runs) - len(self.calendar)


Domain = Annotated[
    Annotated[Hierarchy, Tag(_BY_TABLE)] | Annotated[Values, Tag(_BY_LIST)] | Annotated[Ordered, Tag(_BY_ORDER)],
    Discriminator(_kind_of_domain),
]
