"""Where things are: one folder, on a disk of this machine, readable by its owner alone, and in it a folder for the shards of each release."""

import os
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from storage.errors import StoreError, disk_fault

# what is in TRELLIS_HOME
STORE = "store.duckdb"  # the ledger, the releases and their seals
SHARDS = "shards"  # noisy and released counts, a folder for each release
VAULTS = "vault"  # true counts, a file for each release

_MOUNTS = Path("/proc/self/mountinfo")  # where Linux lists what is mounted; other systems have no such file

# File systems that several machines can have at once. The locks of DuckDB and of releases need not hold across machines, and two
# machines that write one ledger ruin it.
_NETWORK = re.compile(r"nfs.*|cifs|smb.*|lustre|ceph|9p|afs|beegfs.*|gfs2|gpfs|ocfs2|orangefs|pvfs2|wekafs")
# What a program serves (`fuse.<program>`) may come from anywhere. These show folders of this machine; containers without root
# have their own files on the first of them. Others have theirs on `overlay` or `virtiofs`, which are of one machine too.
_LOCAL_PROGRAMS = frozenset({"fuse-overlayfs", "bindfs", "cryfs", "encfs", "gocryptfs", "mergerfs", "ntfs-3g"})


def place_of_home() -> Path:
    """Return the path of TRELLIS_HOME (default `~/.trellis`), whether it exists or not."""
    return Path(os.environ.get("TRELLIS_HOME") or Path.home() / ".trellis").expanduser().absolute()


_has_home = True


def have_no_home() -> None:
    """Let this process have no TRELLIS_HOME from now on: a worker of a cluster keeps nothing."""
    global _has_home
    _has_home = False


def home() -> Path:
    """Return TRELLIS_HOME (default `~/.trellis`); create it with mode 700 if it does not exist.

    Its parent folder is not created: if that is missing, a disk is not mounted, and a new ledger would lack what the old one
    has charged.

    Raises:
        StoreError: the folder cannot be created or written, other users can read it, or other machines can write it; or this is
            a worker of a cluster.
    """
    if not _has_home:
        raise StoreError("A worker of a cluster has no TRELLIS_HOME.", field="TRELLIS_HOME")
    folder = place_of_home()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        open_to_others = folder.stat().st_mode & 0o077
    except FileExistsError:
        raise StoreError(
            f"TRELLIS_HOME={folder} is {'a broken link' if folder.is_symlink() else 'a file'}; it must be a folder.",
            field="TRELLIS_HOME",
            hint="Restore the folder, or set TRELLIS_HOME to it.",
        ) from None
    except FileNotFoundError:
        raise StoreError(
            f"TRELLIS_HOME={folder} cannot be created: there is no folder {folder.parent}.",
            field="TRELLIS_HOME",
            hint="Mount its disk, or create that folder.",
        ) from None
    except OSError as fault:
        raise StoreError(
            f"TRELLIS_HOME={folder} cannot be written ({fault.strerror}).",
            field="TRELLIS_HOME",
            hint="Set TRELLIS_HOME to a folder that you own.",
        ) from None
    if open_to_others:
        raise StoreError(
            f"TRELLIS_HOME={folder} is open to other users, and it holds true counts.",
            field="TRELLIS_HOME",
            hint=f"Run `chmod 700 {folder}`, or set TRELLIS_HOME to another folder.",
        )
    _check_local(folder)
    return folder


@lru_cache(maxsize=8)
def _check_local(folder: Path) -> None:
    """Refuse a folder whose store is on a network file system; a process looks once."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return
    kind = network_file_system((folder / STORE).resolve(), mounts)
    if kind:
        raise StoreError(
            f"TRELLIS_HOME={folder} is on a network file system ({kind}), which other machines can write too.",
            field="TRELLIS_HOME",
            hint="Put it on a disk of this machine; in a container, on a volume. A cluster's workers need no TRELLIS_HOME.",
        )


def network_file_system(path: Path, mounts: str) -> str:
    """Return the kind of the file system that a path is on, if other machines can have it too; otherwise an empty text.

    Args:
        path: without links.
        mounts: what Linux lists in `/proc/self/mountinfo`.
    """
    longest, kind = -1, ""
    for line in mounts.splitlines():
        mounted, _, of_kind = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mounted.split(" ")[4])
        if path.is_relative_to(point) and len(point) >= longest:  # what is mounted last hides what is below it
            longest, kind = len(point), of_kind.split(" ")[0]
    program = kind.removeprefix("fuse.")
    is_served = program != kind and program not in _LOCAL_PROGRAMS
    return kind if is_served or _NETWORK.fullmatch(kind) else ""


def subfolder(name: str) -> Path:
    """Return `TRELLIS_HOME/<name>`; create it with mode 700 if it does not exist.

    Raises:
        StoreError: it cannot be created.
    """
    folder = home() / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as fault:
        raise disk_fault(fault) or StoreError(
            f"{folder} cannot be created ({fault.strerror}).",
            field="TRELLIS_HOME",
            hint="It must be a folder that you own.",
        ) from None
    return folder


def shard_folder(release_id: str) -> Path:
    """Return the folder of a release's shards and codebooks; create it with mode 700 if it does not exist."""
    folder = subfolder(SHARDS) / release_id
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def claim_shard_folder(release_id: str) -> bool:
    """Create the folder of a new release's shards; return False if another run has already created it."""
    try:
        (subfolder(SHARDS) / release_id).mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def give_up_claim(release_id: str) -> None:
    """Remove the folder that was created for a new release, unless something is in it."""
    with suppress(OSError):
        (subfolder(SHARDS) / release_id).rmdir()
