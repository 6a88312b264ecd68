"""Releases of any features: what a person may write, and the plan, the records and the words that come of it."""

import copy
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.planning.plan import Plan, make_plan
from flows.spec.file import SpecFile, faults_of, load_spec
from storage.counts.columns import column_name, flat_features
from storage.errors import InputError, SpecError
from tasks.format import synthetic_records
from tasks.format.synthetic_records import record_tables
from tasks.ingest.codebook import Values
from tasks.tree.order import in_sequence
from tasks.uncertainty.bounds import chebyshev_bounds, finest_above_noise
from tasks.validate.size import MOST_RECORDS, disk_size, expected_cells, records_kind
from tasks.words.levels import level_columns, place
from tests.support.laws import gaussians

Keys = dict[str, Any]

FEATURES = ["sex", "race", "education-num", "occupation"]
EXAMPLE: Keys = {
    "name": "adult",
    "dataset": "adult",
    "input": {"table": "adult.csv", "features": FEATURES},
    "hierarchy": {
        "sex": {"values": 2},
        "race": ["white", "black", 7],
        "education-num": {"table": "education.csv", "levels": ["stage", "grade"]},
        "occupation": {"values": 15},
    },
    "release": {"order": ["race", "sex", "education-num", "occupation"]},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 4.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 10.0, "delta": 1.0e-7},
}
EDUCATION = "stage,grade\nlow,0\nlow,1\nhigh,2\nhigh,10\n"
ABSENT = "(absent)"  # stands for no key


