"""Where things are: one folder, readable by its owner alone."""

import os
from pathlib import Path

from storage.errors import StoreError


def home() -> Path:
    """Return TRELLIS_HOME (default `~/.trellis`), made with mode 700 if it is not there yet.

    Raises:
        StoreError: the folder cannot be made or written, or others may look into it.
    """
    folder = Path(os.environ.get("TRELLIS_HOME") or Path.home() / ".trellis").expanduser().absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        open_to_others = folder.stat().st_mode & 0o077
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
    """Return `TRELLIS_HOME/<name>`, made with mode 700 if it is not there yet."""
    folder = home() / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
