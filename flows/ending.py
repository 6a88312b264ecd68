"""How a release ends: published, or abandoned; and what is deleted then."""

import shutil
from pathlib import Path

from flows.budget import standing_of
from storage.database import Connection, store, transaction
from storage.errors import UsageError
from storage.ledger import abandon, advance, charges_of, note
from storage.published import store_levels
from storage.releases import Release, find_release, set_state
from storage.seals import list_seals
from storage.shards import noisy_path, shard_folder
from storage.vault import remove_vault, vault_path


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
    """Delete the vault of a published release, and its noisy counts, unless they are to be kept."""
    if not release.terms["keep_vault"]:
        remove_vault(release.id)
    if not release.terms.get("keep_noisy_counts", True):
        with store() as con:
            _delete_noisy_counts(con, release.id)


def abandon_release(release_id: str) -> list[str]:
    """End a release for good: what it has drawn stays charged, what it has not is given back, its vault is deleted.

    Returns:
        What was deleted, in words.
    Raises:
        UsageError: there is none of that id, or it is in a state that has no such end.
    """
    with store() as con:
        release = find_release(con, release_id)
        if release.state not in {"reserved", "failed"}:
            raise UsageError(f"{release_id} is {release.state} and cannot be abandoned.", field="ID")
        with transaction(con):
            abandon(con, release_id, standing_of)
            set_state(con, release_id, "abandoned")
    return forget_release(release_id)


def forget_release(release_id: str) -> list[str]:
    """Delete what a release was told to keep, or has left behind: its vault, and noisy counts that were to go.

    Returns:
        What was deleted, in words.
    Raises:
        UsageError: there is none of that id, or it could still be finished.
    """
    with store() as con:
        release = find_release(con, release_id)
        if release.state not in {"published", "refused", "abandoned"}:
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
        if release.state == "published" and not release.terms.get("keep_noisy_counts", True):
            deleted += ["noisy counts"] * _delete_noisy_counts(con, release_id)
    return deleted


def remove_all(release_id: str) -> None:
    """Remove the vault and the shards of a release that was never reserved."""
    remove_vault(release_id)
    shutil.rmtree(shard_folder(release_id), ignore_errors=True)


def _delete_noisy_counts(con: Connection, release_id: str) -> bool:
    """Delete the sealed shards of a release and return whether there were any; their hashes stay."""
    shards = [noisy_path(release_id, level, branch) for level, branch in list_seals(con, release_id)]
    there = [shard for shard in shards if shard.exists()]
    for shard in there:
        shard.unlink()
    return bool(there)
