"""What is confidential is in clear nowhere outside of home: not on the wire, in logs, on workers' disks, or in the mailbox."""

from contextlib import suppress
from pathlib import Path

import pytest

from storage.mailbox.ciphertext import BLOCK
from storage.mailbox.cluster_file import read_cluster_file
from storage.mailbox.keys import release_key
from tests.support.cluster import Machines, cluster, start_home
from tests.support.draws import write_small

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a cluster runs meanwhile")]
PLANTED = 918_273  # people on one pair of municipalities


def places_of(machines: Machines, wire: Path) -> dict[str, bytes]:
    """Return everything that is on disks outside of home: the mailbox, logs, folders of workers, and what went over the wire."""
    folders = [machines.mailbox, machines.folder / "tmp"]
    while True:
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        with suppress(FileNotFoundError):  # the other worker goes on, and renames what it has written
            return {str(path): path.read_bytes() for path in [*files, *machines.folder.glob("*.log"), wire]}


def test_nothing_confidential_is_in_clear_outside_of_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker holds slices and has drawn, neither the planted count nor a key is found; and sizes tell powers of two alone."""
    spec = write_small(tmp_path / "small")
    table = spec.with_name("trips.csv")
    first, second, *others = table.read_text().splitlines()
    table.write_text("\n".join([first, f"{second.rpartition(',')[0]},{PLANTED}", *others]) + "\n")
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    named = {"TEST_AT": "after send", "TEST_ONCE": str(tmp_path / "done"), "TEST_SIGNAL": "SIGSTOP"}
    with cluster(tmp_path / "cluster", keys={"lost_after": "60s"}, TEST_NOISE="inftda", **named) as machines:
        wire = tmp_path / "wire"
        home = start_home(machines, tmp_path, TEST_WIRE=str(wire))
        machines.wait_until_stopped()
        seen = places_of(machines, wire)
        keys = [
            release_key("small", read_cluster_file(machines.file).mailbox_key()),
            read_cluster_file(machines.file).mailbox_key(),
        ]
        home.kill()
        home.wait()
    assert any("/slices/" in path for path in seen)
    assert any(".noisy." in path for path in seen)
    assert b"measure_branch" in seen[str(wire)]
    codes = second.split(",")[0].encode()
    assert any(codes in content for content in seen.values())  # codebooks are public: what is looked for can be found
    for number in range(PLANTED - 6, PLANTED + 7):  # the noise of this test is at most 6
        for planted in (str(number).encode(), number.to_bytes(8, "little"), number.to_bytes(8, "big")):
            assert not [path for path, content in seen.items() if planted in content]
    for key in keys:
        for planted in (key, key.hex().encode()):
            assert not [path for path, content in seen.items() if planted in content]
    sizes = [len(content) for path, content in seen.items() if "/slices/" in path or "/shards/" in path]
    assert all(size % BLOCK == 0 and (size // BLOCK).bit_count() == 1 for size in sizes)
