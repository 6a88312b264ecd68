"""Work that is shared out among threads keeps its order and its bounds."""

from threading import Barrier, Lock

import pytest

from tasks.capacity import side_by_side


@pytest.mark.parametrize(("threads", "waiting"), [(1, 0), (2, 1), (3, 0), (3, 1)])
def test_few_items_are_begun_before_results_are_taken(threads: int, waiting: int) -> None:
    """Results come in the order of items; as many are begun beyond those taken as there are threads, and a result that waits."""
    begun, most, lock = 0, 0, Lock()

    def work(item: int) -> int:
        nonlocal begun
        with lock:
            begun += 1
        return -item

    taken = list[int]()
    for result in side_by_side(work, range(20), threads, waiting):
        with lock:
            most = max(most, begun - len(taken))
        taken.append(result)
    assert taken == [-item for item in range(20)]
    assert most <= threads + waiting + 1  # the one that was just taken


def test_threads_work_at_the_same_time() -> None:
    """Two items that wait for each other are both begun."""
    both = Barrier(2, timeout=10)
    assert sorted(side_by_side(lambda _: both.wait(), range(2), 2)) == [0, 1]


def test_a_failure_is_raised_and_the_rest_is_not_begun() -> None:
    """What an item raises reaches who takes the results."""
    done = list[int]()

    def work(item: int) -> int:
        if item == 1:
            raise ValueError(item)
        done.append(item)
        return item

    with pytest.raises(ValueError, match="1"):
        list(side_by_side(work, range(100), 1))
    assert len(done) < 10
