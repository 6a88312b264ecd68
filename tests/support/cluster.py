"""A cluster on this machine, a scheduler, workers under mutual TLS and a mailbox; and the program of a worker that draws, or dies, as a test says."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.x509.oid import NameOID

from tests.support.buckets import free_ports
from tests.support.draws import BRANCH_CELLS, CHUNK_CELLS, write_small
from tests.support.warm import FEW_THREADS

HOUSE = Path(__file__).parents[2]
SCHEDULER = {  # what an office sets where its scheduler starts
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "false",
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
}

_WITHIN = 240.0  # seconds


def wait_for(is_so, words):
    """Wait until something is so."""
    deadline = time.monotonic() + _WITHIN
    while not is_so():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


class Authority:
    """Signs certificates for the machines of one cluster."""

    def __init__(self):
        self._key = generate_private_key(SECP256R1())
        self._name = _named("authority of a test")
        of_authority = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._signed(self._name, self._key, of_authority)

    def write(self, folder):
        """Write `ca.pem`, `home.pem` and `home.key` of a machine to a folder."""
        key, pem = generate_private_key(SECP256R1()), serialization.Encoding.PEM
        name = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = self._signed(_named("machine"), key, name)
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        _write(folder / "ca.pem", self.certificate.public_bytes(pem))
        _write(folder / "home.pem", made.public_bytes(pem))
        _write(folder / "home.key", key.private_bytes(pem, *plain))

    def _signed(self, name, key, extension):
        now, number = datetime.now(UTC), x509.random_serial_number()
        ends = now - timedelta(days=1), now + timedelta(days=60)
        made = x509.CertificateBuilder(self._name, name, key.public_key(), number, *ends)
        made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(self._key, hashes.SHA256())


def _named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@dataclass
class Machines:
    """A cluster: its files, and its processes by name, `scheduler`, `worker-0`, …."""

    folder: Path
    file: Path
    port: int
    host: str = "127.0.0.1"
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def mailbox(self):
        """The folder that is the mailbox, where it is one."""
        return self.folder / "mailbox"

    def start(self, name, command, **environment):
        """Start a process of the cluster, whose log is `<name>.log`."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("TRELLIS_", "PREFECT_", "DASK_"))}
        own |= FEW_THREADS | {"PYTHONPATH": str(HOUSE), "TMPDIR": str(self.folder / "tmp")} | environment
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(list(command), stdout=log, stderr=log, env=own, cwd=self.folder)
        return self.processes[name]

    def start_scheduler(self, *options, **environment):
        """Start the scheduler, as Dask's own command does it."""
        files = [f"--tls-ca-file={self.folder / 'ca.pem'}", f"--tls-cert={self.folder / 'home.pem'}"]
        files += [f"--tls-key={self.folder / 'home.key'}"]
        where = ["--protocol=tls", f"--host={self.host}", f"--port={self.port}"]
        command = [program("dask"), "scheduler", *files, *where, *(options or ("--no-dashboard",))]
        self.start("scheduler", command, **(SCHEDULER | environment))
        self.wait_for_log("scheduler", "Scheduler at")

    def start_worker(self, name, before=(), **environment):
        """Start a worker, as a user does, or, where the environment says what it is to do, as a test wants it."""
        if any(key.startswith("TEST_") for key in environment):
            command, named = [sys.executable, "-m", __name__], {"TRELLIS_CLUSTER": str(self.file)}
        else:
            command, named = [program("trellis"), "worker", "--cluster", str(self.file)], {}
        return self.start(name, [*before, *command], **(named | environment))

    def wait_for_workers(self, number):
        """Wait until the scheduler has so many workers."""

        def are_there():
            for name, process in self.processes.items():
                has_ended = not name.startswith("home") and process.poll() is not None
                assert not has_ended, (name, (self.folder / f"{name}.log").read_text())
            return (self.folder / "scheduler.log").read_text().count("Register worker") >= number

        wait_for(are_there, "the workers do not come")

    def wait_for_log(self, name, words):
        """Wait until a process has written something."""

        def is_written():
            text = (self.folder / f"{name}.log").read_text()
            assert words in text or self.processes[name].poll() is None, text
            return words in text

        wait_for(is_written, f"{name} does not say {words}")

    def wait_until_stopped(self):
        """Return the process of the worker that has stopped itself, once one has."""

        def stopped():
            workers = [process.pid for name, process in self.processes.items() if name.startswith("worker")]
            states = [Path(f"/proc/{of}/stat").read_text().rpartition(")")[2].split()[0] for of in workers]
            return [of for of, state in zip(workers, states, strict=True) if state == "T"]

        wait_for(lambda: bool(stopped()), "no worker has stopped")
        return stopped()[0]

    def log(self):
        """Return what all processes have written."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def end(self):
        """Kill what is left; stopped processes too."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
        for process in self.processes.values():
            process.wait()


