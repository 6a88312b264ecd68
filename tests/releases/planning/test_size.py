"""What a plan says a release will take on disk, against what releases leave there."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.run.driver import make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.machine.home import home, shard_folder
from storage.record import load_record
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.validate.size import EXPLORER_BYTES, disk_size, expected_cells
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in

PEOPLE = 100_000
PLACES = ("shards", "published", "store")
FACTOR = 3
WITH_PAGES = True  # they take disk

SPEC = COUNTRY | {"budget": COUNTRY["budget"] | {"epsilon": 40.0}}

universes = st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 1e9)), min_size=1, max_size=10)


@pytest.fixture(scope="module")
def country(tmp_path_factory):
    """Return a folder with the tables of the demonstration's country."""
    folder = tmp_path_factory.mktemp("sized")
    write_country(draw_country(people=PEOPLE, generator=np.random.default_rng(11)), folder / "data")
    return folder


@pytest.fixture
def planned(country, own_home):
    """Return what plans the country's release with other keys of the spec, in a store of its own."""

    def plan(**keys):
        return plan_answer(make_plan(load_spec(spec_in(country, SPEC | keys))))

    return plan


def released(spec, output):
    """Make a release, and return the bytes it left per place and the (cells measured, non-zero) of its levels."""
    before = store_bytes()
    plan = make_plan(load_spec(spec))
    release = new_release(plan, output)
    with ThreadPoolExecutor(2) as executor:
        make_release(plan, release, submit_to(executor), report_nothing)
    with store() as con:
        record = load_record(con, release.id)
    folder, levels = Path(record.release.folder), record.released_levels()
    return {
        "shards": bytes_below(shard_folder(release.id)),
        "published": bytes_below(folder),
        "store": store_bytes() - before,
        "cells": [(level.cells, level.nonzero) for level in levels],
    }


def store_bytes():
    """Return the bytes of the store, once all that was committed is in its file."""
    with store() as con:
        con.execute("CHECKPOINT")
    return (home() / "store.duckdb").stat().st_size


def bytes_below(folder):
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.thorough
def test_a_plan_predicts_what_a_release_leaves(planned, country, tmp_path):
    """With a guess of the total every place holds what the plan said within a factor of 3, and so for later releases on average."""
    # So are the cells that are measured and that survive at every level. DuckDB uses free blocks again a release later.
    for releases in (1, 3):  # the first one has the ledger's own tables
        forecast = planned(expected_total=PEOPLE)
        disk, left = forecast.disk, [released(country / "spec.yaml", tmp_path / "out") for _ in range(releases)]
        assert not disk.upper_bound
        assert disk.total == disk.shards + disk.published + disk.store
        for place in PLACES:
            mean = fmean(of[place] for of in left)
            assert mean / FACTOR < getattr(disk, place) < mean * FACTOR, place
    levels = forecast.levels
    expected = expected_cells([level.possible_cells for level in levels], [level.sigma for level in levels], PEOPLE)
    for cells, (measured, nonzero) in zip(expected, left[-1]["cells"], strict=True):
        assert measured / FACTOR < cells.measured < measured * FACTOR
        assert nonzero / FACTOR < cells.nonzero < nonzero * FACTOR


@pytest.mark.parametrize("rows", ["all", pytest.param("signal", marks=pytest.mark.thorough)])
def test_without_a_guess_the_plan_is_an_upper_bound(planned, country, tmp_path, capsys, rows):
    """Without a guess no place holds more than the plan said."""
    forecast = planned(release=SPEC["release"] | {"rows": rows})
    left = released(country / "spec.yaml", tmp_path / "out")
    assert forecast.disk.upper_bound
    for place in PLACES:
        assert left[place] <= getattr(forecast.disk, place), place
    show_plan(forecast)
    assert re.search("^at most .* on disk", capsys.readouterr().out, re.MULTILINE)


def test_what_is_published_besides_takes_disk(planned):
    """Noisy counts, wider intervals, CSV of every level and tables of the rows that stand out each add to what is published, and to nothing else but the store."""
    # Measurements that are not kept take nothing.

    def disk(**keys):
        return planned(expected_total=PEOPLE, release=SPEC["release"] | keys).disk

    least = disk(noisy_counts=False)
    more = ({"noisy_counts": True}, {"intervals": {"simultaneous": True}}, {"rows": "signal"}, {"csv": "every_level"})
    for keys in more:
        more = disk(**({"noisy_counts": False} | keys))
        assert more.published - EXPLORER_BYTES > 1.05 * (least.published - EXPLORER_BYTES)
        assert more.shards == least.shards
    kept, destroyed = disk(), planned(expected_total=PEOPLE, keep_noisy_counts=False).disk
    assert kept == disk(noisy_counts=True)
    assert destroyed.shards < kept.shards
    assert destroyed.published < kept.published
    assert destroyed.store == kept.store


@given(universe=universes, total=st.integers(1, 2**40))
def test_expected_cells_can_be_and_take_no_more_than_the_upper_bound(universe, total):
    """All children of what survived are measured, at most so many survive, never more than records, never fewer than above."""
    fan_outs, sigmas = [fan_out for fan_out, _ in universe], [0.0, *(sigma for _, sigma in universe)]
    possible = [math.prod(fan_outs[:level]) for level in range(len(fan_outs) + 1)]
    levels = expected_cells(possible, sigmas, total)
    assert len(levels) == len(possible)
    for above, cells, fan_out in zip(levels, levels[1:], fan_outs, strict=False):
        assert cells.measured == pytest.approx(above.nonzero * fan_out)
        assert above.nonzero * (1 - 1e-9) <= cells.nonzero <= min(cells.measured, total) * (1 + 1e-9)
    of_size = {"finest_areas": [40, 40], "code_bytes": 20}
    cells = [(expected_cells(possible, sigmas, of), possible, sigmas, of) for of in (total, None)]
    guessed, bound = (disk_size(*of, **of_size) for of in cells)
    assert all(getattr(guessed, place) <= getattr(bound, place) for place in PLACES)
