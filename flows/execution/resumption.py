"""How a reserved release resumes: with the same spec and public tables, and with the `run` section as it is now."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from flows.approvals.admission import different_people_from
from flows.planning.plan import Plan, make_plan, run_terms
from flows.spec.file import is_same_spec, load_spec, parse_spec
from flows.spec.keys import RunKeys
from storage.database.connections import store, transaction
from storage.errors import InputError, SpecError
from storage.ledger.events import note, read_books
from storage.ledger.recognition import keep_recognised, known_contents, same_place
from storage.releases.register import Release, find_release, set_terms
from tasks.ingest.sources.locations import sha256_at


def check_unchanged(release: Release) -> None:
    """Refuse to resume a release whose spec or public tables have changed since it was reserved.

    Files that no longer exist, and databases that do not answer, do not matter here: the store keeps the spec, and the shards keep what
    was read of each public table.

    Raises:
        SpecError: the spec was edited.
        InputError: a public table was changed; names both hashes.
    """
    spec = Path(release.terms.files.spec)
    if spec.is_file() and not is_same_spec(spec.read_text(encoding="utf-8"), release.spec):
        raise SpecError(
            f"{spec} was edited since {release.id} was reserved; a release keeps the spec that it was reserved with.",
            field="SPEC",
            hint=f"Put it back (`trellis show {release.id} --spec` prints it), or run `trellis abandon {release.id}`.",
        )
    _check_tables(release, {key: sha256_at(table.location) for key, table in release.terms.files.tables.items()})


def run_keys_of(release: Release) -> RunKeys:
    """Return the `run` section of a release's spec as it is now, or, if it cannot be read, as it was at the reservation."""
    spec = Path(release.terms.files.spec)
    try:
        return load_spec(spec).spec.run
    except SpecError:  # the file no longer exists, or `check_unchanged` refuses it next
        return parse_spec(release.spec, spec).spec.run


def refresh_run_keys(release_id: str) -> Release:
    """Record how a reserved release runs from now on, and return it."""
    with store() as con:
        release = find_release(con, release_id)
        terms = replace(release.terms, run=run_terms(run_keys_of(release)))
        if terms != release.terms:
            set_terms(con, release_id, terms)
    return replace(release, terms=terms)


def plan_again(release: Release) -> Plan:
    """Return the plan of a release that was reserved and has no tree yet, from the spec as the store keeps it.

    The table may be another one by now, for instance where a link points to each month's table, or a row was mended. The same
    question about its people is asked, and the ledger records the table.

    Raises:
        InputError: a public table is not what it was when the release was reserved, or no longer exists.
        UsageError: another dataset has used the table.
    """
    file = parse_spec(release.spec, Path(release.terms.files.spec))
    _check_tables(release, file.source().hashes)  # before a plan finds what else is wrong with a table that changed
    plan = make_plan(replace(file, spec=file.spec.model_copy(update={"run": run_keys_of(release)})))
    table = plan.read_table()
    with store() as con:
        books = read_books(con)
        account = books.account_of(release.id)
        claim = account.claims[release.id] if account else None
        known = known_contents(con).get(release.id)
        if claim and (claim.table, known) != (table.place, table.content):
            # who said that a table holds other people said it of the table at that place
            confirmed = claim.different_people and same_place(claim.table, table.place)
            others = different_people_from(plan, books, table.with_copies(con), different_people=confirmed)
            with transaction(con):
                if claim.table != table.place:
                    note(con, "table", release.id, table=table.place)
                keep_recognised(con, release.id, table, others)
    return plan


def _check_tables(release: Release, now: Mapping[str, str | None]) -> None:
    """Refuse public tables that changed, given the hash of each by its key; None for one that cannot be read."""
    for key, reserved in release.terms.files.tables.items():
        if now[key] not in {None, reserved.sha256}:
            raise InputError(
                f"{key}, {reserved.location}, was changed since {release.id} was reserved: its sha256 was {reserved.sha256} and is"
                f" {now[key]}.",
                field=key,
                hint=f"Put it back as it was, or run `trellis abandon {release.id}`.",
            )
