"""The section `input`: the confidential table and its columns, and what groups are, where they lie, and how large they are counted."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from flows.specification.rules import Columns, Keys, Location, Locations, Name, no_boolean
from flows.specification.sections.hierarchy import Csv, Ordered
from flows.specification.sections.taken import ColumnOrTaken, ColumnsOrTaken
from storage.tables import SIZE, size_codes
from tasks.tree.ordered import MOST_CODES
from tasks.words.spelling import with_question


class GroupSizesKeys(Keys):
    """How many groups of each size there are, in every region of every level.

    Attributes:
        region: The finest released level of hierarchy.region.
        largest: The largest size that is counted apart. A group of this size or a larger one counts as this size.
    """

    region: Name
    largest: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=MOST_CODES, strict=True)]


class GroupsKeys(Keys):
    """A public list of all groups, such as addresses, also of those without a record. It must not be made from the records.

    Attributes:
        table: The list: a row per group. Paths are as in input.table.
        group: Its columns that hold the code of the group, in the order of input.group. If left out, they have the same names.
        levels: Its column that holds the code of the finest region of the group. Attributes of groups have the columns that
            input.features names.
    """

    table: Location
    group: Columns | None = None
    levels: Columns


def sizes_of(keys: GroupSizesKeys, groups: GroupsKeys | None) -> Ordered:
    """Return the codes of the axis of sizes: from 1 to the largest, or from 0 where a list has the groups without a record."""
    return _sizes_to(keys.largest, has_list=groups is not None)


@lru_cache(maxsize=8)  # asked for by every check of a spec, and there may be a million
def _sizes_to(largest: int, *, has_list: bool) -> Ordered:
    return Ordered.model_validate(size_codes(largest, has_list=has_list))


MOST_FEATURES = 60

_NAME_BYTES = 128  # the longest name of a feature, which becomes part of file names


def _fit_for_tables(features: list[str]) -> list[str]:
    """Refuse too many features, names that differ only in case, and names that cannot be part of a file name."""
    if len(features) > MOST_FEATURES:
        raise ValueError(f"must name 1 to {MOST_FEATURES} columns, got {len(features)}.")
    if len({name.casefold() for name in features}) < len(features):
        raise ValueError("must name each column once; upper and lower case count as equal.")
    for name in features:
        if "/" in name or not name.strip() or not name.isprintable() or len(name.encode()) > _NAME_BYTES:
            raise ValueError(
                f"must hold column names of at most {_NAME_BYTES} bytes that are not blank and contain only printable"
                f" characters and no slash, got {name!r}. Choose a name, and write the column below it in hierarchy: from: {{column: …}}."
            )
    return features


class Input(Keys):
    """The confidential table and its columns: the two ends of trips, features, or both; or groups such as households.

    Attributes:
        table: A .csv, .csv.gz, .csv.zst, .parquet, .ndjson or .xlsx file; a folder, a pattern such as trips/*.parquet or a list, whose
            files have the rows together; file.xlsx::sheet, file.duckdb::table, file.sqlite::table; or
            postgresql://host:port/database::schema.table, or a query in place of schema.table. A path is relative to the spec;
            ${NAME} comes from the environment, and so do the user and the password of a database, as PGUSER and PGPASSWORD or
            PGPASSFILE. Must be given without matrix.
        matrix: In place of table, counts of trips as a matrix of zones: file.omx::matrix, or a .csv, .csv.gz or .csv.zst file with
            destinations in the first line and origins in the first column. Its rows are origins. It needs no origin,
            destination and count.
        csv: How the file is written, if it is CSV.
        zones: For an OMX matrix, the lookup that holds the codes of the zones. If left out, the only lookup, or the numbers from 1
            on if there is none.
        origin: The column that holds the code of the finest area where a trip begins, or a list of columns, one per level,
            coarse to fine. {column: …, take: …} takes the code from a column, such as the first letters of a longer code: {column:
            postcode, first: 2}. Must be given for trips.
        destination: The same for the area where a trip ends. Must be given for trips.
        features: The columns that hold the finest codes of the features. Beside origin and destination they are attributes of
            trips, such as mode and hour, and beside group they are attributes of groups, such as the tenure of a household: a group has
            one value of each. Must be given where there are no trips and no groups.
        group: The column that holds the code of the group of each row, such as its household, or several columns that hold it
            together. Must be given for group sizes.
        region: For group sizes, the column that holds the code of the finest region of each row, or {column: …, first: …} as in origin. If
            left out, it has the name of the finest level of hierarchy.region.
        groups: For group sizes, a public list of all groups and their regions, those without a record too. If left out, the number
            of groups is protected.
        count: The column that says how many records each row stands for; if left out, each row is one record. For group sizes, a
            row's count is the number of records that it adds to its group.
        unit: The column that identifies the unit of each row. Ingest then limits the number of records per unit.
    """

    table: Locations | None = None
    matrix: Location | None = None
    csv: Csv | None = None
    zones: Name | None = None
    origin: ColumnsOrTaken | None = None
    destination: ColumnsOrTaken | None = None
    features: Annotated[Columns, AfterValidator(_fit_for_tables)] | None = None
    group: Columns | None = None
    region: ColumnOrTaken | None = None
    groups: GroupsKeys | None = None
    count: Name | None = None
    unit: Name | None = None


def faults_of_group_sizes(sizes: GroupSizesKeys, keys: Input, levels: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the keys of group sizes, given the levels of hierarchy.region, coarse to fine."""
    group, groups = keys.group or [], keys.groups
    if sizes.region not in levels:
        rule = f"release.group_sizes.region must be one of the levels {', '.join(levels)} of hierarchy.region"
        yield with_question(f"{rule}, got {sizes.region}.", sizes.region, levels)
    if SIZE in levels:
        yield f"hierarchy.region must have no level named {SIZE}, which is the name of the other axis."
    if groups is not None:
        if sizes.largest >= MOST_CODES:
            yield f"release.group_sizes.largest must be below {MOST_CODES:,} with input.groups, got {sizes.largest:,}."
        if keys.region is not None:
            yield "input.region must be left out with input.groups: the list says in which region a group is."
        if len(groups.levels) != 1:
            yield f"input.groups.levels must name one column, that of the finest regions, got {len(groups.levels)}."
        if groups.group is not None and len(groups.group) != len(group):
            yield f"input.groups.group must name as many columns as input.group, got {len(groups.group)}."
    elif group == [keys.region or levels[-1]]:  # part of a code may be the region of a group that has the whole
        yield f"input.group must not be the column of the regions, got {group[0]}: a region is no group."
    if keys.count in group:
        yield "input.count must not be a column of input.group."
