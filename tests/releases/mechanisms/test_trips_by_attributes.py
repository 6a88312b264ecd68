"""Trips with attributes: they are features with roles, so the same order and the same noise give the same counts."""

import json
import shutil
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import openmatrix
import polars as pl
import pytest

from flows.answers.query import query_answer
from flows.answers.verify import verify_answer
from flows.forecast.answer import plan_answer
from flows.planning.guarantee import guarantee_of
from flows.planning.plan import make_plan
from flows.specification.file import keys_of_release, load_spec
from storage.errors import InputError
from tasks.ingest.task import read_in_memory
from tasks.pages.explorer.payload import payload
from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder
from tasks.words.levels import level_columns
from tests.support.folders import with_sums
from tests.support.keys import ABSENT, changed
from tests.support.library import MODES as OF_LIBRARY
from tests.support.neighbours import RELATIONS, contributions, holds, moves
from tests.support.passes import noise_of, try_spec
from tests.support.spec import SPEC, spec_in

ZONES = {"A1": "A", "A2": "A", "B1": "B"}
CODEBOOK = {"table": "zones.csv", "levels": ["district", "zone"]}
ATTRIBUTES = {"hour": {"ordered": 4}, "mode": ["bike", "bus", "car"]}
ORDER = ["origin.district", "destination.district", "mode", "origin", "destination", "hour"]
TRIPS = {
    "name": "trips",
    "dataset": "city",
    "input": {"table": "trips.csv", "origin": "from", "destination": "to", "features": [*ATTRIBUTES], "count": "n"},
    "hierarchy": {"origin": CODEBOOK, "destination": CODEBOOK, **ATTRIBUTES},
    "release": {"order": ORDER},
    "privacy": SPEC["privacy"] | {"unit": "one trip", "epsilon": 2.0},
    "budget": SPEC["budget"],
    "expected_total": 4_000,
}
FEATURES = changed(
    TRIPS,
    {
        "input": {"table": "trips.csv", "features": ["from", "to", *ATTRIBUTES], "count": "n"},
        "hierarchy": {"from": CODEBOOK, "to": CODEBOOK, **ATTRIBUTES},
        "release.order": [entry.replace("origin", "from").replace("destination", "to") for entry in ORDER],
    },
)
OPEN = {"release": {}}  # the order is left out


@pytest.fixture
def folder(tmp_path, own_home):
    """Return a folder with trips by mode and hour between three zones, beside a store."""
    (tmp_path / "zones.csv").write_text("district,zone\n" + "".join(f"{of},{zone}\n" for zone, of in ZONES.items()))
    cells = [*product(ZONES, ZONES, ATTRIBUTES["mode"], range(4))]
    counts = np.random.default_rng(3).negative_binomial(0.3, 0.01, len(cells))
    rows = pl.DataFrame(cells, schema=["from", "to", "mode", "hour"], orient="row").with_columns(n=counts)
    rows.filter(pl.col("n") > 0).write_csv(tmp_path / "trips.csv")
    return tmp_path


def plan_of(folder, changes):
    """Return the plan of trips with changes of the keys."""
    return make_plan(load_spec(spec_in(folder, changed(TRIPS, changes))))


@pytest.mark.parametrize("changes", [
    {"mechanism": "inftda", "privacy.neighbours": "add_remove"}, {"mechanism": "inftda_reconciled"},
    {"mechanism": "inftda_shrunk", "release.views": "margins"}, {"mechanism": "gaussian"}, {"mechanism": "unbiased_tree"},
    {"mechanism": "cbdp", "release.views": {"modes": {"mode": "mode", "hour": "hour"}}},
], ids=lambda changes: changes["mechanism"])  # fmt: skip
def test_ends_are_features_with_a_role(folder, changes):
    """The same trips, as origin, destination and features or as features alone, in one order and with one noise have equal counts."""
    trips, features = (try_spec(spec_in(folder, changed(keys, changes)), noise_of(7)) for keys in (TRIPS, FEATURES))
    assert trips[0].scheme.measured == features[0].scheme.measured
    for one, other in zip(trips[2].released, features[2].released, strict=True):
        assert np.array_equal(one.counts, other.counts)
        assert all(np.array_equal(*areas) for areas in zip(one.areas, other.areas, strict=True))
    assert (trips[0].tree.ends, features[0].tree.ends) == ((0, 1), None)
    assert [trips[0].source.axes[axis].field for axis in (0, 2)] == ["input.origin", "input.features"]


