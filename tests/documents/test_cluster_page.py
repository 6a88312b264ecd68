"""docs/how-to/cluster.md: its files, commands and variables are those that Trellis and Dask know."""

import re
import shutil
import ssl
import subprocess
from pathlib import Path
from socket import socketpair
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.main import get_command

from flows.cli.main import app
from flows.mechanisms import MECHANISMS
from storage.mailbox.cluster_file import CLUSTER, ClusterFile, read_cluster_file
from tests.support.cluster import SCHEDULER

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")

# what `trellis show` says where a cluster fails a release: as the page has it, and as the code has it
SAID = {
    "the scheduler does not answer": "does not answer, or does not know this certificate",
    "there has been no worker": "There has been no worker for",
    "workers were lost, one after the other": "workers were lost, one after the other",
    "something is not in it": "is not in the mailbox.",
    "a file is not what home has put into the mailbox": "is not what home has put into the mailbox",
    "the key does not open": "does not open: it was wrapped by another key",
}


def section(heading: str) -> str:
    """Return the text below a heading, up to the next heading of its kind or above it."""
    marks = heading.partition(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(marks)}}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def fenced(text: str, language: str) -> str:
    """Return the only listing of a language in a text."""
    (listing,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(listing)


def commands(text: str) -> str:
    """Return the indented lines of a text as a script; a fence begins no line with spaces."""
    unfenced = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(f"{line}\n" for line in re.findall(r"^    (.*)$", unfenced, re.MULTILINE))


def step(number: int) -> str:
    """Return the text of a step of the set-up."""
    found = re.search(
        rf"^\*\*{number}\. .*?(?=^\*\*{number + 1}\. |^### )", section("## Set it up"), re.MULTILINE | re.DOTALL
    )
    assert found, number
    return found[0]


def test_the_cluster_file_has_every_key_and_the_defaults() -> None:
    """The listing names each key once; those that may be left out have the values that they have then."""
    keys = yaml.safe_load(fenced(step(5), "yaml"))
    assert set(keys) == set(ClusterFile.model_fields)
    file = ClusterFile.model_validate(keys)
    for name in ("memory_per_worker", "lost_after", "wait_for_worker"):
        assert getattr(file, name) == ClusterFile.model_fields[name].default
    assert f"export {CLUSTER}=" in step(5)


def test_the_commands_make_files_that_trellis_and_strict_machines_take(tmp_path: Path) -> None:
    """Certificates and key of the page pass every check of a cluster file, and machines that check as newer Pythons do connect."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    script = f"set -e\n{commands(step(2))}{commands(step(3))}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    keys = yaml.safe_load(fenced(step(5), "yaml"))
    for machine in ("home", "worker"):
        path = tmp_path / f"{machine}.yaml"
        path.write_text(yaml.safe_dump(keys | {"certificate": f"{machine}.pem", "private_key": f"{machine}.key"}))
        path.chmod(0o600)
        assert read_cluster_file(path).warnings() == []
    assert _connected(tmp_path, "worker", "scheduler")


def _connected(folder: Path, client: str, server: str) -> bool:
    """Return whether two machines connect, each of which demands a certificate of the other, and is strict."""

    def context(purpose: ssl.Purpose, machine: str) -> ssl.SSLContext:
        made = ssl.create_default_context(purpose, cafile=folder / "ca.pem")
        made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        made.load_cert_chain(folder / f"{machine}.pem", folder / f"{machine}.key")
        return made

    ours, theirs = socketpair()

    def serve() -> None:
        with context(ssl.Purpose.CLIENT_AUTH, server).wrap_socket(theirs, server_side=True) as accepted:
            accepted.sendall(b"in")

    thread = Thread(target=serve)
    thread.start()
    with context(ssl.Purpose.SERVER_AUTH, client).wrap_socket(ours) as connected:
        heard = connected.recv(2)
    thread.join()
    return heard == b"in"


def test_the_scheduler_is_started_as_tests_start_it() -> None:
    """The variables of the page are those of the tests on clusters, and Dask knows each as a setting."""
    dask = pytest.importorskip("dask", reason="dask is not installed")
    pytest.importorskip("distributed", reason="distributed is not installed")
    script = commands(step(6))
    given = dict(re.findall(r"^export (DASK_\w+)=(.*)$", script, re.MULTILINE))
    assert {name: value.strip("'") for name, value in given.items()} == SCHEDULER
    for name in given:
        key = name.removeprefix("DASK_").lower().replace("__", ".")
        assert dask.config.get(key, default="unknown") != "unknown", name
    assert "--protocol tls" in script
    assert "--no-dashboard" in script


def test_every_command_of_trellis_is_one() -> None:
    """What the page calls `trellis …` can be called, with these options."""
    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in re.findall(r"\btrellis ([a-z]+)((?: --[a-z-]+)*)", f"{PAGE}{OPERATIONS}"):
        if name in known:
            options = {
                option for parameter in known[name].params for option in [*parameter.opts, *parameter.secondary_opts]
            }
            assert set(rest.split()) <= options, (name, rest)
    named = set(re.findall(r"`trellis ([a-z]+)", PAGE))
    assert named <= set(known)
    assert {"worker", "rerun", "clean", "audit", "check"} <= named


def test_the_mechanisms_with_nothing_to_share_out_are_named() -> None:
    """The page lists each mechanism that home refuses with dask, group sizes by that name, and no other."""
    sentence = section("## When not to use one").split("nothing to share out")[1].split("`trellis check`")[0]
    refused = {name for name, of in MECHANISMS.items() if of.cells != "survivors" and not of.is_of_sizes}
    assert set(re.findall(r"`(\w+)`", sentence)) == refused
    assert "group sizes" in sentence


def test_slurm_starts_a_worker_with_memory_to_spare() -> None:
    """The script is one for sh, ends as a worker, and asks for more memory than the orders of a worker may take."""
    script = fenced(section("### On Slurm"), "sh")
    shell = shutil.which("sh")
    assert shell
    subprocess.run([shell, "-n"], input=script, text=True, check=True)
    assert script.splitlines()[-1].startswith("exec trellis worker --cluster /")
    (gigabytes,) = re.findall(r"--mem=(\d+)G", script)
    assert int(gigabytes) * 10**9 > ClusterFile.model_fields["memory_per_worker"].default


def test_kubernetes_starts_workers_whose_files_are_closed() -> None:
    """The manifest is whole: labels match, whatever is mounted is there, and the worker reads copies that are its own."""
    of: dict[str, Any] = yaml.safe_load(fenced(section("### On Kubernetes"), "yaml"))
    assert (of["apiVersion"], of["kind"]) == ("apps/v1", "Deployment")
    template = of["spec"]["template"]
    assert of["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    pod = template["spec"]
    first, worker = *pod["initContainers"], *pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {of["name"]: {at["name"]: at["mountPath"] for at in of["volumeMounts"]} for of in (first, worker)}
    assert set(volumes) == {name for mounted in mounts.values() for name in mounted}
    assert volumes["given"]["secret"]["defaultMode"] == 0o440  # which a group reads, since fsGroup makes it so
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    own = mounts["worker"]["own"]
    assert first["command"][-1] == f"umask 077 && cp {mounts['own-copies']['given']}/* {own}/"
    assert mounts["own-copies"]["own"] == own
    assert worker["command"] == ["trellis", "worker", "--cluster", f"{own}/cluster.yaml"]
    (memory,) = re.findall(r"^(\d+)Gi$", worker["resources"]["limits"]["memory"])
    assert int(memory) * 2**30 > ClusterFile.model_fields["memory_per_worker"].default


def test_what_is_said_of_a_failure_is_what_the_code_says() -> None:
    """The page of operations has a row for each failure of a cluster, in the words of the code."""
    code = "".join(
        path.read_text("utf-8") for room in ("flows", "storage") for path in (REPOSITORY / room).rglob("*.py")
    )
    rows = OPERATIONS.partition("If a cluster fails a release:")[2].partition("\n## ")[0]
    for on_page, in_code in SAID.items():
        assert on_page in rows
        assert in_code in code
    assert len(re.findall(r"^\| (?!---|`trellis show`)", rows, re.MULTILINE)) == len(SAID)


def test_steps_that_a_refusal_points_to_are_there() -> None:
    """Each row of what home refuses points to a step of the set-up, to a worker of Trellis, or to another mailbox."""
    rows = re.findall(r"^\| (?!home finds|---)(.*) \| (.*) \|$", section("## What home refuses"), re.MULTILINE)
    assert len(rows) > 8
    for _, advice in rows:
        numbers = [
            int(number) for listed in re.findall(r"steps? ([\d, ]+)", advice) for number in re.findall(r"\d", listed)
        ]
        for number in numbers:
            step(number)
        assert numbers or "trellis worker" in advice or "another server" in advice
