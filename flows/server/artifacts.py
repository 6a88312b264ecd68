"""What the Prefect UI shows of a release: how far it is, its levels, its privacy statement, and what to press.

Everything here is made from what is public: released counts, the plan, the ledger. Nothing that the UI fails to take
stops a release.
"""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_logger
from prefect.settings import PREFECT_API_URL

from flows.answers.levels import ReleasedLevel, released_levels
from flows.server.process import answers
from storage.database.connections import store
from storage.errors import Interrupted, TrellisError, kind_and_place
from storage.record import load_record
from storage.releases.register import Release
from storage.releases.seals import cells_of_level, list_frontiers, list_seals
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_sigma, rounded_up

_EVERY = 1.0  # seconds between updates of the progress
_SILENCE = 60.0  # seconds without another try, once the server is gone: each one waits for it

_RETRY = (
    "press **Retry** on the page of the flow run, to which *Flow Run* beside this text leads; its dialog says that"
    " task runs will be run again, and means those that are missing"
)

_silent_until = 0.0


class Progress:
    """How far a release is, in per cent of its levels; told to the UI now and then, and to whoever else listens."""

    def __init__(self, release: Release, also: Callable[[int, int, int], None]) -> None:
        self.release_id, self.levels, self.also = release.id, len(release.levels), also
        with store() as con:  # what earlier runs have sealed
            seals, frontiers = list_seals(con, release.id), list_frontiers(con, release.id)
        self.of_level: dict[int, float] = {}
        for level in sorted({level for level, _ in seals}):
            measured, known = cells_of_level(level, seals, frontiers)
            self.of_level[level] = measured / known if known else 1.0
        self.artifact: UUID | None = None
        self.told_at = 0.0

    def __call__(self, level: int, measured: int, known: int) -> None:
        """Be told of progress: a `Report`."""
        self.also(level, measured, known)
        self.of_level[level] = measured / known if known else 1.0
        if time.monotonic() - self.told_at >= _EVERY:
            self.tell(100 * sum(self.of_level.values()) / self.levels)

    def tell(self, per_cent: float) -> None:
        """Show a number of per cent."""
        self.told_at = time.monotonic()
        _shown(lambda: self._tell(min(per_cent, 100.0)))

    def _tell(self, per_cent: float) -> None:
        if self.artifact is None:
            key = _key(self.release_id, "progress")
            created = create_progress_artifact(per_cent, key, f"How far {self.release_id} is")
            self.artifact = created if isinstance(created, UUID) else None
        else:
            update_progress_artifact(self.artifact, per_cent)


def show_published(release_id: str) -> None:
    """Show the levels of a release, its privacy statement, and where it is."""
    with store() as con:
        record = load_record(con, release_id)
    release, levels = record.release, released_levels(record)
    privacy, unprotected = release.terms.privacy, release.terms.unprotected
    statement = "\n".join(
        [
            f"# {release_id} is published",
            privacy.statement,
            f"ε = {rounded_up(privacy.epsilon)}, δ = {privacy.delta:g}, by the accountant {privacy.accountant}.",
            "**Not protected, because published exactly:** " + ("; ".join(unprotected) or "nothing") + ".",
            f"**Folder:** `{release.folder}`; `trellis verify` checks it.",
        ]
    ).replace("\n", "\n\n")
    _shown(lambda: _levels_table(release_id, levels, f"Levels of {release_id}, as published"))
    _shown(lambda: create_markdown_artifact(statement, _key(release_id, "statement"), "What it protects, where it is"))


