"""Trips with attributes: they are features with roles, so the same order and the same noise give the same counts."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import openmatrix
import polars as pl
import pytest
import yaml
from shapely.geometry import box, mapping

import flows.planning.plan
import tasks.ingest.tables
from flows.answers.query import QueryAnswer, query_answer
from flows.answers.verify import verify_answer
from flows.api import release
from flows.forecast.answer import plan_answer
from flows.planning.guarantee import guarantee_of
from flows.planning.plan import make_plan
from flows.specification.file import keys_of_release, load_spec
from tasks.pages.explorer.payload import payload
from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder
from tasks.tree.order import Tree
from tasks.words.levels import level_columns
from tests.support.folders import with_sums
from tests.support.keys import ABSENT, changed
from tests.support.neighbours import RELATIONS, contributions, holds, moves
from tests.support.passes import noise_of, try_spec
from tests.support.spec import SPEC

WITH_PAGES = True

ZONES = [("A", "A1"), ("A", "A2"), ("B", "B1")]
MODES = ["bike", "bus", "car"]
CODEBOOK = {"table": "zones.csv", "levels": ["district", "zone"]}
ATTRIBUTES = {"mode": MODES, "hour": {"ordered": 4}}
ORDER = ["origin.district", "destination.district", "mode", "origin", "destination", "hour"]
TRIPS: dict[str, Any] = {
    "name": "trips",
    "dataset": "city",
    "input": {"table": "trips.csv", "origin": "from", "destination": "to", "features": [*ATTRIBUTES], "count": "n"},
    "hierarchy": {"origin": CODEBOOK, "destination": CODEBOOK, **ATTRIBUTES},
    "release": {"order": ORDER},
    "privacy": SPEC["privacy"] | {"unit": "one trip", "epsilon": 2.0},
    "budget": SPEC["budget"],
    "expected_total": 4_000,
    "public_data": True,
}
FEATURES = changed(
    TRIPS,
    {
        "input": {"table": "trips.csv", "features": ["from", "to", *ATTRIBUTES], "count": "n"},
        "hierarchy": {"from": CODEBOOK, "to": CODEBOOK, **ATTRIBUTES},
        "release.order": [entry.replace("origin", "from").replace("destination", "to") for entry in ORDER],
    },
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with trips by mode and hour between three zones, beside a store."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "zones.csv").write_text("district,zone\n" + "".join(f"{one},{zone}\n" for one, zone in ZONES))
    names = [zone for _, zone in ZONES]
    cells = [*product(names, names, MODES, range(4))]
    counts = np.random.default_rng(3).negative_binomial(0.3, 0.01, len(cells))
    rows = pl.DataFrame(cells, schema=["from", "to", "mode", "hour"], orient="row").with_columns(n=counts)
    rows.filter(pl.col("n") > 0).write_csv(tmp_path / "trips.csv")
    return tmp_path


def spec_of(folder: Path, keys: dict[str, Any], changes: dict[str, Any]) -> Path:
    """Write a spec with changes of its keys, and return its path."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(changed(keys, changes), sort_keys=False))
    return folder / "spec.yaml"


@pytest.mark.parametrize(
    "changes",
    [
        {"mechanism": "inftda", "privacy.neighbours": "add_remove"},
        {"mechanism": "inftda_reconciled"},
        {"mechanism": "inftda_shrunk", "release.views": "margins"},
        {"mechanism": "cbdp", "release.views": {"modes": {"mode": "mode", "hour": "hour"}}},
        {"mechanism": "gaussian"},
        {"mechanism": "unbiased_tree"},
    ],
    ids=lambda changes: str(changes["mechanism"]),
)
def test_ends_are_features_with_a_role(folder: Path, changes: dict[str, Any]) -> None:
    """The same trips, as origin, destination and features or as features alone, in one order and with one noise have equal counts."""
    trips, features = (try_spec(spec_of(folder, keys, changes), noise_of(7)) for keys in (TRIPS, FEATURES))
    assert trips[0].scheme.measured == features[0].scheme.measured
    for one, other in zip(trips[2].released, features[2].released, strict=True):
        assert np.array_equal(one.counts, other.counts)
        assert all(np.array_equal(*areas) for areas in zip(one.areas, other.areas, strict=True))
    assert trips[0].tree.ends == (0, 1)
    assert features[0].tree.ends is None
    assert trips[0].source.axes[0].field == "input.origin"
    assert trips[0].source.axes[2].field == "input.features"


