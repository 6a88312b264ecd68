"""The probe of a mailbox: whether it keeps what lies under a name when several machines put a file there at once.

A server may ignore the condition under which a file is put, and answer that all went well. Then two workers could draw the
same counts. So before anything is reserved, home and all workers put a file under one name, and one of them may succeed.
"""

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from storage.errors import StoreError, TakenAlready
from storage.mailbox.places import Mailbox

_PROBES = "probes"
_NONCE = re.compile(r"[0-9a-f]{32}")


def new_nonce() -> str:
    """Return a number that nobody has used, in hex."""
    return secrets.token_hex(16)


def enter_probe(place: Mailbox, nonce: str) -> bool:
    """Put a file of this process's own under the name of a nonce; return whether that succeeded.

    Raises:
        ValueError: it is no nonce.
        StoreError: the place cannot be written.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("A nonce has 32 digits in hex.")
    with TemporaryDirectory(prefix="trellis-probe-") as folder:
        file = Path(folder) / "probe"
        file.write_text(secrets.token_hex(16))
        try:
            place.put_new(_name(nonce), file)
        except TakenAlready:
            return False
        return True


def judge_probe(place: Mailbox, nonce: str, succeeded: Sequence[bool]) -> None:
    """Check that exactly one of several processes has succeeded. What it put there stays until `remove_probe`.

    Args:
        place: the place.
        nonce: under which all of them put a file.
        succeeded: what `enter_probe` returned to each; at least two.
    Raises:
        ValueError: there are fewer than two.
        StoreError: none or several have succeeded, or what one of them put is not there.
    """
    if len(succeeded) < 2:
        raise ValueError("A probe needs two processes at least.")
    winners, is_there = sum(succeeded), place.exists(_name(nonce))
    if winners > 1:
        raise StoreError(
            f"This storage overwrites: {winners} machines have put a file under one name of the mailbox at once.",
            field="mailbox",
            hint="Use a server that knows conditional writes (If-None-Match), or a folder that is the same on all machines.",
        )
    if winners < 1 or not is_there:
        raise StoreError(
            "The machines do not see the same mailbox: none finds what another has put there.",
            field="mailbox",
            hint="Let `mailbox` name the same folder or bucket on all of them.",
        )


def remove_probe(place: Mailbox, nonce: str) -> None:
    """Remove what somebody has put under the name of a nonce, if anybody has."""
    place.delete(_name(nonce))


def _name(nonce: str) -> str:
    return f"{_PROBES}/{nonce}"