def show_failure(release_id: str, fault: BaseException, *, deployed: bool) -> None:
    """Show what failed, what is kept, and what to press."""
    with store() as con:
        record = load_record(con, release_id)
    there = record.branches_of(record.finest) if record.branches else []
    missing = [name for name in there if (record.finest, name) not in record.frontiers]
    press = _RETRY if deployed else f"run the deployment **rerun** with the release_id `{release_id}`"
    lines = [
        *_what_stopped(release_id, fault),
        f"**Not finished:** {', '.join(missing)}, of {len(there)} branches." if missing else "",
        f"**What to press:** once the cause is mended, {press}. In a terminal, `trellis rerun {release_id}` does the same.",
        "Only what is missing runs again: what was sealed is used as it is, and nothing is charged again.",
        f"**To give it up:** `trellis abandon {release_id}` ends it for good; what was drawn stays charged.",
    ]
    text = "\n\n".join(line for line in lines if line)
    so_far = {level: _how_far(level, record.branches_of(level), record.frontiers) for level in range(record.finest + 1)}
    levels = released_levels(record)
    _shown(lambda: _levels_table(release_id, levels, f"Levels of {release_id}, as far as it came", so_far))
    _shown(lambda: create_markdown_artifact(text, _key(release_id, "failure"), "What failed, and what to press"))


def show_nothing_reserved(name: str, fault: BaseException, *, deployed: bool) -> None:
    """Show what has stopped a run before anything was reserved, and what to press.

    Args:
        name: the release, or the spec where it is not known which release it would have been.
        fault: what has stopped it.
        deployed: whether the run is a deployment's, for which there is Retry.
    """
    press = _RETRY if deployed else "give the command again: it makes a new release"
    lines = [
        *_what_stopped(name, fault),
        "Nothing was reserved: nothing was drawn, and nothing was charged.",
        f"**What to press:** once the cause is mended, {press}.",
    ]
    text = "\n\n".join(lines)
    _shown(lambda: create_markdown_artifact(text, _key(name, "failure"), "What failed, and what to press"))


def _what_stopped(name: str, fault: BaseException) -> list[str]:
    """Return how a run has ended, and for what fault; what could quote the data is told by its kind and place."""
    if isinstance(fault, Interrupted) or not isinstance(fault, Exception):
        return [f"# {name} was interrupted"]
    told = str(fault) if isinstance(fault, TrellisError) else kind_and_place(fault)
    hint = fault.hint if isinstance(fault, TrellisError) and "trellis rerun" not in fault.hint else ""
    return [f"# {name} has failed", f"> {told} {hint}".rstrip()]


def _how_far(level: int, walked: Sequence[str], done: Collection[tuple[int, str]]) -> str:
    finished = sum((level, name) in done for name in walked)
    if finished in {0, len(walked)}:
        return "yes" if finished else "no"
    return f"{finished} of {len(walked)} branches"


def show_refusal(name: str, fault: TrellisError) -> None:
    """Show why a release was refused by the budget."""
    text = f"# Refused\n\n{fault}\n\n{fault.hint}\n\nNothing was drawn and nothing was charged; `trellis ledger` shows the cap."
    _shown(lambda: create_markdown_artifact(text, _key(name, "refusal"), "Why it was refused"))


def _levels_table(
    release_id: str, levels: Sequence[ReleasedLevel], title: str, done: Mapping[int, str] | None = None
) -> None:
    columns = level_columns([level.axes for level in levels])
    rows = [
        {
            "level": level.level,
            **{heading: texts[number] for heading, texts in columns.items()},
            **({"done": done[level.level]} if done else {}),
            "cells": f"{level.cells:,}",
            "non-zero": f"{level.nonzero:,}",
            "sigma": format_sigma(level.sigma, summed=bool(level.summed)),
            "bound (95 %)": format_bound(level.sigma, level.bound, summed=bool(level.summed)),
        }
        for number, level in enumerate(levels)
    ]
    create_table_artifact(rows, _key(release_id, "levels"), title)


def _key(release_id: str, what: str) -> str:
    """Return the key of an artifact: Prefect wants lower-case letters, digits and hyphens."""
    return f"{re.sub('[^a-z0-9]+', '-', release_id.lower()).strip('-')}-{what}"


def _shown(show: Callable[[], object]) -> None:
    global _silent_until
    if time.monotonic() < _silent_until:
        return
    try:
        show()
    except Exception as fault:  # noqa: BLE001 (a server that is gone must not stop what is paid for)
        if not answers(PREFECT_API_URL.value() or ""):
            _silent_until = time.monotonic() + _SILENCE
        get_logger("trellis").warning("The UI could not be told: %s", type(fault).__name__)
