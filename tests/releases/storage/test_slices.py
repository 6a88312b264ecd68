"""Slices of the vault: a release whose branches are drawn from them is the one that is drawn from the vault."""

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import storage.counts.slices
import tasks.noise.slicing
import tasks.noise.task
import tasks.steps
from flows.run.ending import abandon_release
from storage.counts.slices import open_slice
from storage.counts.vault import read_true_rows
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.mailbox.ciphertext import BLOCK, EncryptedReader
from storage.mailbox.cluster_file import CLUSTER, read_cluster_file
from storage.mailbox.keys import list_keys, release_key
from storage.mailbox.places import Mailbox, Namespace, open_place
from storage.releases.register import set_state
from storage.releases.shards import TRUNK
from tasks.noise.measure import true_counts_below
from tasks.noise.slicing import slice_vault, sliced_truth
from tasks.work.capacity import cores, default_memory
from tests.support.cases import CASES, case_csv
from tests.support.certificates import write_cluster_file
from tests.support.making import CUT, make, noise_of_the_cell, quick


@dataclass
class Office:
    """Draws branches from slices, as workers of a cluster do, and compares each with what the vault says."""

    mailbox: Mailbox  # of the release
    cache: Path  # where a worker keeps the slices
    key: bytes = b""  # of the release; empty before its trunk is cut
    drawn: list[tuple[int, str]] = field(default_factory=list)  # the levels and branches that were drawn from slices
    lock: Any = field(default_factory=Lock)
    _draw: Callable[..., Any] = tasks.noise.task.draw

    @property
    def place(self):
        """The part of the mailbox that belongs to home, where slices are."""
        (home,) = {name.partition("/")[0] for name in self.mailbox.list()}
        return Namespace(self.mailbox, home)

    def draw(self, job, truth, level, branch, *how):
        """Draw what is of the trunk from the vault, and everything else from slices."""
        if branch == TRUNK:
            return self._draw(job, truth, level, branch, *how)
        with self.lock:
            if not self.key:
                assert list_keys() == []
                slice_vault.fn(job.record.release.id)
                self.key = release_key(job.record.release.id, read_cluster_file().mailbox_key())
                self.place.delete(self.place.list()[0])
                slice_vault.fn(job.record.release.id)  # puts again what is missing, and nothing else
        with sliced_truth(job.record, level, branch, self.key, self.place.get, self.cache) as sliced:
            parents = job.parents(level, branch)
            both = [true_counts_below(of, job.tree, parents) for of in (truth, sliced)]
            assert all(np.array_equal(*chunk) for chunk in zip(*both, strict=True))
            self.drawn.append((level, branch))
            return self._draw(job, sliced, level, branch, *how)


def rows_at_most(most, con, level, axes, first, end):
    """Read rows of a level, a few at a time: no level is ever in memory as a whole."""
    assert end - first <= most
    return read_true_rows(con, level, axes, first, end)


