"""The compose file: no container runs here, but what it names exists, is closed to others, and holds no secret."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml
from prefect.settings import Settings

from flows.release import SPECS
from flows.server.process import AT_ONCE, NO_TELEMETRY, PATIENT, RECORD_IN_BATCHES

REPOSITORY = Path(__file__).parents[3]
DEPLOYMENTS = REPOSITORY / "deployments"
TEXT = (DEPLOYMENTS / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = [name for name in SERVICES if name != "database"]
INSTRUCTIONS = (DEPLOYMENTS / "Containerfile").read_text().replace("\\\n", " ").splitlines()
PREFECT_FILE: dict[str, Any] = yaml.safe_load((DEPLOYMENTS / "prefect.yaml").read_text())


def instructions(name: str) -> list[list[str]]:
    """Return the words of all instructions of a kind in the Containerfile, without their options."""
    found = [line.split()[1:] for line in INSTRUCTIONS if line.startswith(f"{name} ")]
    return [[word for word in words if not word.startswith("--")] for words in found]


def environment(service: str) -> dict[str, str]:
    """Return what a service sees."""
    given: dict[str, str] = SERVICES[service]["environment"]
    return given


def test_only_this_machine_reaches_the_ui() -> None:
    """One port is published, the UI's, on 127.0.0.1; the database and the worker have no way out of the machine."""
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "server": ["127.0.0.1:4200:4200"]
    }
    closed = {name for name, network in COMPOSE["networks"].items() if network.get("internal")}
    assert {name for name, service in SERVICES.items() if set(service["networks"]) <= closed} == {
        *("database", "deploy", "worker")
    }


def test_no_secret_is_in_the_file() -> None:
    """Every password is a variable without a default, which the example of the environment file names and leaves empty."""
    secrets = [
        value
        for service in SERVICES
        for name, value in environment(service).items()
        if re.search("PASSWORD|AUTH|CONNECTION_URL", name)
    ]
    assert len(secrets) == 5
    for secret in secrets:
        assert re.fullmatch(r"(postgresql\+asyncpg://prefect:)?\$\{\w+:\?[^}]+\}(@database:5432/prefect)?", secret)
    example = (DEPLOYMENTS / "compose.env.example").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in example if line and not line.startswith("#"))
    assert set(settings) == set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert set(settings.values()) == {""}
    assert "deployments/compose.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_nobody_is_root_and_files_are_closed() -> None:
    """The image's user is not root, and its commands run with umask 077; specs and tables are read-only, the store is a volume.

    What is copied into the image is there, and let through to the build.
    """
    copied = {word for words in instructions("COPY") for word in words[:-1]}
    assert [name for name in copied if not (REPOSITORY / name).exists()] == []
    let_through = (DEPLOYMENTS / "Containerfile.dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in let_through if line.startswith("!")} == copied
    assert instructions("USER")[-1] == ["trellis"]
    (line,) = (line for line in INSTRUCTIONS if line.startswith("ENTRYPOINT "))
    entry = yaml.safe_load(line.removeprefix("ENTRYPOINT "))
    said = subprocess.run(
        [*entry, "sh", "-c", "umask; echo $0 $1", "one", "two"], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["0077", "one", "two"]
    made = next(shlex.split(line) for line in INSTRUCTIONS if "install --directory" in line)
    assert "--mode=700" in made
    volumes = [volume.split(":") for volume in SERVICES["worker"]["volumes"] if not volume.startswith("$")]
    assert {place for _, place in volumes} <= set(made)
    assert [volume.rsplit("}:", 1)[-1] for volume in SERVICES["worker"]["volumes"] if volume.startswith("$")] == [
        *("/specs:ro", "/data:ro")
    ]
    worker = environment("worker")
    assert (worker[SPECS], worker["TRELLIS_DATA"], worker["TRELLIS_OUTPUT"]) == ("/specs", "/data", "/published")
    assert Path(worker["TRELLIS_HOME"]).parent == Path("/var/lib/trellis")


def test_containers_have_the_settings_of_what_trellis_starts_itself() -> None:
    """Telemetry is off everywhere, the server records in batches, and clients are patient and take few runs at once."""
    assert all(NO_TELEMETRY.items() <= environment(service).items() for service in OWN)
    assert RECORD_IN_BATCHES.items() <= environment("server").items()
    assert PATIENT.items() <= environment("worker").items()
    definition: dict[str, Any] = PREFECT_FILE["definitions"]["on_the_worker"]
    assert PATIENT.items() <= definition["job_variables"]["env"].items()
    assert [deployment["work_pool"] for deployment in PREFECT_FILE["deployments"]] == [definition] * 4
    worker = SERVICES["worker"]["command"]
    assert worker[worker.index("--limit") + 1] == str(AT_ONCE)
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    assert [name for name, value in PATIENT.items() if f"`{name}={value}`" not in page] == []


def test_settings_exist() -> None:
    """Every variable is one that Prefect's settings, Trellis, a spec, Python, or the convention against tracking reads."""
    read = {SPECS, "TRELLIS_HOME", "TRELLIS_DATA", "TRELLIS_OUTPUT", "DO_NOT_TRACK", "PYTHONSAFEPATH"}
    named = {*PATIENT, *(name for service in OWN for name in environment(service))}
    assert named - read <= settings_of(Settings, "PREFECT_")


def settings_of(model: Any, prefix: str) -> set[str]:
    """Return the names of all settings below a group of Prefect's."""
    found = set[str]()
    for name, field in model.model_fields.items():
        below, full = field.annotation, f"{prefix}{name.upper()}"
        found |= settings_of(below, f"{full}_") if hasattr(below, "model_fields") else {full}
    return found


def test_what_is_deployed_is_served() -> None:
    """The pool that is made is the one that the worker serves, and the variables of prefect.yaml are there where it is deployed."""
    text = (DEPLOYMENTS / "prefect.yaml").read_text()
    assert set(re.findall(r"\{\{ \$(\w+) \}\}", text)) == {SPECS, "TRELLIS_HOME"} <= set(environment("deploy"))
    command, worker = shlex.split(SERVICES["deploy"]["command"][-1]), SERVICES["worker"]["command"]
    assert command[command.index("&&") - 1] == worker[worker.index("--pool") + 1] == "trellis"
    assert command[command.index("--prefect-file") + 1] == "deployments/prefect.yaml"
    assert {deployment["work_pool"]["name"] for deployment in PREFECT_FILE["deployments"]} == {"trellis"}
