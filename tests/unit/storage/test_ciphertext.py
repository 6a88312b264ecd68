"""Keys of releases, and files of ciphertext: what comes back, what does not open, and what a size tells."""

import secrets
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import StoreError
from storage.machine.home import home
from storage.mailbox import ciphertext, keys
from storage.mailbox.ciphertext import BLOCK, EncryptedReader, EncryptedWriter

pytestmark = pytest.mark.usefixtures("own_home")

KEY = bytes(range(32))
ROOM = ciphertext._ROOM


def write(path, parts, key=KEY, name="one"):
    """Write a file of ciphertext."""
    with path.open("wb") as file:
        writer = EncryptedWriter(file, key, name)
        for part in parts:
            assert writer.write(part) == len(part)
        writer.finish()


PLACES = st.integers(0, 7 * ROOM)
LENGTHS = st.one_of(st.integers(0, 300), *(st.integers(n * ROOM - 20, n * ROOM + 20) for n in (1, 2, 3, 4, 6)))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=LENGTHS, cuts=st.lists(PLACES, max_size=4), begin=PLACES, size=LENGTHS)
def test_what_is_written_comes_back(tmp_path, length, cuts, begin, size):
    """Whatever the parts in which it is written, the whole and every stretch come back, and the size is the least power of two."""
    content = secrets.token_bytes(max(0, length))
    ends = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    path = tmp_path / "file"
    write(path, [content[one:other] for one, other in pairwise(ends)])
    blocks = -(-(len(content) + 8) // ROOM)
    assert path.stat().st_size == BLOCK * 2 ** (blocks - 1).bit_length()
    with EncryptedReader(path, KEY, "one") as reader:
        assert reader.read() == content
        assert reader.tell() == len(content)
        reader.seek(begin)
        assert reader.read(max(0, size)) == content[begin : begin + max(0, size)]


def test_no_block_is_written_twice_alike(tmp_path):
    """The same content makes other bytes each time, in every block, the blocks of padding too."""
    for name in ("a", "b"):
        write(tmp_path / name, [b"\0" * (4 * ROOM)])
    content = b"".join((tmp_path / name).read_bytes() for name in ("a", "b"))
    blocks = {content[at : at + BLOCK] for at in range(0, len(content), BLOCK)}
    assert len(blocks) * BLOCK == len(content) == 16 * BLOCK


def test_blocks_cannot_change_places(tmp_path):
    """A file whose blocks are exchanged, repeated or taken from another file under the same key is refused."""
    blocks, others = list[bytes](), list[bytes]()
    for name, of in (("one", blocks), ("other", others)):
        write(tmp_path / name, [secrets.token_bytes(3 * ROOM)], name=name)
        content = (tmp_path / name).read_bytes()
        of += [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
    path, (first, second, *rest) = tmp_path / "one", blocks
    exchanged, repeated, mixed = [second, first, *rest], [first, first, *rest], [others[0], second, *rest]
    for fake in (exchanged, repeated, mixed, [*blocks, *blocks], blocks[:2], blocks[3:], []):
        path.write_bytes(b"".join(fake))
        with pytest.raises(StoreError, match="is not what home has put"), EncryptedReader(path, KEY, "one") as reader:
            reader.read()


def test_a_release_keeps_its_key_until_it_is_forgotten():
    """A key is drawn once, is in no file in clear, is closed to others, and another is drawn once it is forgotten."""
    mailbox_key = secrets.token_bytes(32)
    key = keys.release_key("one", mailbox_key)
    assert (len(key), keys.release_key("one", mailbox_key)) == (32, key)
    assert keys.release_key("two", mailbox_key) != key
    files = [path for path in home().rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o077 for path in files} == {0}
    assert not any(text in path.read_bytes() for path in files for text in (key, key.hex().encode(), mailbox_key))
    assert keys.list_keys() == ["one", "two"]
    assert (keys.forget_key("one"), keys.forget_key("one"), keys.list_keys()) == (True, False, ["two"])
    assert keys.release_key("one", mailbox_key) != key


def test_a_wrapped_key_opens_for_its_release_alone():
    """A wrapped key does not open for another release, with another key, or altered; the error says what to do."""
    mailbox_key = secrets.token_bytes(32)
    wrapped = keys.wrapped_key("one", mailbox_key)
    assert keys.unwrapped_key(wrapped, "one", mailbox_key) == keys.release_key("one", mailbox_key)
    altered = wrapped[:-1] + ("0" if wrapped[-1] != "0" else "1")
    others = [(wrapped, "two", mailbox_key), (wrapped, "one", secrets.token_bytes(32))]
    for arguments in (*others, *((text, "one", mailbox_key) for text in (altered, "", "no hex"))):
        with pytest.raises(StoreError, match="does not open") as refusal:
            keys.unwrapped_key(*arguments)
        assert "threads" in refusal.value.hint


def test_a_key_is_proved_without_being_told():
    """A proof holds for its key and its nonce alone; it and the name of a key do not show the key."""
    key, nonce = secrets.token_bytes(32), secrets.token_bytes(16)
    proof = keys.proof_of_key(key, nonce)
    assert keys.proves_key(key, nonce, proof)
    assert not keys.proves_key(secrets.token_bytes(32), nonce, proof)
    assert not keys.proves_key(key, secrets.token_bytes(16), proof)
    assert key.hex() not in proof
    assert keys.key_name(key) not in {proof, key.hex()[:16], keys.key_name(secrets.token_bytes(32))}
