"""Keys: one of each release encrypts its slices, and the key of the mailbox wraps it.

Home keeps the wrapped key in a file of its own, since DuckDB leaves deleted rows readable in its file. Whoever deletes the file
has forgotten every slice of the release, copies in old versions of a bucket included.
"""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import StoreError, TakenAlready
from storage.machine.files import put_new
from storage.machine.home import place_of_home, subfolder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEYS = "keys"  # in TRELLIS_HOME, a file for each release that a cluster works on

_KEY_BYTES, _NONCE_BYTES = 32, 12
_WRAPS, _PROVES, _NAMES = b"trellis wraps keys", b"trellis proves a key", b"trellis names a key"
_TELLS_APART = b"trellis tells files apart"


def release_key(release_id: str, mailbox_key: bytes) -> bytes:
    """Return the key of a release, 32 bytes; draw it if there is none yet.

    Raises:
        StoreError: the key of the mailbox is not the one that wrapped it.
    """
    return unwrapped_key(wrapped_key(release_id, mailbox_key), release_id, mailbox_key)


def wrapped_key(release_id: str, mailbox_key: bytes) -> str:
    """Return the wrapped key of a release, in hex, as it may travel; draw the key if there is none yet."""
    path = subfolder(KEYS) / f"{release_id}.key"
    if not path.exists():
        nonce = secrets.token_bytes(_NONCE_BYTES)
        drawn = secrets.token_bytes(_KEY_BYTES)
        with suppress(TakenAlready), put_new(path) as file:  # what another thread has drawn meanwhile stays
            os.fchmod(file.fileno(), 0o600)
            file.write(nonce + _wrapping(mailbox_key).encrypt(nonce, drawn, release_id.encode()))
    return path.read_bytes().hex()


def unwrapped_key(wrapped: str, release_id: str, mailbox_key: bytes) -> bytes:
    """Return the key of a release, 32 bytes, from what `wrapped_key` returned; that of another release does not open.

    Raises:
        StoreError: it was altered, or wrapped by another key of the mailbox.
    """
    from cryptography.exceptions import InvalidTag

    try:
        content = bytes.fromhex(wrapped)
        return _wrapping(mailbox_key).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], release_id.encode())
    except (InvalidTag, ValueError):
        raise StoreError(
            f"The key of {release_id} does not open: it was wrapped by another key of the mailbox.",
            field="key",
            hint="Put that key back, or set run.workers to threads and run `trellis rerun`.",
        ) from None


def forget_key(release_id: str) -> bool:
    """Delete the key of a release, and with it all its slices, wherever they are; return whether there was one."""
    try:
        _path(release_id).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def list_keys() -> list[str]:
    """Return the releases that have a key."""
    with suppress(FileNotFoundError):
        return sorted(path.stem for path in _path("").parent.iterdir() if path.suffix == ".key")
    return []


def key_name(key: bytes) -> str:
    """Return a name that tells keys apart and tells nothing else of them."""
    return _mac(key, _NAMES)[:16]


def keyed_name(key: bytes, text: str) -> str:
    """Return a name for a text, in hex: nobody without the key of a release can test whether it is that of a guess."""
    return _mac(key, _TELLS_APART + text.encode())


def proof_of_key(mailbox_key: bytes, nonce: bytes) -> str:
    """Return what proves that a machine has the key of the mailbox, in hex, to whoever has drawn the nonce just now."""
    return _mac(mailbox_key, _PROVES + nonce)


def proves_key(mailbox_key: bytes, nonce: bytes, proof: str) -> bool:
    """Return whether a proof was made with the key of the mailbox, of this nonce."""
    return secrets.compare_digest(proof_of_key(mailbox_key, nonce), proof)


def _path(release_id: str) -> Path:
    return place_of_home() / KEYS / f"{release_id}.key"


def _wrapping(mailbox_key: bytes) -> "AESGCM":
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # most commands need no key: they begin sooner

    return AESGCM(bytes.fromhex(_mac(mailbox_key, _WRAPS)))


def _mac(key: bytes, text: bytes) -> str:
    return hmac.digest(key, text, "sha256").hex()
