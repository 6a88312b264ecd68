"""Files of ciphertext whose size tells nothing but its power of two: slices of the vault, and shards on their way.

A noisy shard that was never sealed is as confidential as the vault, and a mailbox keeps those of turns that were given up until
somebody sweeps it. So shards are encrypted there too.

Parquet's own encryption would tell more: the lengths of its pages stand beside them in clear, and so a file that is padded to a
round size still shows how many rows it has. So a whole file is encrypted here, in blocks of one size that are read one by one.

    block = nonce (12 bytes) | ciphertext | tag (16 bytes), 65,536 bytes
    plaintext of all blocks = content | zeros | length of the content (8 bytes)

The number of blocks is a power of two. A block is bound to its file, to its number, and to whether it is the last.
"""

import io
import os
import secrets
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from storage.errors import StoreError

BLOCK = 2**16  # bytes

_NONCE_BYTES, _TAG_BYTES, _LENGTH_BYTES, _KEY_BYTES = 12, 16, 8, 32
_ROOM = BLOCK - _NONCE_BYTES - _TAG_BYTES  # bytes of plaintext in a block
_KEPT_BLOCKS = 64  # that a reader has decrypted last


class EncryptedWriter(io.RawIOBase):
    """Encrypts what is written to it, a block at a time.

    Args:
        file: open for writing.
        key: 32 bytes.
        name: of the file: a reader must give the same.
    """

    def __init__(self, file: BinaryIO, key: bytes, name: str) -> None:
        super().__init__()
        self._file, self._cipher = file, _cipher(key, name)
        self._waiting, self._length, self._blocks = bytearray(), 0, 0

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._length

    def write(self, content: bytes | memoryview) -> int:  # type: ignore[override]
        """Encrypt the next bytes."""
        self._waiting += content
        size = memoryview(content).nbytes
        self._length += size
        while len(self._waiting) > _ROOM:
            self._emit(bytes(self._waiting[:_ROOM]), is_last=False)
            del self._waiting[:_ROOM]
        return size

    def finish(self) -> None:
        """Pad the file, and write its last block."""
        blocks = self._blocks + -(-(len(self._waiting) + _LENGTH_BYTES) // _ROOM)
        padded = 1 << (blocks - 1).bit_length()
        while self._blocks < padded - 1:
            self._emit(bytes(self._waiting[:_ROOM]).ljust(_ROOM, b"\0"), is_last=False)
            del self._waiting[:_ROOM]
        rest = bytes(self._waiting).ljust(_ROOM - _LENGTH_BYTES, b"\0")
        self._emit(rest + self._length.to_bytes(_LENGTH_BYTES), is_last=True)

    def _emit(self, plaintext: bytes, *, is_last: bool) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self._file.write(nonce + self._cipher.encrypt(nonce, plaintext, _bound(self._blocks, is_last=is_last)))
        self._blocks += 1


class EncryptedReader(io.RawIOBase):
    """Reads what an `EncryptedWriter` has written, at any position.

    Args:
        key: 32 bytes.
        name: of the file, as its writer gave it.
    Raises:
        StoreError: the file is not what was written, in whole or in part; reading a part raises it too.
    """

    def __init__(self, path: Path, key: bytes, name: str) -> None:
        super().__init__()
        self._cipher, self._name, self._at = _cipher(key, name), name, 0
        self._file = path.open("rb", buffering=0)
        try:
            self._blocks = self._number_of_blocks()
            self._block = lru_cache(_KEPT_BLOCKS)(self._decrypted)
            self._length = int.from_bytes(self._block(self._blocks - 1)[-_LENGTH_BYTES:])
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer at the end."""
        left = max(0, self._length - self._at)
        size = left if size is None or size < 0 else min(size, left)
        parts, end = [], self._at + size
        while self._at < end:
            number, begin = divmod(self._at, _ROOM)
            part = self._block(number)[begin : begin + end - self._at]
            parts.append(part)
            self._at += len(part)
        return b"".join(parts)

    def _number_of_blocks(self) -> int:
        blocks, rest = divmod(os.fstat(self._file.fileno()).st_size, BLOCK)
        if rest or blocks.bit_count() != 1:
            raise self._altered()
        return blocks

    def _decrypted(self, number: int) -> bytes:
        block = os.pread(self._file.fileno(), BLOCK, number * BLOCK)
        try:
            return self._cipher.decrypt(
                block[:_NONCE_BYTES], block[_NONCE_BYTES:], _bound(number, is_last=number == self._blocks - 1)
            )
        except (InvalidTag, ValueError):
            raise self._altered() from None

    def _altered(self) -> StoreError:
        return StoreError(
            f"{self._name} is not what home has put into the mailbox.",
            field="mailbox",
            hint="See who else can write there. Then delete it there, and run `trellis rerun`: home puts it again.",
        )


def _cipher(key: bytes, name: str) -> AESGCM:
    return AESGCM(HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=b"trellis file " + name.encode()).derive(key))


def _bound(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(8) + (b"\1" if is_last else b"\0")
