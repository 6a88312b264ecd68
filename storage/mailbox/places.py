"""Places: where a mailbox keeps its files, by name, complete or not at all, never overwritten; and the probe that shows whether one does.

A server may ignore the condition under which a file is put, and answer that all went well. Then two workers could draw the
same counts. So before anything is reserved, home and all workers put a file under one name, and one of them may succeed.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, ConfigDict

from storage.errors import SpecError, StoreError, TakenAlready
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
    """A part of a place, whose names are the ends of those that begin there with its own name."""

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
    parts = address_alone(url, "mailbox")
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


def address_alone(url: str, field: str) -> SplitResult:
    """Return the parts of an address; refuse one that holds credentials or options."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise SpecError(
            f"{field} must be an address alone, without credentials or options.",
            field=field,
            hint="Credentials come from the environment or from the role of the machine.",
        )
    return parts


def check_name(name: str) -> str:
    """Return a name if it is one that a place can have.

    Raises:
        ValueError: it is empty or absolute, has an empty part, or one that begins with a dot.
    """
    parts = name.split("/")
    if not all(part and not part.startswith(".") and "\\" not in part and part.isprintable() for part in parts):
        raise ValueError("A name in a mailbox is relative, and no part of it is empty or begins with a dot.")
    return PurePosixPath(name).as_posix()


_PROBES = "probes"
_NONCE = re.compile(r"[0-9a-f]{32}")


def new_nonce() -> str:
    """Return a number that nobody has used, in hex."""
    return secrets.token_hex(16)


def enter_probe(place: Mailbox, nonce: str) -> bool:
    """Put a file of this process's own under the name of a nonce; return whether that succeeded.

    Raises:
        ValueError: it is no nonce.
        StoreError: the place cannot be written.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("A nonce has 32 digits in hex.")
    with TemporaryDirectory(prefix="trellis-probe-") as folder:
        file = Path(folder) / "probe"
        file.write_text(secrets.token_hex(16))
        try:
            place.put_new(_name(nonce), file)
        except TakenAlready:
            return False
        return True


def judge_probe(place: Mailbox, nonce: str, succeeded: Sequence[bool]) -> None:
    """Check that exactly one of several processes has succeeded. What it put there stays until `remove_probe`.

    Args:
        nonce: under which all of them put a file.
        succeeded: what `enter_probe` returned to each; at least two.
    Raises:
        ValueError: there are fewer than two.
        StoreError: none or several have succeeded, or what one of them put is not there.
    """
    if len(succeeded) < 2:
        raise ValueError("A probe needs two processes at least.")
    winners, is_there = sum(succeeded), place.exists(_name(nonce))
    if winners > 1:
        raise StoreError(
            f"This storage overwrites: {winners} machines have put a file under one name of the mailbox at once.",
            field="mailbox",
            hint="Use a server that knows conditional writes (If-None-Match), or a folder that is the same on all machines.",
        )
    if winners < 1 or not is_there:
        raise StoreError(
            "The machines do not see the same mailbox: none finds what another has put there.",
            field="mailbox",
            hint="Let `mailbox` name the same folder or bucket on all of them.",
        )


def remove_probe(place: Mailbox, nonce: str) -> None:
    """Remove what somebody has put under the name of a nonce, if anybody has."""
    place.delete(_name(nonce))


def _name(nonce: str) -> str:
    return f"{_PROBES}/{nonce}"
