"""What the Prefect UI shows of a release: its progress, its levels, its privacy statement, and what to press.

This module reads only what is public: released counts, the plan, the ledger. A release continues if the UI cannot show
something.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_logger
from prefect.settings import PREFECT_API_URL

from flows.planning.budget import charge_in_words
from flows.run.steps import missing_branches
from flows.server.process import answers
from storage.database.connections import store
from storage.errors import Interrupted, TrellisError, kind_and_place
from storage.ledger.events import read_books
from storage.record import Record, load_record
from storage.releases.register import Release, state_of
from storage.releases.shards import TRUNK
from tasks.format.manifest import published_manifest
from tasks.format.stated import noise_rows_of
from tasks.pages.templates import markdown
from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder
from tasks.words.levels import grouped_by, level_columns
from tasks.words.numbers import format_bound, format_sigma

_EVERY = 1.0  # seconds between updates of the progress
_SILENCE = 60.0  # seconds without another try once the server is gone, because each try waits for it

_MOST_LARGEST = 15  # rows

_silent_until = 0.0


class Progress:
    """The progress of a release, in per cent of its levels and views. It goes to the UI now and then, and to one other listener."""

    def __init__(self, release: Release, also: Callable[[int, int, int], None]) -> None:
        self.release_id, self.parts, self.also = release.id, len(release.parts), also
        self.shares: dict[int, float] = {}
        with store() as con:  # what earlier runs have sealed; a new release is not in the store yet
            record = load_record(con, release.id) if state_of(con, release.id) else None
        if record:
            for level in sorted({level for level, _ in record.shards["noisy"]}):
                measured, known = record.cells_of(level)
                self.shares[level] = measured / known if known else 1.0
        self.artifact: UUID | None = None
        self.shown_at = 0.0

    def __call__(self, level: int, measured: int, known: int) -> None:
        """Take a report of progress, as a `Report`."""
        self.also(level, measured, known)
        self.shares[level] = measured / known if known else 1.0
        if time.monotonic() - self.shown_at >= _EVERY:
            self.show(100 * sum(self.shares.values()) / self.parts)

    def show(self, per_cent: float) -> None:
        """Show a percentage."""
        self.shown_at = time.monotonic()
        _shown(lambda: self._update(min(per_cent, 100.0)))

    def _update(self, per_cent: float) -> None:
        if self.artifact is None:
            key = _key(self.release_id, "progress")
            created = create_progress_artifact(per_cent, key, f"Progress of {self.release_id}")
            self.artifact = created if isinstance(created, UUID) else None
        else:
            update_progress_artifact(self.artifact, per_cent)


def show_published(release_id: str) -> None:
    """Show the levels of a release, its privacy statement, and where it is."""
    with store() as con:
        record = load_record(con, release_id)
    folder, terms = record.release.folder, record.release.terms
    unprotected = terms.unprotected
    statement = _text("published.md", release=release_id, privacy=terms.privacy, unprotected=unprotected, folder=folder)
    manifest = published_manifest(Path(folder))
    known = {"noise rows": [noise_rows_of(level) for level in manifest.levels]} if manifest else {}
    _shown(lambda: _levels_table(record, f"Levels of {release_id}, as published", known))
    _shown(lambda: _views_table(record, f"Views of {release_id}, as published"))
    _shown(lambda: _largest_table(release_id, Path(folder)))
    _show_text(release_id, "statement", statement, "What the release protects, and where it is")


def show_failure(release_id: str, fault: BaseException, *, deployed: bool) -> None:
    """Show what failed, what Trellis keeps, and what to press."""
    with store() as con:
        books = read_books(con)
        record = load_record(con, release_id, books)
    there = record.branches_of(record.finest) if record.branches else []
    text = _text(
        "stopped.md",
        **_fault(release_id, fault, deployed=deployed),
        is_reserved=True,
        missing=missing_branches(record) if there else [],
        branches=len(there),
        charge=charge_in_words(books, release_id),
    )
    so_far = [_how_far(record, level) for level in range(record.finest + 1)]
    _shown(lambda: _levels_table(record, f"Levels of {release_id}, so far", {"done": so_far}))
    _shown(lambda: _views_table(record, f"Views of {release_id}, so far"))
    _show_text(release_id, "failure", text, "What failed, and what to press")


def show_nothing_reserved(name: str, fault: BaseException, *, deployed: bool) -> None:
    """Show what stopped a run before anything was reserved, and what to press.

    Args:
        name: the release, or the spec if the id of the release is not known yet.
        deployed: whether a deployment started the run. Only then does the UI offer Retry.
    """
    text = _text("stopped.md", **_fault(name, fault, deployed=deployed), is_reserved=False, missing=[])
    _show_text(name, "failure", text, "What failed, and what to press")


def what_to_press(release_id: str, fault: BaseException, *, deployed: bool) -> str:
    """Return what stopped a run and what to do about it: the message of its state, which ends its log.

    Arguments are those of `show_nothing_reserved`; the id is empty where nothing is reserved.
    """
    reason = str(fault) if isinstance(fault, TrellisError) else f"{kind_and_place(fault)}."
    hint = fault.hint if isinstance(fault, TrellisError) else ""
    press = "press Retry" if deployed else "run the deployment rerun" if release_id else "run the command again"
    again = f"Correct the cause, then {press}" + (
        f", or run `trellis rerun {release_id}`." if release_id and "trellis rerun" not in hint else "."
    )
    return " ".join(text for text in (reason, hint, again) if text)


def _fault(name: str, fault: BaseException, *, deployed: bool) -> dict[str, Any]:
    """Return what a template says of how a run ended. A fault whose text could quote the data is named by its kind and place only."""
    reason = hint = ""
    if isinstance(fault, Exception) and not isinstance(fault, Interrupted):
        reason = str(fault) if isinstance(fault, TrellisError) else kind_and_place(fault)
        hint = fault.hint if isinstance(fault, TrellisError) and "trellis rerun" not in fault.hint else ""
    return {"name": name, "is_deployed": deployed, "refused": False, "reason": reason, "hint": hint}


def _how_far(record: Record, level: int) -> str:
    branches = record.branches_of(level)
    finished = sum((level, name) in record.shards["counts"] for name in branches)
    if finished in {0, len(branches)}:
        return "yes" if finished else "no"
    return f"{finished} of {len(branches)} branches"


def show_refusal(name: str, fault: TrellisError) -> None:
    """Show why the budget refused a release."""
    text = _text("stopped.md", refused=True, reason=str(fault), hint=fault.hint)
    _show_text(name, "refusal", text, "Why it was refused")


def _show_text(name: str, what: str, text: str, title: str) -> None:
    _shown(lambda: create_markdown_artifact(text, _key(name, what), title))


def _levels_table(record: Record, title: str, known: Mapping[str, Sequence[str]]) -> None:
    levels = record.released_levels()
    columns = level_columns([level.axes for level in levels])
    rows = [
        {
            "level": level.level,
            **{heading: texts[number] for heading, texts in columns.items()},
            **{heading: texts[number] for heading, texts in known.items()},
            "cells": f"{level.cells:,}",
            "non-zero": f"{level.nonzero:,}",
            "sigma": format_sigma(level.sigma, summed=bool(level.summed))
            + ("" if level.same_as is None else f", same as level {level.same_as}"),
            "bound (95%)": format_bound(level.sigma, level.bound, summed=bool(level.summed)),
        }
        for number, level in enumerate(levels)
    ]
    create_table_artifact(rows, _key(record.release.id, "levels"), title)


def _views_table(record: Record, title: str) -> None:
    """Show the views by their names; nothing where there are none."""
    rows = [
        {
            "view": view.view,
            "of": grouped_by(view),
            "done": "yes" if (view.level, TRUNK) in record.shards["counts"] else "no",
            "cells": f"{view.cells:,}",
            "non-zero": f"{view.nonzero:,}",
            "sigma": format_sigma(view.sigma, summed=False),
        }
        for view in record.released_views()
    ]
    if rows:
        create_table_artifact(rows, _key(record.release.id, "views"), title)


def _largest_table(release_id: str, folder: Path) -> None:
    """Show the largest counts with the names of their areas; nothing where there are none."""
    largest = largest_counts(open_folder(folder), _MOST_LARGEST)
    if largest is None or not largest.rows:
        return
    rows = [dict(zip(largest.axes, called, strict=True)) | {"count": f"{count:,}"} for called, count in largest.rows]
    without = ", without those within one area" if largest.without_within else ""
    title = f"The largest counts of {release_id}, level {largest.level}{without}"
    create_table_artifact(rows, _key(release_id, "largest"), title)


def _text(template: str, **values: Any) -> str:
    """Return a text of the UI in Markdown, a paragraph to a line."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", markdown(template, **values)).strip()


def _key(release_id: str, what: str) -> str:
    """Return the key of an artifact: Prefect allows lower-case letters, digits and hyphens."""
    return f"{re.sub('[^a-z0-9]+', '-', release_id.lower()).strip('-')}-{what}"


def _shown(show: Callable[[], object]) -> None:
    global _silent_until
    if time.monotonic() < _silent_until:
        return
    try:
        show()
    except Exception as fault:  # noqa: BLE001 (a missing server must not stop a release that is paid for)
        if not answers(PREFECT_API_URL.value() or ""):
            _silent_until = time.monotonic() + _SILENCE
        get_logger("trellis").warning("The UI could not be updated: %s", type(fault).__name__)