def changed(*changes: tuple[str, object]) -> Keys:
    """Return the example with some keys, by names with slashes, set to other values or taken out."""
    keys = copy.deepcopy(EXAMPLE)
    for name, value in changes:
        *above, last = name.split("/")
        part = keys
        for key in above:
            part = part[key]
        if value is ABSENT:
            del part[last]
        else:
            part[last] = copy.deepcopy(value)
    return keys


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Keys], SpecFile]:
    """Return what writes a spec beside its tables, and loads it."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "adult.csv").write_text("sex,race,education-num,occupation\n0,white,10,14\n")
    (tmp_path / "education.csv").write_text(EDUCATION)

    def write_and_load(keys: Keys) -> SpecFile:
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
        return load_spec(tmp_path / "spec.yaml")

    return write_and_load


def planned(load: Callable[[Keys], SpecFile], *changes: tuple[str, object]) -> Plan:
    """Return the plan of the example with some keys changed."""
    return make_plan(load(changed(*changes)))


def test_the_example_is_planned(load) -> None:
    """Level k is the marginal of the first k refinements, and a deep feature is refined where it stands."""
    plan = planned(load)
    stage = "sex, race, education-num stage"
    grade = "sex, race, education-num grade"
    places = ["", "race", "sex, race", stage, grade, f"{grade}, occupation"]
    assert [axis.name for axis in plan.tree.axes] == FEATURES
    assert [place(level.axes) for level in plan.levels] == places
    assert [level.possible_cells for level in plan.levels] == [1, 3, 6, 12, 24, 360]
    refined = ["everything", "race", "sex", "education-num stage", "education-num grade", "occupation"]
    assert level_columns([level.axes for level in plan.levels]) == {"refined": refined}
    assert plan.tree.axes[1].codes[0].to_list() == ["7", "black", "white"]
    assert plan.tree.axes[3].codes[0].to_list() == sorted(str(code) for code in range(15))


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ([("input/origin", "home")], "input.origin", "must be left out when input.features is given"),
        ([("release/tree", "origin")], "release.tree", "must be left out when input.features is given"),
        ([("release/order", ABSENT)], "release.order", "must be given"),
        ([("input/features", ABSENT)], "release.order", "must be left out when input.features is not given"),
        ([("input/features", [])], "input.features", "must not be empty"),
        ([("input/features", [*FEATURES, "sex"])], "input.features", "must name each column once"),
        ([("input/features", [*FEATURES, "Sex"]), ("hierarchy/Sex", {"values": 2})], "input.features", "case"),
        ([("input/features", ["a/b"]), ("hierarchy", {"a/b": [1]})], "input.features", "no slash"),
        ([("input/count", "race")], "input.count", "must not be a column of codes"),
        ([("input/unit", "race")], "input.unit", "must not be a column of codes"),
        ([("release/order", FEATURES[:3])], "release.order", "occupation is missing"),
        ([("release/order", [*FEATURES, "age"])], "release.order", "or levels as feature.level, got age"),
        ([("release/order", [*FEATURES, "sex"])], "release.order", "must refine each level once, got sex twice"),
        ([("release/finest", "stage")], "release.finest", "{feature: level}"),
        ([("release/finest", {"education-num": "year"})], "release.finest", "stage, grade"),
        ([("release/finest", {"age": "stage"})], "release.finest", "must name features"),
        ([("release/records", "yes")], "release.records", "must be true or false"),
        ([("hierarchy/sex", ABSENT)], "hierarchy.sex", "must be given"),
        ([("hierarchy/age", {"values": 2})], "hierarchy.age", "is not one of input.features"),
        ([("hierarchy/sex", {"levels": ["a", "b"]})], "hierarchy.sex.table", "must be given: a feature has one column"),
        ([("hierarchy/sex", {"values": 2, "levels": ["a"]})], "hierarchy.sex.levels", "is not a key of the spec"),
        ([("hierarchy/sex/values", 0)], "hierarchy.sex.values", "from 1 to 2**20"),
        ([("hierarchy/sex/values", 2**20 + 1)], "hierarchy.sex.values", "from 1 to 2**20"),
        ([("hierarchy/sex/values", True)], "hierarchy.sex.values", "from 1 to 2**20"),
        ([("hierarchy/sex/values", [])], "hierarchy.sex.values", "at least one code"),
        ([("hierarchy/sex", ["m", "f", "m"])], "hierarchy.sex.values", "each code once"),
        ([("hierarchy/sex", [1, "1"])], "hierarchy.sex.values", "each code once"),
        ([("hierarchy/sex", ["m", " "])], "hierarchy.sex.values", "no blank code"),
        ([("hierarchy/sex", ["m", False])], "hierarchy.sex.values", "put it in quotes"),
        ([("hierarchy/sex", ["m", None])], "hierarchy.sex.values", "put it in quotes"),
        ([("hierarchy/sex", [1.5])], "hierarchy.sex.values", "put it in quotes"),
        ([("input/features", ["sex", True])], "input.features.1", "YAML reads yes and on as true too"),
        ([("privacy/distinct", "age")], "privacy.distinct", "must be a level"),
    ],
)
def test_what_features_cannot_be(load, changes, field, said) -> None:
    """Whatever is wrong with features is refused by the name of its key, and the rule."""
    with pytest.raises(SpecError) as refused:
        load(changed(*changes))
    assert refused.value.field == field
    assert field in str(refused.value)
    assert said in str(refused.value)


def test_a_name_that_is_a_number_is_to_be_in_quotes(tmp_path) -> None:
    """A feature whose name YAML reads as a number is named by all that is said to be wrong, with what to do."""
    text = yaml.safe_dump(changed(("hierarchy/7", [1]))).replace("'7':", "7:")
    told = {str(fault) for fault in faults_of(text) if fault.field == "hierarchy.7"}
    assert "hierarchy.7: a name must be text, got 7; put it in quotes." in told


def test_codes_are_as_they_are_written(load, tmp_path) -> None:
    """What YAML would take for other numbers, octal, sexagesimal or with a sign, is the code that stands there."""
    written = {"sex": "{values: [01, 02]}", "race": "[010, 0x1f, 1:30, +1, 1_000, -5, 0, 12, '07']"}
    text = yaml.safe_dump(changed(*((f"hierarchy/{name}", f"<{name}>") for name in written)))
    for name, codes in written.items():
        text = text.replace(f"<{name}>", codes)
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    file = load_spec(path)
    assert file.spec.hierarchy["sex"].values == ("01", "02")
    assert file.spec.hierarchy["race"].values == ("010", "0x1f", "1:30", "+1", "1_000", "-5", "0", "12", "07")
    published = tmp_path / "published.yaml"
    published.write_text(yaml.safe_dump(file.published()))
    assert load_spec(published).spec.hierarchy == file.spec.hierarchy
    path.write_text(text.replace("[01, 02]", "010"))
    with pytest.raises(SpecError, match="or a list of codes, got 010"):
        load_spec(path)
    path.write_text(text.replace("[01, 02]", "&codes [01, *codes]"))
    with pytest.raises(SpecError, match="must list codes as text"):
        load_spec(path)


WORDS = ["", "sex", "stage", "${UNSET}", [], {}, [["sex"]], ["sex", 1], {"sex": 2}, {"values": 2}, {1: {"values": 2}}]
SPOILT = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**21), st.sampled_from(WORDS))


@settings(max_examples=40)
@given(data=st.data())
def test_every_refusal_names_its_field(tmp_path_factory, data) -> None:
    """However a spec of features is spoilt, it loads or is refused with a field, in a sentence that names that field."""
    names = [key for key in EXAMPLE if key not in {"privacy", "budget"}]
    names += [
        f"{part}/{key}" for part in ("input", "hierarchy", "release") for key in (*EXAMPLE[part], "finest", "origin")
    ]
    names += ["hierarchy/sex/values", "hierarchy/education-num/levels", "hierarchy/education-num/table"]
    keys = changed(*((name, data.draw(SPOILT)) for name in data.draw(st.lists(st.sampled_from(names[4:]), max_size=1))))
    for name in data.draw(st.lists(st.sampled_from(names[:4]), max_size=1)):
        keys[name] = data.draw(SPOILT)
    path = tmp_path_factory.getbasetemp() / "spoilt.yaml"
    path.write_text(yaml.safe_dump(keys))
    try:
        load_spec(path)
    except SpecError as refused:
        error = refused
    else:
        return
    assert error.field
    assert error.field == "SPEC" or error.field in str(error)


def test_one_to_sixty_features(load) -> None:
    """There may be one feature, of one value even, and sixty, and no more."""
    one = ("input/features", "sex"), ("hierarchy", {"sex": {"values": 1}}), ("release/order", "sex")
    plan = planned(load, *one, ("privacy/neighbours", "add_remove"), ("privacy/exact_records_per_unit", None))
    assert [(level.possible_cells, level.same_as) for level in plan.levels] == [(1, None), (1, 0)]
    with pytest.raises(SpecError, match="hierarchy must leave something to measure"):  # its total is public
        planned(load, *one)

    def of(number: int) -> Keys:
        names = [f"f{feature}" for feature in range(number)]
        domains = {name: [0, 1] for name in names}
        return changed(("input/features", names), ("hierarchy", domains), ("release/order", names))

    assert len(load(of(60)).spec.axes) == 60
    with pytest.raises(SpecError, match=r"input.features must name 1 to 60 columns, got 61"):
        load(of(61))


@pytest.mark.parametrize("name", ["count", "COUNT", "education-num_stage"])
def test_published_columns_have_names_of_their_own(load, name) -> None:
    """A feature that would share a column's name with the counts, or another feature's level, is refused."""
    features = [*FEATURES, name]
    keys = changed(("input/features", features), (f"hierarchy/{name}", {"values": 2}), ("release/order", features))
    with pytest.raises(SpecError, match="would give two columns of the published tables the name") as refused:
        load(keys)
    assert refused.value.field == "input.features"


def test_codes_are_hashed_as_they_are(load) -> None:
    """A domain stands in the manifest by its codes, however they are written and in whatever order."""
    hashes = {
        planned(load, ("hierarchy/sex", domain)).source.codebooks["sex"]
        for domain in ({"values": 2}, {"values": ["1", "0"]}, [0, 1])
    }
    assert hashes == {hashlib.sha256(json.dumps(["0", "1"], separators=(",", ":")).encode()).hexdigest()}
    assert planned(load, ("hierarchy/sex", {"values": 3})).source.codebooks["sex"] not in hashes
    education = planned(load).source.codebooks["education-num"]
    assert education == hashlib.sha256(EDUCATION.encode()).hexdigest()


@settings(max_examples=40)
@given(st.one_of(st.integers(1, 2000), st.lists(st.text(min_size=1), min_size=1, unique=True).map(tuple)))
def test_a_domain_is_a_codebook_of_one_level(codes) -> None:
    """A codebook made of codes has each once, as text, sorted as all codebooks are."""
    codebook = Values("sex", codes).codebook()
    wanted = [str(code) for code in range(codes)] if isinstance(codes, int) else list(codes)
    assert codebook.columns == ["sex"]
    assert sorted(codebook["sex"]) == sorted(wanted)
    assert codebook.equals(codebook.sort("sex"))


def test_a_promise_of_distinct_records_names_a_level_of_features(load) -> None:
    """Records that are distinct at some refinement share every coarser node with at most so many others."""
    promise = ("privacy/max_records_per_unit", 4), ("privacy/exact_records_per_unit", True), ("privacy/distinct", "sex")
    plan = planned(load, *promise)  # (race, sex) has six cells, of which two lie below one race
    assert [level.l2_sensitivity_squared for level in plan.levels[1:]] == [2 * 2 * 2**2, 8, 8, 8, 8]
    assert plan.promised == (1, 1, 0, 0)
    plan = planned(
        load, ("release/finest", {"education-num": "stage"})
    )  # the others whole; records are coded by the finest
    assert [level.possible_cells for level in plan.levels] == [1, 3, 6, 12, 180]
    assert plan.source.axes[2].levels == ("stage", "grade")


def test_the_codebook_of_the_only_feature_may_have_its_name(load, tmp_path) -> None:
    """The column of a table's only feature may be a level of its codebook, but the table itself is no codebook."""
    one = ("input/features", ["grade"]), ("release/order", ["grade"])
    codebook = {"table": "education.csv", "levels": ["stage", "grade"]}
    plan = planned(load, *one, ("hierarchy", {"grade": codebook}))
    assert [level.possible_cells for level in plan.levels] == [1, 2, 4]
    with pytest.raises(InputError, match="must not be the confidential table"):
        planned(load, *one, ("hierarchy", {"grade": codebook}), ("input/table", "education.csv"))
    two = ("input/features", ["stage", "grade"]), ("release/order", ["stage", "grade"])
    with pytest.raises(InputError, match="has the columns of the confidential table"):
        planned(load, *two, ("hierarchy", {"stage": ["low", "high"], "grade": codebook}))


