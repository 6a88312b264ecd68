"""TRELLIS_HOME: on a disk of this machine, where no other machine writes, its owner's alone, and named where it cannot be made."""

from pathlib import Path
from stat import S_IMODE

import pytest

from storage.errors import StoreError
from storage.machine import home as machine
from storage.machine.home import home, network_file_system

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
def test_the_nearest_mount_decides(kind: str) -> None:
    """The mount that holds a path decides, the last one where several lie at one point, and names may have spaces."""
    mounts = MOUNTS.format(kind=kind)
    for path in ("/var/lib/shared", "/var/lib/shared/trellis/store.duckdb", "/mnt/two words/trellis"):
        assert network_file_system(Path(path), mounts) == (kind if kind in NETWORK else "")
    for path in ("/var/lib/shared-not/trellis", "/var/lib/shared/own/trellis", "/mnt/hidden/trellis", "/home/me"):
        assert network_file_system(Path(path), mounts) == ""


def test_a_home_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_home_that_is_open_to_others_or_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that others may look into stays as it is; below a file, or a folder that is not there, nothing is made."""
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "file").touch()
    for place in ("open", "file/home", "gone/home"):
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / place))
        with pytest.raises(StoreError, match="open to other users" if place == "open" else str(tmp_path / place)):
            home()
    assert S_IMODE((tmp_path / "open").stat().st_mode) == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "open"]
