"""A small release in branches, a sampler that knows what it draws, and what is known of the release afterwards."""

import json
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from threading import Lock, local
from typing import Any

import numpy as np
import polars as pl

from storage.counts.shard_files import noisy_path, place_of_noisy, shards_of_levels
from storage.counts.vault import vault_path
from storage.database.connections import store
from storage.ledger.events import read_books as read_ledger
from storage.machine.files import sha256_of
from storage.machine.home import shard_folder
from storage.releases.register import find_release
from storage.releases.shards import Shard, list_branches, list_shards, list_turns
from tasks.folder.verify.folder import verify
from tasks.laws.law import Sampler
from tasks.laws.samplers import discrete_gaussian
from tasks.synthesize.country import draw_country
from tasks.work.order import Order

Place = tuple[int, str]  # a level and a branch


# The noise is small (sigma is 0.6) and every pair of municipalities has people: the tree is full at every run.
SPEC = """
name: small
dataset: small-country
input: {table: trips.csv, origin: home, destination: work, count: people}
hierarchy: {table: codebook.csv, levels: [region, municipality]}
release: {tree: destination, finest: municipality}
mechanism: inftda
privacy: {unit: one commuter, neighbours: substitution, max_records_per_unit: 1, epsilon: 40.0, delta: 1.0e-8, accountant: zcdp}
budget: {epsilon: 40.0, delta: 1.0e-8}
"""


CELLS = {1: 2, 2: 4, 3: 24, 4: 144}  # of each level that is measured
LEVELS = list(CELLS)
BRANCHES = ["b00", "b01", "b02", "b03"]  # from level 3 on
BRANCH_CELLS, CHUNK_CELLS = 6, 8


def place_of(arguments):
    """Return which level of which branch a stage is about, by its arguments: an order, or what it is told beside the release."""
    order = arguments[0]
    return (order.level, order.branch) if isinstance(order, Order) else tuple(arguments[1:3])


@dataclass
class Draws:
    """A plain `submit` and a sampler that know what they draw, by level and branch, and at which call of each they raise."""

    fail_at: dict[Place, int] = field(default_factory=dict)
    cells: Counter[Place] = field(default_factory=Counter)
    sampler: Sampler = discrete_gaussian
    _calls: Counter[Place] = field(default_factory=Counter)
    _here: local = field(default_factory=local)
    _lock: Lock = field(default_factory=Lock)

    def submit_to(self, executor):
        """Return a `submit` that lets the sampler know for which level and branch it draws."""

        def run(stage, *arguments):
            self._here.place = place_of(arguments)
            return stage.fn(*arguments)

        def submit(stage, *arguments):
            return executor.submit(run, stage, *arguments)

        return submit

    def sample(self, true_counts, scale):
        """Draw, or raise where that is asked for."""
        with self._lock:
            self._calls[self._here.place] += 1
            if self._calls[self._here.place] == self.fail_at.get(self._here.place):
                raise ValueError(f"cannot draw {true_counts}")
            self.cells[self._here.place] += len(true_counts)
        return self.sampler(true_counts, scale)

    def forget(self):
        """Fail nowhere, and count from zero."""
        self.fail_at.clear()
        self.cells.clear()
        self._calls.clear()


@dataclass(frozen=True)
class Books:
    """What is known of a release: with the hash of every shard of noisy counts that is on the disk, sealed or not, and all published bytes."""

    state: str
    reason: str
    seals: dict[Place, Shard]
    optimised: set[Place]
    branches: list[str]
    shards: dict[Place, str]
    turns: dict[Place, list[str]]
    events: list[dict[str, Any]]
    published: dict[str, bytes]

    def unsealed(self):
        """Return the shards that were drawn and never sealed."""
        return set(self.shards) - set(self.seals)

    def events_of(self, level):
        """Return what became of the charge of a level."""
        return [event["event"] for event in self.events if event.get("level") == level and "branch" not in event]

    def removed_unread(self):
        """Return the unsealed shards of which the ledger says that they were removed unread."""
        return [(event["level"], event["branch"]) for event in self.events if "unread" in event["event"]]