def test_flat_features_are_columns_of_their_own_name(load) -> None:
    """A feature of one level is a column of its name, whatever the level is called; others are called by level too."""
    spec = load(changed(("hierarchy/sex", {"table": "education.csv", "levels": ["grade"]})))
    flat = spec.spec.flat_features
    assert flat == flat_features(spec.published()) == {"sex", "race", "occupation"}
    assert column_name("sex", "grade", flat) == "sex"
    assert column_name("education-num", "stage", flat) == "education-num_stage"
    assert flat_features({"input": {"origin": "a"}, "hierarchy": {"origin": {"table": "a", "levels": ["b"]}}}) == set()
    assert flat_features({"input": "spoilt", "hierarchy": 3}) == set()


def test_the_published_spec_has_no_paths(load) -> None:
    """The spec is published as it was written, with the file names of codebooks and no folders."""
    domains = EXAMPLE["hierarchy"] | {"table": [1, 2]}
    features = [*FEATURES, "table"]
    keys = changed(("input/features", features), ("hierarchy", domains), ("release/order", features))
    keys["hierarchy"]["education-num"]["table"] = "../x/education.csv"
    published = load(keys).published()
    assert published["hierarchy"]["education-num"]["table"] == "education.csv"
    assert published["hierarchy"]["table"] == [1, 2]
    assert published["input"]["features"] == features


