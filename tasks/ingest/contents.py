"""Whether two tables hold the same records, in any order and however they are written: by a keyed sum over all records.

Each row is hashed with the key of this store, and the hashes are added up, each as often as the row's count says. So the sum does
not depend on the order of rows, on the format of the file, or on whether equal records are rows of their own.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from storage.errors import InputError, StoreError, disk_fault, public_errors
from storage.ledger.recognition import Columns, Content, RecognisedTable
from storage.machine.fingerprints import fingerprint_of_records, key_of_records
from tasks.ingest.tables import Table, TableRows, check_columns, identifier, in_nfc, opened, reader

_HALVES = (1, 17)  # where the halves of 128 bits of a hash begin, in hex
_WORD = 2**64  # modulo which each half is added up
_MOST = 2**62  # records that a row stands for, so that its product with a half of a hash fits


@public_errors  # it runs outside of stages, and what DuckDB says of a fault may quote rows
def read_content(table: Table, columns: Columns, known: Collection[Content]) -> RecognisedTable:
    """Return the confidential table as the ledger recognises it, by its place and its content. Reads it once.

    Args:
        columns: that its spec uses.
        known: what other releases' tables are recognised by: where this table has their columns, it is looked at by these too.
    Raises:
        InputError: it cannot be read, or lacks a column.
        StoreError: the table cannot be read, or TRELLIS_HOME has no room for the key of fingerprints.
    """
    try:
        by_columns = fingerprints(table, columns, {of.columns for of in known if of.columns})
        content = Content(columns, by_columns[columns], table.fingerprint_of_file() if table.holds_others else "")
        # an earlier Trellis knew files alone
        file = table.fingerprint_of_file() if any(of.file for of in known) else content.file
    except OSError as fault:
        unread = StoreError(f"{table.field}: {table.name} cannot be read ({fault.strerror}).", field=table.field)
        raise disk_fault(fault) or unread from None
    seen = frozenset({*by_columns.values(), file, content.file} - {""})
    return RecognisedTable(table.at_place().place, content, seen)


def same_content(public: Table, confidential: Table, columns: Columns) -> bool:
    """Return whether a public table is the confidential one or a view of it, or in one file with it, or holds its records or bytes.

    Args:
        confidential: the confidential one, which is read only if the public one has all of its columns.
        columns: of the confidential one, that its spec uses.
    Raises:
        InputError: the confidential table cannot be read, or lacks a column.
    """
    if public.is_same(confidential) or public.has_bytes_of(confidential) or public.shows_rows_of(confidential):
        return True
    try:
        if not _has(public, columns):
            return False
        by_columns = fingerprints(public, columns)
    except InputError:  # it is no table, or has a column twice
        return False
    return by_columns[columns] == fingerprints(confidential, columns)[columns]


def fingerprints(table: Table, columns: Columns, others: Collection[Columns] = ()) -> Mapping[Columns, str]:
    """Return the keyed fingerprint of all records of a table by some columns, and by others as far as it has them.

    Whoever lists records as counts may have listed them one by one before, and the other way round. So all codes are taken with all
    counts, and with one record per row. A file that did not change is not read again.

    Raises:
        InputError: the table cannot be read, or lacks one of the columns.
    """
    key, wanted = key_of_records(), tuple(sorted(others, key=str))
    version = table.version()
    read = _read.__wrapped__ if version is None else _read
    return read(table, columns, wanted, key, version)


@lru_cache(maxsize=8)
def _read(
    table: Table, columns: Columns, others: Sequence[Columns], key: str, _version: tuple[int, ...] | None
) -> Mapping[Columns, str]:
    """Return the fingerprints; the version is there for the cache alone."""
    with reader(table) as con, opened(con, table) as rows:
        con.execute("SET enable_progress_bar = false")
        check_columns(table, rows, _names([columns]))
        there = {*rows.distinct}
        known = (columns, *others)
        codes = list(dict.fromkeys(of.codes for of in known if there.issuperset(map(in_nfc, of.codes))))
        counts = [None, *dict.fromkeys(of.count for of in known if of.count and in_nfc(of.count) in there)]
        pairs = [Columns(of_codes, count) for of_codes in codes for count in counts]
        sums = con.execute(_summed(rows, codes, counts), [key] * len(codes)).fetchall()[0]
    return {
        pair: fingerprint_of_records(records, [half % _WORD for half in halves])
        for pair, records, *halves in zip(pairs, sums[::3], sums[1::3], sums[2::3], strict=True)
    }


def _has(table: Table, columns: Columns) -> bool:
    with reader(table) as con, opened(con, table) as rows:
        return {*rows.names}.issuperset(map(in_nfc, _names([columns])))


def _names(columns: Sequence[Columns]) -> list[str]:
    named = [name for of in columns for name in (*of.codes, *([of.count] if of.count else []))]
    return list(dict.fromkeys(named))


def _summed(rows: TableRows, codes: Sequence[Sequence[str]], counts: Sequence[str | None]) -> str:
    """Return the query: by codes and counts, how many records there are, and what both halves of their hashes add up to."""
    hashes = [f"{_hash(names)} AS hash_{number}" for number, names in enumerate(codes)]
    weights = [f"{_weight(count, rows)} AS weight_{number}" for number, count in enumerate(counts) if count]
    halves = [
        f"('0x' || substring(hash_{number}, {first}, 16))::UBIGINT AS half_{number}_{first}"
        for number in range(len(codes))
        for first in _HALVES
    ]
    sums = [
        sql
        for of in range(len(codes))
        for number, count in enumerate(counts)
        for sql in _sums(of, number if count else None)
    ]
    read = rows.scan([*(name for names in codes for name in names), *filter(None, counts)])
    hashed = f"SELECT {', '.join([*hashes, *weights])} FROM {read} AS confidential"
    return f"SELECT {', '.join(sums)} FROM (SELECT *, {', '.join(halves)} FROM ({hashed}))"


def _hash(names: Sequence[str]) -> str:
    """Return the SQL of the keyed hash of a row. The length of each code stands before it, so that no two rows are one text."""
    codes = [f"confidential.{identifier(name)}::VARCHAR" for name in names]
    texts = [f"strlen({code}), ':', {code}" for code in codes]
    return f"sha256(concat(?::VARCHAR, {', '.join(texts)}))"


def _sums(of: int, weight: int | None) -> Iterator[str]:
    """Yield the SQL of the number of records and of the sums of both halves of their hashes; without a weight each row is a record."""
    if weight is None:
        yield "count(*)"
        yield from (f"coalesce(sum(half_{of}_{first}), 0)" for first in _HALVES)
    else:
        yield f"coalesce(sum(weight_{weight}), 0)"
        yield from (
            f"coalesce(sum((weight_{weight} * half_{of}_{first}) & {_WORD - 1}::HUGEINT), 0)" for first in _HALVES
        )


def _weight(count: str, rows: TableRows) -> str:
    """Return the SQL of how many records a row stands for. What is no count is refused at ingest, and is none here."""
    text = rows.number(f"trim(confidential.{identifier(count)}::VARCHAR)")
    number = f"TRY_CAST({text} AS BIGINT)"
    return f"least(greatest(coalesce({number}, 0), 0), {_MOST})::HUGEINT"
