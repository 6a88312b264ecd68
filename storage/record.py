"""The record of a release: everything that the store knows of it at one moment."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from storage.database.connections import Connection
from storage.errors import StoreError
from storage.ledger.accounts import Charge, as_charged
from storage.ledger.books import Books
from storage.ledger.events import read_books
from storage.releases.parts import StatedPart
from storage.releases.register import Release, find_release, states_of
from storage.releases.shards import (
    TRUNK,
    Branch,
    Place,
    Shard,
    Shards,
    branches_of_level,
    in_order,
    in_order_of_tree,
    list_branches,
    list_shards,
    released_of,
)
from storage.releases.terms import ABOVE, SURVIVORS, complete_level


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedPart(StatedPart):
    """What JSON states of a level or a view of a release; what its published folder alone says is None where there is no folder.

    Attributes:
        cells: how many are measured so far.
        nonzero: how many cells have a released count that is not 0.
        source: where everything is settled together, the level or view from whose measurement intervals follow.
        bound_after: as `bound`, known from the released and the noisy counts: it holds for every level at once.
        intervals: what `low` and `high` promise.
        signal: the rows that stand out from the noise.
        noise_rows: the share of rows whose true count is 0: `estimate`, where there is one, and `at_most`.
        above_noise: what stands above twice the noise, of `rows` and of `records`.
    """

    cells: int
    nonzero: int
    source: int | None = None
    bound_after: int | None = None
    intervals: Mapping[str, float | str] | None = None
    signal: Mapping[str, int | None] | None = None
    noise_rows: Mapping[str, float | None] | None = None
    above_noise: Mapping[str, float] | None = None


# the fields that the published folder alone says
KNOWN_AFTER = ("bound_after", "intervals", "signal", "noise_rows", "above_noise", "deviations")


@dataclass(frozen=True, slots=True)
class EarlierDay:
    """A published day of a series that measures its days together: its release, and the seals of its levels."""

    release_id: str
    seals: Mapping[int, Shard]


@dataclass(frozen=True, slots=True)
class Record:
    """What the store knows of a release at the moment at which it is asked; what is sealed later is not in it.

    Attributes:
        charges: by level, as the ledger has them; of levels that are measured alone.
        branches: all but the trunk, by name, in the order of the tree.
        shards: what is made of it, by kind, level and branch, in the order of the tree.
        runs: while a day is made that its series measures together with others, how many days each run of published days has until now, this one included: a run
            ends before a day that is abandoned. Empty for other releases.
        earlier: the days of the last run that this day is measured with, the latest first; where it begins a run, the last published day,
            whose cumulative counts go on.
        since: the first published day, or this one; empty for other releases.
        missing: the days after it that are not published.
    """

    release: Release
    charges: Mapping[int, Charge]
    branches: Mapping[str, Branch]
    shards: Shards
    runs: tuple[int, ...] = ()
    earlier: tuple[EarlierDay, ...] = ()
    since: str = ""
    missing: tuple[str, ...] = ()
    _pieces: Mapping[str, list[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find the pieces of every branch at once: a walk asks for those of each branch at each of its turns."""
        pieces: dict[str, list[str]] = {}
        for branch in self.branches.values():
            pieces.setdefault(branch.parent, []).append(branch.name)
        object.__setattr__(self, "_pieces", pieces)

    @property
    def finest(self) -> int:
        """The number of the finest level."""
        return len(self.release.levels) - 1

    @property
    def released(self) -> Mapping[Place, Shard]:
        """The levels as they are published: after calibration or the second pass, where there is one."""
        return released_of(self.shards)

    @property
    def all_shards(self) -> Iterator[Shard]:
        """All shards, kind by kind."""
        return chain.from_iterable(of_kind.values() for of_kind in self.shards.values())

    @property
    def combined(self) -> tuple[EarlierDay, ...]:
        """The earlier days whose true counts are measured together with those of this day, the latest first."""
        return self.earlier if self.runs and self.runs[-1] > 1 else ()

    @property
    def is_drawn(self) -> bool:
        """Whether anything of the release is sealed, or was being drawn."""
        return bool(self.shards["noisy"]) or any(charge.state != "reserved" for charge in self.charges.values())

    @property
    def all_branches(self) -> list[str]:
        """The trunk and all branches that are cut, in the order of the tree."""
        return [TRUNK, *self.branches]

    def pieces(self, branch: str) -> list[str]:
        """Return the branches into which a branch was cut, in the order of the tree."""
        return self._pieces.get(branch, [])

    def levels_of(self, branch: str) -> range:
        """Return the levels of a branch."""
        first = 0 if branch == TRUNK else self.branches[branch].cut_level + 1
        pieces = self.pieces(branch)
        return range(first, (self.branches[pieces[0]].cut_level if pieces else self.finest) + 1)

    def branches_of(self, level: int) -> list[str]:
        """Return the branches of which a level consists, as far as they are cut, in the order of the tree; a view is the trunk's."""
        if level > self.finest:
            return [TRUNK]
        return branches_of_level(self.branches, level)

    def cells_of(self, level: int) -> tuple[int, int]:
        """Return how many cells of a level are measured, and how many will be as far as is known.

        Of a level that repeats another it is how many cells it has.
        """
        drawn, counts = self.shards["noisy"].values(), self.shards["counts"].values()
        if self.release.parts[level].same_as is not None:
            cells = sum(shard.rows for shard in counts if shard.level == level)
            return cells, cells
        measured = sum(shard.rows for shard in drawn if shard.level == level)
        if level and self.release.parts[level - 1].is_summed:  # the sums above are made afterwards
            return measured, measured
        return measured, max(measured, sum(shard.cells_below for shard in counts if shard.level == level - 1))

    @property
    def complete(self) -> int:
        """The finest level of which the release measures every cell, for its second pass to read; 0 if it does so of no level."""
        return complete_level(self.release.terms.measure, self.finest)

    @property
    def last_measured(self) -> int:
        """The finest level that repeats no other: nothing below it is measured."""
        same = self.release.levels[-1].same_as
        return self.finest if same is None else same

    @property
    def thinned(self) -> int | None:
        """The one level of which the first pass drops nodes while it keeps all nodes above; None if it does not do so."""
        if self.release.terms.measure != ABOVE:
            return None
        same = self.release.levels[-2].same_as
        return self.finest - 1 if same is None else same

    @property
    def revives(self) -> bool:
        """Whether the release measures leaves below every node, so that the second pass can give any node a count."""
        return self.release.terms.measure != SURVIVORS

    def keeps_zeros(self, level: int) -> bool:
        """Return whether the first pass keeps all nodes of a level (> 0) with a count of 0."""
        return self.revives and level != self.thinned

    def rows_of(self, level: int) -> int:
        """Return how many rows the table of a level has."""
        return sum(shard.rows for shard in self.released.values() if shard.level == level)

    def check_charged(self, level: int) -> None:
        """Refuse to draw a level or view that the ledger has charged otherwise, or not at all.

        Raises:
            StoreError: it has.
        """
        if not as_charged(self.release.parts[level], self.charges.get(level)):
            raise StoreError(
                f"Level {level} of {self.release.id} differs from its charge in the ledger, so Trellis draws nothing for it."
            )

    def with_branches(self, branches: Iterable[Branch]) -> "Record":
        """Return the record with a branch cut into others."""
        return replace(self, branches=in_order_of_tree([*self.branches.values(), *branches]))

    def with_drawing(self, level: int) -> "Record":
        """Return the record with the charge of a level marked as being drawn."""
        return replace(self, charges={**self.charges, level: replace(self.charges[level], state="drawing")})

    def with_shards(self, shards: Iterable[Shard]) -> "Record":
        """Return the record with what steps have made. A level's charge is sealed once all of its branches are."""
        made = replace(self, shards=in_order([*self.all_shards, *shards], self.branches))
        drawn = {level: charge for level, charge in self.charges.items() if charge.state == "drawing"}
        sealed = {
            level: replace(charge, state="sealed")
            for level, charge in drawn.items()
            if all((level, branch) in made.shards["noisy"] for branch in made.branches_of(level))
        }
        return replace(made, charges={**self.charges, **sealed})

    def hashes(self, level: int) -> dict[str, str]:
        """Return the sha256 of each sealed shard of a level, by branch: the ledger keeps them, for the audit."""
        return {branch: seal.sha256 for (of, branch), seal in self.shards["noisy"].items() if of == level}

    def released_levels(self) -> list[ReleasedPart]:
        """Return the levels as they are so far."""
        return [self.released_part(part.level) for part in self.release.levels]

    def released_views(self) -> list[ReleasedPart]:
        """Return the views that the spec names, as they are so far. One that is a level says so, and costs nothing itself."""
        views = list[ReleasedPart]()
        for view in self.release.terms.views:
            of = self.released_part(view.number)
            if view.number <= self.finest:
                of = replace(
                    of, same_as=view.number, summed=None, rho=0.0, l2_sensitivity=0.0, epsilon=None, delta=None
                )
            views.append(replace(of, view=view.name))
        return views

    def _has_zeros(self, level: int) -> bool:
        """Return whether what there is of a level holds zeros: those of a first pass before the second one, whose counts are released."""
        return self.released is self.shards["counts"] and 0 < level <= self.finest and self.keeps_zeros(level)

    def released_part(self, number: int) -> ReleasedPart:
        """Return a level, or a view that is no level, as it is so far."""
        part = self.release.parts[number]
        return ReleasedPart(
            **part.stated,
            cells=self.cells_of(part.level)[0],
            nonzero=0 if self._has_zeros(part.level) else self.rows_of(part.level),
            source=part.source,
        )


