"""The files of containers: nothing more than is needed goes in or is reached, and they hold no secret. Others run them (test_built_image.py)."""

import re
from pathlib import Path

import yaml
from prefect.settings import Settings

from flows.release import SPECS
from flows.server.process import AT_ONCE, NO_TELEMETRY, PATIENT, RECORD_IN_BATCHES

REPOSITORY = Path(__file__).parents[3]
DEPLOYMENTS = REPOSITORY / "deployments"
TEXT = (DEPLOYMENTS / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
OWN = [name for name in SERVICES if name != "database"]
INSTRUCTIONS = (DEPLOYMENTS / "Containerfile").read_text().replace("\\\n", " ").splitlines()
PREFECT_FILE = yaml.safe_load((DEPLOYMENTS / "prefect.yaml").read_text())


def environment(service):
    """Return what a service sees."""
    return SERVICES[service]["environment"]


def test_only_this_machine_reaches_the_ui():
    """One port is published, the UI's, on 127.0.0.1; the database and the worker have no way out of the machine."""
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"server": ["127.0.0.1:4200:4200"]}
    closed = {name for name, network in COMPOSE["networks"].items() if network.get("internal")}
    inside = {name for name, service in SERVICES.items() if set(service["networks"]) <= closed}
    assert inside == {"database", "deploy", "worker"}


def test_no_secret_is_in_the_file():
    """Every password is a variable without a default, which the example of the environment file names and leaves empty."""
    variables = [pair for service in SERVICES for pair in environment(service).items()]
    secrets = [value for name, value in variables if re.search("PASSWORD|AUTH|CONNECTION_URL", name)]
    assert len(secrets) == 5
    for secret in secrets:
        assert re.fullmatch(r"(postgresql\+asyncpg://prefect:)?\$\{\w+:\?[^}]+\}(@database:5432/prefect)?", secret)
    example = (DEPLOYMENTS / "compose.env.example").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in example if line and not line.startswith("#"))
    assert set(settings) == set(re.findall(r"\$\{(\w+):\?", TEXT))
    assert set(settings.values()) == {""}
    assert "deployments/compose.env" in (REPOSITORY / ".gitignore").read_text().splitlines()


def test_nothing_else_goes_in():
    """What is copied into the image is all that reaches a build; specs and tables are mounted read-only."""
    copies = [line.split()[1:-1] for line in INSTRUCTIONS if line.startswith("COPY ")]
    copied = {word for words in copies for word in words if not word.startswith("--")}
    let_through = (DEPLOYMENTS / "Containerfile.dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in let_through if line.startswith("!")} == copied
    mounted = [volume for volume in SERVICES["worker"]["volumes"] if volume.startswith("$")]
    assert [volume.rsplit("}:", 1)[-1] for volume in mounted] == ["/specs:ro", "/data:ro"]


def test_containers_have_the_settings_of_what_trellis_starts_itself():
    """Telemetry is off everywhere, the server records in batches, and clients are patient and take few runs at once."""
    assert all(NO_TELEMETRY.items() <= environment(service).items() for service in OWN)
    assert RECORD_IN_BATCHES.items() <= environment("server").items()
    assert PATIENT.items() <= environment("worker").items()
    definition = PREFECT_FILE["definitions"]["on_the_worker"]
    assert PATIENT.items() <= definition["job_variables"]["env"].items()
    assert [deployment["work_pool"] for deployment in PREFECT_FILE["deployments"]] == [definition] * 4
    worker = SERVICES["worker"]["command"]
    assert worker[worker.index("--limit") + 1] == str(AT_ONCE)
    page = (REPOSITORY / "docs" / "operations.md").read_text()
    assert [name for name, value in PATIENT.items() if f"`{name}={value}`" not in page] == []


def test_settings_exist():
    """Every variable is one that Prefect's settings, Trellis, a spec, Python, or the convention against tracking reads."""
    read = {SPECS, "TRELLIS_HOME", "TRELLIS_DATA", "TRELLIS_OUTPUT", "DO_NOT_TRACK", "PYTHONSAFEPATH"}
    named = {*PATIENT, *(name for service in OWN for name in environment(service))}
    assert named - read <= settings_of(Settings, "PREFECT_")


def settings_of(model, prefix):
    """Return the names of all settings below a group of Prefect's."""
    found = set[str]()
    for name, field in model.model_fields.items():
        below, full = field.annotation, f"{prefix}{name.upper()}"
        found |= settings_of(below, f"{full}_") if hasattr(below, "model_fields") else {full}
    return found
