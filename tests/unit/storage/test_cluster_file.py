"""The cluster file of a machine: its keys, its files, who may read them, and until when its certificates hold."""

from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from storage.errors import SpecError
from storage.mailbox.cluster_file import CLUSTER, read_cluster_file
from tests.support.certificates import KEYS, certificate, write_cluster_file


@pytest.fixture
def write(tmp_path):
    """Return what writes a cluster file with its files, with some keys changed, or left out where they are None."""
    write_cluster_file(tmp_path)
    return partial(write_cluster_file, tmp_path)


def refusal(path):
    """Return why a cluster file is refused."""
    with pytest.raises(SpecError) as found:
        read_cluster_file(path)
    assert "sentinel" not in str(found.value) + found.value.hint
    assert found.value.__cause__ is None
    return found.value


def test_a_cluster_file_is_read(write, tmp_path, monkeypatch):
    """Its paths are relative to its folder, memory and spans have units, and TRELLIS_CLUSTER names it."""
    monkeypatch.setenv(CLUSTER, str(write(lost_after="1.5min")))
    file = read_cluster_file()
    assert (file.scheduler, file.memory_per_worker, file.lost_after) == ("tls://10.0.0.5:8786", 4_000_000_000, 90.0)
    assert (file.ca, file.key) == (tmp_path / "ca.pem", tmp_path / "secret" / "mailbox.key")
    assert file.mailbox_key() == bytes(range(32))
    assert (file.s3.endpoint, file.s3.region) == ("https://minio.example", "eu-south-1")
    monkeypatch.chdir(tmp_path)
    assert read_cluster_file(Path("cluster.yaml")) == file


@pytest.mark.parametrize(("changes", "field", "text"), [
    ({"scheduler": "tcp://10.0.0.5:8786"}, "scheduler", "tls://"),
    ({"scheduler": "tls://me:sentinel@10.0.0.5:8786"}, "scheduler", "tls://"),
    ({"mailbox": None}, "mailbox", "must be given"),
    ({"colour": "sentinel"}, "colour", "not a key of the cluster file"),
    ({"secret_access_key": "sentinel"}, "secret_access_key", "must not hold credentials"),
    ({"s3": {"access_key_id": "sentinel"}}, "s3.access_key_id", "must not hold credentials"),
    ({"memory_per_worker": "sentinel"}, "memory_per_worker", "memory_per_worker"),
    ({"memory_per_worker": "1MB"}, "memory_per_worker", "256000000"),
    ({"lost_after": True}, "lost_after", "a span such as 60s"),
    ({"lost_after": "0s"}, "lost_after", "greater than or equal to 1"),
    ({"private_key": "missing.key"}, "private_key", "cannot be read"),
])  # fmt: skip
def test_a_broken_rule_is_told_with_its_key(write, changes, field, text):
    """An error names the key and the rule, and repeats no value, which might be a password in the wrong place."""
    found = refusal(write(**changes))
    assert found.field == field
    assert text in str(found)


def test_what_is_no_cluster_file_is_refused(tmp_path, monkeypatch):
    """No name, no file, no YAML and no mapping are told apart."""
    monkeypatch.delenv(CLUSTER, raising=False)
    assert (refusal(None).field, "Set TRELLIS_CLUSTER" in refusal(None).hint) == (CLUSTER, True)
    assert "cannot be read" in str(refusal(tmp_path / "missing"))
    path = tmp_path / "cluster.yaml"
    path.touch(mode=0o600)
    for content, text in (("a: [sentinel", "not YAML (line "), ("- sentinel", "mapping"), ("", "mapping")):
        path.write_text(content)
        assert text in str(refusal(path))


def test_files_that_others_can_read_are_refused(write, tmp_path):
    """The file, the private key and the key of the mailbox are closed to others, and may be read-only; the key has 32 bytes."""
    path, key = write(), tmp_path / "secret" / "mailbox.key"
    for file, field in ((path, CLUSTER), (tmp_path / "home.key", "private_key"), (key, "key")):
        for mode in (0o640, 0o604, 0o644):
            file.chmod(mode)
            assert (refusal(path).field, f"mode {mode:o}" in str(refusal(path))) == (field, True)
        file.chmod(0o400)
        read_cluster_file(path)
    key.chmod(0o600)
    for length in (0, 31, 33):
        key.write_bytes(b"k" * length)
        assert (refusal(path).field, "/dev/urandom" in refusal(path).hint) == ("key", True)


@pytest.mark.parametrize("name", ["ca", "certificate"])
def test_certificates_hold_today_and_for_a_week(write, tmp_path, name):
    """One that ends within seven days is a warning; one that has ended, does not hold yet, or is none is refused."""
    path, day, hour = tmp_path / KEYS[name], timedelta(days=1), timedelta(hours=1)
    path.write_bytes(certificate(-day, 7 * day + hour))
    assert read_cluster_file(write()).warnings() == []
    path.write_bytes(certificate(-day, 7 * day - hour))
    (warning,) = read_cluster_file(write()).warnings()
    assert f"{path} ends on" in warning
    for content, text in (
        (certificate(-day, -hour), "ended on"),
        (certificate(hour, day), "not valid yet"),
        (b"sentinel", "holds no certificate"),
    ):
        path.write_bytes(content)
        assert (refusal(write()).field, text in str(refusal(write()))) == (name, True)