def test_records_can_be_asked_for_beside_the_spec(load) -> None:
    """What the command line asks for is a term of the release, so that a rerun keeps it; the spec stays as written."""
    file = load(EXAMPLE)
    plain, asked = make_plan(file), make_plan(file.with_records())
    assert (plain.terms.records, asked.terms.records) == (False, True)
    assert asked.file.text == file.text
    assert make_plan(load(changed(("release/records", True)))).terms.records


@given(depths=st.lists(st.integers(1, 4), min_size=1, max_size=6), data=st.data())
def test_features_are_refined_one_after_the_other(depths, data) -> None:
    """Each feature is refined as often as it has levels, in one go, in the order that was asked for."""
    order = data.draw(st.permutations(range(len(depths))))
    steps = in_sequence(depths, [(axis, depths[axis]) for axis in order])
    assert Counter(steps) == dict(enumerate(depths))
    assert list(dict.fromkeys(steps)) == list(order)
    assert list(steps) == sorted(steps, key=order.index)


HUGE = [1, *(2 ** (20 * features) for features in range(1, 61))]  # the last one is beyond every float


def test_bounds_and_sizes_of_universes_beyond_every_float() -> None:
    """However many cells there could be, bounds grow with their logarithm, and sizes with the records there can be."""
    sigmas = [0.0, *[3.0] * 60]
    bounds = chebyshev_bounds(gaussians(sigmas), HUGE)
    assert all(math.isfinite(bound) for bound in bounds)
    step = 6 * math.sqrt(2 * (math.log(120) + 1200 * math.log(2) - math.log(0.05)))
    assert bounds[60] - bounds[59] == pytest.approx(step, rel=0.05)
    assert [finest_above_noise(total, sigmas, HUGE) for total in (10**9, 1)] == [1, None]
    for total in (None, 10**6):
        assert all(of_level.nonzero <= 2.0**40 for of_level in expected_cells(HUGE, sigmas, total))
        with_records, without = (
            disk_size(HUGE, sigmas, total, finest_areas=[2**20] * 60, code_bytes=400.0, records=records)
            for records in (True, False)
        )
        assert with_records.upper_bound == (total is None)
        assert with_records.published > without.published


