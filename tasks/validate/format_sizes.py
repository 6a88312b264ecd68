"""Estimates of the bytes of the kinds of files beside Parquet and CSV, before anything is drawn.

The constants are fitted to Rhode Island's jobs, down to block groups and down to blocks.
"""

from collections.abc import Mapping, Sequence

SHEET_ROW_BYTES = 37.0  # of a workbook
MATRIX_ROW_BYTES = 10.0  # of the matrices of a level, for a pair of zones that has a row
MATRIX_CELL_BYTES = 0.11  # for one that has none
MAP_ROW_BYTES = 25.0  # of a table with shapes, beyond those of the table
OBSERVATION_BYTES = 75.0  # of an observation, beyond the bytes of a row of CSV: it names its dataflow
CODE_BYTES = 230.0  # of a code in a structure


def bytes_of_formats(
    formats: Sequence[str],
    rows: Sequence[float],
    zones: Mapping[int, int],
    *,
    areas: int,
    row_bytes: float,
    most_sheet_rows: int,
) -> int:
    """Return the bytes that some kinds of files are expected to take.

    Args:
        formats: the kinds.
        rows: of levels 0 to T, as expected.
        zones: of the levels that have matrices.
        areas: of all levels of all axes.
        row_bytes: of a row of the finest level as CSV.
        most_sheet_rows: of a table that gets a sheet.
    """
    found = 0.0
    if "xlsx" in formats:
        found += SHEET_ROW_BYTES * sum(of for of in rows if of <= most_sheet_rows)
    if "omx" in formats:
        found += sum(MATRIX_ROW_BYTES * rows[level] + MATRIX_CELL_BYTES * of**2 for level, of in zones.items())
    if "geoparquet" in formats:
        found += (MAP_ROW_BYTES + row_bytes / 4) * sum(rows)
    if "sdmx" in formats:
        found += (OBSERVATION_BYTES + row_bytes) * sum(rows) + CODE_BYTES * areas
    return int(found)
