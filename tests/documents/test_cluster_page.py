"""docs/how-to/cluster.md: its files, commands and variables are those that Trellis and Dask know."""

import re
import shutil
import ssl
import subprocess
from socket import socketpair
from threading import Thread

import pytest
import yaml

from storage.mailbox.cluster_file import CLUSTER, ClusterFile, read_cluster_file
from tasks.mechanisms import MECHANISMS
from tests.support.cluster import SCHEDULER
from tests.support.user import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
OPERATIONS = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
DEFAULTS = {name: of.default for name, of in ClusterFile.model_fields.items()}

# what `trellis show` says where a cluster fails a release: as the page has it, and as the code has it
SAID = {
    "the scheduler does not answer": "does not answer, or does not know this certificate",
    "there has been no worker": "There has been no worker for",
    "workers were lost, one after the other": "workers were lost, one after the other",
    "something is not in it": "is not in the mailbox.",
    "a file is not what home has put into the mailbox": "is not what home has put into the mailbox",
    "the key does not open": "does not open: it was wrapped by another key",
}


def part(begins, ends):
    """Return what stands between two patterns, each at the beginning of a line."""
    found = re.search(rf"^{begins}.*?\n(.*?)(?=^(?:{ends})|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, begins
    return found[1]


def fenced(text, language):
    """Return the only listing of a language in a text."""
    (listing,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(listing)


def commands(text):
    """Return the indented lines of a text as a script."""
    return "".join(f"{line}\n" for line in re.findall(r"^    (.*)$", text, re.MULTILINE))


STEPS = {number: part(rf"\*\*{number}\. ", rf"\*\*{number + 1}\. |###? ") for number in range(1, 9)}
KEYS = yaml.safe_load(fenced(STEPS[5], "yaml"))


def test_the_cluster_file_has_every_key_and_the_defaults():
    """The listing names each key once; those that may be left out have the values that they have then."""
    assert set(KEYS) == set(DEFAULTS)
    file = ClusterFile.model_validate(KEYS)
    for name in ("memory_per_worker", "lost_after", "wait_for_worker"):
        assert getattr(file, name) == DEFAULTS[name]
    assert f"export {CLUSTER}=" in STEPS[5]


def test_the_commands_make_files_that_trellis_and_strict_machines_take(tmp_path):
    """Certificates and key of the page pass every check of a cluster file, and machines that check as newer Pythons do connect."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    script = f"set -e\n{commands(STEPS[2])}{commands(STEPS[3])}"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for machine in ("home", "worker"):
        path = tmp_path / f"{machine}.yaml"
        path.write_text(yaml.safe_dump(KEYS | {"certificate": f"{machine}.pem", "private_key": f"{machine}.key"}))
        path.chmod(0o600)
        assert read_cluster_file(path).warnings() == []

    def context(purpose, machine):
        made = ssl.create_default_context(purpose, cafile=tmp_path / "ca.pem")
        made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        made.load_cert_chain(tmp_path / f"{machine}.pem", tmp_path / f"{machine}.key")
        return made

    ours, theirs = socketpair()

    def serve():
        with context(ssl.Purpose.CLIENT_AUTH, "scheduler").wrap_socket(theirs, server_side=True) as accepted:
            accepted.sendall(b"in")

    thread = Thread(target=serve)
    thread.start()
    with context(ssl.Purpose.SERVER_AUTH, "worker").wrap_socket(ours) as connected:
        assert connected.recv(2) == b"in"
    thread.join()


def test_the_scheduler_is_started_as_tests_start_it():
    """The variables of the page are those of the tests on clusters, and Dask knows each as a setting."""
    dask = pytest.importorskip("dask", reason="dask is not installed")
    pytest.importorskip("distributed", reason="distributed is not installed")
    script = commands(STEPS[6])
    given = dict(re.findall(r"^export (DASK_\w+)=(.*)$", script, re.MULTILINE))
    assert {name: value.strip("'") for name, value in given.items()} == SCHEDULER
    for name in given:
        key = name.removeprefix("DASK_").lower().replace("__", ".")
        assert dask.config.get(key, default="unknown") != "unknown", name
    assert "--protocol tls" in script
    assert "--no-dashboard" in script


def test_slurm_and_kubernetes_start_workers_with_memory_to_spare_whose_files_are_closed():
    """They ask for more memory than a worker's orders take; labels match, what is mounted is there, and the worker reads copies of its own."""
    script = fenced(part("### On Slurm", "###? "), "sh")
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert script.splitlines()[-1].startswith("exec trellis worker --cluster /")
    (gigabytes,) = re.findall(r"--mem=(\d+)G", script)
    of = yaml.safe_load(fenced(part("### On Kubernetes", "###? "), "yaml"))
    assert (of["apiVersion"], of["kind"]) == ("apps/v1", "Deployment")
    template = of["spec"]["template"]
    assert of["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    pod = template["spec"]
    (first,), (worker,) = pod["initContainers"], pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    given, copied = ({at["name"]: at["mountPath"] for at in one["volumeMounts"]} for one in (first, worker))
    assert set(volumes) == {*given, *copied}
    assert volumes["given"]["secret"]["defaultMode"] == 0o440  # which a group reads, since fsGroup makes it so
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
    assert first["command"][-1] == f"umask 077 && cp {given['given']}/* {copied['own']}/"
    assert given["own"] == copied["own"]
    assert worker["command"] == ["trellis", "worker", "--cluster", f"{copied['own']}/cluster.yaml"]
    gibibytes = int(worker["resources"]["limits"]["memory"].removesuffix("Gi"))
    assert min(int(gigabytes) * 10**9, gibibytes * 2**30) > DEFAULTS["memory_per_worker"]


def test_what_is_refused_and_what_fails_is_what_the_code_says():
    """The page lists each mechanism that home refuses with dask, a step or another way for each refusal, and each failure in the words of the code."""
    sentence = part("## When not to use one", "## ").split("nothing to share out")[1].split("`trellis check`")[0]
    refused = {name for name, of in MECHANISMS.items() if of.cells != "survivors" and not of.counts_groups}
    assert set(re.findall(r"`(\w+)`", sentence)) == refused
    assert "group sizes" in sentence
    advice = re.findall(r"^\| (?!home finds|---).* \| (.*) \|$", part("## What home refuses", "## "), re.MULTILINE)
    assert len(advice) > 8
    for told in advice:
        numbers = {int(of) for listed in re.findall(r"steps? ([\d, ]+)", told) for of in re.findall(r"\d", listed)}
        assert numbers <= STEPS.keys()
        assert numbers or "trellis worker" in told or "another server" in told
    files = (path for room in ("flows", "storage") for path in (REPOSITORY / room).rglob("*.py"))
    code = "".join(path.read_text("utf-8") for path in files)
    rows = OPERATIONS.partition("If a cluster fails a release:")[2].partition("\n## ")[0]
    assert [words for words in SAID.items() if words[0] not in rows or words[1] not in code] == []
    assert len(re.findall(r"^\| (?!---|`trellis show`)", rows, re.MULTILINE)) == len(SAID)
