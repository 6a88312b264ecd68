"""TRELLIS_HOME lies on a disk of this machine: a network file system, which two machines could write, is refused."""

from pathlib import Path

import pytest

from storage.errors import StoreError
from storage.machine import home as machine
from storage.machine.home import home, network_file_system

MOUNTS = """\
22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b
23 22 0:21 / /proc rw - proc proc rw
24 22 254:1 / /var/lib rw,relatime - ext4 /dev/vda1 rw
25 24 0:40 / /var/lib/shared rw,relatime shared:9 master:2 - {kind} server:/export rw
26 25 254:2 / /var/lib/shared/own rw,relatime - xfs /dev/vdb rw
27 22 0:41 / /mnt/two\\040words rw - {kind} server:/words rw
28 22 0:42 / /mnt/hidden rw - {kind} server:/hidden rw
29 28 254:3 / /mnt/hidden rw - btrfs /dev/vdc rw
"""

NETWORK = ["nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "9p", "fuse.sshfs", "fuse.glusterfs"]
LOCAL = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "virtiofs", "fuseblk", "fuse.fuse-overlayfs"]


@pytest.mark.parametrize("kind", [*NETWORK, *LOCAL, "fuse.gocryptfs"])
def test_the_nearest_mount_decides(kind: str) -> None:
    """The mount that holds a path decides, the last one where several lie at one point, and names may have spaces."""
    found, mounts = kind if kind in NETWORK else "", MOUNTS.format(kind=kind)
    for path, expected in {
        "/var/lib/shared": found,
        "/var/lib/shared/trellis/store.duckdb": found,
        "/mnt/two words/trellis": found,
        "/var/lib/shared-not/trellis": "",
        "/var/lib/shared/own/trellis": "",
        "/mnt/hidden/trellis": "",
        "/home/me/.trellis": "",
    }.items():
        assert network_file_system(Path(path), mounts) == expected


def test_a_home_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is refused with the kind of its file system, where the folder or a link from it leads there; then it is not made."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path}/share rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(machine, "_MOUNTS", mounts)
    (tmp_path / "share").mkdir()
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "share" / "home"))
    for _ in range(2):
        with pytest.raises(StoreError, match=r"on a network file system \(nfs4\)"):
            home()
    linked = tmp_path / "linked"
    linked.mkdir(mode=0o700)
    (linked / "store.duckdb").symlink_to(tmp_path / "share" / "store.duckdb")
    monkeypatch.setenv("TRELLIS_HOME", str(linked))
    with pytest.raises(StoreError, match=r"on a network file system \(nfs4\)"):
        home()
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "own"))
    assert home() == tmp_path / "own"


def test_this_machine_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine has mounted can be read, and the folder of a test is on a disk of it; without a list nothing is refused."""
    mounts = Path("/proc/self/mountinfo")
    if mounts.exists():
        assert network_file_system(tmp_path.resolve(), mounts.read_text()) == ""
    monkeypatch.setattr(machine, "_MOUNTS", tmp_path / "missing")
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    assert home() == tmp_path / "home"
