"""Reads the rows of several files as one table: a list, a folder, or what a pattern finds. DuckDB reads them in one pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import glob, has_magic
from hashlib import sha256
from itertools import takewhile
from pathlib import Path

from storage.database.connections import Connection
from storage.errors import InputError
from storage.ledger.recognition import RecognisedTable
from tasks.ingest.sources.csv_files import Dialect
from tasks.ingest.sources.files import FileTable, rows_of_files
from tasks.ingest.tables import Table, TableRows, registered

ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".parquet", ".ndjson", ".jsonl")


@dataclass(frozen=True, slots=True)
class Files(Table):
    """The rows of several files.

    Attributes:
        place: the folder, the pattern or the list, with whole paths.
        files: all of them, in the order of their paths.
    """

    place: str
    files: tuple[FileTable, ...]

    @property
    def name(self) -> str:
        """The name of the folder, or the last part of the pattern or the list."""
        return Path(self.place).name

    @property
    def location(self) -> str:
        """Its place."""
        return self.place

    @property
    def kind(self) -> str:
        """As what its files are read."""
        return f"files of one table, {self.files[0].kind}"

    @property
    def paths(self) -> Sequence[Path]:
        """Its files."""
        return [file.path for file in self.files]

    def at_place(self) -> RecognisedTable:
        """Return it as the ledger recognises it by its place alone."""
        return RecognisedTable(self.place)

    def version(self) -> tuple[int, ...] | None:
        """Return what the disk knows of its files."""
        return tuple(number for file in self.files for number in file.version() or ())

    def has_bytes_of(self, other: Table) -> bool:
        """Return whether a file has the same bytes as one of the other table."""
        return any(file.has_bytes_of(other) for file in self.files)

    def sha256(self) -> str:
        """Return the hash of the hashes of its files, in any order."""
        return sha256("".join(sorted(file.sha256() for file in self.files)).encode()).hexdigest()

    @contextmanager
    def rows(self, con: Connection) -> Iterator[TableRows]:
        """Open all files."""
        with registered(con) as register:
            yield rows_of_files(con, self.files, register)

    def cause(self, message: str) -> str:
        """Return the cause of DuckDB's error message about one of the files."""
        return self.files[0].cause(message)


def files_at(field: str, places: Sequence[str], base: Path, csv: Dialect) -> Files:
    """Return the table that all files of some folders, patterns and paths hold, relative to `base`.

    A file whose name, or whose folder's name, begins with a dot or an underscore is passed over, unless the pattern says so; so is one
    with another ending in a folder.

    Raises:
        InputError: a place has no file, a file is named twice, or a folder has files of several kinds.
    """
    found = [(path, below) for place in places for path, below in _found(field, place, base)]
    if len({path.resolve() for path, _ in found}) < len(found):
        raise InputError(f"{field} must name each file once.", field=field, hint="Its records would count twice.")
    whole = ", ".join(str((base / Path(place).expanduser()).absolute()) for place in places)
    return Files(field, whole, tuple(FileTable(field, path, csv=csv, below=below) for path, below in sorted(found)))


def is_several(place: str, base: Path) -> bool:
    """Return whether a place is a folder, or a pattern and no file of that name."""
    path = base / Path(place).expanduser()
    with suppress(OSError):  # whoever opens it says what is wrong with the name
        return path.is_dir() or (has_magic(place) and not path.is_file())
    return False


def _found(field: str, place: str, base: Path) -> Iterator[tuple[Path, Path | None]]:
    """Yield the files of a place, each with the folder below which the names of folders are columns."""
    path, pattern = (base / Path(place).expanduser()).absolute(), str(Path(place).expanduser())
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(ENDINGS)]
        found, below = _shown(found, path), _above_values(path)
    elif is_several(place, base):
        names = glob(pattern, root_dir=base, recursive=True)  # noqa: PTH207 (it may begin at the root)
        found = [file for name in names if (file := (base / name).absolute()).is_file()]
        parts = Path(pattern).parts
        fixed = (base / Path(*takewhile(lambda part: not has_magic(part), parts))).absolute()
        found, below = found if "_" in {part[0] for part in parts} else _shown(found, fixed), _above_values(fixed)
    else:
        found, below = [path], None
    if not found or not all(file.is_file() for file in found):
        is_of_folders = not path.is_dir() and any((base / name).is_dir() for name in glob(pattern, root_dir=base))  # noqa: PTH207
        hint = _ENDINGS if path.is_dir() else f"It finds folders: {place}/* finds their files." if is_of_folders else ""
        raise InputError(f"{field}: there is no file {path}.", field=field, hint=hint)
    if wrong := next((file.name for file in found if not file.name.lower().endswith(ENDINGS)), None):
        raise InputError(f"{field} must name files that end in {', '.join(ENDINGS)}, got {wrong}.", field=field)
    kinds = sorted(
        {next(ending for ending in reversed(ENDINGS) if file.name.lower().endswith(ending)) for file in found}
    )
    if path.is_dir() and len(kinds) > 1:
        raise InputError(
            f"{field}: the folder {path.name} has files that end in {' and in '.join(kinds)}.",
            field=field,
            hint=f"If all of them are parts of the table, list them; otherwise name those that are, such as {place}/*{kinds[0]}.",
        )
    yield from ((file, below) for file in found)


def _shown(files: Sequence[Path], below: Path) -> list[Path]:
    """Return the files that are not passed over, such as _SUCCESS, and what lies in _temporary."""
    return [file for file in files if not any(part.startswith((".", "_")) for part in file.relative_to(below).parts)]


def _above_values(place: Path) -> Path:
    """Return the folder below which names of folders are columns: a folder, as far as no part of it has a value."""
    return Path(*takewhile(lambda part: "=" not in part, place.parts))


_ENDINGS = f"It is a folder, in which files of a table end in {', '.join(ENDINGS)}."
