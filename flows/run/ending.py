"""How a release ends, published or abandoned, and what is deleted then."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.cluster.choice import sweep_mailbox
from flows.planning.budget import abandon, charge_in_words
from flows.run.crashes import note_crashes
from flows.specification.frames import sweep_frames
from storage.counts.published import forget_levels, partial_folder, store_levels, store_table
from storage.counts.shard_files import codebook_path, noisy_path, shard_path
from storage.counts.vault import list_vaults, remove_vault, vault_path
from storage.database.connections import Connection, store, transaction
from storage.errors import UsageError
from storage.ledger.events import advance, note, read_books
from storage.machine.home import shard_folder, subfolder
from storage.machine.locks import held, holder_of, sweep_locks
from storage.mailbox.keys import forget_key, list_keys
from storage.record import Record, load_record
from storage.releases.register import Release, find_release, has_folder, list_releases, set_state, states_of
from tasks.work.capacity import memory_of

_ENDED = {"published", "refused", "abandoned"}


@dataclass(frozen=True, slots=True)
class EndedRelease:
    """A release that has ended, what it is charged, and what was deleted of it just now, in words."""

    id: str
    state: str
    deleted: Sequence[str]
    charge: str


@dataclass(frozen=True, slots=True)
class CleanedRelease:
    """How many files of a release were removed, and their bytes."""

    release: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What was removed of each release, and the bytes in all.

    Attributes:
        runs: how many runs were deleted from Prefect's database; None where that was not asked for.
    """

    cleaned: Sequence[CleanedRelease]
    bytes: int
    runs: int | None = None


def close_the_books(release: Release, *, is_stored: bool) -> bool:
    """Record in one transaction that a release is published: its levels, its charges, its state, and what is kept of it.

    The rows of its levels are stored before. A run that is killed in between leaves tables that no list names; the next one replaces
    them.

    Args:
        release: its folder is complete.
        is_stored: whether this run has stored the rows already, while it published them.
    Returns:
        Whether it was not recorded before.
    """
    kept = release.terms.keep_noisy_counts
    with store() as con:
        record = load_record(con, release.id)
        is_new, charges = record.release.state != "published", record.charges
        sealed = [level for level, charge in charges.items() if charge.state == "sealed"]
        folder, levels = Path(release.folder), len(release.levels)
        for level in () if is_stored else range(levels):
            store_table(con, release.id, folder, level, memory_of(release.terms.run))
        with transaction(con):
            store_levels(con, release.id, folder, levels)
            for level in sealed:
                advance(con, release.id, level, "released")
            if sealed:  # otherwise an earlier run has closed the books
                note(con, "noisy counts kept" if kept else "noisy counts destroyed", release.id)
                if not (release.terms.keep_vault or release.terms.days):
                    note(con, "vault deleted", release.id)
            set_state(con, release.id, "published")
    return is_new


def remove_what_is_not_kept(release: Release) -> None:
    """Delete the vault and the noisy counts of a published release unless its spec keeps them, and what its passes left.

    Nobody can read its slices from then on, wherever they are.
    """
    forget_key(release.id)
    if not (release.terms.keep_vault or release.terms.days):
        remove_vault(release.id)
    _forget_days(release)
    with store() as con:
        _delete_shards(load_record(con, release.id))


def _forget_days(release: Release) -> None:
    """Delete the vaults of published days that no later day of a series is measured with any more, unless the spec keeps them."""
    if not release.terms.days or release.terms.keep_vault:
        return
    with store() as con:
        for day, is_awaited in _days_kept(con, release).items():
            if not is_awaited:
                with transaction(con):
                    note(con, "vault deleted", day)
                remove_vault(day)


def _days_kept(con: Connection, release: Release) -> dict[str, bool]:
    """Return the published days of a release's series that have a vault, and whether a later day will be measured with each.

    None will beyond the weights of days, or after a day that is abandoned.
    """
    account = read_books(con).account_of(release.id)
    days = account.declared_with(release.id) if account and release.terms.days else ()
    states, reach = states_of(con, days), len(release.terms.days)
    later = (days[place + 1 : place + reach] for place in range(len(days)))
    next_of = (next((states[day] for day in of if states[day] != "published"), "abandoned") for of in later)
    return {
        day: next_state != "abandoned"
        for day, next_state in zip(days, next_of, strict=True)
        if states[day] == "published" and vault_path(day).exists()
    }


def abandon_release(release_id: str) -> EndedRelease:
    """End a release for good: what it has drawn stays charged; its vault and everything else that is confidential is deleted.

    What it has not drawn is given back, unless it or its series was admitted by its own statement alone and is drawn in part.

    Sealed noisy counts stay if the spec keeps them. Counts that were drawn and never sealed, and the exact counts of
    invariant levels, which were never published, are deleted with the vault.

    Raises:
        UsageError: there is no release of that id, or its state does not allow it.
    """
    note_crashes()
    with held(release_id), store() as con:
        release = find_release(con, release_id)
        if release.state not in {"reserved", "failed"}:
            raise UsageError(f"{release_id} is {release.state} and cannot be abandoned.", field="ID")
        if has_folder(release):
            raise UsageError(
                f"{release_id} is published, and its folder is there, but the ledger does not record it yet.",
                field="ID",
                hint=f"Run `trellis rerun {release_id}` to record it in the ledger.",
            )
        kept = release.terms.keep_noisy_counts
        with transaction(con):
            abandon(con, release_id)
            forget_levels(con, release_id)
            note(con, "noisy counts kept" if kept else "noisy counts destroyed", release_id)
            set_state(con, release_id, "abandoned")
    return forget_release(release_id)