def read_books(release_id):
    """Return what is known of a release now."""
    with store() as con:
        release = find_release(con, release_id)
        made, branches = list_shards(con, release_id), list_branches(con, release_id)
        texts = con.execute("SELECT event FROM ledger ORDER BY position").fetchall()
        turns = {}
        for turn in list_turns(con, release_id):
            turns.setdefault((turn.level, turn.branch), []).append(turn.state)
    shards = {place: path for path in shards_of_levels(release_id) if (place := place_of_noisy(path))}
    shards |= {place: noisy_path(release_id, *place, seal.turn) for place, seal in made["noisy"].items()}
    folder = Path(release.folder)
    return Books(
        state=release.state,
        reason=release.reason,
        seals=made["noisy"],
        optimised=set(made["counts"]),
        branches=sorted(branches),
        shards={place: sha256_of(path) for place, path in shards.items() if path.exists()},
        turns=turns,
        events=[event for (text,) in texts if (event := json.loads(text)).get("release") == release_id],
        published={str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()},
    )


def assert_finished(release_id, before, draws, branches=BRANCHES, cells=None, charged=tuple(CELLS)):
    """Check all that holds of a release that was finished after something had stopped it.

    Args:
        release_id: the release.
        before: what was known of it before it was finished.
        draws: what was drawn since.
        branches: its branches; None where they are not known.
        cells: how many are sealed of each level or view, None where that depends on the noise; of the small country if left out.
        charged: the levels and views that are drawn.
    """
    after = read_books(release_id)
    assert (after.state, after.reason) == ("published", "")
    assert branches is None or after.branches == branches

    assert before.seals.items() <= after.seals.items()
    for place, seal in after.seals.items():
        earlier = [state for state in before.turns.get(place, []) if state != "closed"]
        assert after.turns[place] == ["given up"] * len(earlier) + ["closed"]
        assert seal.turn == len(earlier)
    assert {place: seal.sha256 for place, seal in after.seals.items()} == after.shards
    new = {place: seal.rows for place, seal in after.seals.items() if place not in before.seals}
    assert draws.cells == {place: number for place, number in new.items() if place[0] in charged}
    sealed = Counter[int]()
    for (level, _), seal in after.seals.items():
        sealed[level] += seal.rows
    known = {0: 1, **CELLS} if cells is None else cells
    assert sealed == {level: sealed[level] if number is None else number for level, number in known.items()}

    assert [event["event"] for event in after.events].count("reserved") == 1
    for level in known:
        assert after.events_of(level) == (["drawing", "sealed", "released"] if level in charged else [])
    assert sorted(after.removed_unread()) == sorted([*before.removed_unread(), *before.unsealed()])
    with store() as con:
        (account,) = read_ledger(con).accounts.values()
    assert account.spent == sum((charge.rho for charge in account.charges.values()), Fraction(0))
    assert cells or (account.standing and account.standing.left_rho == 0)

    [folder] = {Path(file).parent for file in after.published if file.endswith("manifest.json")}
    assert verify(folder) == []
    assert before.published.items() <= after.published.items()
    assert [path.name for path in folder.parent.iterdir()] == [release_id]
    assert not vault_path(release_id).exists()
    assert not list(shard_folder(release_id).glob("*.partial"))


def write_small(folder, named="opendp"):
    """Write a small country in which people travel between all municipalities to a new folder, and return the path of its spec."""
    generator = np.random.default_rng(1)
    codebook = draw_country(regions=2, provinces=4, municipalities=12, people=1, generator=generator).codebook
    codes = codebook.select("municipality")
    pairs = codes.select(home="municipality").join(codes.select(work="municipality"), how="cross")
    folder.mkdir(parents=True)
    codebook.write_csv(folder / "codebook.csv")
    pairs.with_columns(people=pl.Series(generator.integers(20, 60, pairs.height))).write_csv(folder / "trips.csv")
    (folder / "spec.yaml").write_text(f"{SPEC}noise: {{sampler: {named}}}\n")
    return folder / "spec.yaml"