def test_a_plan_of_many_features_can_be_read(load, capsys) -> None:
    """A plan of many features has a line per level, which names what it refines, and numbers that fit it."""
    many = 20
    names = [f"f{feature}" for feature in range(many)]
    domains = {name: {"values": 1000} for name in names}
    plan = planned(load, ("input/features", names), ("hierarchy", domains), ("release/order", names))
    show_plan(plan_answer(plan))
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert [line[1] for line in lines if line and line[0].isdigit()] == ["everything", *names]
    assert f"1.000e+{3 * many}" in said
    assert f"levels 1 to {many}: records of one unit leave nodes" in said
    assert max(len(line) for line in said.splitlines() if line.startswith(" ")) <= 140  # of the table


def test_tables_of_levels_say_what_is_refined() -> None:
    """Trips have a column for each end; where very many features are refined at once, the first and the number of others stand."""
    levels = [{"origin": None, "destination": None}, {"origin": None, "destination": "cty"}]
    assert level_columns(levels) == {"origin": ["all", "all"], "destination": ["all", "cty"]}
    assert place(levels[1]) == "origin all, destination cty"
    axes = {f"f{number}": f"f{number}" for number in range(14)}
    assert level_columns([dict.fromkeys(axes), axes])["refined"] == ["everything", "f0, f1, f2, f3, 10 more"]


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 9))), min_size=1),
    st.integers(1, 5),
)
def test_records_are_rows_as_often_as_they_count(parts, chunk) -> None:
    """Each row of a table is so many records, in order, whatever the parts and chunks; no count leaves no record."""
    names = ("a", "b", "count")
    schema = pa.schema(dict(zip(names, (pa.string(), pa.string(), pa.int64()), strict=True)))
    tables = [pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in part], schema) for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic_records, "CHUNK_RECORDS", chunk)
        made = list(record_tables(tables, ["b"]))
    expected = [b for part in parts for _, b, count in part for _ in range(count)]
    assert [row["b"] for table in made for row in table.to_pylist()] == expected
    assert all(len(table) <= chunk for table in made)
    assert {tuple(table.column_names) for table in made} == {("b",)}


def test_records_are_written_as_they_are_many() -> None:
    """A few million records are CSV, more are Parquet, and a billion and more are left out."""
    sizes = [0, 5_000_000, 5_000_001, MOST_RECORDS, MOST_RECORDS + 1]
    assert [records_kind(size) for size in sizes] == ["csv", "csv", "parquet", "parquet", "left out"]
