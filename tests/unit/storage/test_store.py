"""The store and its home: seals once, shards whole or absent, vaults that are forgotten, a folder that is its owner's alone, terms that come back, and names of views."""

import json
import threading
import time
from pathlib import Path
from stat import S_IMODE
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.counts.published import level_views
from storage.counts.shard_files import write_shard
from storage.counts.vault import remove_vault, vault, vault_path
from storage.database import connections
from storage.database.connections import lingering, store, transaction
from storage.errors import SealedAlready, StoreError
from storage.machine import home as machine
from storage.machine.files import put_new, sha256_of
from storage.machine.home import home, network_file_system
from storage.releases.shards import Shard, add_shard, list_shards
from storage.releases.terms import FileTerms, Intervals, Privacy, RunTerms, TableTerms, Terms
from tests.support.ledger import read_shard
from tests.support.steps import TERMS

pytestmark = pytest.mark.usefixtures("own_home")

WHOLE_RANGE = st.integers(-(2**63), 2**63 - 1)


def row_groups_of(groups):
    """Return row groups of one column and its negation."""
    arrays = [np.array(group, dtype=np.int64) for group in groups]
    return [{"noisy": array, "flipped": ~array} for array in arrays]


def test_a_level_of_a_branch_is_sealed_once():
    """A second seal is SealedAlready, with all of its transaction, and the first stays; other levels, branches and releases are free."""
    seals = [Shard("noisy", *of) for of in ((1, "trunk", "aa", 4), (2, "trunk", "bb", 8), (2, "b00", "cc", 16))]

    def add_both():
        with transaction(con):
            add_shard(con, "one", Shard("noisy", 2, "b01", "dd", 4))
            add_shard(con, "one", Shard("noisy", 2, "trunk", "dd", 8))

    with store() as con:
        for seal in seals:
            add_shard(con, "one", seal)
        add_shard(con, "other", seals[0])
        with pytest.raises(SealedAlready):
            add_both()
    with store() as con:
        assert list_shards(con, "one")["noisy"] == {(seal.level, seal.branch): seal for seal in seals}


