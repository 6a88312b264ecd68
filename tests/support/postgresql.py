"""A PostgreSQL server of a test's own, from the binaries of the system."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.buckets import free_ports

PASSWORD = "open-sesame-918273645"  # noqa: S105 (which is searched for in everything that Trellis leaves behind)
USER = "reader_271828182"

_DEBIAN = Path("/usr/lib/postgresql")  # where a version's programs are, and not in the PATH


@dataclass(frozen=True)
class Postgres:
    """A running server, which takes a password from everybody."""

    port: int  # on 127.0.0.1
    folder: Path  # of its data; its log lies in it

    @property
    def url(self):
        """The location of its database, without credentials."""
        return f"postgresql://127.0.0.1:{self.port}/postgres"

    def run(self, *statements):
        """Run statements, each committed."""
        from adbc_driver_postgresql import dbapi  # which few tests need

        with dbapi.connect(f"{self.url}?user={USER}&password={PASSWORD}", autocommit=True) as con:
            for statement in statements:
                with con.cursor() as cursor:
                    cursor.execute(statement)

    def log_in(self, monkeypatch):
        """Give the environment the credentials."""
        monkeypatch.setenv("PGUSER", USER)
        monkeypatch.setenv("PGPASSWORD", PASSWORD)


def binaries():
    """Return the folder of the programs of the newest PostgreSQL that is installed."""
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    found = str(versions[-1]) if versions else shutil.which("initdb")
    return Path(found).resolve().parent if found else None


@contextmanager
def running():
    """Make a cluster and hold its server open; skip where there is no PostgreSQL, or root may not become another user."""
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL: initdb is not installed")
    as_user = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        if not shutil.which("runuser") or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("no PostgreSQL: root needs the user postgres to run it")
        as_user = ["runuser", "-u", "postgres", "--"]
    with tempfile.TemporaryDirectory(prefix="trellis-postgresql-") as name:
        place = Path(name)
        (place / "password").write_text(PASSWORD)
        if as_user:
            for path in (place, place / "password"):
                shutil.chown(path, "postgres")
        data, (port,) = place / "data", free_ports(1)
        password = f"--pwfile={place / 'password'}"
        make = ["-U", USER, "--auth=scram-sha-256", password, "--locale=C", "--encoding=UTF8", "--no-sync"]
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -k {place} -c fsync=off"
        control = [*as_user, folder / "pg_ctl", "-D", data, "-w"]
        subprocess.run([*as_user, folder / "initdb", "-D", data, *make], cwd=place, check=True, capture_output=True)
        log = place / "log"
        subprocess.run([*control, "-l", log, "-o", settings, "start"], cwd=place, check=True, stdout=subprocess.DEVNULL)
        try:
            yield Postgres(port, place)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], cwd=place, check=True, capture_output=True)