def prepare(folder, **keys):
    """Write everything that a cluster needs, with some keys of its file changed; nothing is started."""
    for made in (folder, folder / "mailbox", folder / "tmp"):
        made.mkdir(mode=0o700, parents=True)
    Authority().write(folder)
    _write(folder / "mailbox.key", os.urandom(32), 0o400)
    (port,) = free_ports(1)
    content = {
        "scheduler": f"tls://127.0.0.1:{port}",
        "ca": "ca.pem",
        "certificate": "home.pem",
        "private_key": "home.key",
        "mailbox": f"file://{folder / 'mailbox'}",
        "key": "mailbox.key",
        "lost_after": "20s",
        "wait_for_worker": "60s",
    } | keys
    return Machines(folder, write_keys(folder / "cluster.yaml", content), port)


def write_keys(path, keys):
    """Write a cluster file."""
    _write(path, yaml.safe_dump({key: value for key, value in keys.items() if value is not None}).encode())
    return path


@contextmanager
def cluster(folder, workers=2, *, keys=None, **environment):
    """Run a cluster in a folder that is made, with some keys of its file changed; the environment is that of its workers."""
    machines = prepare(folder, **(keys or {}))
    try:
        machines.start_scheduler()
        for number in range(workers):
            machines.start_worker(f"worker-{number}", **environment)
        machines.wait_for_workers(workers)
        yield machines
    finally:
        machines.end()
        shutil.rmtree(machines.folder / "tmp", ignore_errors=True)


def _write(path, content, mode=0o600):
    path.write_bytes(content)
    path.chmod(mode)


def program(name):
    """Return the path of a program that is installed beside Python."""
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    assert found, f"{name} is not installed"
    return found


def be_as_wanted():
    """Be a worker that does what TEST_ variables say, before it is what a user starts.

    TEST_NOISE: a mechanism, whose noise is then that of the cell (see `tests.support.making`).
    TEST_BYTES: a file to which the size of every file is written that goes through the mailbox.
    TEST_AT, TEST_ONCE, TEST_SIGNAL: at which event it sends itself a signal, once of all processes that name one file.
    """
    from flows.cluster.worker import WorkerSetup, run_worker

    if "TEST_BYTES" in os.environ:
        count_bytes(Path(os.environ["TEST_BYTES"]))
    else:
        draw_noise_of_the_cell(os.environ.get("TEST_NOISE", ""))
    if os.environ.get("TEST_AT") == "before send":
        WorkerSetup.forget = lambda *_: None  # or what it has made may be gone when it wakes and sends it
    if "TEST_AT" in os.environ:
        watch(os.environ["TEST_AT"], Path(os.environ["TEST_ONCE"]), os.environ["TEST_SIGNAL"])
    run_worker()


def count_bytes(to):
    """Write the name and the size of every file that this process puts into a folder as mailbox, or gets from it, to a file."""
    from storage.mailbox.folder import FolderPlace

    def noted(function):
        def call(self, name, file):
            function(self, name, file)
            with to.open("a") as lines:
                lines.write(f"{name} {file.stat().st_size}\n")

        return call

    FolderPlace.put_new = noted(FolderPlace.put_new)
    FolderPlace.get = noted(FolderPlace.get)


def draw_noise_of_the_cell(mechanism):
    """Let this process draw it for a mechanism, in small chunks."""
    import tasks.noise.measure
    import tasks.noise.task
    import tasks.optimize.task
    from tasks.laws.gaussian import GAUSSIAN
    from tasks.laws.law import Sampling
    from tasks.mechanisms import MECHANISMS
    from tests.support.laws import drawn_by
    from tests.support.making import NoiseOfTheCell, noted

    for module in (tasks.noise.task, tasks.noise.measure, tasks.optimize.task, tasks.optimize.task):
        module.CHUNK_CELLS = CHUNK_CELLS
    if mechanism:
        tasks.noise.measure.true_counts_of = noted
        sampling = Sampling(NoiseOfTheCell(), GAUSSIAN.samplers["opendp"].tau)
        MECHANISMS[mechanism] = drawn_by(mechanism, {"opendp": sampling})


