"""Turns: whatever comes before whatever else, one draw of a place is sealed at most, and none that was given up."""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count, product

import duckdb
import pytest

from storage.database.connections import store, transaction
from storage.database.schema import STEPS
from storage.errors import SealedAlready, StoreError
from storage.releases.shards import (
    CLOSED,
    GIVEN_UP,
    OPEN,
    Shard,
    add_shard,
    end_turn,
    list_shards,
    list_turns,
    open_turn,
)

PLACE = (7, "b00")
OTHERS = [("one", (7, "b01")), ("one", (6, "b00")), ("other", PLACE)]


def states(con, release_id, place=PLACE):
    """Return the states of the turns of a place, and check that they have no gap."""
    turns = [turn for turn in list_turns(con, release_id) if (turn.level, turn.branch) == place]
    assert [turn.turn for turn in turns] == [*range(len(turns))]
    return [turn.state for turn in turns]


def test_turns_follow_one_another(own_home):
    """A turn opens once the one before is given up, and none does beside an open one or after the seal; places are apart."""
    with store() as con:
        assert open_turn(con, "one", PLACE) == 0
        with pytest.raises(StoreError, match="is being measured already"):
            open_turn(con, "one", PLACE)
        assert [open_turn(con, *other) for other in OTHERS] == [0, 0, 0]
        end_turn(con, "one", PLACE, 0, GIVEN_UP)
        assert open_turn(con, "one", PLACE) == 1
        for turn, end in product((0, 2), (CLOSED, GIVEN_UP)):
            with pytest.raises(StoreError, match=f"Turn {turn} of level 7 of b00 is not open"):
                end_turn(con, "one", PLACE, turn, end)
        end_turn(con, "one", PLACE, 1, CLOSED)
        with pytest.raises(SealedAlready):
            open_turn(con, "one", PLACE)
        with pytest.raises(StoreError, match="is not open"):
            end_turn(con, "one", PLACE, 1, GIVEN_UP)
        assert states(con, "one") == [GIVEN_UP, CLOSED]
        assert [states(con, *other) for other in OTHERS] == [[OPEN]] * 3


MOST_TURNS = 2
NOTHING = (None,) * MOST_TURNS
EVENTS = [
    *((what, 0, 0) for what in ("begin", "give up", "crash")),
    *product(("claim", "put", "return"), range(MOST_TURNS), (0, 1)),
]


@dataclass(frozen=True)
class World:
    """A place that is measured elsewhere: two executions of each order claim, draw, put and return a hash, each perhaps after the turn was given up."""

    states: tuple[str, ...] = ()
    sealed: tuple[int, str] | None = None  # the turn and what was sealed; None before
    claims: tuple[int | None, ...] = NOTHING  # by turn, which execution may draw; None before one claims it
    shards: tuple[str | None, ...] = NOTHING  # by turn, what lies in the mailbox; None before

    def check(self):
        """Check what holds whatever has happened: the four parts of the proof."""
        assert self.states.count(CLOSED) == (self.sealed is not None)
        assert self.states.count(OPEN) <= 1
        assert {*self.states[:-1]} <= {GIVEN_UP}
        if self.sealed:
            turn, shard = self.sealed
            assert (self.states[turn], self.shards[turn]) == (CLOSED, shard)
        for claim, shard in zip(self.claims, self.shards, strict=True):
            assert shard is None or shard.endswith(f"by {claim}")

    def after(self, con, release_id, event):
        """Return the world after something has happened that can, or has been tried; home acts by the functions of the store."""
        what, turn, execution = event
        claims, shards = [*self.claims], [*self.shards]
        if what in {"claim", "put"}:  # in the mailbox, where `put_new` has one winner; home knows nothing of it
            if what == "claim" and turn < len(self.states) and claims[turn] is None:
                claims[turn] = execution
            elif what == "put" and claims[turn] == execution and shards[turn] is None:
                shards[turn] = f"drawn in {turn} by {execution}"
            return replace(self, claims=tuple(claims), shards=tuple(shards))
        self._write(con, release_id)
        if what == "begin" and len(self.states) < MOST_TURNS:
            with suppress(StoreError, SealedAlready):
                open_turn(con, release_id, PLACE)
        elif what in {"give up", "crash"}:  # of a worker that is gone, or at the start of the next run
            for turn_of_run, state in enumerate(self.states):
                if state == OPEN:
                    end_turn(con, release_id, PLACE, turn_of_run, GIVEN_UP)
        elif what == "return" and claims[turn] == execution and (shard := shards[turn]):
            with suppress(StoreError, SealedAlready), transaction(con):
                add_shard(con, release_id, Shard("noisy", *PLACE, shard, 1, turn=turn))
                end_turn(con, release_id, PLACE, turn, CLOSED)
        seal = list_shards(con, release_id)["noisy"].get(PLACE)
        sealed = (seal.turn, seal.sha256) if seal else None
        return World(tuple(states(con, release_id)), sealed, tuple(claims), tuple(shards))

    def _write(self, con, release_id):
        for turn, state in enumerate(self.states):
            con.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?)", [release_id, *PLACE, turn, state])
        if self.sealed:
            add_shard(con, release_id, Shard("noisy", *PLACE, self.sealed[1], 1, turn=self.sealed[0]))


def test_whatever_happens_in_whatever_order_one_draw_is_sealed_at_most():
    """All worlds that can come about from one another hold the proof; a seal never changes, and what was given up is never sealed."""
    con = duckdb.connect()
    for step in STEPS:
        con.execute(step)
    found, left, number = {World()}, [World()], count()
    while left:
        world = left.pop()
        world.check()
        for event in EVENTS:
            after = world.after(con, f"release-{next(number)}", event)
            assert world.sealed in {None, after.sealed}
            assert after.states[: len(world.states)] == world.states or after.states[:-1] == world.states[:-1]
            for turn, state in enumerate(world.states):
                assert state == OPEN or after.states[turn] == state
            if after not in found:
                found.add(after)
                left.append(after)
    every = {(turn, f"drawn in {turn} by {execution}") for turn in range(MOST_TURNS) for execution in (0, 1)}
    assert {world.sealed for world in found} == {None, *every}
    late = [world for world in found if world.sealed and any(world.shards[: world.sealed[0]])]
    assert late  # shards of turns that were given up lie there, unread