@settings(max_examples=40)
@given(st.lists(st.lists(WHOLE_RANGE, min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_shard_reads_as_it_was_written(groups):
    """Integers of the whole range come back in their order, whatever the row groups, of which each is written."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard.parquet"
        sha256 = write_shard(path, ("noisy", "flipped"), iter(row_groups_of(groups)))
        columns = read_shard(path, sha256)
        assert list(columns) == ["noisy", "flipped"]
        assert columns["noisy"].dtype == np.int64
        assert columns["noisy"].tolist() == [count for group in groups for count in group]
        assert (columns["flipped"] == ~columns["noisy"]).all()
        assert pq.read_metadata(path).num_row_groups == len(groups)
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


@settings(max_examples=60)
@given(st.data())
def test_a_shard_with_one_other_byte_is_refused(data):
    """Any byte that is altered, missing or too many makes a shard not what was sealed, and it stays as it is."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard.parquet"
        sha256 = write_shard(path, ("noisy", "flipped"), row_groups_of([[1, 2], [3]]))
        whole = path.read_bytes()
        position = data.draw(st.integers(0, len(whole) - 1))
        other = bytes([whole[position] ^ data.draw(st.integers(1, 255))])
        wrong = [whole[:position] + other + whole[position + 1 :], whole[:position], whole + other]
        altered = data.draw(st.sampled_from(wrong))
        path.write_bytes(altered)
        with pytest.raises(StoreError, match=r"shard\.parquet is not what was sealed\."):
            read_shard(path, sha256)
        assert path.read_bytes() == altered


def test_a_shard_is_whole_or_absent_and_never_replaced(tmp_path):
    """Where drawing stops halfway no shard appears, and one that was there stays as it is; a missing one is never drawn again."""
    # Who writes the same shard once more is content with the first; another one is refused, and nothing is left of it.

    def stopped():
        yield from row_groups_of([[1, 2]])
        raise OSError("the sampler broke")

    path, earlier, columns = tmp_path / "shard.parquet", tmp_path / "earlier.parquet", ("noisy", "flipped")
    sha256 = write_shard(earlier, columns, row_groups_of([[1]]))
    file = earlier.stat().st_ino
    for place in (path, earlier):
        with pytest.raises(OSError, match="the sampler broke"):
            write_shard(place, columns, stopped())
    assert write_shard(earlier, columns, row_groups_of([[1]])) == sha256
    with pytest.raises(StoreError, match=r"earlier\.parquet is there already, with other contents"):
        write_shard(earlier, columns, row_groups_of([[2]]))
    assert (earlier.stat().st_ino, sha256_of(earlier)) == (file, sha256)
    with pytest.raises(StoreError, match=r"shard\.parquet is missing\.") as refusal:
        read_shard(path, sha256)
    assert "never drawn again" in refusal.value.hint
    assert list(tmp_path.iterdir()) == [earlier]


def test_two_writers_never_have_the_same_file(tmp_path):
    """Of two that write at once, the first to end has the path, and what the other one writes on goes elsewhere."""
    path, sealed = tmp_path / "shard.parquet", b"sealed"

    def write_slowly():
        with put_new(path) as slow:
            slow.write(b"drawn in")
            with put_new(path) as fast:
                fast.write(sealed)
            slow.write(b" another turn")

    with pytest.raises(StoreError, match="is there already"):
        write_slowly()
    assert path.read_bytes() == sealed
    assert list(tmp_path.iterdir()) == [path]


def test_a_vault_is_read_only_while_measuring_and_forgotten_with_its_log():
    """Measuring cannot write it, and nothing of a release's true counts is left once it is removed; another release's stays."""
    # Memory that does not suffice spills into the vault's own folder, closed to others, and nowhere else.
    with vault("other", read_only=False) as con:
        con.execute("CREATE TABLE true_level_0 AS SELECT 1 AS true_count")
    with vault("one", read_only=False) as con:
        con.execute("CREATE TABLE true_level_0 AS SELECT 1 AS true_count")
        con.execute("SET memory_limit = '40MB'; SET threads = 1")
        con.execute("CREATE TEMP TABLE confidential AS SELECT hash(i) AS a, hash(i + 1) AS b FROM range(6000000) t(i)")
        (spilled,) = {path.parent for path in home().rglob("*") if path.is_file() and "duckdb_temp" in path.name}
    assert spilled == vault_path("one").with_name("one.duckdb.tmp")
    assert S_IMODE(spilled.parent.stat().st_mode) == 0o700
    assert S_IMODE(vault_path("one").stat().st_mode) == 0o600
    with vault("one") as con, pytest.raises(duckdb.InvalidInputException, match="read-only"):
        con.execute("DELETE FROM true_level_0")
    vault_path("one").with_name("one.duckdb.wal").touch()
    spilled.mkdir(exist_ok=True)  # DuckDB removes its folder when it is closed, which a killed process does not do
    (spilled / "duckdb_temp_storage-0.tmp").write_bytes(b"confidential")
    for _ in range(2):
        remove_vault("one")
        assert [path.name for path in spilled.parent.iterdir()] == ["other.duckdb"]


def is_open(path):
    """Return whether this process has a file open."""
    return any(link.exists() and link.samefile(path) for link in Path("/proc/self/fd").iterdir())


def test_the_store_lingers_for_a_moment(monkeypatch):
    """Within a release whoever comes back at once finds it open, and it closes by itself; outside nothing lingers."""
    # At the end it is closed, however long it would have lingered, and the timer with it. What was open for a while is closed at once
    # when nobody uses it, and stays closed for longer than others wait.
    path, threads = home() / "store.duckdb", set(threading.enumerate())
    with store():
        assert is_open(path)
    assert not is_open(path)
    with lingering():
        with store():
            pass
        assert is_open(path)
        patience = time.monotonic() + 60
        while is_open(path):
            assert time.monotonic() < patience
            time.sleep(0.01)
        monkeypatch.setattr(connections, "_LINGER", 600.0)
        with lingering(), store():
            pass
        assert is_open(path)
    assert not is_open(path)
    assert set(threading.enumerate()) <= threads
    monkeypatch.setattr(connections, "_LINGER", 0.1)
    monkeypatch.setattr(connections, "_ALONE", 6000.0)
    wanted, patience = path.with_name("store.duckdb.wanted"), time.monotonic() + 20
    with lingering():  # who waits is let in, before the long moment of who is alone ends
        with store():
            pass
        while is_open(path):
            assert time.monotonic() < patience
            wanted.touch()
        monkeypatch.setattr(connections, "_WHILE", 0.0)
        with store():
            assert not wanted.exists()
        left = time.monotonic()
        assert not is_open(path)
        with store():
            assert time.monotonic() - left > connections._TRY_EVERY


def test_a_store_that_was_put_back_is_read_anew():
    """A store that is replaced while it lingers is not the one that is read next."""
    path, copy = home() / "store.duckdb", home() / "copy"
    with store() as con:
        add_shard(con, "one", Shard("noisy", 1, "trunk", "aa", 4))
    copy.write_bytes(path.read_bytes())
    with lingering():
        with store() as con:
            add_shard(con, "one", Shard("noisy", 2, "trunk", "bb", 8))
        assert is_open(path)
        copy.replace(path)
        with store() as con:
            assert set(list_shards(con, "one")["noisy"]) == {(1, "trunk")}


MOUNTS = """\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b
24 22 254:1 / /var/lib rw,relatime - ext4 /dev/vda1 rw
25 24 0:40 / /var/lib/shared rw,relatime shared:9 master:2 - {kind} server:/export rw
26 25 254:2 / /var/lib/shared/own rw,relatime - xfs /dev/vdb rw
27 22 0:41 / /mnt/two\\040words rw - {kind} server:/words rw
28 22 0:42 / /mnt/hidden rw - {kind} server:/hidden rw
29 28 254:3 / /mnt/hidden rw - btrfs /dev/vdc rw
"""

NETWORK = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "9p", "fuse.sshfs", "fuse.glusterfs"]
LOCAL = ["ext4", "zfs", "tmpfs", "overlay", "virtiofs", "fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs"]


@pytest.mark.parametrize("kind", [*NETWORK, *LOCAL])
def test_the_nearest_mount_decides(kind):
    """The mount that holds a path decides, the last one where several lie at one point, and names may have spaces."""
    mounts = MOUNTS.format(kind=kind)
    for path in ("/var/lib/shared", "/var/lib/shared/trellis/store.duckdb", "/mnt/two words/trellis"):
        assert network_file_system(Path(path), mounts) == (kind if kind in NETWORK else "")
    for path in ("/var/lib/shared-not/trellis", "/var/lib/shared/own/trellis", "/mnt/hidden/trellis", "/home/me"):
        assert network_file_system(Path(path), mounts) == ""


def test_a_home_on_a_network_is_refused(tmp_path, monkeypatch):
    """The store is refused with the kind of its file system, where the folder or a link from it leads there; then it is not made."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path}/share rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(machine, "_MOUNTS", mounts)
    (tmp_path / "share").mkdir()
    (tmp_path / "linked").mkdir(mode=0o700)
    (tmp_path / "linked" / "store.duckdb").symlink_to(tmp_path / "share" / "store.duckdb")
    for place in ("share/home", "share/home", "linked"):
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / place))
        with pytest.raises(StoreError, match=r"on a network file system \(nfs4\)"):
            home()
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "own"))
    for listed in (mounts, tmp_path / "missing"):  # without a list nothing is refused
        monkeypatch.setattr(machine, "_MOUNTS", listed)
        assert home() == tmp_path / "own"


def test_a_home_that_is_open_to_others_or_cannot_be_made_is_refused(tmp_path, monkeypatch):
    """A folder that others may look into stays as it is; below a file, or a folder that is not there, nothing is made."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)  # whatever the umask is
    (tmp_path / "file").touch()
    for place in ("open", "file/home", "gone/home"):
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / place))
        with pytest.raises(StoreError, match="open to other users" if place == "open" else str(tmp_path / place)):
            home()
    assert S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "open"]


FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=9)
PATHS = st.dictionaries(TEXT, TEXT, max_size=2)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=5,
)

ALL_TERMS = st.builds(  # what is not named is of the field's type
    Terms,
    published_spec=st.dictionaries(TEXT, JSON, max_size=3),
    codebooks=PATHS,
    csv=st.sampled_from([True, False, "every_level", None]),
    intervals=st.builds(Intervals, confidence=FINITE),
    privacy=st.builds(Privacy, epsilon=FINITE, delta=FINITE, rho=FINITE, tau=FINITE),
    run=st.builds(RunTerms, TEXT, st.none() | st.integers(1)),
    files=st.builds(FileTerms, TEXT, st.dictionaries(TEXT, st.builds(TableTerms, TEXT, TEXT), max_size=2)),
    different_people=st.booleans(),
    series=TEXT,
    measure=st.sampled_from(["survivors", "all", "above"]),
    formats=st.lists(st.sampled_from(["csv", "xlsx", "omx", "geoparquet", "sdmx"]), max_size=3).map(tuple),
)


@settings(max_examples=40)
@given(ALL_TERMS)
def test_terms_come_back_from_the_store_as_they_went_in(terms):
    """Every field of the terms survives JSON exactly, its type included."""
    read = Terms.from_json(terms.to_json())
    assert read == terms
    assert repr(read) == repr(terms)


