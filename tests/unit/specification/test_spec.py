"""The spec: what a person may write, how it is read, and what of it is published."""

from functools import reduce
from operator import attrgetter, getitem
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flows.specification.file import faults_of, is_same_spec, load_spec, parse_spec, parse_target
from flows.specification.keys import Spec
from flows.specification.sections.input import Input
from flows.specification.sections.privacy import PrivacyKeys
from storage.errors import SpecError, UsageError
from tests.support.keys import ABSENT, ADULT, changed, paths_of

EXAMPLE = """\
name: rhode-island-commuting
dataset: lodes-ri-2019
input: {table: "${TRELLIS_DATA}/lodes_ri_2019/ri_od_main_JT00_2019.csv.gz", origin: h_geocode, destination: w_geocode, count: S000}
hierarchy: {table: "${TRELLIS_DATA}/lodes_ri_2019/ri_xwalk.csv.gz", levels: [cty, trct, bgrp, tabblk2010]}
release: {tree: destination, finest: bgrp}       # block level would be mostly noise
mechanism: inftda
privacy: {unit: one job, neighbours: substitution, max_records_per_unit: 1, epsilon: 4.0, delta: 1.0e-8}
budget: {epsilon: 10.0, delta: 1.0e-7}
expected_total: 400000
output: out
"""
KEYS = yaml.safe_load(EXAMPLE)
LEVELS = ["cty", "trct", "bgrp", "tabblk2010"]
CODEBOOK = {"table": "codebook.csv", "levels": LEVELS}
PER_END = {"origin": CODEBOOK, "destination": {"table": "work.csv", "levels": ["region", "plant"]}}
ENDS = {"hierarchy": PER_END, "release.finest": {"origin": "trct", "destination": "plant"}}


@pytest.fixture
def load(tmp_path):
    """Return what writes a spec and loads it."""
    return lambda written: load_from(tmp_path / "specs", written)


