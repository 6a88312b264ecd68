"""Small disks of their own, which a test fills, mounts in another way, and takes away."""

import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A small disk of its own, mounted in a folder."""

    folder: Path

    def fill(self):
        """Leave no room on it."""
        with (self.folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (1 << 20, 1 << 12):
                try:
                    while ballast.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue

    def free(self):
        """Make room on it again."""
        (self.folder / "ballast").unlink()

    def mount(self, options):
        """Mount it in another way."""
        subprocess.run(["mount", "-o", f"remount,{options}", self.folder], check=True)


@contextmanager
def mounted(folder):
    """Mount a disk in a folder, which is made; skip the test where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=700", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"a disk cannot be mounted here: {done.stderr.strip() if done else 'no mount'}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)
