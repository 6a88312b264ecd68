"""Where things are: one folder, readable by its owner alone."""

import os
from pathlib import Path

from storage.errors import StoreError, disk_fault

# what is in TRELLIS_HOME
STORE = "store.duckdb"  # the ledger, the releases and their seals
SHARDS = "shards"  # noisy and released counts, a folder for each release
VAULTS = "vault"  # true counts, a file for each release


def place_of_home() -> Path:
    """Return the path of TRELLIS_HOME (default `~/.trellis`), whether it exists or not."""
    return Path(os.environ.get("TRELLIS_HOME") or Path.home() / ".trellis").expanduser().absolute()


def home() -> Path:
    """Return TRELLIS_HOME (default `~/.trellis`); create it with mode 700 if it does not exist.

    Its parent folder is not created: if that is missing, a disk is not mounted, and a new ledger would lack what the old one
    has charged.

    Raises:
        StoreError: the folder cannot be created or written, or other users can read it.
    """
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
    return folder


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
