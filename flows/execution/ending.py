"""How a release ends: published, or abandoned; and what is deleted then."""

import os
import shutil
from pathlib import Path
from typing import Any

from flows.execution.crashes import note_crashes
from flows.planning.charging import abandon
from storage.counts.published import partial_folder, store_levels
from storage.counts.shards import codebook_path, frontier_path, noisy_path
from storage.counts.vault import list_vaults, remove_vault, vault_path
from storage.database.connections import Connection, store, transaction
from storage.errors import UsageError
from storage.ledger.events import advance, charges_of, note
from storage.machine.claims import shard_folder
from storage.machine.home import subfolder
from storage.machine.locks import held, holder_of, sweep_locks
from storage.releases.register import Release, find_release, is_out, list_releases, set_state, state_of
from storage.releases.seals import list_released, list_seals

_ENDED = {"published", "refused", "abandoned"}


def close_the_books(release: Release) -> None:
    """Record in one transaction that a release is out: its levels, its charges, its state, what is kept of it."""
    kept = release.terms.get("keep_noisy_counts", True)
    with store() as con:
        sealed = [level for level, charge in charges_of(con, release.id).items() if charge.state == "sealed"]
        with transaction(con):
            store_levels(con, release.id, Path(release.folder), len(release.levels))
            for level in sealed:
                advance(con, release.id, level, "released")
            if sealed:  # otherwise the books were closed before
                note(con, "noisy counts kept" if kept else "noisy counts destroyed", release.id)
                if not release.terms["keep_vault"]:
                    note(con, "vault deleted", release.id)
            set_state(con, release.id, "published")


def remove_what_is_not_kept(release: Release) -> None:
    """Delete the vault of a published release and its noisy counts, unless they are to be kept, and what two passes left."""
    if not release.terms["keep_vault"]:
        remove_vault(release.id)
    with store() as con:
        _delete_shards(con, find_release(con, release.id))


def abandon_release(release_id: str) -> list[str]:
    """End a release for good: what it has drawn stays charged, its vault and whatever else is confidential is deleted.

    Sealed noisy counts stay if the spec keeps them. What was drawn and never sealed, and the exact counts of invariant
    levels, which were never published, go with the vault.

    Returns:
        What was deleted, in words.
    Raises:
        UsageError: there is none of that id, or it is in a state that has no such end.
    """
    note_crashes()
    with held(release_id), store() as con:
        release = find_release(con, release_id)
        if release.state not in {"reserved", "failed"}:
            raise UsageError(f"{release_id} is {release.state} and cannot be abandoned.", field="ID")
        if is_out(release):
            raise UsageError(
                f"{release_id} is out: its folder is published, and only its books are not closed.",
                field="ID",
                hint=f"`trellis rerun {release_id}` closes them.",
            )
        kept = release.terms.get("keep_noisy_counts", True)
        with transaction(con):
            abandon(con, release_id)
            note(con, "noisy counts kept" if kept else "noisy counts destroyed", release_id)
            set_state(con, release_id, "abandoned")
    return forget_release(release_id)


def forget_release(release_id: str) -> list[str]:
    """Delete what a release was told to keep, or has left behind: its vault, and shards that were to go.

    Returns:
        What was deleted, in words.
    Raises:
        UsageError: there is none of that id, or it could still be finished.
    """
    with store() as con:
        release = find_release(con, release_id)
        if release.state not in _ENDED:
            raise UsageError(
                f"{release_id} is {release.state}: without its vault it could not be finished.",
                field="ID",
                hint=f"`trellis abandon {release_id}` ends it for good.",
            )
        deleted = []
        if vault_path(release_id).exists():
            with transaction(con):
                note(con, "vault deleted", release_id)
            deleted.append("vault")
        remove_vault(release_id)
        deleted += ["shards"] * _delete_shards(con, release)
        _remove_partial_folder(release)
    sweep_orphans()
    return deleted


def clean() -> list[dict[str, Any]]:
    """Remove what releases that have ended do not need, by their own rules, and what dead processes have left.

    Of a published release the shards of counts go, which its folder and the store hold; sealed noisy counts stay if its
    spec keeps them, with the codebooks that explain them.

    Returns:
        Per release how many files, and bytes, are gone.
    """
    note_crashes()
    sweep_orphans()
    with store() as con:
        ended = [find_release(con, entry["id"]) for entry in list_releases(con) if entry["state"] in _ENDED]
        cleaned = []
        for release in ended:
            before = _files_of(release)
            _delete_shards(con, release, counts=False)
            _remove_partial_folder(release)
            gone = {path: size for path, size in before.items() if not path.exists()}
            if gone:
                cleaned.append({"release": release.id, "files": len(gone), "bytes": sum(gone.values())})
    return cleaned


def _files_of(release: Release) -> dict[Path, int]:
    folders = [shard_folder(release.id), _partial_folder(release)]
    return {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}


def _remove_partial_folder(release: Release) -> None:
    """Remove what a publication that was killed has left in the output folder."""
    shutil.rmtree(_partial_folder(release), ignore_errors=True)


def _partial_folder(release: Release) -> Path:
    return partial_folder(Path(release.folder))


def sweep_orphans() -> None:
    """Delete what releases and rehearsals that were killed before they were reserved have left: vaults, and codebooks.

    An empty folder of shards stays, since a run that is about to begin may have claimed it.
    """
    begun = {Path(folder).name for folder, _, files in os.walk(subfolder("shards")) if files}
    with store() as con:
        for release_id in sorted(begun.union(list_vaults())):
            if state_of(con, release_id) in {None, "refused"} and holder_of(release_id) is None:
                remove_all(release_id)
    sweep_locks()


def remove_all(release_id: str) -> None:
    """Remove the vault and the shards of a release that was never reserved."""
    remove_vault(release_id)
    shutil.rmtree(shard_folder(release_id), ignore_errors=True)


def _delete_shards(con: Connection, release: Release, *, counts: bool = True) -> bool:
    """Delete the shards that a release that has ended is not to keep, and return whether there were any.

    Kept are sealed counts, unless the spec destroys them, and of a published release what was made of them. Exact counts
    of an abandoned release were never published, and go. Codebooks stay, but for one that was made of counts that go.
    """
    published, kept = release.state == "published", set[Path]()
    if release.terms.get("keep_noisy_counts", True):
        seals = list_seals(con, release.id)
        places = [place for place in seals if published or not release.levels[place[0]].is_invariant]
        kept |= {noisy_path(release.id, *place) for place in places}
    if published and counts:
        kept |= {frontier_path(release.id, shard) for shard in list_released(con, release.id).values()}
    made_of_counts = [codebook_path(release.id, axis) for axis in release.terms.get("unlisted", [])]
    goes_too = [] if published or release.terms.get("keep_noisy_counts", True) else made_of_counts
    gone = [
        path
        for path in shard_folder(release.id).iterdir()
        if path in goes_too or (path not in kept and not path.name.startswith("codebook_"))
    ]
    for path in gone:
        path.unlink()
    return bool(gone)