def load_from(folder, written):
    """Write a spec and load it."""
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(written, sort_keys=False) if isinstance(written, dict) else written
    (folder / "spec.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return load_spec(folder / "spec.yaml")


def test_example_loads(load):
    """The example of the documentation loads, with every key as written."""
    spec = load(EXAMPLE).spec
    keys = ["name", "dataset", "mechanism", "output", "expected_total", "release.tree"]
    keys += [f"{section}.{key}" for section in ("privacy", "budget") for key in KEYS[section]]
    assert {key: attrgetter(key)(spec) for key in keys} == {key: reduce(getitem, key.split("."), KEYS) for key in keys}
    assert (spec.input.origin, spec.input.destination, spec.input.count) == (["h_geocode"], ["w_geocode"], "S000")
    for end in ("origin", "destination"):
        assert (spec.levels(end), spec.finest(end)) == (LEVELS, "bgrp")
    for name in ("a", "0", "a-b-2019", "a" * 64):
        assert load(KEYS | {"name": name}).spec.name == name


DEFAULTS = {
    **dict.fromkeys(("budget", "same_people_as", "expected_total", "supersedes", "priority")),
    **dict.fromkeys(("input.count", "input.unit", "release.csv", "release.order")),
    **dict.fromkeys(("privacy.exact_records_per_unit", "privacy.distinct", "privacy.accountant")),
    **dict.fromkeys(("privacy.i_accept_unprotected", "keep_vault", "public_data", "release.records"), False),
    "privacy.split": "uniform",
    "privacy.invariants": [],
    "keep_noisy_counts": True,
    "output": "out",
    "mechanism": "",
}


def test_optional_keys_may_be_left_out(load):
    """These keys, and no others, have defaults."""
    spec = load(changed(KEYS, dict.fromkeys(DEFAULTS, ABSENT))).spec
    assert {key: attrgetter(key)(spec) for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Rome", "America/Havana", "Australia/Lord_Howe"])
def test_a_clock_that_changes_makes_no_second_run(load, timezone):
    """A schedule with one minute and one hour is accepted in every time zone, also where an hour happens twice."""
    for cron in ("30 2 * * *", "45 1 * * *", "30 0 * * *", "0 0 1 * 1", "59 23 29 2 *"):
        assert load(KEYS | {"schedule": {"cron": cron, "timezone": timezone}}).spec.schedule.cron == cron


def test_a_stored_spec_keeps_a_schedule_of_before():
    """A release that was reserved with a schedule that is refused today can be continued: its spec can still be read."""
    text = yaml.safe_dump(KEYS | {"schedule": {"cron": "0 */6 * * *"}})
    assert parse_spec(text, Path("spec.yaml")).spec.schedule.cron == "0 */6 * * *"


@given(data=st.data())
@settings(max_examples=25)
def test_any_unknown_key_is_named(tmp_path_factory, data):
    """Whatever the key, and wherever it stands, the refusal is about it."""
    where = data.draw(st.sampled_from(["", "input", "hierarchy", "release", "privacy", "budget"]))
    word = data.draw(st.from_regex(r"[A-Za-z_]{1,12}", fullmatch=True))
    model = {"": Spec, "input": Input, "privacy": PrivacyKeys}.get(where)
    there = KEYS[where] if where else KEYS
    assume(word not in {"origin", "destination", *(model.model_fields if model else ()), *there})
    field = f"{where}.{word}".lstrip(".")
    with pytest.raises(SpecError) as refused:
        load_from(tmp_path_factory.getbasetemp() / "unknown", changed(KEYS, {field: 1}))
    assert refused.value.field == field


def test_yaml_numbers_without_a_point_are_numbers(load):
    """`1e-8` is a number, although YAML 1.1 reads it as text."""
    assert isinstance(yaml.safe_load("1e-8"), str)
    keys = ("privacy.epsilon", "privacy.delta", "budget.epsilon", "budget.delta")
    spec = load(changed(KEYS, dict.fromkeys(keys, "1e-8"))).spec
    assert [attrgetter(key)(spec) for key in keys] == [1e-8] * 4


@given(
    epsilon=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    delta=st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True),
)
def test_every_useful_number_is_taken_as_it_is(epsilon, delta):
    """No positive finite epsilon, and no delta between zero and one, is refused or changed."""
    spec = Spec.model_validate(changed(KEYS, {"privacy.epsilon": epsilon, "privacy.delta": delta}))
    assert (spec.privacy.epsilon, spec.privacy.delta) == (epsilon, delta)


def test_the_total_is_public_only_where_no_neighbour_can_move_it(load):
    """Under substitution with exactly so many records per unit it is; exactness is the default for one record only."""
    for neighbours, most, exact, public in (
        ("substitution", 1, ABSENT, True),
        ("substitution", 3, ABSENT, False),
        ("substitution", 1, False, False),
        ("substitution", 3, True, True),
        ("add_remove", 1, ABSENT, False),
        ("add_remove", 3, False, False),
    ):
        privacy = {"neighbours": neighbours, "max_records_per_unit": most, "exact_records_per_unit": exact}
        changes = {f"privacy.{key}": value for key, value in privacy.items()}
        assert load(changed(KEYS, changes)).spec.privacy.total_is_public is public


def test_a_target_may_be_written_on_the_command_line():
    """LEVEL=ERROR@CONFIDENCE, the confidence as a part or in per cent; anything else is refused with an example."""
    for text, target in {
        "county=50@95%": ("county", 50, 0.95),
        "county=50@0.95": ("county", 50, 0.95),
        "block group=0.5@99.9%": ("block group", 0.5, 0.999),
    }.items():
        parsed = parse_target(text)
        assert (parsed.level, parsed.max_error, parsed.confidence) == target
    for text in ("", "county", "county=50", "county=50@", "county=x@95%", "county=-1@95%", "c=1@95"):
        with pytest.raises(UsageError) as refused:
            parse_target(text)
        assert refused.value.field == "--for"
        assert "county=50@95%" in refused.value.hint


def test_variables_need_no_quotes(load):
    """`${NAME}` stands without quotes inside braces and brackets as it does outside, and is published as it is written."""
    quoted, bare = load(EXAMPLE), load(EXAMPLE.replace('"', ""))
    assert bare.spec == quoted.spec
    assert bare.spec.input.table == "${TRELLIS_DATA}/lodes_ri_2019/ri_od_main_JT00_2019.csv.gz"
    assert bare.published() == quoted.published()
    assert bare.text == EXAMPLE.replace('"', "")
    assert is_same_spec(bare.text, quoted.text)
    whole = load(changed(KEYS, {"output": "${ONE}", "privacy.unit": "a job of ${A} {B} $C"}))
    assert (whole.spec.output, whole.spec.privacy.unit) == ("${ONE}", "a job of ${A} {B} $C")


@pytest.mark.parametrize(("written", "environment", "folder"), [
    ("${DATA}", {"DATA": "{here}/data"}, "data"),
    ("${DATA}", {"DATA": "data"}, "cwd/data"),
    ("data/${YEAR}", {"YEAR": "2019"}, "specs/data/2019"),
    ("{here}/data", {}, "data"),
    ("$DATA/{YEAR}/$(YEAR)/${YEAR}", {"YEAR": "${DATA}", "DATA": "x"}, "specs/$DATA/{YEAR}/$(YEAR)/${DATA}"),
])  # fmt: skip
def test_paths(load, tmp_path, monkeypatch, written, environment, folder):
    """A path is sought from the spec's folder, or from the working directory if it begins with a variable; other text stays."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("{here}", str(tmp_path)))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    (tmp_path / folder).mkdir(parents=True)
    for name in ("trips.csv", "codes.csv"):
        (tmp_path / folder / name).touch()
    at = written.replace("{here}", str(tmp_path))
    places = {"input.table": f"{at}/trips.csv", "hierarchy.table": f"{at}/codes.csv", "output": f"{at}/out"}
    file = load(changed(KEYS, places))
    assert file.source().table.path == tmp_path / folder / "trips.csv"
    assert file.source().axes[0].codebook.path == tmp_path / folder / "codes.csv"
    assert file.output() == tmp_path / folder / "out"


def test_published_spec_has_no_paths(load, tmp_path, monkeypatch):
    """What the manifest shows of the spec is as written, but for folders and expanded variables."""
    monkeypatch.setenv("TRELLIS_DATA", "/secret/place")
    names = {"input.table": "ri_od_main_JT00_2019.csv.gz", "hierarchy.table": "ri_xwalk.csv.gz"}
    assert load(EXAMPLE).published() == changed(KEYS, names | {"output": ABSENT, "expected_total": ABSENT})
    tables = {"origin": f"{tmp_path}/home.csv", "destination": "../x/work.csv"}
    per_end = ENDS | {f"hierarchy.{end}.table": table for end, table in tables.items()}
    published = load(changed(KEYS, per_end | {"input.table": "~/db/trips.duckdb::trips"})).published()
    assert published["input"]["table"] == "trips.duckdb::trips"
    assert published["hierarchy"]["origin"] == {"table": "home.csv", "levels": LEVELS}
    assert published["hierarchy"]["destination"]["table"] == "work.csv"
    assert "/" not in yaml.safe_dump(published)
    published = load(changed(ADULT, {"hierarchy.education.table": "../x/education.csv"})).published()
    assert published["hierarchy"] == changed(ADULT, {"hierarchy.education.table": "education.csv"})["hierarchy"]
    for_us = changed(KEYS, {"expected_total": 123_457, "run": {"workers": "processes"}})
    assert load(for_us).published() == load(EXAMPLE).published()


@pytest.mark.parametrize(("written", "said", "hint"), [
    *((text, "", "") for text in ("name: [unclosed", "a: b: c", "\tname: x", "name: !!python/name:os.system x")),
    *((code, "", "") for code in (b"\xff\xfe\x00", b"a: \x00")),
    *((text, "mapping", "") for text in ("", "# only a remark\n", "- name\n- dataset\n", "a word", "4", "null")),
    (EXAMPLE.replace("one job", "one {job} a day"), "The spec is not YAML (line 7).", "in quotes"),
    ("input:\n\ttable: trips.csv\n", "not YAML (line 2)", "has a tab"),
    (f"name: {'[' * 20_000}{']' * 20_000}", "nested too deep", ""),
    (f"name: {'{a: ' * 20_000}{'}' * 20_000}", "nested too deep", ""),
], ids=lambda given: str(given)[:40])  # fmt: skip
def test_what_is_no_mapping_in_yaml_is_refused(load, written, said, hint):
    """A file that is no YAML, or wants to run code, or is nested too deep, is refused in a sentence with what to look at."""
    with pytest.raises(SpecError) as refused:
        load(written)
    assert refused.value.field == "SPEC"
    assert said in str(refused.value)
    assert hint in refused.value.hint
    assert "\n" not in str(refused.value)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["", "x", "cty", "1e-8", "origin", "stage", "${UNSET}"]),
    st.lists(st.sampled_from(["cty", "trct", "x", 1, None, ["sex"]]), max_size=5),
    st.dictionaries(
        st.sampled_from(["origin", "destination", "table", "levels", "x"]), st.text(max_size=3), max_size=3
    ),
    st.sampled_from([CODEBOOK, PER_END, {"origin": CODEBOOK}, {**PER_END, "x": 1}, {1: {"values": 2}}, {"values": 2}]),
)


@given(data=st.data())
@settings(max_examples=50)
def test_every_refusal_names_its_field(tmp_path_factory, data):
    """However a spec of trips or of features is spoilt, it loads or is refused with a field, in a sentence that names that field."""
    keys = changed(data.draw(st.sampled_from([KEYS, ADULT])), {"release.records": False})
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from([*paths_of(keys)]))
        keys = changed(keys, {name: data.draw(st.one_of(st.just(ABSENT), VALUES))})
        if not keys:
            break
    try:
        load_from(tmp_path_factory.getbasetemp() / "spoilt", keys)
    except SpecError as refused:
        error = refused
    else:
        return
    assert error.field
    assert error.field == "SPEC" or error.field in str(error)


CODES = {"sex": "{values: [01, 02]}", "race": "[010, 0x1f, 1:30, +1, 1_000, -5, 0, 12, '07']"}


def test_codes_are_as_they_are_written(load, tmp_path):
    """What YAML would take for other numbers, octal, sexagesimal or with a sign, is the code that stands there."""
    text = yaml.safe_dump(changed(ADULT, {f"hierarchy.{name}": f"<{name}>" for name in CODES}))
    for name, codes in CODES.items():
        text = text.replace(f"<{name}>", codes)
    file = load(text)
    assert file.spec.hierarchy["sex"].values == ("01", "02")
    assert file.spec.hierarchy["race"].values == ("010", "0x1f", "1:30", "+1", "1_000", "-5", "0", "12", "07")
    assert load(file.published()).spec.hierarchy == file.spec.hierarchy
    for codes, told in {"010": "or a list of codes, got 010", "&codes [01, *codes]": "must list codes as text"}.items():
        with pytest.raises(SpecError, match=told):
            load(text.replace("[01, 02]", codes))
    told = [str(fault) for fault in faults_of(text.replace("  sex:", "  7: [1]\n  sex:"))]
    assert "hierarchy.7: a name must be text, got 7; put it in quotes." in told


def test_a_list_of_formats_says_whether_there_is_csv(load):
    """With a list, there is CSV where it lists csv or release.csv asks for it; without a list, release.csv decides."""
    for release, csv, more in (
        ({}, None, ()),
        ({"csv": True}, True, ()),
        ({"formats": []}, None, ()),
        ({"formats": ["parquet"]}, False, ()),
        ({"formats": ["csv", "parquet", "omx"]}, True, ("omx",)),
        ({"formats": ["xlsx"], "csv": "every_level"}, "every_level", ("xlsx",)),
        ({"formats": ["xlsx"], "csv": False}, False, ("xlsx",)),
    ):
        found = load(KEYS | {"release": KEYS["release"] | release}).spec.release
        assert (found.as_csv, found.more_formats) == (csv, more)
