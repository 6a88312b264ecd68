"""The workers of a cluster as home sees them, with a clock that the test sets."""

import time
from threading import Thread
from types import SimpleNamespace

import pytest

from flows.cluster.pool import Pool
from storage.errors import Interrupted, StoreError


@pytest.fixture
def clock():
    """Return a clock at 0."""
    return SimpleNamespace(now=0.0)


@pytest.fixture
def pool(clock):
    """Return two workers, `a` and `b`, of which the scheduler has heard at its own time 100."""
    pool = Pool(lost_after=10, patience=30, clock=lambda: clock.now)
    pool.update({"a": 100.0, "b": 100.0}, ["a", "b"])
    return pool


def on():
    """Go on."""


def stop():
    """Stop the release."""
    raise Interrupted("stop")


class Waiting:
    """Orders of branches that wait for a worker each, in threads, and what they got."""

    def __init__(self, pool, *branches):
        self.pool, self.got = pool, list[tuple[str, str]]()
        self.threads = [Thread(target=self._wait_for_one, args=[branch]) for branch in branches]
        for thread in self.threads:
            thread.start()
        end = time.monotonic() + 20
        while len(pool._waiting) < len(branches):
            assert time.monotonic() < end
            time.sleep(0.01)

    def _wait_for_one(self, branch):
        with self.pool.worker_for(branch, on) as (address, _):
            self.got.append((branch, address))


def test_orders_of_a_branch_go_where_it_was(pool):
    """A worker that is busy gets nothing; a branch and its parts go to the worker that had it, until that is forgotten."""
    with pool.worker_for("b00", on) as (first, _), pool.worker_for("b01", on) as (second, _):
        assert {first, second} == {"a", "b"}
    for branch, had_it in (("b01-00", second), ("b00", first), ("b01", second)):
        with pool.worker_for(branch, on) as (again, _):
            assert again == had_it
    pool.forget("b00-01")
    with pool.worker_for("b02", on) as (third, _), pool.worker_for("b00", on) as (other, _):
        assert (third, other) == (first, second)


def test_an_order_waits_for_who_had_the_branch_while_others_are_wanted(pool):
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


def test_who_is_let_in_takes_over_from_the_busy(pool):
    """An order that waits for a busy worker goes to one that has just come; one that is lost leaves its orders to all."""
    with pool.worker_for("b00", on) as (first, gone), pool.worker_for("b01", on):
        waiting = Waiting(pool, "b00")
        pool.update({"a": 101.0, "b": 101.0, "c": 101.0}, ["c"])
        waiting.threads[0].join(20)
        assert waiting.got == [("b00", "c")]
        pool.lose("c")
        pool.lose(first)
        assert gone.is_set()
    assert pool.strangers({"a": 101.0, "b": 101.0, "c": 101.0}) == []  # until the scheduler has heard of them again
    for branch in ("b00", "b01"):
        with pool.worker_for(branch, on) as (last, _):
            assert last not in {first, "c"}


def test_a_silent_worker_is_lost_by_the_clock_of_home(pool, clock):
    """Silence is counted at home, from the last change; heard of again, it is a stranger, which has to be checked."""
    # One that the scheduler lists no more is lost at once.
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
    with pool.worker_for("b00", on) as (address, gone):
        pool.update({}, [])
        assert gone.is_set()


def test_without_workers_an_order_waits_and_then_fails(pool, clock):
    """With nobody there it waits as long as home has patience, and then names the rule; a release that is stopped ends the wait."""
    pool.update({}, [])

    def later():
        clock.now += 16

    with pytest.raises(StoreError, match="no worker for 30 seconds"), pool.worker_for("b00", later):
        pass
    with pytest.raises(Interrupted), pool.worker_for("b00", stop):
        pass
    assert pool._waiting == []


def test_a_worker_that_is_checked_twice_keeps_its_order(pool):
    """Letting in who is there already changes nothing: a busy worker gets no second order, and its loss is noticed."""
    with pool.worker_for("b00", on) as (_, gone), pool.worker_for("b01", on) as (second, _):
        pool.update({"a": 101.0, "b": 101.0}, ["a", "b"])
        looks = iter((on, on, stop))
        with pytest.raises(Interrupted), pool.worker_for("b02", lambda: next(looks)()):
            pass
        pool.update({second: 102.0}, [])
        assert gone.is_set()
