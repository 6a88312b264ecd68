"""What home refuses of a worker by its address, and by what a real worker of Dask says of itself. None is started."""

import asyncio
import sys
import time
from contextlib import nullcontext, suppress
from threading import Event, Thread

import pytest

from flows.cli.main import main
from flows.cluster.choice import check_workers
from flows.cluster.connection import Connection
from flows.cluster.dispatch import introduce, probe
from flows.cluster.worker import WorkerSetup
from storage.errors import SpecError, StoreError
from storage.mailbox.cluster_file import CLUSTER, read_cluster_file
from tests.support.certificates import write_cluster_file

AS_STARTED = {"nthreads": 1, "memory_limit": 0, "dashboard": False}  # by `trellis worker`
ADDRESS = "tls://10.0.0.6:40001"


class Cluster:
    """In place of Dask's client: asks a worker that is of this process, and notes which were asked."""

    def __init__(self, worker=None):
        self.worker, self.asked = worker, list[str]()

    def run(self, question, *arguments, workers, on_error):
        """Ask each worker, as Dask would."""
        assert on_error == "return"
        self.asked += workers
        named = {"dask_worker": self.worker} if question is introduce else {}
        return {address: question(*arguments, **named) for address in workers}


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Return what makes a connection to a cluster whose workers have the key and the mailbox of home."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    for folder in ("mailbox", "kept"):
        (tmp_path / folder).mkdir(mode=0o700)
    file = read_cluster_file(write_cluster_file(tmp_path, mailbox=f"file://{tmp_path / 'mailbox'}", s3=None))
    place, key = file.place(), file.mailbox_key()
    monkeypatch.setattr("flows.cluster.worker._setup", WorkerSetup(place, key, tmp_path / "kept"))

    def connection(cluster):
        client = cluster
        return Connection(file, client, place, key)

    return connection


def test_a_worker_without_tls_is_not_even_asked(connect):
    """Where one address is plain, home refuses, and sends nothing to any worker."""
    cluster = Cluster()
    with pytest.raises(SpecError, match=r"tcp://10\.0\.0\.7:40001 is not reached by tls://") as refused:
        connect(cluster).check([ADDRESS, "tcp://10.0.0.7:40001"])
    assert "trellis worker" in refused.value.hint
    assert cluster.asked == []


WORKERS = [
    pytest.param({}, {}, "", id="as it is started"),
    pytest.param({"memory_limit": "1GB"}, {}, "spills to its disk", id="spills"),
    pytest.param({"dashboard": True}, {}, "shows a dashboard", id="page"),
    pytest.param({}, {"distributed.worker.http.routes": ["distributed.http.health"]}, "shows a dashboard", id="routes"),
    pytest.param({"nthreads": 2}, {}, "has 2 threads, not one", id="threads"),
]


@pytest.mark.parametrize(("options", "settings", "match"), WORKERS)
def test_a_worker_is_refused_by_what_it_is(connect, tmp_path, options, settings, match):
    """One that may spill, shows a page, or has several threads is refused; one as `trellis worker` starts it is not."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    import dask
    from distributed import Worker

    from flows.cluster.worker import SETTINGS

    async def check():
        cluster, place = Cluster(), str(tmp_path / "dask")
        connection = connect(cluster)
        with dask.config.set(SETTINGS | settings):
            cluster.worker = Worker(connection.file.scheduler, local_directory=place, **AS_STARTED | options)
            try:
                connection.check([ADDRESS])
            finally:
                await cluster.worker.close()

    with pytest.raises(SpecError, match=match) if match else nullcontext():
        asyncio.run(check())


@pytest.mark.parametrize("answer", ["The mailbox is full.", StoreError("It has gone."), False, None])
def test_no_probe_is_left_behind(connect, tmp_path, answer):
    """Whether a worker cannot use the mailbox, is gone, or has lost, what home has put there for the probe is removed."""
    # While one does not answer (None), the end of a release removes it.
    seen, ended = list[list[str]](), Event()

    class Answers(Cluster):
        def run(self, question, *arguments, **_):
            mailbox = tmp_path / "mailbox"
            while question is probe and not list(mailbox.rglob(arguments[0])):
                time.sleep(0.01)  # until home has put it
            seen.append([path.name for path in mailbox.rglob("[!.]*") if path.is_file()])  # none that is being written
            if answer is None:
                ended.wait(20)
            if isinstance(answer, Exception):
                raise answer
            return {ADDRESS: answer or False}

    connection = connect(Answers())

    def probing():
        with suppress(StoreError):
            connection._probe([ADDRESS])

    thread = Thread(target=probing)
    thread.start()
    if answer is None:
        while not seen:
            time.sleep(0.01)
        connection.remove_probes()
        assert list(connection.place.list()) == []
        ended.set()
    thread.join()
    assert [len(there) for there in seen] == [1]
    assert (list(connection.place.list()), connection.probes) == ([], set())


def test_without_the_package_it_is_said_what_to_install(tmp_path, monkeypatch, capsys):
    """Where distributed is not installed, home and a worker name the extra before they look for a scheduler."""
    file = write_cluster_file(tmp_path)
    monkeypatch.setenv(CLUSTER, str(file))
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(StoreError, match="needs the package distributed") as refused:
        check_workers("dask")
    assert "pip install 'trellis[dask]'" in refused.value.hint
    assert main(["worker", "--cluster", str(file)]) == 1
    assert "pip install 'trellis[dask]'" in capsys.readouterr().err
