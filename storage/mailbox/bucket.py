"""A mailbox in a bucket of a server that speaks S3. A file is put on the condition that nothing lies under its name."""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

from storage.errors import SpecError, StoreError, TakenAlready
from storage.machine.files import beside
from storage.mailbox.places import S3Keys, address_alone, check_name

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

# A condition goes with one request, and one request may bring 5 GB. So a large file is put in parts first, whose names only this
# writer knows, and then under its own name an empty object. Each object says who has put it, and in how many parts.
_PART = 2**26  # bytes
_PUT = "trellis-put"  # the attribute: `<writer>-<parts>`; no parts where the file is in the object itself
_PUT_BY = re.compile(r"(?P<writer>[0-9a-f]{32})-(?P<parts>[0-9]{1,6})")

_PATIENCE = timedelta(seconds=60)  # for which a request is repeated
_CLIENT: "ClientConfig" = {"connect_timeout": "10s", "timeout": "300s"}
_RETRY: "RetryConfig" = {"max_retries": 6, "retry_timeout": _PATIENCE}
_HERE = "127.0.0.1"  # where alone a server may answer without TLS


@dataclass(frozen=True, slots=True)
class S3Place:
    """A folder of a bucket, and its URL for people."""

    url: str
    store: "S3Store"

    def put_new(self, name: str, file: Path) -> None:
        """Put a file on the condition that nothing lies under its name, at once or in parts.

        A client whose answer was lost asks again, and is then told that the name is taken. So whose object lies there decides.
        """
        check_name(name)
        with self._public(name):
            writer = uuid4().hex
            is_whole = file.stat().st_size <= _PART
            parts = () if is_whole else self._put_parts(name, writer, file)
            put = f"{writer}-{len(parts)}"
            try:
                self._create(name, file.read_bytes() if is_whole else b"", put)
            except TakenAlready:
                if self._put_by(name) == put:
                    return
                self._remove(parts)
                raise

    def get(self, name: str, file: Path) -> None:
        """Copy what lies under a name to a file."""
        import obstore

        with self._public(name), beside(file) as target:
            whole = obstore.get(self.store, check_name(name))
            parts = _parts_of(name, whole.attributes.get(_PUT, ""))
            for part in (obstore.get(self.store, part) for part in parts) if parts else [whole]:
                for piece in part.stream(min_chunk_size=2**20):
                    target.write(piece)

    def exists(self, name: str) -> bool:
        """Return whether something lies under a name."""
        import obstore

        with self._public(name):
            try:
                obstore.head(self.store, check_name(name))
            except FileNotFoundError:
                return False
            return True

    def list(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with a prefix; parts of files are not names."""
        names = [name for name in self._all(prefix.rpartition("/")[0]) if name.startswith(prefix)]
        return sorted(name for name in names if not any(part.startswith(".") for part in name.split("/")))

    def delete(self, name: str) -> None:
        """Delete what lies under a name, and then its parts."""
        with self._public(name):
            parts = _parts_of(name, self._put_by(check_name(name)))
            self._remove([name, *parts])

    def clear(self, prefix: str) -> None:
        """Delete all whose names begin with some whole parts, and the parts that killed writers left there."""
        check_name(prefix)
        names = self._all(prefix)
        with self._public(prefix):
            self._remove([*names, prefix])

    def _create(self, name: str, content: bytes, put: str) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(self.store, name, content, mode="create", attributes={_PUT: put}, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            raise TakenAlready(f"{name} is taken in the mailbox.", field="mailbox") from None
        except FileNotFoundError:
            raise self._no_bucket() from None

    def _put_parts(self, name: str, writer: str, file: Path) -> Sequence[str]:
        """Put a file in parts, a part in memory at a time; return their names."""
        import obstore

        made = deque[str]()
        with file.open("rb") as source:
            while content := source.read(_PART):
                made.append(_part(name, writer, len(made)))
                try:
                    obstore.put(self.store, made[-1], content, use_multipart=False)
                except FileNotFoundError:
                    raise self._no_bucket() from None
        return made

    def _put_by(self, name: str) -> str:
        """Return what the object under a name says of who has put it; nothing if it is gone."""
        import obstore

        with suppress(FileNotFoundError):
            return obstore.get(self.store, name).attributes.get(_PUT, "")
        return ""

    def _no_bucket(self) -> StoreError:
        return StoreError(
            f"There is no bucket for the mailbox {self.url}.",
            field="mailbox",
            hint="Make it, closed to the public, or name another.",
        )

    def _all(self, folder: str) -> Sequence[str]:
        import obstore

        with self._public(folder):
            pieces = obstore.list(self.store, prefix=folder or None)
            return [listed["path"] for piece in pieces for listed in piece]

    def _remove(self, names: Sequence[str]) -> None:
        import obstore

        for name in names:  # one by one: not every server takes a list
            with suppress(FileNotFoundError):
                obstore.delete(self.store, name)

    @contextmanager
    def _public(self, name: str) -> Iterator[None]:
        """Turn what the server says into an error that may be shown."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except FileNotFoundError:
            raise StoreError(
                f"{name} is not in the mailbox {self.url}.",
                field="mailbox",
                hint="Has somebody emptied it? Run `trellis rerun`.",
            ) from None
        except (PermissionDeniedError, UnauthenticatedError):
            raise StoreError(
                f"The server of the mailbox {self.url} refuses the credentials.",
                field="mailbox",
                hint="Give them in the environment, or give the machine a role, which may read, write, list and delete there.",
            ) from None
        except BaseError as fault:
            raise StoreError(
                f"The server of the mailbox {self.url} does not do what it is asked ({type(fault).__name__}).",
                field="mailbox",
                hint="See that it answers, and that it knows conditional writes (If-None-Match).",
            ) from None


def open_bucket(bucket: str, folder: str, s3: S3Keys) -> S3Place:
    """Return a folder of a bucket as a place; errors are those of `open_place`."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ModuleNotFoundError:
        raise StoreError(
            "A mailbox in a bucket needs the package obstore.",
            field="mailbox",
            hint="Run pip install 'trellis[dask]', or use a folder that all machines share.",
        ) from None
    config: S3Config = {"conditional_put": "etag", "skip_signature": False}
    if endpoint := _endpoint(s3):
        config["endpoint"] = endpoint
    if s3.region:
        config["region"] = s3.region
    client: ClientConfig = {**_CLIENT, "allow_http": _is_here(s3), "allow_invalid_certificates": False}
    try:
        store = S3Store(bucket, prefix=folder or None, config=config, client_options=client, retry_config=_RETRY)
    except (BaseError, ValueError, TypeError) as fault:
        raise SpecError(
            f"mailbox is no bucket that can be reached ({type(fault).__name__}).", field="mailbox"
        ) from None
    return S3Place(f"s3://{bucket}/{folder}".rstrip("/"), store)


def _endpoint(s3: S3Keys) -> str | None:
    """Return the address of the server, if it may be used."""
    if s3.endpoint is None:
        return None
    if address_alone(s3.endpoint, "s3.endpoint").scheme != "https" and not _is_here(s3):
        raise SpecError(
            f"s3.endpoint must begin with https://, or with http://{_HERE}.",
            field="s3.endpoint",
            hint="Let the server of the bucket have a certificate.",
        )
    return s3.endpoint


def _is_here(s3: S3Keys) -> bool:
    parts = urlsplit(s3.endpoint or "")
    return parts.scheme == "http" and parts.hostname == _HERE


def _parts_of(name: str, put: str) -> Sequence[str]:
    """Return the names of the parts of a file, from what its object says; none where it was put at once."""
    put_by = _PUT_BY.fullmatch(put)
    return [_part(name, put_by["writer"], number) for number in range(int(put_by["parts"]))] if put_by else []


def _part(name: str, writer: str, number: int) -> str:
    above, _, last = name.rpartition("/")
    return f"{above}/.{last}.{writer}/{number:06d}".lstrip("/")
