"""The made-up city with its trips by mode and hour: its peaks and the spec that is written."""

from pathlib import Path

import numpy as np

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from tasks.synthesize.city import PEAKS, draw_day


def test_a_day_has_six_peaks():
    """Of 200,000 trips between 48 zones in eight districts most are around the hours of the peaks, in three of them most by far."""
    city = draw_day(generator=np.random.default_rng(1))
    trips = city.trips
    assert trips["trips"].sum() == 200_000
    assert not trips.drop("trips").is_duplicated().any()
    assert (city.codebook["zone"].n_unique(), city.codebook["district"].n_unique()) == (48, 8)
    by_hour = np.bincount(trips["hour"].to_numpy(), trips["trips"].to_numpy(), 24)
    assert len(PEAKS) == 6
    for peak in PEAKS:
        lull = min(by_hour[(int(peak.hour) + way * hours) % 24] for way in (-1, 1) for hours in (1, 2, 3))
        assert by_hour[int(peak.hour)] > lull
    assert by_hour[[7, 8, 17]].sum() > 0.25 * by_hour.sum()
    assert by_hour.min() > 0


def test_its_trips_are_trips(tmp_path):
    """The spec has both ends and the attributes, and Trellis chooses the order; equal seeds write equal tables, with names and shapes."""
    found = [synthesise_answer("city", tmp_path / name, 3) for name in ("one", "two")]
    assert (found[0].areas, found[0].people) == (48, 200_000)
    assert (tmp_path / "one/data/trips.csv").read_bytes() == (tmp_path / "two/data/trips.csv").read_bytes()
    plan = make_plan(load_spec(Path(found[0].spec)))
    assert plan.tree.ends == (0, 1)
    assert plan.tree.possible_cells(plan.tree.depth) == 48 * 48 * 4 * 24
    assert " ".join(plan.chosen.order) == "destination.district origin.district destination.zone origin.zone mode hour"
    assert {view.name for view in plan.named_views} >= {"origin_zone", "mode", "origin_district_by_mode", "mode_by_hour"}
    assert plan.shaped["origin", 2] == 48
