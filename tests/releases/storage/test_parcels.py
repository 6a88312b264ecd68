"""Shards as they lie in a mailbox: what a worker writes there is what home would have written, and nobody reads it without the key."""

import secrets

import numpy as np
import pytest

from storage.counts.encrypted_files import EncryptedFiles
from storage.counts.shard_files import write_shard
from storage.errors import StoreError, TakenAlready, WorkerLost
from storage.mailbox.ciphertext import BLOCK
from storage.mailbox.places import Namespace, open_place

GROUPS = [{"noisy": np.arange(1000, dtype=np.int64) * 7_777_777 + group} for group in range(3)]
NAME = "level_7_b00.3.noisy"


@pytest.fixture
def mailbox(tmp_path):
    """Return the folder of a mailbox."""
    folder = tmp_path / "mailbox"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def machines(tmp_path, mailbox):
    """Return home and two workers, with one key and a folder each."""
    key, place = secrets.token_bytes(32), open_place(f"file://{mailbox}", patience=0.5)
    for name in "abc":
        (tmp_path / name).mkdir()
    return [EncryptedFiles(place, key, "release", tmp_path / name) for name in "abc"]


def test_a_shard_of_a_worker_is_that_of_home(tmp_path, mailbox, machines):
    """Its hash and its bytes at home are those of a shard that home writes; another worker reads the same groups; all else is ciphertext."""
    home, worker, other = machines
    sha256 = worker.shard_store().write(NAME, ("noisy",), iter(GROUPS))
    assert sha256 == write_shard(tmp_path / "here.parquet", ("noisy",), iter(GROUPS))
    with (tmp_path / "brought").open("wb") as file:
        home.bring(NAME, sha256, file)
    assert (tmp_path / "brought").read_bytes() == (tmp_path / "here.parquet").read_bytes()
    for of in (worker, other):
        read = list(of.shard_store().groups(NAME, sha256))
        assert [np.array_equal(one["noisy"], two["noisy"]) for one, two in zip(read, GROUPS, strict=True)] == [True] * 3
        assert of.shard_store().columns(NAME, sha256)["noisy"].sum() == sum(group["noisy"].sum() for group in GROUPS)
    kept = [path for folder in (mailbox, worker.folder, other.folder) for path in folder.rglob("*") if path.is_file()]
    assert len(kept) == 3
    assert all(b"PAR1" not in path.read_bytes() and path.stat().st_size % BLOCK == 0 for path in kept)
    assert not [path for path in kept if sha256 in path.name]


def test_names_are_those_of_a_key(tmp_path, mailbox, machines):
    """One shard has one name with one key. Nobody without the key can test a guess of what was drawn, nor learn it from an error."""
    home, worker, _ = machines
    sha256 = worker.shard_store().write(NAME, ("noisy",), iter(GROUPS))
    foreign = EncryptedFiles(home.place, secrets.token_bytes(32), "release", home.folder)
    assert home.name_of(NAME, sha256) == worker.name_of(NAME, sha256) != foreign.name_of(NAME, sha256)
    (path,) = [path for path in mailbox.rglob("*") if path.is_file()]
    path.unlink()
    with (tmp_path / "brought").open("wb") as file, pytest.raises(StoreError) as refused:
        home.bring(NAME, sha256, file)
    assert sha256 not in str(refused.value)


def test_homes_that_share_a_mailbox_keep_apart(mailbox, tmp_path):
    """Releases of one id of two homes do not see each other, and clearing one leaves the other."""
    (file := tmp_path / "file").write_text("x")
    whole = open_place(f"file://{mailbox}", patience=0.5)
    one, other = Namespace(whole, "1"), Namespace(whole, "2")
    for drawer in (one, other):
        drawer.put_new("release/claims/a", file)
        with pytest.raises(TakenAlready):
            drawer.put_new("release/claims/a", file)
        assert list(drawer.list("release/")) == ["release/claims/a"]
    assert list(whole.list()) == ["1/release/claims/a", "2/release/claims/a"]
    one.clear("release")
    assert (one.exists("release/claims/a"), other.exists("release/claims/a")) == (False, True)
    other.get("release/claims/a", tmp_path / "got")
    other.delete("release/claims/a")
    assert list(whole.list()) == []


def test_what_home_puts_workers_read(tmp_path, machines):
    """A shard of home can be put twice, and is read by a worker; one that is not there is an error."""
    home, worker, _ = machines
    sha256 = write_shard(tmp_path / "here.parquet", ("noisy",), iter(GROUPS))
    for _ in range(2):
        home.put(NAME, sha256, tmp_path / "here.parquet")
    assert len(list(worker.shard_store().groups(NAME, sha256))) == 3
    with pytest.raises(StoreError, match="not in the mailbox"):
        worker.shard_store().table("level_8_b00.noisy", sha256)


@pytest.mark.parametrize("change", ["a bit", "another shard of that name"])
def test_an_altered_shard_is_refused(tmp_path, mailbox, machines, change):
    """A worker refuses it as a parent, also if it was sealed as another; for home the worker is lost, and the file is deleted there."""
    home, worker, other = machines
    first, second = (worker.shard_store().write(NAME, ("noisy",), iter(groups)) for groups in (GROUPS, GROUPS[:1]))
    path = mailbox / home.name_of(NAME, first)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if change == "a bit" else (mailbox / home.name_of(NAME, second)).read_bytes())
    with pytest.raises(StoreError, match=None if change == "a bit" else "not what was recorded"):
        other.shard_store().table(NAME, first)
    with (tmp_path / "brought").open("wb") as file, pytest.raises(WorkerLost):
        home.bring(NAME, first, file)
    assert not path.exists()


def test_one_of_all_claims_succeeds(machines):
    """The first worker has the claim of a turn; the next turn has one of its own."""
    _, worker, other = machines
    worker.claim(NAME)
    for of in (worker, other):
        with pytest.raises(TakenAlready):
            of.claim(NAME)
    other.claim("level_7_b00.4.noisy")