@pytest.fixture
def office(tmp_path, monkeypatch):
    """Open a mailbox, with slices of several row groups, and let all branches be drawn from it."""
    for name in ("mailbox", "cache"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setattr(storage.counts.slices, "SLICE_ROWS", 8)
    monkeypatch.setattr(tasks.noise.slicing, "_ROWS", 16)
    for module, most in ((storage.counts.slices, 8), (tasks.noise.slicing, 16)):
        monkeypatch.setattr(module, "read_true_rows", partial(rows_at_most, most))
    monkeypatch.setenv(CLUSTER, str(write_cluster_file(tmp_path, mailbox=f"file://{tmp_path / 'mailbox'}", s3=None)))
    office = Office(open_place(f"file://{tmp_path / 'mailbox'}", patience=1), tmp_path / "cache")
    monkeypatch.setattr(tasks.steps, "draw", office.draw)
    return office


SMALL = {**CUT, "CELL_BYTES": default_memory() // cores() // 10}  # so that branches are cut again
FIRST, *OTHERS = CASES
MADE = [
    (FIRST, "inftda", CUT),
    *(pytest.param(case, "inftda", CUT, marks=pytest.mark.thorough) for case in OTHERS),
    *(pytest.param("CSV, destination tree", mechanism, SMALL, marks=pytest.mark.thorough) for mechanism in ("inftda_reconciled", "inftda_lenient", "tda_l2")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "mechanism", "sizes"), MADE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_slices_answer_as_the_vault_does(case, mechanism, sizes, office, tmp_path, monkeypatch):
    """Slices have the true counts of every branch of every level, and so the published bytes are those of the vault."""
    with noise_of_the_cell() as sampler:
        sliced = make(tmp_path / "sliced", quick(CASES[case]), sampler, sizes=sizes, mechanism=mechanism)
        assert {level for level, _ in office.drawn} >= {len(sliced.case.order)}
        assert len({branch for _, branch in office.drawn}) > 1
        assert any("-" in branch for _, branch in office.drawn) == (sizes is SMALL)
        monkeypatch.setattr(tasks.steps, "draw", office._draw)
        whole = make(tmp_path / "whole", quick(CASES[case]), sampler, sizes=sizes, mechanism=mechanism)
    assert sliced.tables() == whole.tables()
    assert office.key
    assert list((sliced.home / "keys").iterdir()) == []  # once it is published nobody can read its slices


PLANTED = 727_272_727  # a true count that nothing else in a slice has


def case_planted(folder):
    """Make the plain case with one true count that can be recognised."""
    made = quick(case_csv)(folder)
    trips = (folder / "trips.csv").read_text().splitlines()
    home, work, _ = trips[1].split(",")
    (folder / "trips.csv").write_text("\n".join([trips[0], f"{home},{work},{PLANTED}", *trips[2:]]) + "\n")
    return made


def test_a_mailbox_tells_no_count_and_no_size_and_a_slice_is_whole(office, tmp_path):
    """No file holds the planted count or the key, each has a power of two of bytes; a slice of which anything is altered is refused."""
    with noise_of_the_cell() as sampler:
        make(tmp_path / "made", case_planted, sampler, sizes=CUT)
    mailbox, names, key = tmp_path / "mailbox" / office.place.name, office.place.list(), office.key
    texts = [PLANTED.to_bytes(8, "little"), PLANTED.to_bytes(8, "big"), f"{PLANTED}".encode(), f"{PLANTED:x}".encode()]
    files = [path for path in (tmp_path / "mailbox").rglob("*") if path.is_file()]
    assert len(files) >= len(names) > 0
    for path in files:
        content = path.read_bytes()
        assert len(content) >= BLOCK
        assert len(content).bit_count() == 1
        assert not any(text in content for text in (*texts, key, key.hex().encode(), b"PAR1"))
    found = []
    for name in names:
        with EncryptedReader(mailbox / name, key, name) as reader, pq.ParquetFile(reader) as file:
            found += file.read().column("true_count").to_pylist()
    assert PLANTED in found
    name, other = (next(name for name in names if f"level_{level}_b00" in name) for level in (6, 5))

    def read(path, by=key):
        with open_slice(path, by, name) as opened:
            opened.counts(0, opened.first, opened.first + opened.file.metadata.num_rows)
            opened.nodes([0, 0], [100, 100])

    read(mailbox / name)
    content = (mailbox / name).read_bytes()
    for at in (0, 11, 12, len(content) // 2, len(content) - 17, len(content) - 1):  # one bit
        (tmp_path / f"bit {at}").write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    for length in (0, BLOCK // 2, len(content) // 2, 2 * len(content)):
        (tmp_path / f"length {length}").write_bytes((content * 2)[:length])
    shutil.copy(mailbox / other, tmp_path / "length of another slice")
    for fake in (*tmp_path.glob("bit *"), *tmp_path.glob("length *")):
        with pytest.raises(StoreError, match="is not what home has put"):
            read(fake)
    with pytest.raises(StoreError, match="is not what home has put"):
        read(mailbox / name, secrets.token_bytes(32))


def test_an_altered_slice_stops_a_draw(office, tmp_path, monkeypatch):
    """A release whose slices were altered fails with an error that names the mailbox; once it is abandoned its key is gone."""
    put = Namespace.put_new

    def altered(drawer, name, file):
        content = bytearray(file.read_bytes())
        content[BLOCK // 2] ^= 1
        file.write_bytes(content)
        put(drawer, name, file)

    monkeypatch.setattr(Namespace, "put_new", altered)
    with noise_of_the_cell() as sampler, pytest.raises(StoreError, match="is not what home has put"):
        make(tmp_path / "made", quick(case_csv), sampler, sizes=CUT)
    assert not list((tmp_path / "made").rglob("manifest.json"))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "made" / "home"))
    (release_id,) = list_keys()
    assert release_key(release_id, read_cluster_file().mailbox_key()) == office.key
    with store() as con, transaction(con):
        set_state(con, release_id, "failed")
    abandon_release(release_id)
    assert list_keys() == []
