"""The folder of a release's shards: where it is, and which new release has it. To have claimed it is to own the id."""

from contextlib import suppress
from pathlib import Path

from storage.machine.home import subfolder


def shard_folder(release_id: str) -> Path:
    """Return the folder of a release's shards and codebooks, made with mode 700 if it is not there yet."""
    folder = subfolder("shards") / release_id
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def claim_shard_folder(release_id: str) -> bool:
    """Make the folder of a new release's shards; return False where another run has made it already."""
    try:
        (subfolder("shards") / release_id).mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def give_up_claim(release_id: str) -> None:
    """Remove the folder that a new release has claimed, unless something is in it."""
    with suppress(OSError):
        (subfolder("shards") / release_id).rmdir()