@pytest.mark.parametrize(("total", "order", "words"), [
    (400_000, "origin.district, destination.district, origin.zone, destination.zone, mode, hour", "down to there"),
    (120, "destination.district, origin.district, mode, hour, destination.zone, origin.zone", "then finer areas"),
    (3, "mode, hour, destination.district, origin.district, destination.zone, origin.zone", "attributes come first"),
    (None, "destination.district, origin.district, destination.zone, origin.zone, mode, hour", "with expected_total"),
])  # fmt: skip
def test_an_order_that_is_left_out_is_chosen_by_public_things(folder, total, order, words):
    """Ends come first as far as counts stand out, then attributes, by codebooks and `expected_total`, and a plan says so and why."""
    tree = {"tree": "origin"} if order.startswith("origin") else {}
    plan = plan_of(folder, {"release": tree, "expected_total": ABSENT if total is None else total})
    assert ", ".join(plan.chosen.order) == ", ".join(plan.file.spec.release.order) == order
    assert words in plan.chosen.reason
    assert ("give a guess that may be known" in plan.chosen.reason) == (total is not None)
    names = [view.name for view in plan.named_views]
    assert names[-2:] == ["destination_district_by_mode", "hour_by_mode"]
    assert "origin_zone" in names
    columns = level_columns([level.axes for level in plan.levels])
    assert [*columns] == ["origin", "destination", "attributes"]
    assert (columns["attributes"][0], columns["attributes"][-1]) == ("all", "hour, mode")
    stated = json.loads(json.dumps(asdict(plan_answer(plan)), default=str))
    assert stated["order"] == {"order": [*plan.chosen.order], "reason": plan.chosen.reason}


ENDS = {"release": {"tree": "destination", "finest": "zone"}, "input.features": ABSENT, "hierarchy": CODEBOOK}
OF_OTHERS = {"origin": CODEBOOK, "destination": CODEBOOK | {"table": "other.csv"}}
TARGET = {"privacy.epsilon": ABSENT, "privacy.target": {"level": "zone", "max_error": 90, "confidence": 0.9}}
WITHOUT = {"release.views": "none", "measure": "survivors", "priority": "false_positives", "run.workers": "dask"}
SPLIT, ONE_WAY = {"privacy.split": {"finest": 1.5}}, {"release.views": "one_way"}
PRIORS, TWICE = {"mechanism": "inftda_shrunk"}, {"mechanism": "inftda_reconciled"}


@pytest.mark.parametrize(("changes", "same", "words"), [
    ({}, PRIORS | ONE_WAY, "no more than 10,000,000 cells (6)"), ({"release.views": "margins"}, PRIORS, "(6)"),
    (SPLIT, PRIORS | ONE_WAY, "(6)"), (TRIPS | OPEN, PRIORS, "(36)"),
    *((of | {key: value}, TWICE, f"{key}") for of in ({}, TRIPS | OPEN) for key, value in WITHOUT.items()),
    ({"privacy.split": [1, 1, 2, 3]}, TWICE, "privacy.split does"), (TRIPS | OPEN | SPLIT, TWICE, "privacy.split does"),
    (TARGET, {"mechanism": "inftda"}, "bound"), ({"hierarchy": OF_OTHERS}, TWICE, "the ends have different codebooks"),
    ({"hierarchy": 3162, "run.max_memory": "8GB"}, PRIORS | ONE_WAY, "no more than 10,000,000 cells (9,998,244)"),
    ({"hierarchy": 3162, "run.max_memory": "1GB"}, TWICE, "run.max_memory does not go with priors"),
    ({"hierarchy": 3163}, TWICE, "has 10,004,569 cells, more than 10,000,000"), (FEATURES, TWICE, "not of trips"),
], ids=str)  # fmt: skip
def test_a_mechanism_that_is_left_out_is_chosen_by_public_things(folder, changes, same, words):
    """It is what the spec could write, with the views that go with it, and the plan says why."""
    if isinstance(many := changes.get("hierarchy"), int):  # as many pairs of districts as of zones
        (folder / "zones.csv").write_text("district,zone\n" + "".join(f"d{of},{of}\n" for of in range(many)))
        changes = changes | {"hierarchy": CODEBOOK}
    (folder / "other.csv").write_text("district,zone\nA,A1\nB,B2\n")
    plan, written = (plan_of(folder, ENDS | changes | more) for more in ({}, same))
    assert (plan.parts, plan.named_views) == (written.parts, written.named_views)
    assert (plan.terms.mechanism, written.default) == (same["mechanism"], None)
    assert bool(plan.named_views) == (same | PRIORS == same)
    assert words in plan.terms.mechanism_reason == plan_answer(plan).mechanism_reason


