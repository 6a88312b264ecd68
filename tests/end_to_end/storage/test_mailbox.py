"""Mailboxes on real servers and on a disk: a name is given once, whoever asks for it, and no fault gives it twice."""

import multiprocessing
import os
import secrets
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import storage.mailbox.bucket
from storage.errors import StoreError, TakenAlready
from storage.mailbox.bucket import S3Place
from storage.mailbox.ciphertext import EncryptedReader, EncryptedWriter
from storage.mailbox.places import S3Keys, enter_probe, judge_probe, new_nonce, open_place, remove_probe
from tests.support.buckets import BUCKET, CREDENTIALS, REGION, Server, moto, seaweedfs

WRITERS, NAMES = 8, 20

pytestmark = pytest.mark.heavy("servers of buckets run meanwhile")

SERVERS = {"seaweedfs": seaweedfs, "moto": moto}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Run each server that is asked for once, and let this process have its credentials."""
    folder, running = tmp_path_factory.mktemp("servers"), dict[str, Server]()
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for key, value in CREDENTIALS.items():
            patch.setenv(key, value)

        def run(name):
            if name not in running:
                running[name] = stack.enter_context(SERVERS[name](folder / name))
            return running[name]

        yield run


@pytest.fixture(params=["folder", *(pytest.param(name, marks=pytest.mark.thorough) for name in SERVERS)])
def url(request, tmp_path, servers, own_home):
    """Return an empty mailbox of each kind."""
    if request.param == "folder":
        (tmp_path / "mailbox").mkdir(mode=0o700)
        return f"file://{tmp_path / 'mailbox'}", S3Keys()
    keys = S3Keys(endpoint=servers(request.param).endpoint, region=REGION)
    return f"s3://{BUCKET}/{secrets.token_hex(4)}", keys


@pytest.fixture
def place(url):
    """Open it."""
    return open_place(*url, patience=1)


@pytest.fixture
def file(tmp_path):
    """Return what writes a file."""

    def write(content):
        (path := tmp_path / secrets.token_hex(4)).write_bytes(content)
        return path

    return write


def race(url, keys, folder, who, names):
    """Put a file of one writer's own under each of some names; return those under which that succeeded."""
    place, mine = open_place(url, keys, patience=1), []
    file = folder / f"of-{who}"
    file.write_text(str(who))
    for name in names:
        try:
            place.put_new(name, file)
        except TakenAlready:
            continue
        mine.append(name)
    return mine


@pytest.mark.parametrize(
    "url", ["folder", pytest.param("seaweedfs", marks=pytest.mark.thorough)], indirect=True
)  # moto's own threads race
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_of_many_writers_one_succeeds(url, kind, tmp_path):
    """Of eight writers that race for twenty names each name goes to one, and what lies there is that one's."""
    names = [f"one/of-{number:02d}" for number in range(NAMES)]
    spawn = multiprocessing.get_context("spawn")
    workers = WRITERS if kind == "threads" else 2
    pool = ThreadPoolExecutor(workers) if kind == "threads" else ProcessPoolExecutor(workers, spawn)
    with pool:
        racing = [pool.submit(race, *url, tmp_path, who, names) for who in range(workers)]
        won = [future.result() for future in racing]
    assert sorted(name for of in won for name in of) == names
    place = open_place(*url, patience=1)
    assert list(place.list()) == names
    for who, of in enumerate(won):
        for name in of:
            place.get(name, tmp_path / "got")
            assert (tmp_path / "got").read_text() == str(who)


