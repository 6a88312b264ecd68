"""What the process of a worker has, to carry out a dispatch with. Home's processes have none."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from storage.errors import StoreError
from storage.mailbox.places import Mailbox


@dataclass(frozen=True, slots=True, eq=False)
class WorkerSetup:
    """What a worker has.

    Attributes:
        place: the mailbox.
        key: of the mailbox, 32 bytes.
        folder: a folder of its own, for files of ciphertext and for public codebooks.
    """

    place: Mailbox
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


_setup: WorkerSetup | None = None


def set_up_worker(setup: WorkerSetup) -> None:
    """Let this process be a worker."""
    global _setup
    _setup = setup


def worker_setup() -> WorkerSetup:
    """Return the setup of this process.

    Raises:
        StoreError: it is no worker of Trellis.
    """
    if _setup is None:
        raise StoreError("It was not started by `trellis worker`.", field="worker", hint="Start it so.")
    return _setup