@pytest.mark.parametrize("total", [400_000, 120, 3])
def test_the_order_that_is_chosen_never_depends_on_the_table(folder, total):
    """Tables with the same codebooks have the same plan, whatever they hold, also one of which every reader raises an error."""
    (folder / "one.csv").write_text("from,to,mode,hour,n\nA1,A1,bus,0,400000\n")
    (folder / "none.csv").write_text("from,to,mode,hour,n\n")
    (folder / "broken.parquet").write_bytes(b"no reader takes it")
    tables = ["trips.csv", "one.csv", "none.csv", "broken.parquet"]
    plans = [plan_of(folder, OPEN | {"input.table": table, "expected_total": total}) for table in tables]
    assert len({repr((of.chosen, of.default, of.levels, of.views)) for of in plans}) == 1
    with pytest.raises(InputError):
        read_in_memory(plans[-1].source, plans[-1].units, plans[-1].promised)


def test_an_approved_plan_has_the_order_that_was_chosen(folder):
    """Another expected_total is not among the keys that an approval compares; another order is."""
    plans = [plan_of(folder, OPEN | {"expected_total": total}) for total in (400, 401, 3)]
    orders = [json.dumps(keys_of_release(plan.file)) for plan in plans]
    assert orders[0] == orders[1] != orders[2]


def cells_of(tree, levels):
    """Return, for each leaf of a tree, the cell of a partition that holds it."""
    leaves = product(*(range(axis.areas(axis.depth)) for axis in tree.axes))
    reached = [*zip(tree.axes, levels, strict=True)]
    return [
        tuple(
            int(axis.ancestors(np.array([area]), axis.depth, level)[0])
            for area, (axis, level) in zip(leaf, reached, strict=True)
        )
        for leaf in leaves
    ]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize("of_release", [{}, {"order": ["mode", "origin", "destination"], "views": "none"}], ids=str)
def test_no_unit_moves_trips_further_than_they_are_charged_for(folder, of_release, neighbours, exact, most):
    """Over all neighbouring tables of 2 × 2 × 2 leaves no level and no view moves further than its Δ₂², and what is charged adds up to ρ."""
    two = {"table": "two.csv", "levels": ["zone"]}
    (folder / "two.csv").write_text("zone\nA1\nA2\n")
    keys = {
        "input.features": ["mode"],
        "hierarchy": {"origin": two, "destination": two, "mode": ["bus", "car"]},
        "release": of_release,
        "privacy.neighbours": neighbours,
        "privacy.max_records_per_unit": most,
        "privacy.exact_records_per_unit": exact,
    }
    plan = plan_of(folder, keys)
    assert bool(plan.named_views) == (not of_release)
    differences = moves(neighbours, contributions(8, most, exact=exact))
    found = np.zeros(len(differences))
    noises = guarantee_of(plan.scheme).measurements
    for number, noise, stated in zip(plan.scheme.measured, noises, plan.scheme.sensitivities, strict=True):
        change = differences @ holds(cells_of(plan.tree, plan.scheme.view(number).axis_levels))
        square = (change**2).sum(axis=1)
        assert square.max() == stated.l2_squared
        found += square / (2 * noise.sigma**2)
    assert 0.999 * float(plan.guarantee.rho) < found.max() <= float(plan.guarantee.rho) * (1 + 1e-9)


# of the library: municipalities in provinces in regions, by mode from level 5 on, and by hour from level 7 on --------------------


@pytest.fixture(scope="module")
def made(library):
    """Return a published folder of trips by mode and hour with all that trips have: names, shapes, matrices, maps and pages."""
    return library["trips by mode"].folder


