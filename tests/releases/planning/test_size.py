"""What a plan says a release will take on disk, against what releases leave there."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flows.console import terminal
from flows.console.plan_view import show_plan
from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.forecast.answer import plan_answer
from flows.forecast.values import DiskUse, Forecast
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from storage.database.connections import store
from storage.machine.claims import shard_folder
from storage.machine.home import home
from storage.record import load_record
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.validate.size import EXPLORER_BYTES, disk_size, expected_cells

PEOPLE = 100_000
FACTOR = 3
WITH_PAGES = True  # they take disk

SPEC = {
    "name": "sized",
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "municipality"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one made-up commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 4.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 40.0, "delta": 1.0e-7},
    "output": "out",
}

universes = st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 1e9)), min_size=1, max_size=10)


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tables of the demonstration's country."""
    folder = tmp_path_factory.mktemp("sized")
    write_country(draw_country(people=PEOPLE, generator=np.random.default_rng(11)), folder / "data")
    return folder


@pytest.fixture
def planned(country: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Forecast]:
    """Return what plans the country's release with other keys of the spec, in a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))

    def plan(**keys: Any) -> Forecast:
        (country / "spec.yaml").write_text(yaml.safe_dump(SPEC | keys))
        return plan_answer(make_plan(load_spec(country / "spec.yaml")))

    return plan


def released(spec: Path, output: Path) -> dict[str, Any]:
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


def store_bytes() -> int:
    """Return the bytes of the store, once all that was committed is in its file."""
    with store() as con:
        con.execute("CHECKPOINT")
    return (home() / "store.duckdb").stat().st_size


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_a_plan_predicts_what_a_release_leaves(planned, country, tmp_path) -> None:
    """With a guess of the total every place holds what the plan said within a factor of 3, and so for the next release.

    So are the cells that are measured and that survive at every level.
    """
    for _ in ("with the ledger's own tables", "without"):
        forecast = planned(expected_total=PEOPLE)
        disk, left = forecast.disk, released(country / "spec.yaml", tmp_path / "out")
        assert not disk.upper_bound
        assert disk.total == disk.shards + disk.published + disk.store
        for place in ("shards", "published", "store"):
            assert left[place] / FACTOR < getattr(disk, place) < left[place] * FACTOR, place
    levels = forecast.levels
    expected = expected_cells([level.possible_cells for level in levels], [level.sigma for level in levels], PEOPLE)
    for cells, (measured, nonzero) in zip(expected, left["cells"], strict=True):
        assert measured / FACTOR < cells.measured < measured * FACTOR
        assert nonzero / FACTOR < cells.nonzero < nonzero * FACTOR


@pytest.mark.parametrize("rows", ["all", pytest.param("signal", marks=pytest.mark.thorough)])
def test_without_a_guess_the_plan_is_an_upper_bound(planned, country, tmp_path, rows) -> None:
    """Without a guess no place holds more than the plan said."""
    disk = planned(release=SPEC["release"] | {"rows": rows}).disk
    left = released(country / "spec.yaml", tmp_path / "out")
    assert disk.upper_bound
    for place in ("shards", "published", "store"):
        assert left[place] <= getattr(disk, place), place


def test_noisy_counts_that_are_not_kept_take_nothing(planned) -> None:
    """A release that destroys its sealed measurements is expected to leave fewer bytes, and nothing changes in the store."""
    kept = planned(expected_total=PEOPLE).disk
    destroyed = planned(expected_total=PEOPLE, keep_noisy_counts=False).disk
    assert destroyed.shards < kept.shards
    assert destroyed.published < kept.published
    assert destroyed.store == kept.store


def test_what_is_published_besides_takes_disk(planned) -> None:
    """Noisy counts, wider intervals, CSV of every level and tables of the rows that stand out each add to what is published.

    They add to nothing else but the store.
    """

    def disk(**keys: Any) -> DiskUse:
        return planned(expected_total=PEOPLE, release=SPEC["release"] | keys).disk

    least = disk(noisy_counts=False)
    for keys in (
        {"noisy_counts": True},
        {"intervals": {"simultaneous": True}},
        {"csv": "every_level"},
        {"rows": "signal"},
    ):
        more = disk(**({"noisy_counts": False} | keys))
        assert more.published - EXPLORER_BYTES > 1.05 * (least.published - EXPLORER_BYTES)
        assert more.shards == least.shards
    assert disk() == disk(noisy_counts=True)


def test_noisy_counts_of_nobody_knows_how_many_cells_count() -> None:
    """Where nobody has guessed the total, the bound has the most noisy counts that are published without being asked for."""

    def published(total: int | None, asked: bool | None) -> int:
        possible = [1, 10**4, 10**8]
        return disk_size(
            possible, [0.0, 2.0, 2.0], total, finest_areas=[10**4, 10**4], code_bytes=9.0, csv=False, noisy_counts=asked
        ).published

    assert published(10**9, None) == published(10**9, False)
    assert published(None, False) + 20_000_000 < published(None, None) < published(None, True)


@pytest.mark.parametrize(("keys", "said"), [({"expected_total": PEOPLE}, "about "), ({}, "at most ")])
def test_the_console_says_which_it_is(planned, capsys, keys, said) -> None:
    """A line of the plan says the bytes on disk: about so many, or at most so many where nothing is known."""
    show_plan(planned(**keys))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if " on disk" in line]
    assert line.startswith(said)
    assert "shards" in line
    assert "published" in line
    assert "store" in line


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (9_960, "10 kB"), (999_499, "999 kB"), (999_500, "1.0 MB")],
)
def test_bytes_are_said_in_few_digits(size, text) -> None:
    """Bytes are written in the largest unit of which there is one, with two or three digits."""
    assert terminal.format_bytes(size) == text


@given(universe=universes, total=st.integers(1, 2**40))
def test_expected_cells_are_cells_that_can_be(universe, total) -> None:
    """All children of what survived are measured, at most so many survive, never more than records, never fewer than above."""
    fan_outs, sigmas = [fan_out for fan_out, _ in universe], [0.0, *(sigma for _, sigma in universe)]
    possible = [math.prod(fan_outs[:level]) for level in range(len(fan_outs) + 1)]
    levels = expected_cells(possible, sigmas, total)
    assert len(levels) == len(possible)
    for above, cells, fan_out in zip(levels, levels[1:], fan_outs, strict=False):
        assert cells.measured == pytest.approx(above.nonzero * fan_out)
        assert above.nonzero * (1 - 1e-9) <= cells.nonzero <= min(cells.measured, total) * (1 + 1e-9)


@given(universe=universes, total=st.integers(1, 2**40))
def test_a_guess_never_takes_more_than_the_upper_bound(universe, total) -> None:
    """Whatever the total, the prediction stays within what is said where nothing is known."""
    fan_outs, sigmas = [fan_out for fan_out, _ in universe], [0.0, *(sigma for _, sigma in universe)]
    possible = [math.prod(fan_outs[:level]) for level in range(len(fan_outs) + 1)]
    guessed, bound = (disk_size(possible, sigmas, of, finest_areas=[40, 40], code_bytes=20) for of in (total, None))
    assert guessed.shards <= bound.shards
    assert guessed.published <= bound.published
    assert guessed.store <= bound.store
