"""Estimates before anything is drawn: how many cells a release measures, how many survive, and the bytes of its files.

The surviving cells depend on confidential counts, so public numbers give only a guess. The constants are fitted to
releases of synthetic countries and of Rhode Island's jobs, down to block groups and down to blocks; with a good guess of the
total they come within a factor of 2 or 3. Bytes are those of zstd Parquet, of CSV and of DuckDB's blocks. `possible_cells` are N_k of
levels 0 to T, N_0 = 1; `sigmas` are σ of these levels, records, and 0 where a level is exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

SURVIVAL = 1 / 3  # odds that a further child survives where the mean count is one σ; fitted, from 0.1 to 0.9
SPREAD_BITS = 4.0  # that counts of surviving cells take beyond the logarithm of their mean, since they are uneven
LARGEST_COUNT_BITS = 40.0  # where nothing is known of the total: ingest takes none above 2**40

SHARD_BYTES = 600.0  # of a shard without cells; counts have `COLUMN_BYTES` more per column
COLUMN_BYTES = 400.0  # of a column without rows
DICTIONARY_BYTES = 2.5  # per distinct noisy count
INDEX_BITS = 1.5  # that zstd's shard takes per cell beyond the entropy of the noise
AREA_BYTES = 4.0  # of the codebook that is kept, per finest area
CODE_BYTES = 6.0  # of the one that is published with noisy counts, per area of any level
CELL_BYTES = 1.0  # that the areas of a published noisy count take
DOCUMENT_BYTES = 110_000.0  # report, manifest, README and checksums
EXPLORER_BYTES = 980_000.0  # of the page that looks numbers up, most of it the library that draws
SHOWN_BYTES, MOST_SHOWN = 32.0, 200_000  # in it per row of a level, and the most rows in it
METADATA_BYTES = 300.0  # of metadata.json, per column of a CSV

MOST_CSV_ROWS = 5_000_000  # of the finest level, for a CSV that nobody has asked for; and of records as CSV
MOST_NOISY_CELLS = 20_000_000  # of a release, whose noisy counts nobody has asked to publish
MOST_RECORDS = 10**9  # of which rows are written; a table of counts holds more of them better
MOST_ROWS = 2.0**40  # of a level: ingest takes no more records, and none has fewer than one

BLOCK_BYTES = 2**18  # which DuckDB gives to one table
BOOK_BLOCKS = 18  # that the ledger and its sister tables take once the first release is written into them


@dataclass(frozen=True, slots=True)
class ExpectedCells:
    """What a level is expected to have.

    Attributes:
        measured: cells that get noise: all children of the cells that survived above.
        nonzero: those that survive.
    """

    measured: float
    nonzero: float


@dataclass(frozen=True, slots=True)
class DiskSize:
    """What a release is expected to leave on disk, bytes.

    Attributes:
        shards: sealed noisy counts, if they are kept, released counts, and codebooks.
        published: the folder.
        store: by which the store grows: a table per level, and before the first release those of the ledger.
        upper_bound: whether every possible cell is taken to survive, because nothing is known of the total.
    """

    shards: int
    published: int
    store: int
    upper_bound: bool

    @property
    def total(self) -> int:
        """All of it."""
        return self.shards + self.published + self.store


CsvKind = bool | Literal["every_level"]


def csv_kind(asked: CsvKind | None, rows: float) -> CsvKind:
    """Return whether the finest level is published as CSV too, or every level: as asked, otherwise the finest of few rows."""
    return rows <= MOST_CSV_ROWS if asked is None else asked


def are_noisy_counts_published(asked: bool | None, cells: float) -> bool:
    """Return whether noisy counts that may be published are: as it is asked for, otherwise where the cells are few."""
    return cells <= MOST_NOISY_CELLS if asked is None else asked


RecordsKind = Literal["csv", "parquet", "left out"]


def records_kind(records: float) -> RecordsKind:
    """Return the form in which a number of synthetic records is written, where they are asked for."""
    if records > MOST_RECORDS:
        return "left out"
    return "csv" if records <= MOST_CSV_ROWS else "parquet"


def expected_cells(
    possible_cells: Sequence[int], sigmas: Sequence[float], total: int | None, complete: int = 0
) -> list[ExpectedCells]:
    r"""Return the cells of levels 0 to T that will be measured, and those that will survive as non-zero.

    .. math:: n_k = s_{k-1} N_k / N_{k-1}, \qquad s_k = s_{k-1} + (n_k - s_{k-1}) \frac{o_k}{1 + o_k},
              \qquad o_k = \tfrac{1}{3} \sqrt{\frac{N}{n_k \max(\sigma_k, 1)}}

    Children add up to their parent, so one child of every surviving cell survives. IntOpt sends the small ones of the
    others to zero until the noise that cannot be below zero is made up for; the share that is left grows with the mean
    count in units of σ, and slowly, since counts are uneven. No level has more cells than there are records.

    Args:
        total: N, a public guess of the records; None takes every possible cell to survive, as far as there can be records.
        complete: the finest level of which every cell is measured whatever survives. What has a count in the end is taken to be as
            it is elsewhere.
    """
    cells = [ExpectedCells(1.0, 1.0)]
    for above, possible, sigma in zip(possible_cells, possible_cells[1:], sigmas[1:], strict=False):
        survived = cells[-1].nonzero
        measured = survived * (possible / above)
        if total is None:
            nonzero = min(measured, MOST_ROWS)
        else:
            odds = SURVIVAL * math.sqrt(total / (measured * max(sigma, 1.0)))
            nonzero = min(max(total, 1), survived + (measured - survived) * odds / (1 + odds))
        cells.append(ExpectedCells(measured, nonzero))
    return [
        replace(of, measured=float(possible)) if level <= complete else of
        for level, (of, possible) in enumerate(zip(cells, possible_cells, strict=True))
    ]


def expected_leaves(possible_cells: Sequence[int], total: int | None, threshold: int) -> list[ExpectedCells]:
    """Return the cells of levels 0 to T of a mechanism that measures leaves only.

    Args:
        total: a public guess of the records; None takes every possible cell to survive.
        threshold: the least count that a leaf is kept with, records; 0 where every leaf is measured and kept.
    """
    *above, leaves = possible_cells
    most = leaves if total is None or not threshold else min(leaves, total / threshold)
    kept = max(float(min(most, 2**1000)), 1.0)  # universes may be beyond every float
    return [*(ExpectedCells(0.0, min(cells, kept)) for cells in above), ExpectedCells(kept, kept)]


def disk_size(
    levels: Sequence[ExpectedCells],
    possible_cells: Sequence[int],
    sigmas: Sequence[float],
    total: int | None,
    *,
    finest_areas: Sequence[int],
    code_bytes: float,
    noisy_counts_kept: bool = True,
    store_is_new: bool = False,
    csv: CsvKind | None = None,
    records: bool = False,
    bounds: int = 0,
    noisy_counts: bool | None = False,
    signal_tables: bool = False,
) -> DiskSize:
    """Return what a release is expected to leave on disk.

    Args:
        levels: what levels 0 to T are expected to have.
        total: a public guess of the records; None for an upper bound.
        finest_areas: per axis, its finest areas that are released.
        code_bytes: of all codes in a row of the finest level, with the commas behind them.
        noisy_counts_kept: whether the sealed shards outlive publication.
        csv: whether the finest level is to be published as CSV too, or every level; None where nobody has asked.
        records: whether it is to be published as synthetic records too.
        bounds: the columns with ends of intervals that every table has beside the counts.
        noisy_counts: whether noisy counts are to be published too; None where nobody has asked.
        signal_tables: whether the rows that stand out are to be published by themselves too, with remainders: each of these stands for
            one row of its level or more, so that no such table has more rows than its level.
    """
    shards = sum(2 * COLUMN_BYTES + AREA_BYTES * areas for areas in finest_areas)
    shown = min(sum(expected.nonzero for expected in levels), MOST_SHOWN)
    published, blocks = DOCUMENT_BYTES + EXPLORER_BYTES + SHOWN_BYTES * shown, BOOK_BLOCKS if store_is_new else 0
    for level, (expected, possible, sigma) in enumerate(zip(levels, possible_cells, sigmas, strict=True)):
        bits = _count_bits(total, expected)
        row = (math.log2(possible) + bits) / 8  # which cell it is, and its count
        wide = row + bounds * bits / 8
        if noisy_counts_kept:
            shards += _noisy_bytes(expected.measured, sigma)
        shards += SHARD_BYTES + COLUMN_BYTES * len(finest_areas) + row * expected.nonzero
        tables = 2 if signal_tables and level else 1
        published += tables * (SHARD_BYTES + COLUMN_BYTES * (level + bounds) + wide * expected.nonzero)
        if level:
            blocks += math.ceil(2 * wide * expected.nonzero / BLOCK_BYTES)  # lightly packed, and with the codes above
    published += _bytes_of_csv(levels, total, csv, code_bytes, bounds, signal_tables=signal_tables)
    published += _bytes_of_noisy_counts(levels, sigmas, total, noisy_counts, finest_areas)
    if records:
        of_csv = min(MOST_CSV_ROWS if total is None else total, MOST_CSV_ROWS) * code_bytes
        kind = records_kind(MOST_RECORDS if total is None else total)
        published += of_csv if kind == "csv" else 0 if kind == "left out" else max(of_csv, row * levels[-1].nonzero)
    return DiskSize(math.ceil(shards), math.ceil(published), blocks * BLOCK_BYTES, total is None)


def _bytes_of_csv(
    levels: Sequence[ExpectedCells],
    total: int | None,
    csv: CsvKind | None,
    code_bytes: float,
    bounds: int,
    *,
    signal_tables: bool,
) -> float:
    """Return the bytes of all CSV files; arguments are those of `disk_size`."""
    rows, added = levels[-1].nonzero, 0.0
    if total is None and csv is None:  # there may be fewer rows, and a CSV
        rows = min(rows, MOST_CSV_ROWS)
    kind, finest = csv_kind(csv, rows), len(levels) - 1
    for level, expected in enumerate(levels):
        # of its codes, level k has k of their columns, the coarse and short ones first; and its numbers, with commas or the end of line
        digits = (1 + bounds) * (1 + _count_bits(total, expected) * math.log10(2))
        line, metadata = code_bytes * level / (finest or 1) + digits, METADATA_BYTES * (level + 1 + bounds)
        if kind == "every_level":
            added += line * expected.nonzero + metadata
        elif kind and level == finest:
            added += line * rows + metadata
        if signal_tables and level and kind:
            added += line * min(expected.nonzero, rows) + metadata
    return added


def _bytes_of_noisy_counts(
    levels: Sequence[ExpectedCells],
    sigmas: Sequence[float],
    total: int | None,
    asked: bool | None,
    finest_areas: Sequence[int],
) -> float:
    """Return the bytes of published noisy counts; arguments are those of `disk_size`."""
    noisy = measured = sum(expected.measured for expected in levels)
    if total is None and asked is None:  # there may be fewer cells, whose noisy counts are published
        noisy = min(measured, MOST_NOISY_CELLS)
    if not are_noisy_counts_published(asked, noisy):
        return 0.0
    share = noisy / measured  # of the measured cells; one at the least
    shards = (_noisy_bytes(share * of.measured, sigma) + COLUMN_BYTES for of, sigma in zip(levels, sigmas, strict=True))
    return sum(2 * CODE_BYTES * areas for areas in finest_areas) + CELL_BYTES * noisy + sum(shards)


def _count_bits(total: int | None, cells: ExpectedCells) -> float:
    if total is None:
        return LARGEST_COUNT_BITS
    return min(LARGEST_COUNT_BITS, SPREAD_BITS + math.log2(1 + total / cells.nonzero))


def _noisy_bytes(cells: float, sigma: float) -> float:
    r"""Return the bytes of a shard of noisy counts: a dictionary of the distinct ones, and an index per cell.

    A discrete Gaussian has the entropy :math:`\log_2(\sqrt{2 \pi e} \sigma)` bits, as if its :math:`W = 4.13 \sigma`
    values were alike; of them :math:`W (1 - e^{-n / W})` are expected among n cells.
    """
    values = math.sqrt(2 * math.pi * math.e) * max(sigma, 1.0)
    distinct = -values * math.expm1(-cells / values)
    return SHARD_BYTES + DICTIONARY_BYTES * distinct + cells * (math.log2(values) + INDEX_BITS) / 8


SHEET_ROW_BYTES = 37.0  # of a workbook
MATRIX_ROW_BYTES = 10.0  # of the matrices of a level, for a pair of zones that has a row
MATRIX_CELL_BYTES = 0.11  # for one that has none
MAP_ROW_BYTES = 25.0  # of a table with shapes, beyond those of the table
OBSERVATION_BYTES = 75.0  # of an observation, beyond the bytes of a row of CSV: it names its dataflow
STRUCTURE_CODE_BYTES = 230.0  # of a code in a structure


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
        rows: of levels 0 to T, as expected.
        zones: of the levels that have matrices.
        areas: of all levels of all axes.
        row_bytes: of a row of the finest level as CSV.
        most_sheet_rows: of a table that gets a sheet.
    """
    added = 0.0
    if "xlsx" in formats:
        added += SHEET_ROW_BYTES * sum(of for of in rows if of <= most_sheet_rows)
    if "omx" in formats:
        added += sum(MATRIX_ROW_BYTES * rows[level] + MATRIX_CELL_BYTES * of**2 for level, of in zones.items())
    if "geoparquet" in formats:
        added += (MAP_ROW_BYTES + row_bytes / 4) * sum(rows)
    if "sdmx" in formats:
        added += (OBSERVATION_BYTES + row_bytes) * sum(rows) + STRUCTURE_CODE_BYTES * areas
    return int(added)