OPEN = {"release": {}}


@pytest.mark.parametrize(
    ("total", "order", "words"),
    [
        (400_000, "origin.district, destination.district, origin.zone, destination.zone, mode, hour", "down to there"),
        (120, "destination.district, origin.district, mode, hour, destination.zone, origin.zone", "then finer areas"),
        (
            3,
            "mode, hour, destination.district, origin.district, destination.zone, origin.zone",
            "attributes come first",
        ),
        (
            None,
            "destination.district, origin.district, destination.zone, origin.zone, mode, hour",
            "with expected_total",
        ),
    ],
)
def test_an_order_that_is_left_out_is_chosen_by_public_things(
    folder: Path, monkeypatch: pytest.MonkeyPatch, total: int | None, order: str, words: str
) -> None:
    """Ends come first as far as counts stand out, then attributes, by codebooks and `expected_total`; no table is read, and a plan says why."""
    (folder / "trips.csv").write_text("from,to,mode,hour,n\n")

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the confidential table was read")

    monkeypatch.setattr(flows.planning.plan, "read_content", refuse)
    monkeypatch.setattr(tasks.ingest.tables, "opened", refuse)
    tree = {"tree": "origin"} if order.startswith("origin") else {}
    path = spec_of(folder, TRIPS, {"release": tree, "expected_total": ABSENT if total is None else total})
    plan = make_plan(load_spec(path))
    assert plan.chosen is not None
    assert ", ".join(plan.chosen.order) == ", ".join(plan.file.spec.release.order or []) == order
    assert words in plan.chosen.reason
    assert ("give a guess that may be known" in plan.chosen.reason) == (total is not None)
    names = [view.name for view in plan.named_views]
    assert names[-2:] == ["destination_district_by_mode", "destination_district_by_hour"]
    assert "origin_zone" in names
    columns = level_columns([level.axes for level in plan.levels])
    assert [*columns] == ["origin", "destination", "attributes"]
    assert (columns["attributes"][0], columns["attributes"][-1]) == ("all", "mode, hour")
    stated = json.loads(json.dumps(asdict(plan_answer(plan)), default=str))
    assert stated["order"] == {"order": [*plan.chosen.order], "reason": plan.chosen.reason}


@pytest.mark.parametrize(
    "changes",
    [
        {"release.views": "none"},
        {"measure": "survivors"},
        {"privacy.split": {"finest": 0.5}},
        {"mechanism": "gaussian"},
    ],
    ids=str,
)
def test_what_does_not_go_with_views_has_none(folder: Path, changes: dict[str, Any]) -> None:
    """Where a spec says none, or something that views do not allow, the order is chosen all the same, without views."""
    plan = make_plan(load_spec(spec_of(folder, TRIPS, OPEN | changes)))
    assert plan.chosen is not None
    assert not plan.named_views
    assert "release.views" not in plan.chosen.reason


def test_an_approved_plan_has_the_order_that_was_chosen(folder: Path) -> None:
    """Another expected_total is not among the keys that an approval compares; another order is."""
    orders = [
        json.dumps(keys_of_release(make_plan(load_spec(spec_of(folder, TRIPS, OPEN | {"expected_total": total}))).file))
        for total in (400, 401, 3)
    ]
    assert orders[0] == orders[1] != orders[2]


