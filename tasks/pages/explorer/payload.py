"""What the explorer shows of a published folder, as one JSON object, and the check that this is what the tables hold."""

import json
import re
from pathlib import Path
from typing import Any

from storage.errors import TrellisError
from storage.releases.terms import COUNTS_POSITIVE
from tasks.format.manifest import Manifest
from tasks.pages.explorer.areas import axes_shown
from tasks.pages.explorer.tables import tables_shown
from tasks.released.families import estimate_of
from tasks.released.sources.folder import PublishedFolder, open_folder
from tasks.released.sources.published import FolderSource
from tasks.words.levels import description_of, source_of, title_of
from tasks.words.protection import epsilon_in_words, unit_words

MOST_ROWS = 200_000


def payload(folder: PublishedFolder, most_rows: int = MOST_ROWS) -> dict[str, Any]:
    """Return what the explorer shows of a folder.

    Args:
        most_rows: the most rows of levels, or cells of tables, that are taken in.
    Guarantees:
        Post-processing: reads nothing but what is published. The same folder always gives the same object.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    estimate = estimate_of(FolderSource(folder))
    content, finest = tables_shown(estimate, most_rows)
    axes, shapes = axes_shown(estimate, finest)
    return {"release": _release(folder.manifest), "axes": axes, **content, "shapes": shapes}


def payload_text(folder: PublishedFolder, most_rows: int = MOST_ROWS) -> str:
    """Return what the explorer shows of a folder as compact JSON; arguments and errors are those of `payload`."""
    return json.dumps(payload(folder, most_rows), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def embedded(folder: PublishedFolder) -> str:
    """Return that JSON as it stands in a page, where no `<` may end a script; errors are those of `payload`."""
    return payload_text(folder).replace("<", "\\u003c")


def _release(manifest: Manifest) -> dict[str, Any]:
    privacy, intervals = manifest.privacy, manifest.intervals
    one, many = unit_words(privacy.unit, privacy.max_records_per_unit)
    if manifest.counts_groups:
        one, many = "group", "groups"
    return {
        "id": manifest.id,
        "title": title_of(manifest.spec, manifest.id),
        "description": description_of(manifest.spec),
        "source": source_of(manifest.spec),
        "unit": privacy.unit,
        "one": one,
        "many": many,
        "epsilon": privacy.epsilon,
        "statement": privacy.statement,
        "meaning": epsilon_in_words(privacy.epsilon, privacy.delta, privacy.unit, privacy.neighbours),
        "unprotected": list(manifest.unprotected),
        "kept": privacy.max_records_per_unit if privacy.bounded_by == "ingest" else None,
        "confidence": intervals.confidence,
        "signal_rate": intervals.signal_rate,
        "supersedes": manifest.supersedes,
        "may_be_negative": COUNTS_POSITIVE in manifest.waived,
    }


_NAME = "explorer.html"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def explorer_failures(folder: Path) -> list[str]:
    """Return what is wrong with the explorer of a published folder whose tables are sound."""
    page = folder / _NAME
    data = _DATA.search(page.read_text(encoding="utf-8", errors="replace")) if page.is_file() else None
    try:
        is_right = data is not None and data[1] == embedded(open_folder(folder))
    except (TrellisError, ValueError, LookupError):  # the manifest says what cannot be
        is_right = False
    return [] if is_right else [f"{_NAME} does not show what the tables hold."]
