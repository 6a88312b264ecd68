"""Places: where a mailbox keeps its files, by name. A file is there completely or not at all, and is never overwritten."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from storage.errors import SpecError
from storage.machine.fingerprints import name_of_home

PATIENCE = 60.0  # seconds for which a reader waits for a name: NFS may remember for so long that it was not there


class S3Keys(BaseModel):
    """How a bucket is reached. Credentials come from the environment, or from the role of the machine.

    Attributes:
        endpoint: the address of the server, `https://…`; Amazon's if left out.
        region: the region of the bucket; what the environment says if left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    endpoint: str | None = None
    region: str | None = None


class Mailbox(Protocol):
    """A folder or a bucket of files. Names are relative, with `/` between their parts; no part begins with a dot."""

    def put_new(self, name: str, file: Path) -> None:
        """Put a copy of a file under a name that is free. Of several writers, in whatever processes, one succeeds at most.

        Raises:
            TakenAlready: the name is taken.
            StoreError: the place cannot be written.
        """

    def get(self, name: str, file: Path) -> None:
        """Copy what lies under a name to a file, which is complete or absent.

        Raises:
            StoreError: nothing lies there, or the place cannot be read.
        """

    def exists(self, name: str) -> bool:
        """Return whether something lies under a name. Only `put_new` can tell that a name is free."""

    def list(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with a prefix, in order."""

    def delete(self, name: str) -> None:
        """Delete what lies under a name, if anything does."""

    def clear(self, prefix: str) -> None:
        """Delete all whose names begin with some whole parts, and what killed writers left there."""


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """A part of a place, whose names are the ends of those that the place has.

    Attributes:
        place: the place.
        name: with which the names of the part begin there.
    """

    place: Mailbox
    name: str

    def put_new(self, name: str, file: Path) -> None:
        """As `Mailbox.put_new`."""
        self.place.put_new(f"{self.name}/{name}", file)

    def get(self, name: str, file: Path) -> None:
        """As `Mailbox.get`."""
        self.place.get(f"{self.name}/{name}", file)

    def exists(self, name: str) -> bool:
        """As `Mailbox.exists`."""
        return self.place.exists(f"{self.name}/{name}")

    def list(self, prefix: str = "") -> Sequence[str]:
        """As `Mailbox.list`."""
        return [name.removeprefix(f"{self.name}/") for name in self.place.list(f"{self.name}/{prefix}")]

    def delete(self, name: str) -> None:
        """As `Mailbox.delete`."""
        self.place.delete(f"{self.name}/{name}")

    def clear(self, prefix: str) -> None:
        """As `Mailbox.clear`."""
        self.place.clear(f"{self.name}/{prefix}")


def namespace_of_home(place: Mailbox) -> Namespace:
    """Return the part of a mailbox that belongs to this TRELLIS_HOME: homes that share a mailbox may have releases of one id."""
    return Namespace(place, name_of_home())


def open_place(url: str, s3: S3Keys | None = None, *, patience: float = PATIENCE) -> Mailbox:
    """Return the place at a URL, which must be there.

    Args:
        url: `file:///…` of a folder, or `s3://bucket/…`.
        s3: how the bucket is reached.
        patience: seconds for which a reader of a folder waits for a name.
    Raises:
        SpecError: the URL is of another kind, or holds credentials.
        StoreError: the folder is not there, or is open to others, or is where true or published counts are; or the package for
            buckets is not installed.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise SpecError(
            "mailbox must be an address alone, without credentials or options.",
            field="mailbox",
            hint="Credentials come from the environment or from the role of the machine.",
        )
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path.startswith("/"):
        from storage.mailbox.folder import open_folder

        return open_folder(Path(unquote(parts.path)), patience)
    if parts.scheme == "s3" and parts.netloc:
        from storage.mailbox.bucket import open_bucket

        return open_bucket(parts.netloc, parts.path.strip("/"), s3 or S3Keys())
    raise SpecError(
        "mailbox must be the URL of a folder or of a bucket.",
        field="mailbox",
        hint="Write file:///mnt/shared/trellis-work, or s3://bucket/folder.",
    )


def check_name(name: str) -> str:
    """Return a name if it is one that a place can have.

    Raises:
        ValueError: it is empty or absolute, has an empty part, or one that begins with a dot.
    """
    parts = name.split("/")
    if not all(part and not part.startswith(".") and "\\" not in part and part.isprintable() for part in parts):
        raise ValueError("A name in a mailbox is relative, and no part of it is empty or begins with a dot.")
    return PurePosixPath(name).as_posix()