@pytest.mark.parametrize("part", [None, "intervals", "privacy", "run", "files"])
def test_a_missing_key_or_an_unknown_one_is_an_error(part):
    """The store names a key that terms lack, or one that it does not know."""
    whole = json.loads(TERMS.to_json())
    del whole["mechanism_reason"]  # which older stores lack
    assert Terms.from_json(json.dumps(whole)) == TERMS
    for name in [*(whole[part] if part else whole), "of_tomorrow"]:
        content = json.loads(TERMS.to_json())
        section = content[part] if part else content
        if name in section:
            del section[name]
        else:
            section[name] = 1
        with pytest.raises(StoreError, match=rf"^terms{rf'[.]{part}' if part else ''} .*{name}[.](\n|$)"):
            Terms.from_json(json.dumps(content))


names = st.text(st.sampled_from("aAb_ß\"'- "), max_size=12) | st.sampled_from(["all", "to", "a_to_b", "x" * 80])


def ends(*levels):
    """Return the axes of levels of trips."""
    return [{"origin": origin, "destination": destination} for origin, destination in levels]


FEATURES = [{"area": None, "school": None, "sex": "sex"}, {"area": "area", "school": "grade", "sex": "sex"}]

BY_SEX = [{"origin": None, "destination": None, "sex": "sex"}, {"origin": "cty", "destination": None, "sex": "sex"}]


@pytest.mark.parametrize(("levels", "taken", "views"), [
    (ends((None, "cty"), ("cty", "cty"), ("cty", "trct")), [], ["all_to_cty", "cty_to_cty", "cty_to_trct"]),
    (FEATURES, [], ["by_sex", "by_area_school_grade_sex"]),
    (BY_SEX, [], ["by_sex", "cty_to_all_by_sex"]),
    (ends(("a", "b"), ("A", "b"), ("a", "b_1")), [], ["a_to_b_1_1", "A_to_b_2", "a_to_b_1"]),
    (ends(("level", "x")), ["LEVEL_to_x"], ["level_to_x_1"]),
    (ends(("é" * 40, "b")), [], ["é" * 30 + "_1"]),
])  # fmt: skip
def test_levels_are_named_by_their_ends_or_features(levels, taken, views):
    """Where two would be the same but for case, or are taken or too long, the level's number stands behind them."""
    total = dict.fromkeys(levels[0])
    assert level_views([total, *levels], {"area", "sex"}, taken) == ["total", *views]


@given(levels=st.lists(st.tuples(names, names), max_size=6), taken=st.lists(names, max_size=3))
def test_no_two_names_are_the_same(levels, taken):
    """Whatever the levels are called, every one has a name of its own, of at most 63 bytes, and none that is taken."""
    views = level_views(ends((None, None), *levels), taken=taken)
    folded = [view.casefold() for view in views]
    assert len(set(folded)) == len(folded) == len(levels) + 1
    assert set(folded).isdisjoint(name.casefold() for name in taken)
    assert all(len(view.encode()) <= 63 for view in views)