EVENTS = ("claim", "slice", "draw", "put", "reply")  # of an order that measures; `send` is within `put`


def watch(at, once, name):
    """Let this worker send itself a signal at a moment such as `before draw`, unless the file `once` is there, which it makes."""
    import flows.cluster.dispatch as dispatch
    import tasks.noise.measure as truth
    import tasks.noise.slicing as slicing
    from storage.counts.encrypted_files import EncryptedFiles
    from storage.mailbox.folder import FolderPlace

    def now(moment):
        if moment == at:
            try:
                once.open("x").close()
            except FileExistsError:
                return
            os.kill(os.getpid(), getattr(signal, name))
            time.sleep(1)  # a stop is not immediate

    def watched(event, function, concerns=lambda *_: True):
        def call(*arguments, **options):
            if not concerns(*arguments):
                return function(*arguments, **options)
            now(f"before {event}")
            found = function(*arguments, **options)
            now(f"after {event}")
            return found

        return call

    EncryptedFiles.claim = watched("claim", EncryptedFiles.claim)
    EncryptedFiles._write = watched("put", EncryptedFiles._write, lambda _, name, *__: ".noisy" in name)
    FolderPlace.put_new = watched(
        "send", FolderPlace.put_new, lambda _, name, *__: ".noisy" in name and "/shards/" in name
    )
    slicing._fetch = watched("slice", slicing._fetch)
    truth.true_counts_of = watched("draw", truth.true_counts_of)  # with the shard open
    dispatch._made = watched("reply", dispatch._made, lambda of, _: of.order.kind == "measure")


def release_small(folder, workers="dask", again=""):
    """Release a small country in four branches, or go on with its release `again`. TRELLIS_HOME says where."""
    import tasks.tree.branches
    from flows.cluster.choice import by_workers
    from flows.planning.plan import make_plan
    from flows.run.driver import finish_release, make_release
    from flows.run.reservation import new_release, refresh_run_keys
    from flows.run.runner import report_nothing, submit_to
    from flows.specification.file import load_spec
    from tasks.work.stage import width

    spec = folder / "small" / "spec.yaml"
    if not spec.exists():
        write_small(spec.parent)
    text = spec.read_text().split("keep_vault:")[0]
    spec.write_text(f"{text}keep_vault: true\nrun: {{workers: {workers}}}\n")
    tasks.tree.branches.BRANCH_CELLS = BRANCH_CELLS
    draw_noise_of_the_cell("inftda")
    if again:
        refresh_run_keys(again)
    with by_workers(workers), ThreadPoolExecutor(width()) as threads:
        if again:
            finish_release(again, submit_to(threads), report_nothing)
        else:
            plan = make_plan(load_spec(spec))
            make_release(plan, new_release(plan, release_id="small"), submit_to(threads), report_nothing)


def note_errands(to):
    """Write every dispatch of home to a file as it travels."""
    import flows.cluster.cluster as home

    ask = home.Cluster._ask

    def noted(self, address, gone, text, going_on):
        with to.open("a") as file:
            file.write(f"{text}\n")
        return ask(self, address, gone, text, going_on)

    home.Cluster._ask = noted


def start_home(machines, folder, *arguments, **environment):
    """Start `release_small` in a process of its own, with TRELLIS_HOME in a folder."""
    command = [sys.executable, "-m", __name__, "home", str(folder), *arguments]
    named = {"TRELLIS_HOME": str(folder / "home"), "TRELLIS_CLUSTER": str(machines.file)}
    return machines.start(f"home-{len(machines.processes)}", command, **(named | environment))


def run_home(machines, folder, *arguments, **environment):
    """Run it to its end, and return its exit code: 0 where the release was published."""
    return start_home(machines, folder, *arguments, **environment).wait(300)


if __name__ == "__main__":
    if sys.argv[1:2] == ["home"]:
        os.umask(0o077)
        if "TEST_WIRE" in os.environ:
            note_errands(Path(os.environ["TEST_WIRE"]))
        release_small(Path(sys.argv[2]), *sys.argv[3:])
    else:
        be_as_wanted()
