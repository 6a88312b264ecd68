"""Reads the rows of several files as one table: a list, a folder, or what a pattern finds. DuckDB reads them in one pass."""

from collections import Counter
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
from storage.machine.caller import tell_caller
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
        remark: which files beside them are passed over.
    """

    place: str
    files: tuple[FileTable, ...]
    remark: str = ""

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
    with another ending in a folder. What a folder or a pattern finds are files that no error names: their names may be codes.

    Raises:
        InputError: a place has no file, a file is named twice, also by a link, or a folder or a pattern has files of several kinds.
    """
    found, passed_over = list[tuple[Path, Path | None]](), Counter[str]()
    for place in places:
        of_place, others = _found(field, place, base)
        found += of_place
        passed_over += others
    if len({(at.st_dev, at.st_ino) for at in (path.stat() for path, _ in found)}) < len(found):
        raise InputError(f"{field} must name each file once.", field=field, hint="Its records would count twice.")
    whole = ", ".join(str((base / Path(place).expanduser()).absolute()) for place in places)
    files = [
        FileTable(field, path, csv=csv, below=below, number="" if below is None else f"file {number} of {len(found)}")
        for number, (path, below) in enumerate(sorted(found), 1)
    ]
    listed = ", ".join(f"{kind} ({number:,})" for kind, number in sorted(passed_over.items()))
    return Files(field, whole, tuple(files), f"{field} passes over files: {listed}." if listed else "")


def is_several(place: str, base: Path) -> bool:
    """Return whether a place is a folder, or a pattern and no file of that name."""
    path = base / Path(place).expanduser()
    with suppress(OSError):  # whoever opens it says what is wrong with the name
        return path.is_dir() or (has_magic(place) and not path.is_file())
    return False


def _found(field: str, place: str, base: Path) -> tuple[list[tuple[Path, Path | None]], Counter[str]]:
    """Return the files of a place, each with the folder below which the names of folders are columns; and how many are passed over, by ending."""
    path, pattern = (base / Path(place).expanduser()).absolute(), str(Path(place).expanduser())
    if path.is_dir():
        every = _shown([file for file in path.rglob("*") if file.is_file()], path, ".")
        shown, below = _shown(every, path), _above_values(path)
        found = [file for file in shown if _is_of_table(file)]
    elif is_several(place, base):
        names = glob(pattern, root_dir=base, recursive=True)  # noqa: PTH207 (it may begin at the root)
        every = [file for name in names if (file := (base / name).absolute()).is_file()]
        parts = Path(pattern).parts
        fixed = (base / Path(*takewhile(lambda part: not has_magic(part), parts))).absolute()
        shown, below = every if "_" in {part[0] for part in parts} else _shown(every, fixed), _above_values(fixed)
        found = shown
    else:
        every = shown = found = [path]
        below = None
    if not found or not all(file.is_file() for file in found):
        is_of_folders = not path.is_dir() and any((base / name).is_dir() for name in glob(pattern, root_dir=base))  # noqa: PTH207
        hint = _ENDINGS if path.is_dir() else f"It finds folders: {place}/* finds their files." if is_of_folders else ""
        raise InputError(f"{field}: there is no file {path}.", field=field, hint=hint)
    if wrong := next((file for file in found if not _is_of_table(file)), None):
        if below is not None:
            tell_caller(f"{place} finds {wrong}.")
        got = f"and {place} finds others" if below is not None else f"got {wrong.name}"
        raise InputError(f"{field} must name files that end in {', '.join(ENDINGS)}, {got}.", field=field)
    kinds = sorted(
        {next(ending for ending in reversed(ENDINGS) if file.name.lower().endswith(ending)) for file in found}
    )
    if len(kinds) > 1:
        of_one = f"{place.rstrip('/')}/*{kinds[0]}" if path.is_dir() else f"*{kinds[0]}"
        raise InputError(
            f"{field}: {f'the folder {path.name}' if path.is_dir() else place} has files that end in {' and in '.join(kinds)}.",
            field=field,
            hint=f"If all of them are parts of the table, list a pattern for each ending; otherwise name those that are, such as {of_one}.",
        )
    kept = {*shown}
    others = (("" if file in kept else "_*", file) for file in every if _is_of_table(file) != (file in kept))
    return [(file, below) for file in found], Counter(
        f"{mark}{file.suffix.lower() or '(none)'}" for mark, file in others
    )


def _is_of_table(file: Path) -> bool:
    return file.name.lower().endswith(ENDINGS)


def _shown(files: Sequence[Path], below: Path, marks: str = "._") -> list[Path]:
    """Return the files that are not passed over, such as _SUCCESS, and what lies in _temporary."""
    return [file for file in files if not any(part.startswith(tuple(marks)) for part in file.relative_to(below).parts)]


def _above_values(place: Path) -> Path:
    """Return the folder below which names of folders are columns: a folder, as far as no part of it has a value."""
    return Path(*takewhile(lambda part: "=" not in part, place.parts))


_ENDINGS = f"It is a folder, in which files of a table end in {', '.join(ENDINGS)}."