def cells_of(tree: Tree, levels: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return, for each leaf of a tree, the cell of a partition that holds it."""
    leaves = product(*(range(axis.areas(axis.depth)) for axis in tree.axes))
    return [
        tuple(
            int(axis.ancestors(np.array([area]), axis.depth, level)[0])
            for axis, area, level in zip(tree.axes, leaf, levels, strict=True)
        )
        for leaf in leaves
    ]


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("neighbours", "exact"), RELATIONS)
@pytest.mark.parametrize(
    "release", [{"tree": "origin", "views": "margins"}, {"order": ["mode", "origin", "destination"]}]
)
def test_no_unit_moves_trips_further_than_they_are_charged_for(
    folder: Path, of_release: dict[str, Any], neighbours: str, exact: bool, most: int
) -> None:
    """Over all neighbouring tables of 2 × 2 × 2 leaves no level and no view moves further than its Δ₂², and what is charged adds up to ρ."""
    privacy = {"neighbours": neighbours, "max_records_per_unit": most, "exact_records_per_unit": exact}
    two = {"table": "two.csv", "levels": ["zone"]}
    (folder / "two.csv").write_text("zone\nA1\nA2\n")
    keys = {
        "input.features": ["mode"],
        "hierarchy": {"origin": two, "destination": two, "mode": ["bus", "car"]},
        "release": of_release,
        "privacy": TRIPS["privacy"] | privacy,
        "mechanism": "cbdp" if "views" in of_release else "inftda_reconciled",
    }
    plan = make_plan(load_spec(spec_of(folder, TRIPS, keys)))
    differences = moves(neighbours, contributions(8, most, exact=exact))
    found = np.zeros(len(differences))
    noises = guarantee_of(plan.scheme).measurements
    for number, noise, stated in zip(plan.scheme.measured, noises, plan.scheme.sensitivities, strict=True):
        change = differences @ holds(cells_of(plan.tree, plan.scheme.view(number).axis_levels))
        square = (change**2).sum(axis=1)
        assert square.max() == stated.l2_squared
        found += square / (2 * noise.sigma**2)
    assert 0.999 * float(plan.guarantee.rho) < found.max() <= float(plan.guarantee.rho) * (1 + 1e-9)


def shapes_in(shapes: dict[str, Any]) -> str:
    """Return the shapes of areas as GeoJSON."""
    features = [
        {"type": "Feature", "properties": {"code": code}, "geometry": mapping(of)} for code, of in shapes.items()
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


CODES = {"bike": "bike", "bus": "bus", "car/x": "car_x"}  # of modes, and as names of matrices have them


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a published folder of trips by mode and hour with all that trips have: names, shapes, matrices, maps and pages."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        (folder / "zones.csv").write_text(
            "district,zone,name\n" + "".join(f"{one},{zone},Zone {zone}\n" for one, zone in ZONES)
        )
        for level, codes in {"zone": [zone for _, zone in ZONES], "district": ["A", "B"]}.items():
            (folder / f"{level}.geojson").write_text(
                shapes_in({of: box(n, 50, n + 1, 51) for n, of in enumerate(codes)})
            )
        names = [zone for _, zone in ZONES]
        rows = pl.DataFrame([*product(names, names, CODES, range(4))], ["from", "to", "mode", "hour"], orient="row")
        rows.with_columns(n=pl.int_range(pl.len()) % 17 * 9).filter(pl.col("n") > 0).write_csv(folder / "trips.csv")
        codebook = CODEBOOK | {
            "labels": {"zone": "name"},
            "boundaries": {level: f"{level}.geojson" for level in ("zone", "district")},
        }
        keys = {
            "hierarchy": {"origin": codebook, "destination": codebook, "mode": [*CODES], "hour": {"ordered": 4}},
            "release": {"formats": ["xlsx", "omx", "geoparquet", "sdmx"], "rows": "signal", "records": True},
            "privacy.epsilon": 4.0,
        }
        yield release(spec_of(folder, TRIPS, keys)).folder


def test_a_folder_of_trips_by_attributes_is_sound(made: Path) -> None:
    """Trips with attributes are released in every kind of file, and all of it is verified; a matrix that was changed is noticed."""
    assert verify_answer(made).ok
    assert {path.name for path in (made / "geo").iterdir()} == {f"level_{level}.parquet" for level in range(1, 8)}
    assert {path.name for path in (made / "omx").iterdir()} == {f"level_{level}.omx" for level in (2, 4, 5, 6, 7)}


def test_there_is_a_matrix_for_each_code(made: Path, tmp_path: Path) -> None:
    """A level with attributes has a matrix for each of their codes, which add up to the counts; their exact codes stand beside them."""
    counts = pl.read_parquet(made / "counts" / "level_5.parquet")
    zones = [zone for _, zone in ZONES]
    with openmatrix.open_file(str(made / "omx" / "level_5.omx")) as file:
        assert {*file.list_matrices()} == {f"{of}_{code}" for of in ("count", "low", "high") for code in CODES.values()}
        for mode, code in CODES.items():
            assert json.loads(str(file[f"count_{code}"].attrs["trellis_codes"])) == {"mode": mode}
            for number in ("count", "low", "high"):
                expected = np.full((3, 3), 0.0 if number == "count" else np.nan)
                for row in counts.filter(pl.col("mode") == mode).iter_rows(named=True):
                    expected[zones.index(row["origin_zone"]), zones.index(row["destination_zone"])] = row[number]
                np.testing.assert_array_equal(file[f"{number}_{code}"][:], expected)
    with openmatrix.open_file(str(made / "omx" / "level_7.omx")) as file:
        matrices = [name for name in file.list_matrices() if name.startswith("count")]
        assert {*matrices} == {f"count_{code}_{hour}" for code in CODES.values() for hour in range(4)}
        assert sum(file[name][:].sum() for name in matrices) == counts["count"].sum()
    copy = Path(shutil.copytree(made, tmp_path / made.name))
    with openmatrix.open_file(str(copy / "omx" / "level_5.omx"), "a") as file:
        file["count_bus"][0, 1] = 5555
    with_sums(copy)
    assert "omx/level_5.omx: the matrix count_bus differs from counts/level_5.parquet." in verify_answer(copy).failures


def test_questions_name_both_ends_and_attributes(made: Path) -> None:
    """A question may name an origin, a destination, a mode and a range of hours; what it leaves out is added up."""
    finest = pl.read_parquet(made / "counts" / "level_7.parquet")
    asked = query_answer(made, "A1", "A2", ["mode=bus", "hour=1..2"], simultaneous=False)
    there = finest.filter(origin_zone="A1", destination_zone="A2", mode="bus").filter(pl.col("hour").is_in(["1", "2"]))
    assert isinstance(asked, QueryAnswer)
    assert asked.count == there["count"].sum()
    assert asked.low is not None
    assert (of := asked.where["origin"]) is not None
    assert of.name == "Zone A1"
    by_mode = query_answer(made, "A", None, ["mode=car/x"], simultaneous=False)
    assert isinstance(by_mode, QueryAnswer)
    assert by_mode.how.startswith("the cell of view origin_district_by_mode")


def test_pages_show_trips_and_their_attributes(made: Path) -> None:
    """The report has the largest flows of pairs and by attribute; the explorer has tables of both ends and of each with an attribute."""
    report = (made / "report.html").read_text()
    assert "The largest flows (level 4: origin zone, destination zone)" in report
    assert "The largest flows at level 5: origin zone, destination zone, mode" in report
    assert "Flows within one area are left out" in report
    folder = open_folder(made)
    large = largest_counts(folder, 5)
    assert large is not None
    assert (large.axes, large.without_within) == (("origin", "destination"), True)
    shown = payload(folder)
    assert shown["ends"] == [0, 1]
    assert {*product((False, True), repeat=4)} == {tuple(map(bool, of["at"])) for of in shown["tables"]}
