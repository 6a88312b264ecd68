"""What large releases cost from start to end, by the commands as users type them: CPU seconds, wall seconds, memory.

- `grid`: all tables of two ordered axes of 1,024 codes, with a million people;
- `adult`: all one-way and two-way margins of seven features of Adult under `cbdp`, 907,200 leaves;
- `tracts`: trips between the tracts of Rhode Island, against the package inf-tda on all pairs of tracts;
- `million`: a million cells in three levels of 100, of which 50,000 are not 0, against inf-tda on that table;
- `nation`: a made-up nation of Italy's shape down to sections, and `trellis verify` of it.

Every release is made in a new store by `trellis release --no-server`, with the sampler `table`, ε = 1 and δ = 10⁻⁸; that of the nation has
the ε of `--epsilon`. Where inf-tda is compared, it runs right after each release, as a process that reads the table of all cells, of which
NumPy has a file, and writes the finest level. `adult` and `tracts` read TRELLIS_DATA. `python benchmarks/growth.py --releases` prints it all.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import repository  # noqa: F401, for tests.support
from desk import TRELLIS, Cost, cost
from italy import folder_of
from nation import write_spec
from peers import draw_table, peer_command
from results import FOLDER, markdown, save
from views import COMMON, PRIVACY, RHODE_ISLAND, adult_keys, spec_at

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from tasks.ingest.task import read_in_memory

CODES, PEOPLE = 1_024, 1_000_000
Peer = tuple[np.ndarray, np.ndarray | None]  # a table, and the areas of its cells unless it is dense


@dataclass(frozen=True, slots=True)
class Large:
    """A large release.

    Attributes:
        spec: writes its tables to a folder, and returns the keys of its spec.
        goal: CPU seconds that are to be kept, or how many times those of inf-tda.
        peer: the table that inf-tda gets, given the spec.
    """

    spec: Callable[[Path], dict[str, Any]]
    goal: float
    peer: Callable[[Path], Peer] | None = None


def grid(folder: Path) -> dict[str, Any]:
    """Write people with two codes each, of which one is skewed."""
    generator = np.random.default_rng(1)
    skewed = np.minimum(generator.geometric(4 / CODES, PEOPLE), CODES) - 1
    table = pl.DataFrame({"first": skewed, "second": generator.integers(0, CODES, PEOPLE)})
    table.write_parquet(folder / "people.parquet")
    axes = ["first", "second"]
    return {
        "input": {"table": "people.parquet", "features": axes},
        "hierarchy": {axis: {"ordered": CODES} for axis in axes},
        "release": {"grid": axes},
        "mechanism": "unbiased_tree",
        "privacy": {"unit": "one person", "neighbours": "add_remove", **PRIVACY},
    }


def tracts(_: Path) -> dict[str, Any]:
    """Return the spec of trips between tracts."""
    return RHODE_ISLAND | {
        "release": {"tree": "destination", "finest": "trct"},
        "mechanism": "inftda",
        "privacy": {"unit": "one job", "neighbours": "substitution", **PRIVACY},
    }


def pairs_of_tracts(spec: Path) -> Peer:
    """Return the jobs of all pairs of tracts, and of each the counties and the tracts of home and work."""
    plan = make_plan(load_spec(spec))
    codebooks, areas, jobs = read_in_memory(plan.source, plan.units, plan.promised)
    table = np.zeros([codebook.height for codebook in codebooks.values()], dtype=np.int64)
    np.add.at(table, tuple(areas), jobs)
    counties = [codebook["cty"].rank("dense").to_numpy().astype(np.int64) for codebook in codebooks.values()]
    ends = np.indices(table.shape).reshape(2, -1)
    return table.ravel(), np.stack([*(of[end] for of, end in zip(counties, ends, strict=True)), *ends])


def million(folder: Path) -> dict[str, Any]:
    """Write the records of the table of `peers.py`."""
    table, axes = draw_table(0), ["first", "second", "third"]
    cells = np.nonzero(table)
    records = dict(zip(axes, cells, strict=True)) | {"records": table[cells]}
    pl.DataFrame(records).write_parquet(folder / "records.parquet")
    return {
        "input": {"table": "records.parquet", "features": axes, "count": "records"},
        "hierarchy": {axis: {"values": size} for axis, size in zip(axes, table.shape, strict=True)},
        "release": {"order": axes},
        "mechanism": "inftda",
        "privacy": {"unit": "one record", "neighbours": "substitution", **PRIVACY},
    }


LARGE: Mapping[str, Large] = {
    "grid": Large(grid, 15),
    "adult": Large(lambda _: adult_keys(), 20),
    "tracts": Large(tracts, 1.0, pairs_of_tracts),
    "million": Large(million, 0.15, lambda _: (draw_table(0), None)),
}
NATION = "nation"
OF_NATION, OF_VERIFY = 40, 9  # CPU seconds that are to be kept


def measure(names: Iterable[str], runs: int, share: float, epsilon: float) -> None:
    """Make large releases some times each, and print and keep the medians.

    Args:
        share: of Italy's flows, of the nation.
        epsilon: of the nation.
    """
    rows = [["release", "CPU s", "inf-tda, CPU s", "times", "to be kept", "wall s", "MiB"], ["---", *["---:"] * 6]]
    kept = list[dict[str, Any]]()
    for name in names:
        done = of_nation(share, epsilon) if name == NATION else of_release(LARGE[name], name, runs)
        for what, goal, found, peers in done:
            middle = Cost(*(median(getattr(of, part) for of in found) for part in ("cpu", "wall", "memory")))
            ratio = median(of.cpu / peer for of, peer in zip(found, peers, strict=True)) if peers else None
            kept.append({"name": what, "cpu": middle.cpu, "wall": middle.wall, "memory": middle.memory, "times": ratio})
            peer = (f"{median(peers):.2f}", f"{ratio:.2f}", f"{goal:g} times") if peers else ("", "", f"{goal:g} s")
            rows.append([what, f"{middle.cpu:.2f}", *peer, f"{middle.wall:.2f}", f"{middle.memory:.0f}"])
            print(markdown([rows[-1]]), flush=True)
    print(f"\n{markdown(rows)}")
    save("large", kept)


Done = list[
    tuple[str, float, list[Cost], list[float]]
]  # what it is of, what is to be kept, and each run with that of inf-tda


def of_release(large: Large, name: str, runs: int) -> Done:
    """Return what a release took, and inf-tda on its table."""
    found, peers = list[Cost](), list[float]()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        keys = COMMON | {"name": name, "dataset": name} | large.spec(folder) | {"output": str(folder / "out")}
        spec = spec_at(folder / "spec.yaml", keys)
        os.environ["TRELLIS_HOME"] = str(folder / "planned")
        table, areas = large.peer(spec) if large.peer else (None, None)
        peer = None if table is None else peer_command(table, folder, areas)
        for run in range(runs):
            found.append(cost([TRELLIS, "release", spec, "--no-server"], folder / f"home-{run}"))
            if peer:
                peers.append(cost(peer, folder).cpu)
    return [(name, large.goal, found, peers)]


def of_nation(share: float, epsilon: float) -> Done:
    """Return what one release of the nation took, and verifying it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as made:
        spec = write_spec(Path(made), folder_of(share), epsilon, "table")
        released = cost([TRELLIS, "release", spec, "--no-server"], Path(made) / "home")
        (folder,) = (Path(made) / "out").iterdir()
        manifest = json.loads((folder / "manifest.json").read_text())
        verified = cost([TRELLIS, "verify", folder], Path(made) / "home")
    cells = sum(level["cells"] for level in manifest["levels"])
    return [(f"{cells:,} cells", OF_NATION, [released], []), ("verify of it", OF_VERIFY, [verified], [])]