@pytest.mark.parametrize(("name", "levels", "level", "area"), [
    ("trips by mode", (2, 4, 5, 6, 7, 9), 5, "province"),
    ("trips by mode without bias", (2, 3, 4, 5, 7, 9), 3, "region"),  # with views beside an unbiased tree
])  # fmt: skip
def test_there_is_a_matrix_for_each_code(library, tmp_path, name, levels, level, area):
    """A level with attributes has a matrix for each of their codes, which add up to the counts; one that was changed is noticed."""
    made = library[name].folder
    codes = dict(zip(OF_LIBRARY, ("bike", "bus", "car_x"), strict=True))  # as names of matrices have them
    assert {path.name for path in (made / "omx").iterdir()} == {f"level_{number}.omx" for number in levels}
    counts = pl.read_parquet(made / "counts" / f"level_{level}.parquet")
    with openmatrix.open_file(str(made / "omx" / f"level_{level}.omx")) as file:
        assert {*file.list_matrices()} == {f"{of}_{code}" for of in ("count", "low", "high") for code in codes.values()}
        zones = [code.decode() for code in file.root.lookup.zone_code[:]]
        for mode, code in codes.items():
            assert json.loads(str(file[f"count_{code}"].attrs["trellis_codes"])) == {"mode": mode}
            for number in ("count", "low", "high"):
                expected = np.full((len(zones), len(zones)), 0.0 if number == "count" else np.nan)
                rows = counts.filter(pl.col("mode") == mode).select(f"origin_{area}", f"destination_{area}", number)
                for origin, destination, value in rows.iter_rows():
                    expected[zones.index(origin), zones.index(destination)] = value
                np.testing.assert_array_equal(file[f"{number}_{code}"][:], expected)
    with openmatrix.open_file(str(made / "omx" / "level_9.omx")) as file:
        matrices = [name for name in file.list_matrices() if name.startswith("count")]
        assert {*matrices} == {f"count_{code}_{hour}" for code in codes.values() for hour in range(4)}
        assert sum(file[name][:].sum() for name in matrices) == counts["count"].sum()
    copy = Path(shutil.copytree(made, tmp_path / made.name))
    with openmatrix.open_file(str(copy / "omx" / f"level_{level}.omx"), "a") as file:
        file["count_bus"][0, 1] = 5555
    with_sums(copy)
    told = f"omx/level_{level}.omx: the matrix count_bus differs from counts/level_{level}.parquet."
    assert told in verify_answer(copy).failures


def test_questions_name_both_ends_and_attributes(made):
    """A question may name an origin, a destination, a mode and a range of hours; what it leaves out is added up."""
    finest = pl.read_parquet(made / "counts" / "level_9.parquet")
    one = finest.row(0, named=True)
    ends = [one[f"{end}_municipality"] for end in ("origin", "destination")]
    asked = query_answer(made, *ends, [f"mode={one['mode']}", "hour=1..3"], simultaneous=False)
    alike = finest.filter(origin_municipality=ends[0], destination_municipality=ends[1], mode=one["mode"])
    assert asked.count == alike.filter(pl.col("hour").is_in(["1", "2", "3"]))["count"].sum()
    assert asked.low is not None
    assert asked.where["origin"].name
    at_two = query_answer(made, "01", None, ["hour=2"], simultaneous=False)
    assert at_two.how.startswith("the cell of view origin_region_by_hour")


def test_pages_show_trips_and_their_attributes(made):
    """The report has the largest flows of pairs and by attribute, and the largest counts are of pairs, without trips inside one area."""
    report = (made / "report.html").read_text()
    assert "The largest flows (level 4: origin province, destination province)" in report
    assert "The largest flows at level 5: origin province, destination province, mode" in report
    assert "Flows within one area are left out" in report
    large = largest_counts(open_folder(made), 5)
    assert (large.axes, large.without_within) == (("origin", "destination"), True)
    shown = payload(open_folder(made))
    assert shown["ends"] == [0, 1]
    assert {*product((False, True), repeat=4)} == {tuple(map(bool, of["at"])) for of in shown["tables"]}


@pytest.mark.parametrize("output", ["plan in a terminal", "plan page"])
def test_a_plan_warns_that_the_guess_decides_the_order(library, output):
    """Who plans and who signs are told that the order is published and that `expected_total` decides it."""
    said = library["trips by mode"].texts[output]
    assert "expected_total decides this, and the order is published: give a guess that may be known" in said
