"""Notices of how releases end, by web or e-mail, to the addresses in TRELLIS_NOTIFY.

A notice says only what is public: the release, its dataset, its state, the reason, and what to do next. One that cannot be
sent stops nothing.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from storage.errors import BudgetExceeded, Interrupted, TrellisError, UsageError, kind_and_place

if TYPE_CHECKING:
    from apprise import Apprise

NOTIFY = "TRELLIS_NOTIFY"  # addresses as Apprise writes them, with spaces between them

_KINDS = {"published": "success", "refused": "warning", "failed": "failure"}


def check_addresses() -> None:
    """Refuse an address in TRELLIS_NOTIFY that no notice can be sent to.

    Raises:
        UsageError: one is not understood. It is named by its kind alone, since it may hold a password.
    """
    for fault in _addressed()[1]:
        raise fault


def send_notice(release_id: str, dataset: str, state: str, text: str = "") -> bool:
    """Send a notice to every address, and return whether all took it; without TRELLIS_NOTIFY do nothing.

    Args:
        release_id: the release, or its spec's name if it has no id.
        dataset: empty where it is not known.
        state: published, refused or failed.
        text: the reason, and what to do next. It must be public.
    """
    if not os.environ.get(NOTIFY):
        return False
    body = "\n".join(line for line in (f"Dataset: {dataset}" if dataset else "", text) if line)
    try:
        addressed, wrong = _addressed()
        for fault in wrong:
            _warn(str(fault).rstrip("."))
        sent = addressed.notify(
            title=f"Trellis: {release_id} {'was refused' if state == 'refused' else f'is {state}'}",
            body=body or f"`trellis show {release_id}` shows it.",
            notify_type=_KINDS[state],
        )
    except Exception as fault:  # noqa: BLE001 (a release that is paid for does not stop here, and an address may hold a password)
        _warn(type(fault).__name__)
        return False
    if not sent and len(addressed):
        _warn(f"an address of {', '.join(sorted({_kind(url) for url in _addresses()}))} did not take it")
    return bool(sent)


@contextmanager
def refusals_announced(release_id: str, dataset: str) -> Iterator[None]:
    """Send a notice of what the budget refuses inside."""
    try:
        yield
    except BudgetExceeded as refusal:
        send_notice_of(refusal, refusal.release_id or release_id, dataset)
        raise


def send_notice_of(fault: Exception, release_id: str, dataset: str) -> None:
    """Send a notice of what refused or stopped a release, unless that was a person; what may not be shown is named by its kind."""
    if isinstance(fault, Interrupted):
        return
    text = f"{fault}\n{fault.hint}".rstrip() if isinstance(fault, TrellisError) else f"{kind_and_place(fault)}."
    send_notice(release_id, dataset, "refused" if isinstance(fault, BudgetExceeded) else "failed", text)


def _addressed() -> "tuple[Apprise, list[UsageError]]":
    """Return the addresses that are understood, and why the others are not."""
    from apprise import Apprise, AppriseAsset

    logging.getLogger("apprise").disabled = True  # it would log addresses, which may hold passwords
    addressed = Apprise(asset=AppriseAsset(app_id="Trellis", app_desc="Trellis", app_url="", async_mode=False))
    wrong = [
        UsageError(
            f"{NOTIFY}: address {number} ({_kind(address)}) is not understood.",
            field=NOTIFY,
            hint="Addresses have spaces between them, for example json://host/path or mailtos://user:password@host?to=me@host.",
        )
        for number, address in enumerate(_addresses(), start=1)
        if not addressed.add(address)
    ]
    return addressed, wrong


def _addresses() -> list[str]:
    return os.environ.get(NOTIFY, "").split()


def _kind(address: str) -> str:
    """Return the scheme of an address: the rest may hold a password."""
    known = re.match(r"([a-z][a-z0-9+.-]*)://", address, re.IGNORECASE)
    return f"{known[1].lower()}://…" if known else "no scheme"


def _warn(why: str) -> None:
    print(f"A notice was not sent: {why}.", file=sys.stderr)  # noqa: T201 (the caller's terminal, or the log of `trellis up`)
