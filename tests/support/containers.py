"""Containers of a test's own: the image of deployments/Containerfile, built and run by podman with a storage that is removed afterwards."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.user import REPOSITORY

IMAGE = "trellis:0.1.0"
PYTHON, POSTGRESQL = (  # what the files begin with
    f"docker.io/library/{re.findall(named, (REPOSITORY / 'deployments' / file).read_text())[0]}"
    for file, named in (("Containerfile", r"ARG BASE=(\S+)"), ("compose.yaml", r"image: (postgres:\S+)"))
)
DATABASE = """\
set -e
export PATH="$(echo /usr/lib/postgresql/*/bin):$PATH" PGDATA=/var/lib/postgresql/data
install --directory --mode=700 --owner=postgres "$PGDATA" /var/run/postgresql
exec runuser --user postgres -- sh -ec '
    cd && echo "$POSTGRES_PASSWORD" > password
    initdb --username="$POSTGRES_USER" --auth=scram-sha-256 --pwfile=password --no-sync
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    exec postgres -c listen_addresses="*" -k /var/run/postgresql'
"""  # what the image of PostgreSQL does at its start, with Debian's PostgreSQL


@dataclass(frozen=True)
class Podman:
    """Podman with a storage of its own.

    Attributes:
        folder: where the storage is.
        environment: leads podman, and what calls it, to that storage.
        stands_in: Debian's Python and PostgreSQL are in the place of images that no registry gave.
    """

    folder: Path
    environment: dict[str, str]
    stands_in: bool = False

    def run(self, *arguments, check=True):
        """Run a podman command to its end."""
        run = partial(subprocess.run, capture_output=True, text=True, check=False)
        done = run(["podman", *arguments], cwd=REPOSITORY, env=self.environment)
        assert not check or done.returncode == 0, f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done


@contextmanager
def podman():
    """Hold the image and what it needs ready; skip where there is no podman, nothing to build on, or no container can run."""
    if os.geteuid() != 0 or not shutil.which("podman"):
        pytest.skip("no container: podman is not installed, or whoever runs the tests is not root")
    with tempfile.TemporaryDirectory(prefix="trellis-podman-", ignore_cleanup_errors=True) as name:
        engine = _engine(Path(name))
        try:
            engine = _with_bases(engine)
            build = ["build", "--file", "deployments/Containerfile", "--tag", IMAGE]
            engine.run(*build, *_as_pip_is_set_here(engine), ".")
            yield engine
        finally:
            engine.run("container", "rm", "--all", "--force", "--time=0", check=False)
            for what in ("pod", "volume", "image"):
                engine.run(what, "rm", "--all", "--force", check=False)
            engine.run("network", "prune", "--force", check=False)
            subprocess.run(["umount", engine.folder / "storage" / "overlay"], capture_output=True, check=False)


def _engine(folder):
    """Return podman with all that it writes in a folder, and no limit that is raised: root may not do so everywhere."""
    runtimes = [name for name in ("crun", "runc") if shutil.which(name)]
    hybrid = Path("/sys/fs/cgroup/unified").is_dir()  # which crun refuses
    (folder / "containers.conf").write_text(
        f"""[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "{runtimes[-1 if hybrid else 0]}"
events_logger = "file"
cgroup_manager = "cgroupfs"
[network]
network_config_dir = "{folder}/networks"
"""
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    return Podman(
        folder,
        os.environ
        | {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "DISABLE_HC_SYSTEMD": "true",  # the test checks the health itself
            "TMPDIR": str(folder),
        },
    )


def _with_bases(engine):
    """Have the images of Python and PostgreSQL: from their registry, or else Debian's, under the same names."""
    pulled = [engine.run("pull", "--quiet", image, check=False) for image in (PYTHON, POSTGRESQL)]
    stands_in = any(done.returncode for done in pulled)
    if stands_in:
        if not shutil.which("mmdebstrap"):
            pytest.skip(f"no container: no registry gives {PYTHON}, and mmdebstrap is not installed")
        file = engine.folder / "debian.tar"
        packages = "--include=python3,python3-venv,postgresql"
        command = ["mmdebstrap", "--quiet", "--variant=apt", packages, "bookworm", file]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            why = "no registry and no mirror of Debian gives what it begins with"
            pytest.skip(f"no container: {why}: {made.stderr[-500:]}")
        engine.run("import", "--quiet", file, PYTHON)
        engine.run("tag", PYTHON, POSTGRESQL)
        file.unlink()
    tried = engine.run("run", "--rm", PYTHON, "true", check=False)
    if tried.returncode:
        pytest.skip(f"no container: podman cannot run one here: {tried.stderr[-500:]}")
    return Podman(engine.folder, engine.environment, stands_in)


def _as_pip_is_set_here(engine):
    """Return the options of a build in which pip finds packages as pip does here, with the files that its settings name."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.replace("\\n", " ")
    settings = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed, re.MULTILINE))
    file = engine.folder / "pip.conf"
    file.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items()))
    paths = {Path(word.removeprefix("file://")) for value in settings.values() for word in value.split()}
    # an index, whose name is always `simple`, has its files beside it
    named = {path.parent if path.name == "simple" else path for path in paths if path.is_absolute() and path.exists()}
    volumes = [f"--volume={path}:{path}:ro" for path in named]
    return ["--network=host", "--pull=never", "--layers=false", f"--volume={file}:/etc/pip.conf:ro", *volumes]
