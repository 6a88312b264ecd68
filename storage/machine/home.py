"""Where things are: one folder, readable by its owner alone."""

import os
from pathlib import Path

from storage.errors import StoreError, disk_fault


def place_of_home() -> Path:
    """Return where TRELLIS_HOME is (default `~/.trellis`), whether it is there or not."""
    return Path(os.environ.get("TRELLIS_HOME") or Path.home() / ".trellis").expanduser().absolute()


def home() -> Path:
    """Return TRELLIS_HOME (default `~/.trellis`), made with mode 700 if it is not there yet.

    The folder that holds it is not made: where that is gone, a disk is not mounted, and a new ledger would know nothing of
    what the old one has charged.

    Raises:
        StoreError: the folder cannot be made or written, or others may look into it.
    """
    folder = place_of_home()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        open_to_others = folder.stat().st_mode & 0o077
    except FileExistsError:
        raise StoreError(
            f"TRELLIS_HOME={folder} is {'a link to nothing' if folder.is_symlink() else 'a file'}, and must be a folder.",
            field="TRELLIS_HOME",
            hint="Put back the folder that was there, or name it in TRELLIS_HOME.",
        ) from None
    except FileNotFoundError:
        raise StoreError(
            f"TRELLIS_HOME={folder} cannot be made: there is no folder {folder.parent}.",
            field="TRELLIS_HOME",
            hint="Mount its disk, or make that folder.",
        ) from None
    except OSError as fault:
        raise StoreError(
            f"TRELLIS_HOME={folder} cannot be written ({fault.strerror}).",
            field="TRELLIS_HOME",
            hint="Name a folder of your own in TRELLIS_HOME.",
        ) from None
    if open_to_others:
        raise StoreError(
            f"TRELLIS_HOME={folder} is open to others; it holds true counts.",
            field="TRELLIS_HOME",
            hint=f"chmod 700 {folder}, or name a folder of its own.",
        )
    return folder


def subfolder(name: str) -> Path:
    """Return `TRELLIS_HOME/<name>`, made with mode 700 if it is not there yet.

    Raises:
        StoreError: it cannot be made.
    """
    folder = home() / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as fault:
        raise disk_fault(fault) or StoreError(
            f"{folder} cannot be made ({fault.strerror}).",
            field="TRELLIS_HOME",
            hint="It must be a folder of your own.",
        ) from None
    return folder
