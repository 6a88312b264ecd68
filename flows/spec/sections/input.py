"""The section `input`: the confidential table and its columns."""

from typing import Annotated

from pydantic import AfterValidator

from flows.spec.rules import Columns, Keys, Location, Name
from flows.spec.sections.group_sizes import GroupsKeys

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
                f" characters and no slash, got {name!r}."
            )
    return features


class Input(Keys):
    """The confidential table and its columns: the two ends of trips, or features, or groups such as households.

    Attributes:
        table: A .csv, .csv.gz, .parquet or .xlsx file, file.xlsx::sheet, file.duckdb::table, file.sqlite::table, or
            postgresql://host:port/database::schema.table, or a query in place of schema.table. A path is relative to the spec;
            ${NAME} comes from the environment, and so do the user and the password of a database, as PGUSER and PGPASSWORD or
            PGPASSFILE. Must be given without matrix.
        matrix: In place of table, counts of trips as a matrix of zones: file.omx::matrix, or a .csv or .csv.gz file with
            destinations in the first line and origins in the first column. Its rows are origins. It needs no origin,
            destination and count.
        zones: For an OMX matrix, the lookup that holds the codes of the zones. If left out, the only lookup, or the numbers from 1
            on if there is none.
        origin: The column that holds the code of the finest area where a trip begins, or a list of columns, one per level,
            coarse to fine. Must be given for trips.
        destination: The same for the area where a trip ends. Must be given for trips.
        features: The columns that hold the finest codes of the features. Replaces origin and destination.
        group: The column that holds the code of the group of each row, such as its household, or several columns that hold it
            together. Must be given for group sizes.
        region: For group sizes, the column that holds the code of the finest region of each row. If left out, it has the name
            of the finest level of hierarchy.region.
        groups: For group sizes, a public list of all groups and their regions, those without a record too. If left out, the number
            of groups is protected.
        count: The column of counts. If left out, each row is one record. For group sizes, a row's count is the number of records
            that it adds to its group.
        unit: The column that identifies the unit of each row. Ingest then limits the number of records per unit.
    """

    table: Location | None = None
    matrix: Location | None = None
    zones: Name | None = None
    origin: Columns | None = None
    destination: Columns | None = None
    features: Annotated[Columns, AfterValidator(_fit_for_tables)] | None = None
    group: Columns | None = None
    region: Name | None = None
    groups: GroupsKeys | None = None
    count: Name | None = None
    unit: Name | None = None