def load_record(con: Connection, release_id: str, books: Books | None = None) -> Record:
    """Return what the store knows of a release now.

    Args:
        books: the ledger, if the caller has read it already: reading it takes time in proportion to its events.
    Raises:
        UsageError: there is no release of that id.
        StoreError: the ledger does not add up.
    """
    shards = list_shards(con, release_id)  # before the branches
    branches = list_branches(con, release_id)
    account = (read_books(con) if books is None else books).account_of(release_id)
    charges = account.charges_of(release_id) if account else {}
    release = find_release(con, release_id)
    if not (account and release.terms.days) or release.state in {"published", "abandoned"}:
        return Record(release, charges, branches, shards)
    together = account.declared_with(release_id)
    before = together[: together.index(release_id)]
    states = states_of(con, before)
    runs, earlier = _days_before(con, states, len(release.terms.days))
    since = next((day for day in before if states[day] == "published"), release_id)
    missing = tuple(day for day in before if since in before[: before.index(day)] and states[day] != "published")
    return Record(release, charges, branches, shards, runs, earlier, since, missing)


def _days_before(
    con: Connection, states: Mapping[str, str | None], band: int
) -> tuple[tuple[int, ...], tuple[EarlierDay, ...]]:
    """Return `runs` and `earlier` of the record of a day, given the states of the days before it; a day counts as missing unless it is published."""
    runs, run, published = list[int](), list[str](), list[str]()
    for day, state in states.items():
        if state == "published":
            run.append(day)
            published.append(day)
        else:
            runs += [len(run)] if run else []
            run = []
    used = run[-(band - 1) :] if run and band > 1 else published[-1:]
    earlier = [
        EarlierDay(day, {seal.level: seal for seal in list_shards(con, day)["noisy"].values()})
        for day in reversed(used)
    ]
    return (*runs, len(run) + 1), tuple(earlier)
