"""Records are recognised in any order and however they are written, and other records are not."""

import gzip
import hashlib
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import combinations_with_replacement, product
from pathlib import Path

import duckdb
import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import InputError
from storage.ledger.recognition import Columns
from storage.machine.fingerprints import KEY, fingerprint_of_records, key_of_records
from tasks.ingest.contents import fingerprints, read_content, same_content
from tasks.ingest.sources.locations import matrix_at, table_at
from tasks.ingest.tables import Table, same_table

ENDS = Columns(("home", "work"))
COUNTED = Columns(("home", "work"), "n")
RECORDS = [("01", "x y"), ("01", "x y"), ("é", 'z"'), ("é", "1,2"), ("02", "01")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder, and a store with a key."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path


def table(folder: Path, name: str) -> Table:
    """Return a table in a folder."""
    return table_at("input.table", name, folder)


def known_by(table: Table, columns: Columns = ENDS) -> str:
    """Return the fingerprint of a table by its own columns."""
    return fingerprints(table, columns)[columns]


def quoted(text: str) -> str:
    """Return a field of CSV in quotes."""
    return '"' + text.replace('"', '""') + '"'


def as_csv(folder: Path, records: Sequence[tuple[str, str]], name: str = "plain.csv", end: str = "\n") -> str:
    """Write records as CSV, with quotes where they are needed."""
    fields = [(home, quoted(work) if {'"', ","} & {*work} else work) for home, work in records]
    lines = ["home,work", *map(",".join, fields)]
    (folder / name).write_bytes("".join(line + end for line in lines).encode())
    return name


def with_crlf(folder: Path) -> str:
    """Write other line ends, and the rows in another order."""
    return as_csv(folder, RECORDS[::-1], "crlf.csv", "\r\n")


def with_bom(folder: Path) -> str:
    """Write a mark of the encoding, quotes around everything, and no end of the last line."""
    lines = ["home,work", *(f"{quoted(home)},{quoted(work)}" for home, work in RECORDS)]
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    return "bom.csv"


def packed(folder: Path) -> str:
    """Pack the CSV, which ends with a line without fields."""
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / as_csv(folder, RECORDS)).read_bytes() + b"\n"))
    return "packed.csv.gz"


def with_more_columns(folder: Path) -> str:
    """Put columns before, between and behind, in another order."""
    lines = ["id,work,mode,home", *(f"{row},{quoted(work)},m,{home}" for row, (home, work) in enumerate(RECORDS))]
    (folder / "more.csv").write_text("\n".join(lines))
    return "more.csv"


def as_parquet(folder: Path) -> str:
    """Write Parquet."""
    duckdb.sql(
        f"COPY (FROM read_csv('{folder / as_csv(folder, RECORDS)}', all_varchar = true)) TO '{folder}/p.parquet'"
    )
    return "p.parquet"


def as_view(folder: Path) -> str:
    """Show the CSV by a view of a DuckDB file."""
    with duckdb.connect(str(folder / "views.duckdb")) as con:
        con.execute(
            f"CREATE VIEW trips AS SELECT * FROM read_csv('{folder / as_csv(folder, RECORDS)}', all_varchar = true)"
        )
    return "views.duckdb::trips"


def as_sqlite(folder: Path) -> str:
    """Write a table of SQLite."""
    with closing(sqlite3.connect(folder / "city.sqlite")) as base:
        base.execute("CREATE TABLE trips (home, work)")
        base.executemany("INSERT INTO trips VALUES (?, ?)", RECORDS)
        base.commit()
    return "city.sqlite::trips"


def as_sheet(folder: Path) -> str:
    """Write a sheet of a workbook."""
    book = openpyxl.Workbook()
    for row in [("home", "work"), *RECORDS]:
        book.active.append(row)
    book.save(folder / "city.xlsx")
    return "city.xlsx"


WAYS = [with_crlf, with_bom, packed, with_more_columns, as_parquet, as_view, as_sqlite, as_sheet]


@pytest.mark.parametrize("written", WAYS)
def test_records_are_recognised_however_they_are_written(folder: Path, written: Callable[[Path], str]) -> None:
    """Line ends, quotes, marks, order, format and further columns make no other table; one record or a column less does."""
    plain, other = table(folder, as_csv(folder, RECORDS)), table(folder, written(folder))
    less = table(folder, as_csv(folder, RECORDS[1:], "less.csv"))
    assert known_by(plain) == known_by(other) != known_by(less)
    (folder / "homes.csv").write_text("home\n" + "".join(f"{home}\n" for home, _ in RECORDS))
    assert same_content(other, plain, ENDS)  # no public table may hold the records
    assert not same_content(table(folder, "homes.csv"), plain, ENDS)
    assert not same_content(less, plain, ENDS)


def test_counts_are_records(folder: Path) -> None:
    """A table of counts, in one row for each pair or in several, a matrix, and a row for each record are one table."""
    plain = known_by(table(folder, as_csv(folder, RECORDS[:2] + RECORDS[4:])))
    (folder / "counts.csv").write_text("home,work,n\n01,x y,2\n02,01,1\n7,7,0\n")
    (folder / "split.csv").write_text('n,home,work\n01,01,x y\n" 1",01,x y\n1,02,01\n')
    (folder / "matrix.csv").write_text(",x y,01\n01,2,0\n02,0,1\n")
    assert {known_by(table(folder, name), COUNTED) for name in ("counts.csv", "split.csv")} == {plain}
    matrix = matrix_at("input.matrix", "matrix.csv", folder)
    assert known_by(matrix, Columns(("origin", "destination"), "count")) == plain
    duckdb.sql(
        f"COPY (SELECT '01' AS h, 'x y' AS w, 2.0::DECIMAL(5, 1) AS c UNION ALL SELECT '02', '01', 1) TO '{folder}/c.parquet'"
    )
    assert known_by(table(folder, "c.parquet"), Columns(("h", "w"), "c")) == plain  # under other names