def forget_release(release_id: str) -> EndedRelease:
    """Delete what a release that has ended kept or left behind: its vault, and shards that its spec does not keep.

    Raises:
        UsageError: there is no release of that id, or it could still be finished.
    """
    with store() as con:
        record = load_record(con, release_id)
        release = record.release
        if release.state not in _ENDED:
            raise UsageError(
                f"{release_id} is {release.state}: without its vault it could not be finished.",
                field="ID",
                hint=f"`trellis abandon {release_id}` ends it for good.",
            )
        if _days_kept(con, release).get(release_id):
            raise UsageError(
                f"{release_id} keeps its true counts, since later days of its series are measured with them.",
                field="ID",
                hint="They are deleted when no later day needs them. `trellis abandon` of the next day ends that sooner.",
            )
        deleted = []
        forget_key(release_id)
        if vault_path(release_id).exists():
            with transaction(con):
                note(con, "vault deleted", release_id)
            deleted.append("vault")
        remove_vault(release_id)
        deleted += ["shards"] * _delete_shards(record)
        shutil.rmtree(partial_folder(Path(release.folder)), ignore_errors=True)
        charge = charge_in_words(read_books(con), release_id)
    _forget_days(release)
    sweep_orphans()
    return EndedRelease(release_id, release.state, deleted, charge)


def clean() -> Cleaning:
    """Delete what releases that have ended do not keep, and what dead processes have left.

    Of a published release it deletes the shards of counts, which its folder and the store hold too. Sealed noisy counts
    stay if the spec keeps them, with the codebooks that explain them. The mailbox of a cluster is swept too, where one is named.

    Raises:
        StoreError: the ledger does not add up, or the mailbox cannot be used.
    """
    note_crashes()
    sweep_orphans()
    sweep_mailbox()
    with store() as con:
        books = read_books(con)
        cleaned = []
        for entry in list_releases(con):
            if entry.state not in _ENDED:
                continue
            record = load_record(con, entry.id, books)
            shards, unfinished = shard_folder(entry.id), partial_folder(Path(record.release.folder))
            paths = [*shards.rglob("*"), *unfinished.rglob("*")]
            before = {path: path.stat().st_size for path in paths if path.is_file()}
            _delete_shards(record, counts=False)
            shutil.rmtree(unfinished, ignore_errors=True)  # a publication that was killed has left it
            gone = {path: size for path, size in before.items() if not path.exists()}
            if gone:
                cleaned.append(CleanedRelease(entry.id, len(gone), sum(gone.values())))
    return Cleaning(cleaned, sum(entry.bytes for entry in cleaned))


def sweep_orphans() -> None:
    """Delete the vaults, keys and codebooks that releases and rehearsals left when they were killed before they were reserved, and data frames.

    An empty folder of shards stays, since a run that is about to begin may have claimed it.
    """
    begun = {Path(folder).name for folder, _, files in os.walk(subfolder("shards")) if files}
    with store() as con:
        for release_id, state in states_of(con, sorted(begun.union(list_vaults(), list_keys()))).items():
            if state in {None, "refused"} and holder_of(release_id) is None:
                remove_all(release_id)
    sweep_frames()
    sweep_locks()


def remove_all(release_id: str) -> None:
    """Delete the vault, the key and the shards of a release that was never reserved."""
    remove_vault(release_id)
    forget_key(release_id)
    shutil.rmtree(shard_folder(release_id), ignore_errors=True)


def _delete_shards(record: Record, *, counts: bool = True) -> bool:
    """Delete the shards that a release that has ended does not keep, and return whether there were any.

    It keeps sealed counts, unless the spec destroys them, and of a published release the counts made from them. Exact
    counts of an abandoned release were never published and are deleted. Codebooks stay, except those that were made from
    counts that are deleted.
    """
    release = record.release
    published, kept = release.state == "published", set[Path]()
    if release.terms.keep_noisy_counts:
        places = [place for place in record.shards["noisy"] if published or not release.parts[place[0]].is_invariant]
        kept |= {noisy_path(release.id, *place, record.shards["noisy"][place].turn) for place in places}
    if published and counts:
        kept |= {shard_path(release.id, shard.name) for shard in record.released.values()}
    made_from_counts = [codebook_path(release.id, axis) for axis in release.terms.unlisted]
    deleted_too = [] if published or release.terms.keep_noisy_counts else made_from_counts
    gone = [
        path
        for path in shard_folder(release.id).iterdir()
        if path in deleted_too or (path not in kept and not path.name.startswith(("codebook_", "derived_")))
    ]
    for path in gone:
        path.unlink()
    return bool(gone)
