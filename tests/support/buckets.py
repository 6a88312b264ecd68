"""Real servers of buckets on this machine, and a proxy that makes of one a server that overwrites."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "trellis-tests", "AWS_SECRET_ACCESS_KEY": "of-no-value-elsewhere"}
REGION = "us-east-1"
BUCKET = "trellis"

_STARTS_WITHIN = 60.0  # seconds


@dataclass(frozen=True)
class Server:
    """A server of buckets, and where its data is; nothing is there where it is in memory."""

    endpoint: str
    folder: Path


def free_ports(count):
    """Return ports at which nobody listens, each with the one 10,000 above it, which SeaweedFS takes too."""
    found = []
    while len(found) < count:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            if port + 10_000 < 2**16 and port not in found:
                with suppress(OSError):
                    other.bind(("127.0.0.1", port + 10_000))
                    found.append(port)
    return found


@contextmanager
def seaweedfs(folder):
    """Run SeaweedFS with one bucket, in a folder that is made."""
    (folder / "data").mkdir(parents=True)
    master, volume, filer, s3 = free_ports(4)
    command = [
        *(_program("weed"), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *("-s3", "-volume.max=50", "-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-s3.port.iceberg=0"),
        *("-s3.port.lance=0", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"),
        *(f"-s3.port={s3}", f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"),
    ]
    environment = os.environ | CREDENTIALS  # they are what the server knows, and all that it lets in
    with _run(command, folder / "log", environment), _made(f"http://127.0.0.1:{s3}") as endpoint:
        yield Server(endpoint, folder / "data")


@contextmanager
def moto(folder):
    """Run moto, which keeps its one bucket in memory, with its log in a folder that is made."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    command = [_program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _run(command, folder / "log", dict(os.environ)), _made(f"http://127.0.0.1:{port}") as endpoint:
        yield Server(endpoint, folder)


def _program(name):
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is not installed"
    return found


@contextmanager
def _run(command, log, environment):
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=log.parent)
    try:
        yield
    finally:
        process.kill()  # its data is of no use to anybody, and an orderly end takes ten seconds
        process.wait()


@contextmanager
def _made(endpoint):
    """Wait until a server answers, and make its bucket."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    options = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1})
    credentials = {key.lower(): value for key, value in CREDENTIALS.items()}
    client = boto3.client("s3", endpoint_url=endpoint, region_name=REGION, config=options, **credentials)
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="begun", Body=b"")
            client.delete_object(Bucket=BUCKET, Key="begun")
            break
        except (BotoCoreError, ClientError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)
    yield endpoint
