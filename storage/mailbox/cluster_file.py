"""The cluster file of a machine: where its scheduler and its mailbox are, and with what it proves that it belongs to them.

It is the machine's own, not a part of a spec: specs are published, and addresses are not theirs.
"""

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_IMODE
from typing import Annotated, Any

import yaml
from cryptography import x509
from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError, field_validator

from storage.errors import SpecError
from storage.mailbox.places import Mailbox, S3Keys, open_place

CLUSTER = "TRELLIS_CLUSTER"  # names the file
KEY_BYTES = 32

_LEAST_MEMORY = 256_000_000  # bytes, as of `run.max_memory`
_WARN_BEFORE_END = timedelta(days=7)
_SPAN = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_SECRETS = re.compile(r"secret|access_key|token|password|credential", re.IGNORECASE)
_FILES = ("ca", "certificate", "private_key", "key")


def _seconds(value: Any) -> Any:
    """Return the seconds of a text such as `60s` or `2min`; other values as they are."""
    span = _SPAN.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, str | bool) and not span:
        raise ValueError("must be a span such as 60s or 2min")
    return float(span["number"]) * _SECONDS[span["unit"]] if span else value


class ClusterFile(BaseModel):
    """The keys of a cluster file.

    Attributes:
        scheduler: the address of the Dask scheduler, `tls://…`.
        ca: the certificate of the authority that signs those of scheduler, workers and home.
        certificate: this machine's.
        private_key: of the certificate; closed to others.
        mailbox: the URL of a folder that all machines share, or of a bucket.
        s3: how the bucket is reached.
        key: the file of 32 bytes from which what lies in the mailbox is encrypted; the same on all machines.
        memory_per_worker: bytes that the arrays of an order may take at a worker.
        lost_after: seconds after which a worker that does not answer is given up.
        wait_for_worker: seconds for which home waits for a worker when all have gone, and a worker for its scheduler.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scheduler: str
    ca: Path
    certificate: Path
    private_key: Path
    mailbox: str
    s3: S3Keys = S3Keys()
    key: Path
    memory_per_worker: Annotated[ByteSize, Field(ge=_LEAST_MEMORY)] = ByteSize(4_000_000_000)
    lost_after: Annotated[float, BeforeValidator(_seconds), Field(ge=1, le=86400)] = 60.0
    wait_for_worker: Annotated[float, BeforeValidator(_seconds), Field(ge=1, le=86400)] = 600.0

    @field_validator("scheduler")
    @classmethod
    def _is_encrypted(cls, scheduler: str) -> str:
        if not re.fullmatch(r"tls://[^/@\s]+:\d+", scheduler):
            raise ValueError("must be tls://<machine>:<port>, since others could read along otherwise")
        return scheduler

    def place(self) -> Mailbox:
        """Return the mailbox; errors are those of `open_place`."""
        return open_place(self.mailbox, self.s3)

    def mailbox_key(self) -> bytes:
        """Return the key of the mailbox.

        Raises:
            SpecError: it is missing, open to others, or not of 32 bytes.
        """
        key = _content(self.key, "key", secret=True)
        if len(key) != KEY_BYTES:
            raise SpecError(
                f"key must be a file of {KEY_BYTES} bytes.",
                field="key",
                hint=f"Run `(umask 377; head -c {KEY_BYTES} /dev/urandom > {self.key})`, and copy it to all machines.",
            )
        return key

    def warnings(self) -> list[str]:
        """Return what will soon stop the cluster, in sentences.

        Raises:
            SpecError: a certificate is missing or none, is not valid yet, or has ended.
        """
        return [text for field in ("ca", "certificate") if (text := _end_of(getattr(self, field), field))]


def read_cluster_file(path: Path | None = None) -> ClusterFile:
    """Return the keys of a cluster file, whose files are there, closed to others where they are secret, and valid today.

    Args:
        path: the file; the one that TRELLIS_CLUSTER names if left out.
    Raises:
        SpecError: there is none, others can read it, or it breaks a rule; the text repeats no value of it.
    """
    if path is None:
        named = os.environ.get(CLUSTER)
        if not named:
            raise SpecError(
                "run.workers is dask, and no cluster is named.",
                field=CLUSTER,
                hint=f"Set {CLUSTER} to the cluster file of this machine; docs/how-to/cluster.md describes it.",
            )
        path = Path(named).expanduser()
    keys = _keys_in(_content(path, CLUSTER, secret=True))
    try:
        file = ClusterFile.model_validate(keys)
    except ValidationError as faults:
        raise _first_of(faults) from None
    folder = path.absolute().parent
    file = file.model_copy(update={name: folder / getattr(file, name).expanduser() for name in _FILES})
    _content(file.private_key, "private_key", secret=True)
    file.mailbox_key()
    file.warnings()
    return file


def _keys_in(content: bytes) -> Any:
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise SpecError(f"The cluster file is not YAML{line}.", field=CLUSTER) from None


def _first_of(faults: ValidationError) -> SpecError:
    """Return what is wrong first, without the value."""
    fault = faults.errors(include_input=False, include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "missing":
        return SpecError(f"{field} must be given.", field=field)
    if fault["type"] == "extra_forbidden" and _SECRETS.search(field):
        return SpecError(
            "The cluster file must not hold credentials of the bucket.",
            field=field,
            hint="Give them in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or give the machine a role.",
        )
    if fault["type"] == "extra_forbidden":
        known = ", ".join(S3Keys.model_fields if field.startswith("s3.") else ClusterFile.model_fields)
        return SpecError(f"{field} is not a key of the cluster file.", field=field, hint=f"There are {known}.")
    if not field:
        return SpecError("The cluster file must be a YAML mapping of keys to values.", field=CLUSTER)
    return SpecError(f"{field}: {fault['msg'].removeprefix('Value error, ')}.", field=field)


def _content(path: Path, field: str, *, secret: bool = False) -> bytes:
    """Return what is in a file; refuse a secret one that others can read."""
    try:
        mode, content = S_IMODE(path.stat().st_mode), path.read_bytes()
    except OSError as fault:
        raise SpecError(f"{path} cannot be read ({fault.strerror}).", field=field) from None
    if secret and mode & 0o077:
        raise SpecError(
            f"{path} is open to other users (mode {mode:o}).",
            field=field,
            hint=f"Run `chmod {'400' if field == 'key' else '600'} {path}`.",
        )
    return content


def _end_of(path: Path, field: str) -> str:
    """Return a warning where a certificate ends within a week, otherwise an empty text; refuse one that does not hold today."""
    try:
        certificates = x509.load_pem_x509_certificates(_content(path, field))
    except ValueError:
        raise SpecError(f"{path} holds no certificate in PEM.", field=field) from None
    now, ends = datetime.now(UTC), min(one.not_valid_after_utc for one in certificates)
    day = f"{ends:%Y-%m-%d %H:%M} UTC"
    if now >= ends:
        raise SpecError(f"The certificate {path} ended on {day}.", field=field, hint="Put a new one there.")
    if now < max(one.not_valid_before_utc for one in certificates):
        raise SpecError(
            f"The certificate {path} is not valid yet.",
            field=field,
            hint="See that the clock of this machine is right.",
        )
    return f"The certificate {path} ends on {day}." if ends - now < _WARN_BEFORE_END else ""
