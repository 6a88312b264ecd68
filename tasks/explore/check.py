"""The check that the explorer of a published folder shows what the tables hold."""

import re
from pathlib import Path

from storage.errors import TrellisError
from tasks.explore.payload import embedded
from tasks.released.sources.folder import open_folder

_NAME = "explorer.html"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def explorer_failures(folder: Path) -> list[str]:
    """Return what is wrong with the explorer of a published folder whose tables are sound."""
    shown = _data(folder)
    try:
        is_right = shown is not None and shown == embedded(open_folder(folder))
    except (TrellisError, ValueError, LookupError):  # the manifest says what cannot be
        is_right = False
    return [] if is_right else [f"{_NAME} does not show what the tables hold."]


def _data(folder: Path) -> str | None:
    """Return the data in the explorer of a folder as it stands there; None where there is none."""
    page = folder / _NAME
    found = _DATA.search(page.read_text(encoding="utf-8", errors="replace")) if page.is_file() else None
    return found[1] if found else None