def test_a_name_is_put_listed_read_and_deleted(place, file, tmp_path):
    """What is put comes back; a taken name stays as it is; a name that is deleted is free again; others stay."""
    for name, content in (("one/a", b"first"), ("one/ab/c", b""), ("two", b"2")):
        place.put_new(name, file(content))
        place.get(name, tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == content
    with pytest.raises(TakenAlready, match="one/a is taken"):
        place.put_new("one/a", file(b"second"))
    place.get("one/a", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"first"
    assert list(place.list()) == ["one/a", "one/ab/c", "two"]
    assert list(place.list("one/a")) == ["one/a", "one/ab/c"]
    assert list(place.list("one/ab/")) == ["one/ab/c"]
    assert (place.exists("one/a"), place.exists("one/b"), place.exists("one/ab")) == (True, False, False)
    for remove, left in ((lambda: place.delete("one/a"), ["one/ab/c", "two"]), (lambda: place.clear("one"), ["two"])):
        for _ in range(2):
            remove()
            assert list(place.list()) == left
        place.put_new("one/a", file(b"again"))
    place.clear("one")
    with pytest.raises(StoreError, match="one/a is not in the mailbox"):
        place.get("one/a", tmp_path / "missing")
    assert not (tmp_path / "missing").exists()
    for name in ("", "/a", "a//b", "../a", "a/.b", "a\nb"):
        with pytest.raises(ValueError, match="A name in a mailbox"):
            place.put_new(name, file(b""))


def test_large_files_go_in_parts(place, file, tmp_path, monkeypatch):
    """A file of several parts comes back whole, is not overwritten by another, and leaves nothing when it is deleted."""
    monkeypatch.setattr(storage.mailbox.bucket, "_PART", 2**20)
    content = os.urandom(3 * 2**20 + 17)
    place.put_new("one/large", file(content))
    for other in (os.urandom(2**21), b"small"):
        with pytest.raises(TakenAlready):
            place.put_new("one/large", file(other))
    place.get("one/large", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == content
    assert list(place.list()) == ["one/large"]
    place.delete("one/large")
    assert left(place) == []
    place.put_new("one/large", file(content))
    place.clear("one")
    assert left(place) == []


@pytest.mark.thorough
@pytest.mark.parametrize("size", [10, 2**21])
@pytest.mark.parametrize("url", SERVERS, indirect=True)
def test_a_put_whose_answer_is_lost_is_still_ones_own(place, file, tmp_path, monkeypatch, size):
    """A client that asks again, and is told that the name is taken by what it has put itself, has put it; others have not."""
    monkeypatch.setattr(storage.mailbox.bucket, "_PART", 2**20)
    create, content = S3Place._create, os.urandom(size)

    def asked_again(*arguments):
        create(*arguments)
        create(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(S3Place, "_create", asked_again)
        place.put_new("one/a", file(content))
    place.get("one/a", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == content
    before = left(place)
    with pytest.raises(TakenAlready):
        place.put_new("one/a", file(content))
    assert left(place) == before


def left(place):
    """Return all that a mailbox holds, hidden files too."""
    if hasattr(place, "folder"):
        return [str(path) for path in place.folder.rglob("*") if path.is_file()]
    return list(place._all(""))


def test_a_probe_has_one_winner(url, place):
    """Of processes that enter a probe one succeeds, and the judge is content; what it put there can be removed, twice too."""
    nonce = new_nonce()
    with ThreadPoolExecutor(4) as pool:
        entered = list(pool.map(lambda _: enter_probe(open_place(*url), nonce), range(4)))
    judge_probe(place, nonce, entered)
    assert len(place.list()) == 1
    for _ in range(2):
        remove_probe(place, nonce)
        assert list(place.list()) == []
    with pytest.raises(StoreError, match="do not see the same mailbox"):
        judge_probe(place, nonce, [True, False])
    with pytest.raises(StoreError, match="This storage overwrites: 4 machines"):
        judge_probe(place, nonce, [True] * 4)
    with pytest.raises(ValueError, match="two processes"):
        judge_probe(place, nonce, [True])


@pytest.mark.thorough
def test_what_a_server_refuses_is_told_without_its_words(servers, file, monkeypatch):
    """Wrong credentials, a bucket that is missing, and a server that is gone are errors of the mailbox, without the server's text."""
    monkeypatch.setattr(storage.mailbox.bucket, "_RETRY", {"max_retries": 1})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sentinel-of-a-secret")
    gone = "http://127.0.0.1:9"
    for bucket, endpoint, part, told in (
        (BUCKET, servers("seaweedfs").endpoint, 2**20, "refuses the credentials"),
        ("no-such-bucket", servers("moto").endpoint, 2**20, "There is no bucket"),
        ("no-such-bucket", servers("moto").endpoint, 1, "There is no bucket"),
        (BUCKET, gone, 2**20, "does not do what it is asked"),
    ):
        monkeypatch.setattr(storage.mailbox.bucket, "_PART", part)
        place = open_place(f"s3://{bucket}/x", S3Keys(endpoint=endpoint, region=REGION))
        with pytest.raises(StoreError, match=told) as refusal:
            place.put_new("a", file(b"in parts"))
        assert "sentinel" not in str(refusal.value) + refusal.value.hint
        assert refusal.value.__cause__ is None


@pytest.mark.thorough
def test_a_servers_disk_tells_nothing(servers, tmp_path):
    """What is encrypted stands nowhere on the disk of the server in clear; what is put in clear does, so the search would find it."""
    server = servers("seaweedfs")
    place = open_place(f"s3://{BUCKET}/disk", S3Keys(endpoint=server.endpoint, region=REGION))
    planted, open_text, key = secrets.token_bytes(24), secrets.token_bytes(24), secrets.token_bytes(32)
    encrypted, clear = tmp_path / "encrypted", tmp_path / "clear"
    with encrypted.open("wb") as target:
        writer = EncryptedWriter(target, key, "one")
        writer.write(planted * 5000)
        writer.finish()
    clear.write_bytes(open_text)
    place.put_new("one", encrypted)
    place.put_new("two", clear)
    place.get("one", tmp_path / "got")
    with EncryptedReader(tmp_path / "got", key, "one") as reader:
        assert reader.read() == planted * 5000
    disk = b"\0".join(path.read_bytes() for path in server.folder.rglob("*") if path.is_file())
    assert (open_text in disk, planted in disk, key in disk) == (True, False, False)
