"""The audit of the ledger's chain, the seals of each release, and what published manifests recorded of the chain."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from flows.planning.composition import standing_of
from flows.planning.guarantee import holds_together
from storage.counts.shard_files import is_shard, noisy_path
from storage.counts.vault import vault_path
from storage.database.connections import Connection, store
from storage.errors import StoreError, UsageError
from storage.ledger.accounts import Account, as_charged
from storage.ledger.books import MALFORMED, Books
from storage.ledger.checkpoint import CHECKPOINT, Kept, read_checkpoint
from storage.ledger.events import hash_of
from storage.releases.approvals import approval_in, kept_plan
from storage.releases.register import Release, find_release, list_releases
from storage.releases.shards import CLOSED, Place, Shard, Turn, count_given_up, list_shards, list_turns
from tasks.accounting.conversions import float_above
from tasks.format.manifest import Manifest

Event = Mapping[str, Any]
Sealed = Mapping[tuple[str, int], tuple[int, dict[str, str]]]  # by release and level: position, recorded hashes

_DRAWN = {"drawing", "sealed", "released"}
_SLACK = 1 + 1e-9  # an accountant's newer version may differ in the last digits
_SERIES_SLACK = 1 + 1e-6  # as `trellis verify` has it: privacy loss distributions are computed with less precision


@dataclass(frozen=True, slots=True)
class Finding:
    """What does not fit, and why.

    Attributes:
        position: of the event, from 0; None where no single event is at fault.
        event: its kind, or what else is at fault.
        release: empty where it is about none.
    """

    position: int | None
    event: str
    release: str
    reason: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found.

    Attributes:
        events: how many the ledger has.
        head: the hash of the last event; empty where the ledger is.
        given_up: how many turns of measuring were given up, because who drew had gone or a run was stopped; nobody has read what
            they drew.
        findings: all that does not fit, in the order of the ledger.
    """

    ok: bool
    events: int
    head: str
    given_up: int
    first_bad: Finding | None
    findings: Sequence[Finding]


