"""A mailbox in a folder, on a file system that forgets, fails and answers late, as NFS does."""

import errno
import os
import sys

import pytest

from storage.errors import SpecError, StoreError, TakenAlready
from storage.mailbox import folder as module
from storage.mailbox.folder import FolderPlace
from storage.mailbox.places import S3Keys, open_place


@pytest.fixture
def mailbox(tmp_path, own_home):
    """Return a folder for a mailbox, beside a TRELLIS_HOME."""
    (tmp_path / "mailbox").mkdir(mode=0o700)
    (tmp_path / "file").write_bytes(b"of this writer")
    return tmp_path / "mailbox"


@pytest.fixture
def place(mailbox):
    """Open it, with little patience."""
    return FolderPlace(mailbox, patience=0.3)


def failing(function, number, times=10**9):
    """Return a function that fails so many times with an error of the system before it does what it should."""
    left = [times]

    def call(*args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return function(*args, **kwargs)

    return call


def files(mailbox):
    """Return the files of a mailbox, hidden ones too."""
    return [path for path in mailbox.rglob("*") if path.is_file()]


def test_a_reader_waits_for_a_name(place, tmp_path, monkeypatch):
    """A name that a client does not see yet is read once it does; after a while the reader gives up."""
    place.put_new("one/a", tmp_path / "file")
    fetch = module._fetch
    for number in (errno.ENOENT, errno.ESTALE):
        monkeypatch.setattr(module, "_fetch", failing(fetch, number, times=3))
        place.get("one/a", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == b"of this writer"
    monkeypatch.setattr(module, "_fetch", failing(fetch, errno.ENOENT))
    with pytest.raises(StoreError, match="one/a is not in the mailbox"):
        place.get("one/a", tmp_path / "never")


def test_a_disk_that_fails_is_told_at_once(place, tmp_path, monkeypatch):
    """An error of the disk ends reading and writing, with the mailbox in the text; nothing half written stays."""
    place.put_new("one/a", tmp_path / "file")
    before = files(place.folder)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_fetch", failing(module._fetch, errno.EIO))
        with pytest.raises(StoreError, match=r"mailbox .* cannot be read \(Input/output error\)"):
            place.get("one/a", tmp_path / "never")
    for name, number, told in (
        ("fsync", errno.EIO, r"mailbox .* cannot be written \(Input/output error\)"),
        ("link", errno.EIO, r"mailbox .* cannot be written \(Input/output error\)"),
        ("fsync", errno.ENOSPC, r"The disk that holds .*mailbox is full"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing(getattr(os, name), number, times=1))
            with pytest.raises(StoreError, match=told):
                place.put_new("one/b", tmp_path / "file")
        assert files(place.folder) == before


def test_a_stale_folder_is_asked_again(place, tmp_path, monkeypatch):
    """A writer and a lister go on where the client's memory of a folder was stale."""
    for of, name, action in (
        (os, "link", lambda: place.put_new("one/a", tmp_path / "file")),
        (os, "open", lambda: place.put_new("one/b", tmp_path / "file")),
        (module, "_files", place.list),
        (module, "_is_there", lambda: place.exists("one/a")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(of, name, failing(getattr(of, name), errno.ESTALE, times=2))
            assert action() in (None, ["one/a", "one/b"], True)


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO, errno.ESTALE])
def test_a_link_whose_answer_is_lost_is_still_ones_own(place, tmp_path, monkeypatch, number):
    """A server that has made the link and then says that it failed has made it: the number of links decides."""
    link = os.link

    def lost(*args):
        link(*args)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", lost)
    place.put_new("one/a", tmp_path / "file")
    with pytest.raises(TakenAlready):
        place.put_new("one/a", tmp_path / "file")
    assert [path.name for path in files(place.folder)] == ["a"]


def test_what_killed_writers_left_is_cleared(place, tmp_path):
    """Files are closed to others; those without a name are not listed, and go when their folder is cleared; other folders stay."""
    before = os.umask(0)
    try:
        for name in ("one/a", "ones/a", "ones/deep/a"):
            place.put_new(name, tmp_path / "file")
        module._copied(tmp_path / "file", place.folder / "one")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in place.folder.rglob("*")} == {0}
    assert place.list("one/") == ["one/a"]
    place.clear("one")
    assert {*files(place.folder)} == {place.folder / "ones" / "a", place.folder / "ones" / "deep" / "a"}
    assert not (place.folder / "one").exists()


def test_folders_that_cannot_be_mailboxes_are_refused(mailbox, tmp_path):
    """A folder that is missing, open to others, in or around TRELLIS_HOME, or in a published folder is refused; so are links there."""
    for mode in (0o750, 0o701, 0o777):
        mailbox.chmod(mode)
        with pytest.raises(StoreError, match="is open to other users"):
            open_place(f"file://{mailbox}")
    mailbox.chmod(0o700)
    assert isinstance(open_place(f"file://{mailbox}"), FolderPlace)
    with pytest.raises(StoreError, match="There is no folder"):
        open_place(f"file://{tmp_path}/missing")
    inside, link, published = tmp_path / "home" / "mailbox", tmp_path / "link", tmp_path / "published" / "deep"
    inside.mkdir(parents=True, mode=0o700)
    link.symlink_to(inside)
    tmp_path.chmod(0o700)
    for folder in (inside, link, tmp_path):
        with pytest.raises(StoreError, match="must not lie in each other"):
            open_place(f"file://{folder}")
    published.mkdir(parents=True, mode=0o700)
    (published.parent / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match="inside of a published folder"):
        open_place(f"file://{published}")


@pytest.mark.parametrize(("url", "endpoint", "text"), [
    ("/mnt/shared", None, "must be the URL"),
    ("http://host/shared", None, "must be the URL"),
    ("file://host/shared", None, "must be the URL"),
    ("s3://", None, "must be the URL"),
    ("s3://me:sentinel@bucket/x", None, "without credentials"),
    ("s3://bucket/x?secret=sentinel", None, "without credentials"),
    ("s3://bucket/x", "http://localhost:9000", "must begin with https://"),
    ("s3://bucket/x", "https://me:sentinel@minio.example", "without credentials"),
])  # fmt: skip
def test_addresses_that_cannot_be_used_are_refused(url, endpoint, text):
    """A mailbox is a folder here or a bucket over TLS, without credentials in its address, which no text repeats."""
    with pytest.raises(SpecError, match=text) as refusal:
        open_place(url, S3Keys(endpoint=endpoint))
    assert "sentinel" not in str(refusal.value) + refusal.value.hint
    assert refusal.value.field in {"mailbox", "s3.endpoint"}


def test_without_the_package_a_bucket_says_what_to_install(monkeypatch):
    """Where obstore is not installed a bucket is refused with the command that installs it."""
    for name in ("obstore", "obstore.store", "obstore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StoreError, match="needs the package obstore") as refusal:
        open_place("s3://bucket/x")
    assert "pip install 'trellis[dask]'" in refusal.value.hint
