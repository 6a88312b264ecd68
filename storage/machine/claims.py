"""The folder of a release's shards. The run that creates it owns the release's id."""

from contextlib import suppress
from pathlib import Path

from storage.machine.home import SHARDS, subfolder


def shard_folder(release_id: str) -> Path:
    """Return the folder of a release's shards and codebooks; create it with mode 700 if it does not exist."""
    folder = subfolder(SHARDS) / release_id
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def claim_shard_folder(release_id: str) -> bool:
    """Create the folder of a new release's shards; return False if another run has already created it."""
    try:
        (subfolder(SHARDS) / release_id).mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def give_up_claim(release_id: str) -> None:
    """Remove the folder that was created for a new release, unless something is in it."""
    with suppress(OSError):
        (subfolder(SHARDS) / release_id).rmdir()
