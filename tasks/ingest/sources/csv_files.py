"""CSV files: how they are written, their header, and the text in them. Every column is text."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, cast

import pyarrow as pa

from storage.errors import InputError
from tasks.ingest.tables import Table, identifier, literal

_LONGEST_HEADER = 2**20  # characters
_BATCH = 65_536  # rows of CSV that DuckDB does not decode
TAB, UTF8 = "\t", "utf-8-sig"
_BY_MARK = {  # the first bytes of a file, longest first, and its encoding
    b"\xff\xfe\0\0": "utf-32",
    b"\0\0\xfe\xff": "utf-32",
    b"\xef\xbb\xbf": UTF8,
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How CSV is written.

    Attributes:
        encoding: where no mark at the beginning of the file says another one; None for UTF-8.
        decimal: the mark before the fraction of a number; empty where nobody says it.
        null: texts that stand for a missing value.
    """

    separator: str = ","
    encoding: str | None = None
    decimal: str = ""
    null: tuple[str, ...] = ()

    def texts(self, columns: Sequence[str], read: str, numbers: Sequence[int] | None = None) -> str:
        """Return the SQL, for use in FROM, of columns without what stands for a missing value.

        Args:
            read: the SQL that reads them.
            numbers: where `read` names its columns c0, c1, …: which of these they are.
        """
        named = [identifier(name) for name in columns]
        values = named if numbers is None else [f"c{number}" for number in numbers]
        if self.null:
            missing = ", ".join(map(literal, self.null))
            values = [f"CASE WHEN {value} NOT IN ({missing}) THEN {value} END" for value in values]
        return f"(SELECT {', '.join(f'{of} AS {name}' for of, name in zip(values, named, strict=True))} FROM {read})"


class OtherDialect(InputError):
    """A CSV file is not written as its key says.

    Attributes:
        dialect: as it seems to be written.
    """

    dialect = Dialect()


