"""What each command costs at the desk: CPU and wall seconds and memory, on the demonstration's spec, and where a release's go.

Each command runs five times, in turn with the others, on a machine that should be idle; the medians are printed, and written to
desk.md. The store is new, so the first plan composes privacy loss distributions, and later ones remember them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic

from results import machine, markdown, save

TRELLIS = Path(sys.executable).parent / "trellis"
RUNS = 5
PAGE = Path(__file__).parent / "desk.md"
SERVER = (
    "import os\nfrom pathlib import Path\nfrom flows.server.process import prefect_server\n"
    "with prefect_server(Path(os.environ['TRELLIS_HOME']) / 'prefect'): pass"
)
# CPU seconds that are to be kept, and wall seconds
GOALS = {
    "trellis --help": (0.3, None),
    "trellis check": (0.8, None),
    "trellis plan": (2.5, None),
    "trellis plan, again": (2.5, None),
    "trellis query": (0.6, None),
    "trellis verify": (1.0, None),
    "trellis audit": (1.5, None),
    "trellis release --no-server": (2.0, None),
    "trellis release": (6.0, None),
}

TEXT = """\
# At the desk

`python benchmarks/desk.py` writes this page: what each command takes on the spec of `trellis synthesise country` (about {cells:,} cells in {levels}
levels), from start to end, with all its processes, as from the second command on: Python keeps its modules compiled. Medians of {runs} runs,
in turn. {machine}.

{commands}

The memory is that of the largest process. A plan composes privacy loss distributions once; what they come to is kept in
`TRELLIS_HOME/deltas.json`.

Where the seconds of a release go:

{parts}

`trellis release` where no server answers starts none, and keeps a record of its run for the UI of the next `trellis up`. Prefect's server
is a process of its own: it brings its database to its version, serves the UI, and records every state of every task run.
"""


@dataclass(frozen=True)
class Cost:
    """What a command took: CPU and wall seconds, and MiB."""

    cpu: float
    wall: float
    memory: float


def cost(command: list[str | Path], home: Path) -> Cost:
    """Run a command to its end and return what it and the processes that it has waited for took."""
    began = monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=os.environ | {"TRELLIS_HOME": str(home)}, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise SystemExit(f"{command}: {said.read().decode()}")
    return Cost(used.ru_utime + used.ru_stime, monotonic() - began, used.ru_maxrss / 1024)


def one_round(folder: Path) -> dict[str, Cost]:
    """Return what each command took, in a new store."""
    home, spec = folder / "home", folder / "spec.yaml"
    costs = {"trellis --help": cost([TRELLIS, "--help"], home)}
    costs["trellis plan"] = cost([TRELLIS, "plan", spec], home)
    costs["trellis plan, again"] = cost([TRELLIS, "plan", spec], home)
    costs["trellis check"] = cost([TRELLIS, "check", spec], home)
    costs["trellis release --no-server"] = cost([TRELLIS, "release", spec, "--no-server"], home)
    (published,) = (folder / "out").iterdir()
    costs["trellis verify"] = cost([TRELLIS, "verify", published], home)
    costs["trellis query"] = cost([TRELLIS, "query", published, "--origin", "01"], home)
    costs["trellis audit"] = cost([TRELLIS, "audit"], home)
    shutil.rmtree(home)
    costs["trellis release"] = cost([TRELLIS, "release", spec], home)
    costs["trellis release --server"] = cost([TRELLIS, "release", spec, "--server"], folder / "new")
    costs["Prefect's server, on a new database, started and ended"] = cost(
        [sys.executable, "-c", SERVER], folder / "server"
    )
    costs["Prefect's server, on a database that is there, started and ended"] = cost(
        [sys.executable, "-c", SERVER], folder / "server"
    )
    costs["importing Prefect's flows"] = cost([sys.executable, "-c", "import flows.release"], home)
    costs["importing what releases without Prefect"] = cost([sys.executable, "-c", "import flows.run.driver"], home)
    return costs


def main() -> None:
    """Measure, print and write the page."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, every command compiles Trellis anew
    rounds = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [TRELLIS, "synthesise", "country", "--out", f"{folder}/set"], check=True, capture_output=True
            )
            rounds.append(one_round(Path(folder) / "set"))
            manifest = next(Path(folder).glob("set/out/*/manifest.json"))
            levels = json.loads(manifest.read_text())["levels"]
    found = {
        name: Cost(*(median(getattr(of[name], part) for of in rounds) for part in ("cpu", "wall", "memory")))
        for name in rounds[0]
    }
    save("desk", [{"name": name, "cpu": of.cpu, "wall": of.wall, "memory": of.memory} for name, of in found.items()])
    commands = [
        ["command", "CPU s", "to be kept", "wall s", "to be kept", "MiB"],
        ["---"] + ["--:"] * 5,
        *(
            [
                f"`{name}`",
                f"{found[name].cpu:.2f}",
                f"{cpu:g}",
                f"{found[name].wall:.2f}",
                f"{wall:g}" if wall else "",
                f"{found[name].memory:.0f}",
            ]
            for name, (cpu, wall) in GOALS.items()
        ),
    ]
    parts = [
        ["part", "CPU s", "wall s"],
        ["---", "--:", "--:"],
        *([name, f"{of.cpu:.2f}", f"{of.wall:.2f}"] for name, of in found.items() if name not in GOALS),
    ]
    PAGE.write_text(
        TEXT.format(
            runs=RUNS,
            machine=machine(),
            cells=round(sum(level["cells"] for level in levels), -2),
            levels=len(levels),
            commands=markdown(commands),
            parts=markdown(parts),
        ),
        encoding="utf-8",
    )
    print(markdown(commands), markdown(parts), sep="\n\n")


if __name__ == "__main__":
    main()