def test_a_table_is_looked_at_by_the_columns_of_other_releases(folder: Path) -> None:
    """A spec that reads other columns, or counts other things, does not hide that the records are those of an earlier release."""
    (folder / "first.csv").write_text("home,work,n\na,b,1\nc,d,2\n")
    (folder / "second.csv").write_text("mode,n,m,work,home\nfoot,2,1,d,c\ncar,1,1,b,a\n")
    first = read_content(table(folder, "first.csv"), COUNTED, [])
    assert first.content
    of_mode = Columns(("mode",), "m")
    second = read_content(table(folder, "second.csv"), of_mode, [first.content])
    assert first.content.records in second.fingerprints
    assert second.content
    assert second.content.records != first.content.records
    assert first.fingerprints.isdisjoint(read_content(table(folder, "second.csv"), of_mode, []).fingerprints)


def test_no_two_small_tables_are_one(folder: Path) -> None:
    """Of all tables of at most two records over codes that could be mistaken for one another, each has a fingerprint of its own."""
    codes = [None, "", "1", "1:", ":1", "a", "1:a", "0:"]
    rows = list(product(codes, repeat=2))
    tables = [chosen for size in (1, 2) for chosen in combinations_with_replacement(rows, size)]
    key = key_of_records()

    def hashed(row: tuple[str | None, ...]) -> tuple[int, int]:
        texts = ((f"{len(code.encode())}:{code}" if code is not None else ":") for code in row)
        digest = hashlib.sha256((key + "".join(texts)).encode()).digest()
        return int.from_bytes(digest[:8]), int.from_bytes(digest[8:16])

    summed = {chosen: tuple(sum(half) % 2**64 for half in zip(*map(hashed, chosen), strict=True)) for chosen in tables}
    assert len(set(summed.values())) == len(tables) == 64 + 64 * 65 // 2
    with duckdb.connect(str(folder / "small.duckdb")) as con:  # and the fingerprint is that of these sums
        for number, chosen in enumerate(tables[::97]):
            con.execute(f"CREATE TABLE t{number} (home VARCHAR, work VARCHAR)")
            con.executemany(f"INSERT INTO t{number} VALUES (?, ?)", chosen)
    for number, chosen in enumerate(tables[::97]):
        found = known_by(table(folder, f"small.duckdb::t{number}"))
        assert found == fingerprint_of_records(len(chosen), summed[chosen])


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(0, 3)), min_size=1, max_size=6))
def test_tables_are_one_where_their_records_are(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]]
) -> None:
    """Whatever rows with counts there are, their records one by one are the same table, and with one record more another."""
    folder = tmp_path_factory.mktemp("records")
    records = [(home, work) for home, work, count in rows for _ in range(count)]
    (folder / "counts.csv").write_text("home,work,n\n" + "".join(f"{home},{work},{n}\n" for home, work, n in rows))
    counted = known_by(table(folder, "counts.csv"), COUNTED)
    one_by_one = known_by(table(folder, as_csv(folder, sorted(records))))
    assert (counted == one_by_one) == bool(records)  # nothing is like nothing
    assert counted != known_by(table(folder, as_csv(folder, [*records, ("a", "x")], "more.csv")))


def test_without_the_key_a_fingerprint_says_nothing(folder: Path) -> None:
    """Another key gives other fingerprints, of records and of files."""
    trips = table(folder, as_csv(folder, RECORDS))
    before = known_by(trips), trips.fingerprint_of_file()
    (folder / "home" / KEY).unlink()
    after = known_by(trips), trips.fingerprint_of_file()
    assert set(before).isdisjoint(after)


def test_a_public_table_is_no_view_of_another_file(folder: Path) -> None:
    """It may be made of the records, also by a view of a view. A view of tables in its own file is a table."""
    trips = table(folder, as_view(folder))
    with duckdb.connect(str(folder / "views.duckdb")) as con:
        con.execute("CREATE VIEW zones AS SELECT DISTINCT home AS zone FROM trips")
        con.execute("CREATE TABLE listed (zone VARCHAR)")
        con.execute("CREATE VIEW short AS FROM listed")
    plain = table(folder, "plain.csv")
    with pytest.raises(InputError, match="must hold its rows itself, and zones is a view of another file"):
        same_table(table(folder, "views.duckdb::zones"), plain)
    assert not same_table(table(folder, "views.duckdb::short"), plain)
    assert same_table(table(folder, "views.duckdb::short"), trips)


def test_a_view_of_a_file_that_changed_is_read_again_and_of_a_database_with_changes_beside_it_not(folder: Path) -> None:
    """What a DuckDB file with a second file shows depends on who opens it next."""
    view, plain = table(folder, as_view(folder)), table(folder, "plain.csv")
    before = known_by(plain)
    as_csv(folder, RECORDS[1:])
    assert known_by(view) == known_by(plain) != before
    (folder / "views.duckdb.wal").write_bytes(b"changes")
    with pytest.raises(InputError, match=r"must hold all its rows itself, and views\.duckdb\.wal has changes to it"):
        known_by(view)
