"""The command line without its start: this process imports everything once, without a thread, and forks a child for each command."""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from threading import Lock, active_count

LATE = (  # what commands import late, besides modules of Trellis: once here, instead of in every child
    "dp_accounting.pld.privacy_loss_distribution", "numpy.ctypeslib", "opendp.prelude", "pyarrow.dataset",
    "rich.progress", "rich.table", "scipy.optimize",
)  # fmt: skip
FEW_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def serve():
    """Let each request of stdin, in turn, have a child that runs its command."""
    import flows
    import storage
    import tasks
    from flows.cli.main import run
    from flows.server.process import quiet_prefect

    quiet_prefect()
    ours = (
        found.name for room in (flows, storage, tasks) for found in walk_packages(room.__path__, f"{room.__name__}.")
    )
    for module in (*LATE, *ours):
        importlib.import_module(module)
    if active_count() > 1:  # those of jemalloc and Polars, which Python does not count, know what a fork is
        raise SystemExit("The process that forks must have one thread.")
    gc.freeze()  # children leave what was imported alone, so that none of it is copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    for request in sys.stdin:
        if not os.fork():
            _keep(run, **json.loads(request))
    gc.unfreeze()


def _keep(run, arguments, environment, folder, streams):
    """Fork the command, wait for its end, and tell its exit code: the keeper is the first process of a group of its own."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    result = os.open(f"{streams}/code", os.O_WRONLY)
    child = os.fork()
    if not child:
        os.close(result)
        try:
            for descriptor, name in enumerate((os.devnull, f"{streams}/stdout", f"{streams}/stderr")):
                opened = os.open(name, os.O_WRONLY if descriptor else os.O_RDONLY)
                os.dup2(opened, descriptor)
                os.close(opened)
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(folder)
            sys.argv = ["trellis", *arguments]
            run()
        finally:
            os._exit(70)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(result, str(code).encode())
    os._exit(0)


_asking = Lock()


@cache
def _warm_process():
    """Start the warm process of this test process, which ends with it."""
    here = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "TRELLIS_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        env=here | FEW_THREADS,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def run_warm(arguments, environment, folder, patience):
    """Run a command to its end, or leave it to itself after so many seconds; return its exit code, its stdout and its stderr."""
    with TemporaryDirectory() as streams:
        for name in ("stdout", "stderr"):
            Path(streams, name).touch()
        os.mkfifo(f"{streams}/code")
        request = {"arguments": list(arguments), "environment": environment, "folder": str(folder), "streams": streams}
        with _asking:
            warm = _warm_process()
            answer = os.open(f"{streams}/code", os.O_RDONLY | os.O_NONBLOCK)
            print(json.dumps(request), file=warm.stdin, flush=True)
        deadline = time.monotonic() + patience
        try:
            while not select.select([answer], [], [], 1.0)[0]:
                assert warm.poll() is None, "the warm process has died"
                if time.monotonic() > deadline:
                    raise TimeoutError(f"trellis {' '.join(arguments)} has not ended after {patience} seconds")
            code = int(os.read(answer, 100))
        finally:
            os.close(answer)
        return code, Path(streams, "stdout").read_text(), Path(streams, "stderr").read_text()


if __name__ == "__main__":
    serve()