def audit_answer(folders: Sequence[Path] = ()) -> AuditReport:
    """Audit the store, and the published folders that it knows.

    Args:
        folders: published folders, or folders of them, beyond those that the store knows; an archive of manifests shows
            a tail that was cut off, or an older copy of the store.
    Raises:
        UsageError: there is no such folder.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}.", field="FOLDER")
    with store() as con:
        rows = con.execute("SELECT position, event, hash FROM ledger ORDER BY position").fetchall()
        given_up = count_given_up(con)
        hashes = [hashed for _, _, hashed in rows]
        books, checked = Books(), list[Finding]()
        try:
            kept = read_checkpoint()
        except (StoreError, *MALFORMED):
            kept = None
            checked = [_of_checkpoint("is not as Trellis wrote it, and is not used.")]
        findings = list(_chain(rows, books, kept))
        if not findings:
            events = [json.loads(text) for _, text, _ in rows]
            findings += _series(books, events)
            findings += _manifests(con, books, hashes, folders)
            findings += _releases(con, books, events)
            findings += _approved_plans(con, events)
    findings += checked
    findings.sort(key=lambda finding: (finding.position is None, finding.position or 0))
    head, first_bad = hashes[-1] if hashes else "", findings[0] if findings else None
    return AuditReport(not findings, len(rows), head, given_up, first_bad, findings)


def _of_checkpoint(wrong: str) -> Finding:
    return Finding(None, "checkpoint", "", f"{CHECKPOINT} {wrong} Delete it in TRELLIS_HOME: it is made again.")


def _chain(rows: Sequence[tuple[int, str, str]], books: Books, kept: Kept | None) -> Iterator[Finding]:
    """Yield the first event that breaks the chain or the ledger's laws, or after which the checkpoint differs; post those before it."""
    last = ""
    for at, (position, text, hashed) in enumerate(rows):
        try:
            event = json.loads(text)
            kind, release = str(event["event"]), str(event.get("release", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            yield Finding(at, "unreadable", "", "it is not an event in JSON.")
            return
        if position != at:
            yield Finding(at, kind, release, f"the event at position {at} is missing.")
            return
        if hash_of(last, text) != hashed:
            yield Finding(at, kind, release, "its hash does not match its text and the events before it.")
            return
        last = hashed
        try:
            books.post(event)
            wrong = _contradiction(books, event)
        except StoreError as fault:
            wrong = str(fault)
        except MALFORMED:
            wrong = "one of its fields is missing or malformed."
        if wrong:
            yield Finding(at, kind, release, wrong)
            return
        if kept and (kept.length, kept.hash) == (at + 1, hashed) and kept.books != books:
            yield _of_checkpoint(f"is not what the events up to {at} add up to.")
            return
    if books.to_come:
        release, series = books.to_come[0]
        yield Finding(len(rows), "missing", release, f"it was declared with the series {series} but is not reserved.")


def _contradiction(books: Books, event: dict[str, Any]) -> str:
    """Return how an event that moves a balance contradicts the balance computed anew; empty where it does not."""
    account = books.account_of(event.get("release", "")) or books.account(event.get("dataset"))
    if account is None or event["event"] not in {"reserved", "abandoned", "budget raised"}:
        return ""
    cap, stated = account.terms.cap, account.standing
    now = standing_of(account.spendings, cap)
    if now.epsilon > cap.epsilon * _SLACK:
        return f"it brings the dataset to epsilon {now.epsilon:.6g}, above its cap of {cap.epsilon:g}."
    is_no_better = (
        now.epsilon <= stated.epsilon * _SLACK
        and stated.left_rho <= now.left_rho * Fraction(_SLACK)
        and stated.left_epsilon <= now.left_epsilon * _SLACK
    )
    if not is_no_better:
        return f"it records epsilon {stated.epsilon:.6g} as spent, but the charges come to {now.epsilon:.6g}."
    return ""


def _approved_plans(con: Connection, events: Sequence[Event]) -> Iterator[Finding]:
    """Yield the releases whose approved plan is not kept as the ledger recorded it."""
    for position, event in enumerate(events):
        if event["event"] != "approved plan":
            continue
        kept = kept_plan(con, event["release"])
        try:
            is_kept = kept is not None and approval_in(kept, event["release"]).fingerprint == event["fingerprint"]
        except UsageError:
            is_kept = False
        if not is_kept:
            reason = "the store does not keep the plan that was approved."
            yield Finding(position, "approved plan", event["release"], reason)


def _series(books: Books, events: Sequence[Event]) -> Iterator[Finding]:
    """Yield each series whose charges do not guarantee its stated (ε, δ), by which the budget counts it."""
    declared = {event["releases"][0]: at for at, event in enumerate(events) if event["event"] == "series"}
    for account in books.accounts.values():
        for series in account.series.values():
            charges = [charge for charge in account.charges.values() if charge.release in series.releases]
            accountants = {account.claims[release].accountant for release in series.releases}
            if not holds_together(charges, accountants, series.epsilon * _SERIES_SLACK, series.delta):
                reason = f"its charges do not guarantee the epsilon of {series.epsilon:.6g} that it states."
                yield Finding(declared[series.id], "series", series.id, reason)


def _releases(con: Connection, books: Books, events: Sequence[Event]) -> Iterator[Finding]:
    """Yield where the releases, their seals and their shards differ from what the ledger says of them.

    The rows of the store are compared one by one. A `Record` joins rows and charges as if they agreed, which is what the
    audit is to find out.
    """
    sealed: dict[tuple[str, int], tuple[int, dict[str, str]]] = {}
    reserved: dict[str, int] = {}
    notes: dict[str, set[str]] = {}
    for position, event in enumerate(events):
        release_id = event.get("release", "")
        notes.setdefault(release_id, set()).add(event["event"])
        if event["event"] == "sealed":
            sealed[release_id, event["level"]] = position, event["seals"]
        elif event["event"] == "reserved":
            reserved[release_id] = position
    known = {entry.id for entry in list_releases(con)}
    for release_id, position in reserved.items():
        if release_id not in known:
            yield Finding(position, "reserved", release_id, "the store does not know the release.")
    for release_id in sorted(known):
        release = find_release(con, release_id)
        account = books.account_of(release_id)
        if account is None:
            if release.state != "refused":
                why = f"it is {release.state}, but the ledger has no reservation for it."
                yield Finding(len(events), "missing", release_id, why)
            continue
        charged = account.charges_of(release_id)
        missing = list(_missing(release, account, notes[release_id]))
        yield from (Finding(len(events), "missing", release_id, why) for why in missing)
        seals = list_shards(con, release_id)["noisy"]
        yield from _seals(release, account, seals.values(), sealed, reserved[release_id])
        if not missing:
            kept = [seal for seal in seals.values() if release.state != "abandoned" or seal.level in charged]
            yield from _shards(release, kept, sealed, notes[release_id])
        yield from _turns(release_id, list_turns(con, release_id), seals, sealed)


def _turns(release: str, turns: Sequence[Turn], seals: Mapping[Place, Shard], sealed: Sealed) -> Iterator[Finding]:
    """Yield the seals of turns that are not closed, and closed turns without a seal."""
    closed = {(turn.level, turn.branch): turn.turn for turn in turns if turn.state == CLOSED}
    for place in sorted({(turn.level, turn.branch) for turn in turns}):
        if closed.get(place) != (seals[place].turn if place in seals else None):
            level, branch = place
            position = sealed.get((release, level), (None, None))[0]
            reason = f"what is sealed of level {level} of {branch} is not what its closed turn drew."
            yield Finding(position, "sealed", release, reason)


def _missing(release: Release, account: Account, notes: set[str]) -> Iterator[str]:
    """Yield what the ledger should record of a release in its state, and does not."""
    charges = account.charges_of(release.id)
    for level, charge in charges.items():
        if release.state == "published" and charge.state != "released":
            yield f"it is published, but the charge of level {level} is {charge.state}."
    if release.state != "published" and all(charge.state == "released" for charge in charges.values()):
        yield f"its charges are released, but the store calls it {release.state}."
    if release.state == "published" and notes.isdisjoint({"noisy counts kept", "noisy counts destroyed"}):
        yield "it is published, but the ledger does not record what became of its noisy counts."


def _seals(
    release: Release, account: Account, seals: Collection[Shard], sealed: Sealed, reserved: int
) -> Iterator[Finding]:
    """Yield where the store's levels and seals are not those that the ledger has."""
    charges = account.charges_of(release.id)
    for level in sorted({seal.level for seal in seals} - {terms.level for terms in release.parts}):
        yield Finding(reserved, "reserved", release.id, f"level {level} is sealed, but the release has no such level.")
    for terms in release.parts:
        charge = charges.get(terms.level)
        if not as_charged(terms, charge):
            reason = f"the store has a different rho, sigma, sensitivity or tau for level {terms.level}."
            yield Finding(reserved, "reserved", release.id, reason)
        branch_seals = {seal.branch: seal.sha256 for seal in seals if seal.level == terms.level}
        if branch_seals and charge and charge.state not in _DRAWN:
            reason = f"level {terms.level} is sealed, but its charge is {charge.state}."
            yield Finding(reserved, "reserved", release.id, reason)
        at, recorded = sealed.get((release.id, terms.level), (0, branch_seals))
        if branch_seals != recorded:
            reason = f"the seals of level {terms.level} differ from those that it records."
            yield Finding(at, "sealed", release.id, reason)


def _shards(release: Release, seals: Collection[Shard], sealed: Sealed, notes: set[str]) -> Iterator[Finding]:
    """Yield sealed shards that are not what was sealed, and what should be gone."""
    for seal in seals:
        path = noisy_path(release.id, seal.level, seal.branch, seal.turn)
        wrong = ""
        if "noisy counts destroyed" in notes:
            wrong = "should be destroyed but is still there: `trellis forget` deletes it." if path.exists() else ""
        elif not is_shard(path, seal.sha256):
            wrong = "is not what was sealed." if path.exists() else "is missing."
        if wrong:
            position = sealed.get((release.id, seal.level), (None, None))[0]
            yield Finding(position, "sealed", release.id, f"{path.name} {wrong}")
    if "vault deleted" in notes and vault_path(release.id).exists():
        yield Finding(None, "vault deleted", release.id, "its vault is still there: `trellis forget` deletes it.")


def _manifests(con: Connection, books: Books, hashes: Sequence[str], folders: Sequence[Path]) -> Iterator[Finding]:
    """Yield the manifests that record a longer ledger than this one, or another past."""
    states = {release.id: release.state for release in list_releases(con)}
    own = {Path(find_release(con, release).folder) for release, state in states.items() if state == "published"}
    beside = {path.parent for parent in {folder.parent for folder in own} for path in parent.glob("*/manifest.json")}
    given = {path.parent for folder in folders for path in folder.rglob("manifest.json")}
    read: dict[str, Manifest] = {}
    for folder in sorted(own | beside | given):
        try:
            manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        except OSError:
            continue  # moved away: what is not there cannot be compared
        except ValidationError:
            yield Finding(None, "manifest", folder.name, "its manifest.json is not complete.")
            continue
        recorded = manifest.ledger
        ours = not hashes or recorded.first == hashes[0]
        if not ours and folder not in own | given:
            continue  # another store publishes into the same folder
        if not ours:
            yield Finding(0, "manifest", manifest.id, "its manifest was written by another ledger.")
        elif recorded.length > len(hashes):
            reason = (
                f"its manifest records {recorded.length} events, but the ledger has {len(hashes)}: the ledger's tail was"
                " cut off, or an older copy was restored."
            )
            yield Finding(len(hashes), "manifest", manifest.id, reason)
        elif recorded.length and hashes[recorded.length - 1] != recorded.head:
            at = recorded.length - 1
            yield Finding(at, "manifest", manifest.id, f"its manifest records another event at position {at}.")
        elif manifest.id in states:
            read[manifest.id] = manifest
            account = books.account_of(manifest.id)
            claim = account.claims.get(manifest.id) if account else None
            stated = manifest.privacy.accountant, manifest.privacy.epsilon, manifest.privacy.delta
            if claim and stated != (claim.accountant, claim.epsilon, claim.delta):
                yield Finding(None, "manifest", manifest.id, "its manifest states another epsilon or delta.")
            charges = account.charges_of(manifest.id).values() if account else ()
            if manifest.privacy.tau != float_above(sum((charge.tau for charge in charges), Fraction(0))):
                yield Finding(None, "manifest", manifest.id, "its manifest states another tau.")
            published_seals = {(seal.level, seal.branch): seal.sha256 for seal in manifest.seals}
            if published_seals != {key: seal.sha256 for key, seal in list_shards(con, manifest.id)["noisy"].items()}:
                yield Finding(None, "manifest", manifest.id, "its manifest has other seals than the store.")
    yield from _revisions(con, books, read)


def _revisions(con: Connection, books: Books, read: Mapping[str, Manifest]) -> Iterator[Finding]:
    """Yield where revisions form no chain: unlike the store's, forked, backwards, or about other people."""
    of_store = {entry.id: entry.supersedes for entry in list_releases(con) if entry.state == "published"}
    later_of: dict[str, str] = {}
    for release, earlier in of_store.items():
        reasons = []
        if release in read and read[release].supersedes != earlier:
            reasons.append("its manifest supersedes another release than the store records.")
        if earlier is not None:
            account = books.account_of(earlier)
            if account is None or account is not books.account_of(release):
                reasons.append(f"it supersedes {earlier}, which the ledger does not know as one about the same people.")
            elif {release, earlier} <= read.keys() and read[release].ledger.length <= read[earlier].ledger.length:
                reasons.append(f"it supersedes {earlier}, whose manifest is not older.")
            if later_of.setdefault(earlier, release) != release:
                reasons.append(f"it supersedes {earlier}, which {later_of[earlier]} also supersedes.")
        yield from (Finding(None, "manifest", release, reason) for reason in reasons)
