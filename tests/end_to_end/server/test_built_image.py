"""The image of deployments/Containerfile, built, and the services of deployments/compose.yaml, run."""

import json
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml

from tests.support.containers import DATABASE, IMAGE, podman
from tests.support.server import ask
from tests.support.spec import SPEC
from tests.support.up import free_port, until
from tests.support.user import REPOSITORY, TRELLIS

COMPOSE = REPOSITORY / "deployments" / "compose.yaml"
AUTH = "operator:open-sesame"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(1200),
    pytest.mark.heavy("an image is built, and a server and a worker run in it"),
]


@pytest.fixture(scope="module")
def engine():
    """Build the image."""
    with podman() as built:
        yield built


def test_the_image_holds_what_is_tested(engine):
    """Its packages are those of constraints.txt, in the versions that tests run with; its command and its specs are ours; no source is left."""
    said = engine.run("run", "--rm", "--network=none", "--env=COLUMNS=100", IMAGE, "trellis", "--help").stdout
    said_here = subprocess.run(
        [TRELLIS, "--help"], env={**engine.environment, "COLUMNS": "100"}, capture_output=True, text=True, check=True
    )
    assert said == said_here.stdout
    listed = engine.run("run", "--rm", "--network=none", IMAGE, "pip", "list", "--format=json").stdout
    packages = {package["name"]: package["version"] for package in json.loads(listed)}
    assert {"trellis", "prefect", "adbc-driver-postgresql", "distributed", "pyogrio", "pysdmx"} <= set(packages)
    here = {distribution.name.lower().replace("_", "-"): distribution.version for distribution in distributions()}
    own = {"pip", "setuptools", "async-timeout"}  # of a new environment; of Python before 3.11.3
    other = {name: found for name, found in packages.items() if here.get(name.lower().replace("_", "-")) != found}
    assert set(other) <= own, other
    listing = "ls /opt/venv/share/trellis/specs; find . -type f"
    kept = engine.run("run", "--rm", IMAGE, "sh", "-c", listing).stdout.split()
    specs = {path.name for path in (REPOSITORY / "deployments" / "specs").iterdir()}
    rest = {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "deployments/prefect.yaml"}
    assert set(kept) == specs | {f"./{name}" for name in rest}


@pytest.fixture(scope="module")
def tables(country, tmp_path_factory):
    """Return a folder that everybody can read, with tables and specs: one beside its tables, the other with what the worker has."""
    folder = tmp_path_factory.mktemp("tables")
    shutil.copytree(country, folder / "data")
    data = {"table": "${TRELLIS_DATA}/trips.csv"}, {"table": "${TRELLIS_DATA}/codebook.csv"}
    named = {"input": SPEC["input"] | data[0], "hierarchy": SPEC["hierarchy"] | data[1]}
    of_worker = named | {"output": "${TRELLIS_OUTPUT}"}
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (folder / "of-worker.yaml").write_text(yaml.safe_dump(SPEC | of_worker))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def test_a_release_in_a_container_is_its_user_s_alone(engine, tables):
    """User 10001 releases as docs/operations.md says, with no network and no other place to write; what it wrote is closed to others."""
    page = (REPOSITORY / "docs" / "operations.md").read_text().replace("\\\n", " ").replace("$PWD/tables", str(tables))
    (command,) = (line for line in page.splitlines() if line.startswith("docker run "))
    _, run, *options = shlex.split(command)
    released = engine.run(run, "--read-only-tmpfs=false", *options, "--json")  # as Docker: podman opens /run too
    assert json.loads(released.stdout)["state"] == "published"
    script = "id --user; umask; cd /var/lib/trellis; stat --format=%a .; trellis verify out/* >&2; find home -perm /077"
    said = engine.run(run, "--rm", "--volume=home:/var/lib/trellis", IMAGE, "sh", "-ec", script).stdout
    assert said.split() == ["10001", "0077", "700"]


@pytest.fixture(scope="module")
def services(engine, tables, tmp_path_factory):
    """Bring the services up, one when those that it depends on are healthy or have ended; return the address of the API."""
    folder = tmp_path_factory.mktemp("services")
    compose = yaml.safe_load(COMPOSE.read_text())
    port = free_port()
    compose["services"]["server"]["ports"] = [f"127.0.0.1:{port}:4200"]
    if engine.stands_in:
        compose["services"]["database"]["command"] = ["sh", "-c", DATABASE.replace("$", "$$")]
    (folder / "compose.yaml").write_text(yaml.safe_dump(compose))
    (folder / "compose.env").write_text(
        f"TRELLIS_DATABASE_PASSWORD=5e5a3e\nTRELLIS_PREFECT_AUTH={AUTH}\n"
        f"TRELLIS_SPECS_FOLDER={tables}\nTRELLIS_DATA_FOLDER={tables / 'data'}\n"
    )

    program = Path(sys.executable).with_name("podman-compose")
    files = ["--env-file", folder / "compose.env", "--file", folder / "compose.yaml"]
    up = [program, *files, "up", "--detach", "--no-build", "--no-deps"]
    for service in compose["services"]:
        done = subprocess.run([*up, service], env=engine.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        name = f"trellis_{service}_1"
        if "healthcheck" in compose["services"][service]:
            until(lambda name=name: engine.run("healthcheck", "run", name, check=False).returncode == 0)
        else:
            engine.run("wait", name)
            assert engine.run("inspect", "--format={{.State.ExitCode}}", name).stdout == "0\n", engine.run("logs", name)
    return f"http://127.0.0.1:{port}/api"


def test_the_services_release_a_table(engine, services):
    """A run that is triggered at the published port, with the password, is taken by the worker and published in its volume."""
    assert ask(f"{services}/health") is True
    found = ask(f"{services}/deployments/name/release/release", auth=AUTH)
    asked = {"parameters": {"spec": "of-worker.yaml"}}
    run = ask(f"{services}/deployments/{found['id']}/create_flow_run", asked, auth=AUTH)["id"]
    ended = until(lambda: (now := ask(f"{services}/flow_runs/{run}", auth=AUTH))["end_time"] and now)
    assert ended["state_type"] == "COMPLETED", ended["state"]["message"]
    worker = ["exec", "trellis_worker_1", "sh", "-c"]
    said = engine.run(
        *worker, "trellis releases --json; trellis verify --json /published/*; stat --format='%a %u' /var/lib/trellis"
    )
    releases, verified, mode = said.stdout.splitlines()
    found = [(entry["id"], entry["state"]) for entry in json.loads(releases)["releases"]]
    assert found == [(ended["name"], "published")]
    assert json.loads(verified)["ok"]
    assert mode == "700 10001"
    assert engine.run(*worker, "find /var/lib/trellis -perm /077").stdout == ""
