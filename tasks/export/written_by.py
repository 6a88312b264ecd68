"""Which code wrote the pages of a folder: only the same code writes them again as they are."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

_DRAWN_WITH = ("matplotlib", "numpy", "polars", "pyarrow", "shapely", "vl-convert-python")


@cache
def code_of_pages() -> str:
    """Return a hash over the code of the stages, what they draw with, and the kind of machine, as hexadecimal digits."""
    found = hashlib.sha256()
    for name in _DRAWN_WITH:
        found.update(f"{name} {version(name)}\n".encode())
    found.update(f"python {'.'.join(platform.python_version_tuple()[:2])} {platform.machine()}\n".encode())
    room = Path(str(files("tasks")))
    for path in sorted(path for path in room.rglob("*") if path.suffix in {".py", ".js", ".css"}):
        found.update(f"{path.relative_to(room).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()