def decoded(path: Path, dialect: Dialect, columns: int, wanted: Sequence[int]) -> pa.RecordBatchReader:
    """Return some columns of a CSV file whose encoding DuckDB does not read, under the names that `files` gives them."""
    schema = pa.schema([(f"c{number}", pa.string()) for number in wanted])

    def batches() -> Iterator[pa.RecordBatch]:
        with opened_text(path, dialect) as lines:
            rows = filter(None, csv.reader(lines, delimiter=dialect.separator, strict=True))
            next(rows, None)
            while part := list(islice(rows, _BATCH)):
                if any(len(row) != columns for row in part):
                    raise ValueError(_RAGGED)
                values = [pa.array([row[number] or None for row in part], pa.string()) for number in wanted]
                yield pa.record_batch(values, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def opened_text(path: Path, dialect: Dialect) -> IO[str]:
    """Open a CSV file, unpacked and decoded."""
    return TextIOWrapper(_unpacked(path), encoding=encoding_of(path, dialect), newline="")


def _unpacked(path: Path) -> BinaryIO:
    ending = path.suffix.lower()
    if ending == ".zst":
        return cast("BinaryIO", pa.input_stream(path, compression="zstd"))
    return cast("BinaryIO", (gzip.open if ending == ".gz" else open)(path, "rb"))


def encoding_of(path: Path, dialect: Dialect) -> str:
    """Return the encoding that the first bytes of a CSV file say, or else that of its dialect."""
    begin = b""
    with suppress(OSError, EOFError, zlib.error), _unpacked(path) as file:
        begin = file.read(4)
    marked = next((encoding for mark, encoding in _BY_MARK.items() if begin.startswith(mark)), None)
    return marked or dialect.encoding or UTF8


def header_of(table: Table, path: Path, dialect: Dialect) -> list[str]:
    """Return the names in the first line of a CSV file, each in one line; refuse names that are not separated as its dialect says."""
    names, hint = _first_line(path, dialect)
    if names is None:
        unreadable = table.unreadable(hint)
        raise unreadable if hint != _NOT_UTF8 else _other(unreadable, replace(dialect, encoding="windows-1252"))
    broken = [name for name in names if "\n" in name or "\r" in name]
    if broken and (
        len(names) == 1 or any(dialect.separator in name for name in broken)
    ):  # it may contain rows: show none
        raise table.fault(
            f"{table.name} must have no line break in a column name.",
            "The usual cause is a quote in the first line that is not closed.",
        )
    if len(names) == 1 and dialect.separator in names[0]:
        raise table.fault(
            f"the lines of {table.name} are quoted whole, so that each is one field.",
            'Delete the first and the last quote of every line, and write "" as one quote.',
        )
    if mark := next((mark for mark in (";", TAB, "|") if mark in names[0]), "") if len(names) == 1 else "":
        own = "commas" if dialect.separator == "," else f"`{dialect.separator}`"
        fault = table.fault(
            f"{table.name} must use {own} between columns; it seems to use {'tabs' if mark == TAB else f'`{mark}`'}.",
            f"Beside the key that names the file, write csv: {{separator: {json.dumps(mark)}}}; or convert the file to commas,"
            " and put values that contain a comma in quotes.",
        )
        raise _other(fault, replace(dialect, separator=mark))
    return [re.sub(r"[\r\n]+", " ", name) for name in names]


def _other(fault: InputError, dialect: Dialect) -> OtherDialect:
    other = OtherDialect(str(fault), field=fault.field, hint=fault.hint)
    other.dialect = dialect
    return other


def _first_line(path: Path, dialect: Dialect) -> tuple[list[str] | None, str]:
    """Return the fields of the first line of a CSV file; on failure, None and a hint that does not quote the line."""
    try:
        with opened_text(path, dialect) as lines:
            return next(csv.reader(_within(_LONGEST_HEADER, lines), delimiter=dialect.separator), []), ""
    except _TooLong:
        return (
            None,
            f"The first line must hold the column names, in at most {_LONGEST_HEADER:,} characters. Are there line ends?",
        )
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return None, "The file is not gzip, or is incomplete."
    except UnicodeError:
        begin = begin_of(path)
        other = next((hint for mark, hint in _NO_TEXT.items() if begin.startswith(mark)), "")
        return None, other or (_NOT_UTF8 if encoding_of(path, dialect) == UTF8 else _NOT_SO_ENCODED)
    except (OSError, csv.Error):
        return None, "The file is not zstd, or is incomplete." if path.suffix.lower() == ".zst" else ""


def begin_of(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(12)


class _TooLong(Exception):
    """A header that is longer than any header."""


def _within(most: int, file: IO[str]) -> Iterator[str]:
    """Yield the lines of a file; never read more than `most` characters, however long a line is."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise _TooLong
        most -= len(line)
        yield line.lstrip("\ufeff")  # some files begin with two marks


_NOT_UTF8 = (
    "The file is not in UTF-8. Beside the key that names it, write its encoding, such as csv: {encoding: windows-1252}; or convert"
    " it, for example with `iconv -f LATIN1 -t UTF-8`."
)
_NOT_SO_ENCODED = "The file is not in this encoding: correct csv: {encoding: …} beside the key that names it."
_NO_TEXT = {  # what the first bytes of other files say
    b"\x1f\x8b": "The file is gzipped. Its name must end in .csv.gz.",
    b"\x28\xb5\x2f\xfd": "The file is packed with zstd. Its name must end in .csv.zst.",
    b"PAR1": "The file is Parquet. Its name must end in .parquet.",
    b"PK\3\4": "The file is a workbook, whose name must end in .xlsx, or is zipped: unpack it.",
}
_RAGGED = "a row has more or fewer fields than the header"

# Parts of DuckDB's error texts, and their causes. The rest of these texts may quote rows, and is never shown.
CAUSES = {
    r"^Expected Number of Columns: \d+ Found: \d+$": "A row has more or fewer fields than the first line has names.",
    _RAGGED: "A row has more or fewer fields than the first line has names.",
    r"^Invalid unicode": _NOT_UTF8,
    r"codec can't decode|UTF-16 stream": _NOT_SO_ENCODED,
    r"larger than field limit|Maximum line size": "A field is too long. The usual cause is a quote that is not closed.",
    r"^Value with unterminated quote found|unexpected end of data|' expected after '": "A quote is not closed, or a quote inside a field is not doubled.",
    r"CSV Parser state machine reached an invalid state": "The usual cause is a mix of LF and CRLF line ends. Use one of them in the whole file.",
    r"Unexpected end of GZIP stream": "The file is incomplete.",
}
