"""The check that the explorer of a published folder shows what the tables hold."""

import re
from pathlib import Path

from storage.errors import TrellisError
from tasks.explore.payload import embedded
from tasks.query.folder import open_folder

_NAME = "explorer.html"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def explorer_failures(folder: Path) -> list[str]:
    """Return what is wrong with the explorer of a published folder whose tables are sound; folders of older versions have none."""
    page = folder / _NAME
    if not page.is_file():
        return []
    shown = _DATA.search(page.read_text(encoding="utf-8", errors="replace"))
    try:
        is_right = shown is not None and shown[1] == embedded(open_folder(folder))
    except (TrellisError, ValueError, LookupError):  # the manifest says what cannot be
        is_right = False
    return [] if is_right else [f"{_NAME} does not show what the tables hold."]
