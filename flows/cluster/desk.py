"""The desk of a worker: what its process has, to do an errand with. Home's processes have none."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreError
from storage.mailbox.places import Place


@dataclass(frozen=True, slots=True, eq=False)
class Desk:
    """What a worker has.

    Attributes:
        place: the mailbox.
        key: of the mailbox, 32 bytes.
        folder: a folder of its own, for files of ciphertext and for public codebooks.
    """

    place: Place
    key: bytes
    folder: Path

    def folder_of(self, run: str) -> Path:
        """Return the folder of a run; what was kept for other runs is deleted, since a worker works for one at a time."""
        folder = self.folder / run
        if not folder.exists():
            for kept in self.folder.iterdir():
                self.forget(kept.name)
            folder.mkdir(mode=0o700)
        return folder

    def forget(self, run: str) -> None:
        """Delete what was kept for a run."""
        shutil.rmtree(self.folder / run, ignore_errors=True)


_desk: Desk | None = None


def sit_down(desk: Desk) -> None:
    """Let this process be a worker."""
    global _desk
    _desk = desk


def own_desk() -> Desk:
    """Return the desk of this process.

    Raises:
        StoreError: it is no worker of Trellis.
    """
    if _desk is None:
        raise StoreError("It was not started by `trellis worker`.", field="worker", hint="Start it so.")
    return _desk
