"""Backups of the store, and what a backup gives back: the ledger, the seals and their shards, and the key of fingerprints."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import mkdtemp

from flows.run.crashes import note_crashes
from storage.counts.vault import vault_files
from storage.database.connections import Connection, copy_store, store
from storage.errors import HeldElsewhere, StoreError, UsageError, disk_fault
from storage.ledger.events import head, read_books
from storage.machine.clock import utc_now
from storage.machine.files import beside, make_closed, replace, sha256_of_all
from storage.machine.fingerprints import KEY
from storage.machine.home import SHARDS, STORE, VAULTS, home, place_of_home
from storage.machine.locks import holder_of
from storage.releases.register import list_releases

_CONTENTS = "BACKUP.json"  # written last, with the sha256 of every other file


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of a store.

    Attributes:
        made: when: UTC, ISO 8601.
        releases: how many it knows.
        head: the hash of the ledger's last event, as `trellis audit` prints it; empty where the ledger is.
        vaults: whether it holds the true counts of releases that can still be finished, or that keep theirs.
        bytes: how large it is without vaults, whose size depends on the records.
    """

    folder: str
    made: str
    releases: int
    head: str
    vaults: bool
    bytes: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A store that was restored, from which backup, and what its ledger does not know, in words."""

    home: str
    backup: Backup
    statement: str


def back_up(folder: Path, *, vaults: bool = False) -> Backup:
    """Copy the store to a new folder, closed to others, completely or not at all. No release may run meanwhile.

    Prefect's database is left out: it holds what the UI lists, and nothing that a release needs.

    Args:
        folder: which must not exist.
        vaults: whether true counts are copied too.
    Raises:
        UsageError: the folder exists already.
        HeldElsewhere: a release runs.
        StoreError: the folder cannot be written, or a release began meanwhile.
    """
    folder = folder.absolute()
    if folder.exists():
        raise UsageError(f"{folder} exists already.", field="FOLDER", hint="Name a folder that a backup can create.")
    if folder.resolve().is_relative_to(home().resolve()):
        raise UsageError(
            f"{folder} is inside of TRELLIS_HOME.", field="FOLDER", hint="Name a folder elsewhere, on another disk."
        )
    note_crashes()
    partial = None
    try:
        partial = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))  # closed to others
        with store() as con:
            before = _states_and_head(con)
            copy_store(con, partial / STORE)
        _copy_files(partial, vaults=vaults)
        with store() as con:
            if _states_and_head(con) != before:
                raise _changed()
        counted = (path for path in _files(partial) if VAULTS not in path.relative_to(partial).parts[:1])
        size = sum(path.stat().st_size for path in counted)
        made = Backup(str(folder), utc_now(), len(before[0]), before[1], vaults, size)
        contents = json.dumps(asdict(made) | {"files": _hashes(partial)}, indent=2)
        with beside(partial / _CONTENTS, closed=True) as file:
            file.write(contents.encode())
        replace(partial, folder)
    except OSError as fault:
        raise disk_fault(fault, "FOLDER", str(folder)) or StoreError(
            f"{folder} cannot be written ({fault.strerror}).", field="FOLDER", hint="Name a folder that you own."
        ) from None
    finally:
        if partial:
            shutil.rmtree(partial, ignore_errors=True)
    return made


def _changed() -> StoreError:
    return StoreError("The store changed while it was copied.", hint="Run `trellis backup` again, when nothing runs.")


def restore(folder: Path) -> Restored:
    """Make TRELLIS_HOME the store that a backup holds. There must be no store yet.

    Raises:
        UsageError: the folder is no backup, or TRELLIS_HOME has a store already.
        StoreError: a file of the backup is missing or altered, or TRELLIS_HOME cannot be written.
    """
    folder = folder.absolute()
    try:
        contents = json.loads((folder / _CONTENTS).read_text())
        hashes = contents.pop("files")
        backup = Backup(**contents | {"folder": str(folder)})
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{folder} is no backup.", field="FOLDER", hint="`trellis backup FOLDER` makes one.") from None
    altered = sorted(name for name, _ in hashes.items() ^ _hashes(folder).items())
    if altered:
        raise StoreError(f"{folder}: {altered[0]} is missing or was altered.", field="FOLDER")
    if (place_of_home() / STORE).exists():
        raise UsageError(
            f"TRELLIS_HOME={place_of_home()} has a store already, and its ledger would be lost.",
            field="TRELLIS_HOME",
            hint="Set TRELLIS_HOME to a folder that does not exist yet.",
        )
    target = home()
    try:
        for name in sorted(hashes, key=lambda name: name == STORE):  # the store last: without it there is none
            place = target / name
            make_closed(place.parent)
            with (folder / name).open("rb") as source, beside(place, closed=True) as file:
                shutil.copyfileobj(source, file)
    except OSError as fault:
        raise disk_fault(fault) or StoreError(
            f"{target} cannot be written ({fault.strerror}).", field="TRELLIS_HOME"
        ) from None
    note_crashes()
    return Restored(
        str(target),
        backup,
        f"This ledger knows nothing of what was charged after {backup.made}. Run `trellis audit` with every published"
        " folder before you release anything: it names folders that were published with a longer ledger. Do not use the"
        " old store any more.",
    )


def _states_and_head(con: Connection) -> tuple[dict[str, str], str]:
    """Return the state of every release, and the head of the ledger."""
    states = {release.id: release.state for release in list_releases(con)}
    running = next((id_ for id_ in states if holder_of(id_) is not None), None)
    if running:
        raise HeldElsewhere(f"{running} is running.", hint="Back up when nothing runs.")
    read_books(con)  # a ledger that does not add up is not backed up
    return states, head(con).hash


def _copy_files(target: Path, *, vaults: bool) -> None:
    """Copy what belongs to a store beside its database."""
    place = home()
    try:
        key = [place / KEY] if (place / KEY).is_file() else []
        for file in [*key, *_files(place / SHARDS), *(vault_files() if vaults else ())]:
            copy = target / file.relative_to(place)
            make_closed(copy.parent)
            shutil.copyfile(file, copy)
            copy.chmod(0o600)
    except FileNotFoundError:  # a release removes files while it ends
        raise _changed() from None


def _files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _CONTENTS)


def _hashes(folder: Path) -> dict[str, str]:
    files = _files(folder)
    return dict(zip((str(path.relative_to(folder)) for path in files), sha256_of_all(files), strict=True))
