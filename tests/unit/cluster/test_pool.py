"""The workers of a cluster as home sees them, with a clock that the test sets."""

import time
from dataclasses import dataclass
from threading import Thread

import pytest

from flows.cluster.pool import Pool
from storage.errors import Interrupted, StoreError


@dataclass
class Clock:
    """A clock."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return a clock at 0."""
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> Pool:
    """Return two workers, `a` and `b`, of which the scheduler has heard at its own time 100."""
    pool = Pool(lost_after=10, patience=30, clock=clock)
    pool.update({"a": 100.0, "b": 100.0}, ["a", "b"])
    return pool


def on() -> None:
    """Go on."""


def stop() -> None:
    """Stop the release."""
    raise Interrupted("stop")


class Waiting:
    """Orders of branches that wait for a worker each, in threads, and what they got."""

    def __init__(self, pool: Pool, *branches: str) -> None:
        self.pool, self.got = pool, list[tuple[str, str]]()
        self.threads = [Thread(target=self._wait_for_one, args=[branch]) for branch in branches]
        for thread in self.threads:
            thread.start()
        end = time.monotonic() + 20
        while len(pool._waiting) < len(branches):
            assert time.monotonic() < end
            time.sleep(0.01)

    def _wait_for_one(self, branch: str) -> None:
        with self.pool.worker_for(branch, on) as (address, _):
            self.got.append((branch, address))


def test_orders_of_a_branch_go_where_it_was(pool: Pool) -> None:
    """A worker that is busy gets nothing; a branch and its parts go to the worker that had it, if that is idle."""
    with pool.worker_for("b00", on) as (first, _), pool.worker_for("b01", on) as (second, _):
        assert {first, second} == {"a", "b"}
    for _ in range(3):
        with pool.worker_for("b01-00", on) as (again, _):
            assert again == second
        with pool.worker_for("b00", on) as (again, _):
            assert again == first


def test_an_order_waits_for_who_had_the_branch_while_others_are_wanted(pool: Pool) -> None:
    """Somebody idle gets no order of another's branch while an order of an own one waits; once none does, it helps out."""
    with pool.worker_for("b00", on) as (first, _):
        with pool.worker_for("b01", on) as (second, _):
            waiting = Waiting(pool, "b00-01", "b01-01")
        for thread in reversed(waiting.threads):
            thread.join(20)
        assert waiting.got == [("b01-01", second), ("b00-01", second)]
    assert first != second
    with pool.worker_for("b00", on) as (again, _):
        assert again == second  # who has its shards now


def test_an_order_that_is_given_up_keeps_nobody_waiting(pool: Pool) -> None:
    """Once a release is stopped, its orders want no worker any more."""
    with pool.worker_for("b00", on) as (first, _):
        pass
    with pytest.raises(Interrupted), pool.worker_for("b00", stop):
        pass
    with pool.worker_for("b01", on) as (address, _):
        assert address == first
    assert pool._waiting == []


def test_an_order_that_was_lost_goes_to_whoever_is_idle(pool: Pool) -> None:
    """Once what a worker had of a branch is forgotten, the next order does not wait for it."""
    with pool.worker_for("b00-01", on) as (first, _):
        pass
    pool.forget("b00-01")
    with pool.worker_for("b01", on) as (second, _), pool.worker_for("b00", on) as (other, _):
        assert second == first
        assert other != first


def test_who_is_let_in_takes_over_from_the_busy(pool: Pool, clock: Clock) -> None:
    """An order that waits for a busy worker goes to one that has just come; one that is lost leaves its orders to all."""
    with pool.worker_for("b00", on) as (first, gone), pool.worker_for("b01", on):
        waiting = Waiting(pool, "b00")
        pool.update({"a": 101.0, "b": 101.0, "c": 101.0}, ["c"])
        waiting.threads[0].join(20)
        assert waiting.got == [("b00", "c")]
        pool.lose("c")
        pool.lose(first)
        assert gone.is_set()
    with pool.worker_for("b00", on) as (last, _):
        assert last not in {first, "c"}
    assert clock.now == 0


def test_a_worker_that_is_not_listed_is_lost(pool: Pool) -> None:
    """Once the scheduler lists it no more, who waits for it hears of it, and it is asked nothing."""
    with pool.worker_for("b00", on) as (address, gone):
        (other,) = {"a", "b"} - {address}
        pool.update({other: 101.0}, [])
        assert gone.is_set()
        with pool.worker_for("b01", on) as (second, _):
            assert second == other


def test_a_silent_worker_is_lost_by_the_clock_of_home(pool: Pool, clock: Clock) -> None:
    """Silence is counted at home, from the last change; heard of again, it is a stranger, which has to be checked."""
    with pool.worker_for("b00", on) as (address, gone):
        (other,) = {"a", "b"} - {address}
        clock.now = 9.0
        pool.update({address: 100.0, other: 105.0}, [])
        assert not gone.is_set()
        clock.now = 10.5
        pool.update({address: 100.0, other: 106.0}, [])
        assert gone.is_set()
    assert pool.strangers({address: 100.0, other: 106.0}) == []
    assert pool.strangers({address: 107.0, other: 106.0}) == [address]
    pool.update({address: 107.0, other: 107.0}, [])
    assert len(pool) == 1
    pool.update({address: 108.0, other: 108.0}, [address])
    assert len(pool) == 2


def test_a_worker_whose_answer_was_lost_is_asked_nothing_more(pool: Pool) -> None:
    """It stays away until the scheduler has heard of it again and home has checked it."""
    pool.lose("a")
    assert pool.strangers({"a": 100.0, "b": 100.0}) == []
    for branch in ("b00", "b01"):
        with pool.worker_for(branch, on) as (address, _):
            assert address == "b"


def test_without_workers_an_order_waits_and_then_fails(pool: Pool, clock: Clock) -> None:
    """With nobody there it waits as long as home has patience, and then names the rule; a release that is stopped ends the wait."""
    pool.update({}, [])

    def later() -> None:
        clock.now += 16

    with pytest.raises(StoreError, match="no worker for 30 seconds"), pool.worker_for("b00", later):
        pass
    with pytest.raises(Interrupted), pool.worker_for("b00", stop):
        pass


def test_a_worker_that_is_checked_twice_keeps_its_order(pool: Pool) -> None:
    """Letting in who is there already changes nothing: a busy worker gets no second order, and its loss is noticed."""
    with pool.worker_for("b00", on) as (first, gone), pool.worker_for("b01", on) as (second, _):
        pool.update({"a": 101.0, "b": 101.0}, ["a", "b"])
        looks = iter((on, on, stop))
        with pytest.raises(Interrupted), pool.worker_for("b02", lambda: next(looks)()):
            pass
        pool.update({second: 102.0}, [])
        assert gone.is_set()
    assert first != second
