"""The spec: what a person may write, and that whatever is wrong with it is refused by the name of its key."""

import copy
import math
from collections.abc import Callable
from functools import reduce
from itertools import combinations
from operator import attrgetter, getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from flows.spec.file import SpecFile, is_same_spec, load_spec, parse_spec, parse_target
from flows.spec.keys import Spec
from flows.spec.sections.input import Input
from flows.spec.sections.privacy import PrivacyKeys
from storage.errors import InputError, SpecError, UsageError

Keys = dict[str, Any]

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

LEVELS = ["cty", "trct", "bgrp", "tabblk2010"]
CODEBOOK = {"table": "codebook.csv", "levels": LEVELS}
PER_END = {"origin": CODEBOOK, "destination": {"table": "work.csv", "levels": ["region", "plant"]}}

ABSENT = "(absent)"  # stands for no key


def example() -> Keys:
    """Return the keys of the example spec."""
    keys: Keys = yaml.safe_load(EXAMPLE)
    return keys


def changed(*changes: tuple[str, object], keys: Keys | None = None) -> Keys:
    """Return a spec's keys with some of them, by dotted names, set to other values or taken out."""
    keys = example() if keys is None else copy.deepcopy(keys)
    for name, value in changes:
        *above, last = name.split(".")
        part = keys
        for key in above:
            part = part[key]
        if value is ABSENT:
            part.pop(last, None)
        else:
            part[last] = copy.deepcopy(value)
    return keys


def written_at(keys: Keys, name: str) -> Any:
    """Return what keys have at a dotted name."""
    return reduce(getitem, name.split("."), keys)


@pytest.fixture
def load(tmp_path: Path) -> Callable[[Keys | str | bytes], SpecFile]:
    """Return what writes a spec and loads it."""
    return lambda written: load_from(tmp_path / "specs", written)


def load_from(folder: Path, written: Keys | str | bytes) -> SpecFile:
    """Write a spec and load it."""
    folder.mkdir(exist_ok=True)
    text = yaml.safe_dump(written, sort_keys=False) if isinstance(written, dict) else written
    path = folder / "spec.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_spec(path)


def refusal(load: Callable[[Keys | str | bytes], SpecFile], written: Keys | str | bytes) -> SpecError:
    """Return the error with which a spec is refused."""
    with pytest.raises(SpecError) as refused:
        load(written)
    return refused.value


def test_example_loads(load):
    """The example of the documentation loads, with every key as written."""
    spec, written = load(EXAMPLE).spec, example()
    keys = ("name", "dataset", "mechanism", "output", "expected_total", "release.tree")
    keys += tuple(f"{section}.{key}" for section in ("privacy", "budget") for key in written[section])
    assert {key: attrgetter(key)(spec) for key in keys} == {key: written_at(written, key) for key in keys}
    assert (spec.input.origin, spec.input.destination, spec.input.count) == (["h_geocode"], ["w_geocode"], "S000")
    assert spec.levels("origin") == spec.levels("destination") == LEVELS
    assert spec.finest("origin") == spec.finest("destination") == "bgrp"


def test_shipped_spec_is_the_example(load):
    """The spec of Rhode Island that comes with the project asks for what the example asks for, with words for readers."""
    shipped = Path(__file__).parents[3] / "deployments" / "specs" / "rhode-island.yaml"
    found = load_spec(shipped).spec
    words = {key: getattr(found, key) for key in ("title", "description", "source")}
    assert all(words.values())
    titled = EXAMPLE.replace("dataset:", f"{yaml.safe_dump(words)}dataset:", 1)
    called = "called: {cty: county, trct: tract, bgrp: block group, tabblk2010: block}"
    labels = "labels: {cty: ctyname, trct: trctname, bgrp: bgrpname}"
    assert found == load(titled.replace("tabblk2010]}", f"tabblk2010], {called}, {labels}}}")).spec


DEFAULTS = {
    **dict.fromkeys(("budget", "same_people_as", "expected_total", "supersedes", "priority")),
    **dict.fromkeys(("input.count", "input.unit", "release.csv", "release.order")),
    **dict.fromkeys(("privacy.exact_records_per_unit", "privacy.distinct", "privacy.accountant")),
    "privacy.split": "uniform",
    "privacy.invariants": [],
    "privacy.i_accept_unprotected": False,
    "keep_noisy_counts": True,
    "keep_vault": False,
    "public_data": False,
    "release.records": False,
    "output": "out",
    "mechanism": "inftda_reconciled",
}


def test_optional_keys_may_be_left_out(load):
    """These keys, and no others, have defaults."""
    spec = load(changed(*((key, ABSENT) for key in DEFAULTS))).spec
    assert {key: attrgetter(key)(spec) for key in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Rome", "America/Havana", "Australia/Lord_Howe"])
def test_a_clock_that_changes_makes_no_second_run(load, timezone):
    """A schedule with one minute and one hour is accepted in every time zone, also where an hour happens twice."""
    for cron in ("30 2 * * *", "45 1 * * *", "30 0 * * *", "0 0 1 * 1", "59 23 29 2 *"):
        assert load(changed(("schedule", {"cron": cron, "timezone": timezone}))).spec.schedule.cron == cron


def test_a_stored_spec_keeps_a_schedule_of_before(load):
    """A release that was reserved with a schedule that is refused today can be continued: its spec can still be read."""
    text = yaml.safe_dump(changed(("schedule", {"cron": "0 */6 * * *"})))
    assert parse_spec(text, Path("spec.yaml")).spec.schedule.cron == "0 */6 * * *"


@given(data=st.data())
@settings(max_examples=25)
def test_any_unknown_key_is_named(tmp_path_factory, data):
    """Whatever the key, and wherever it stands, the refusal is about it."""
    where = data.draw(st.sampled_from(["", "input", "hierarchy", "release", "privacy", "budget"]))
    word = data.draw(st.from_regex(r"[A-Za-z_]{1,12}", fullmatch=True))
    keys = example()
    part = keys[where] if where else keys
    model = {"": Spec, "input": Input, "privacy": PrivacyKeys}.get(where)
    known = {"origin", "destination", *(model.model_fields if model else ())} | part.keys()
    assume(word not in known)
    part[word] = 1
    with pytest.raises(SpecError) as refused:
        load_from(tmp_path_factory.getbasetemp() / "unknown", keys)
    assert refused.value.field == f"{where}.{word}".lstrip(".")


def test_yaml_numbers_without_a_point_are_numbers(load):
    """`1e-8` is a number, although YAML 1.1 reads it as text."""
    assert isinstance(yaml.safe_load("1e-8"), str)
    keys = ("privacy.epsilon", "privacy.delta", "budget.epsilon", "budget.delta")
    spec = load(changed(*((key, "1e-8") for key in keys))).spec
    assert [attrgetter(key)(spec) for key in keys] == [1e-8] * 4


@given(
    epsilon=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    delta=st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True),
)
def test_every_useful_number_is_taken_as_it_is(epsilon, delta):
    """No positive finite epsilon, and no delta between zero and one, is refused or changed."""
    spec = Spec.model_validate(changed(("privacy.epsilon", epsilon), ("privacy.delta", delta)))
    assert (spec.privacy.epsilon, spec.privacy.delta) == (epsilon, delta)


Row = tuple[list[tuple[str, object]], str, str, str]


def row(key: str, value: object, said: str = "", *, field: str = "", hint: str = "", also: Keys | None = None) -> Row:
    """Return a change to the example beside others, the field that it is refused by, and words of the refusal and its hint."""
    return [*(also or {}).items(), (key, value)], field or key, said or field or key, hint


def rows(values: list[Any], *keys: str) -> list[Row]:
    """Return that each value of each key is refused by the key."""
    return [row(key, value) for key in keys for value in values]


DAILY = {"cron": "0 3 1 * *"}
ENDS = {"hierarchy": PER_END, "release.finest": {"origin": "bgrp", "destination": "plant"}}
COLUMNS = ["county", "tract", "group", "block"]
LAX = {"privacy.invariants": ["cty"], "privacy.i_accept_unprotected": True}
BUDGETS = {
    "privacy.epsilon": 4.0,
    "privacy.rho": 0.1,
    "privacy.target": {"level": "cty", "max_error": 50, "confidence": 0.95},
}
TARGET = {"privacy.epsilon": ABSENT, "privacy.target": BUDGETS["privacy.target"]}
NOT_POSITIVE = [0, 0.0, -1, -1e-300, math.inf, -math.inf, math.nan, True, False, "four", "", None, [4.0], {"is": 4}]
REFUSED = [
    # run, schedule and files
    row("run", {"max_memory": "1MB"}, "must be >= 256,000,000", field="run.max_memory"),
    row(
        "run", {"max_memory": "much"}, "run.max_memory must be bytes, such as 4GB, got “much”.", field="run.max_memory"
    ),
    row("noise", {"sampler": "dice"}, "opendp", field="noise.sampler"),
    row("run", {"workers": "cluster"}, "threads", field="run.workers"),
    row("schedule", DAILY | {"every": "month"}, "is not a key of the spec", field="schedule.every"),
    row("schedule", DAILY | {"timezone": "Rome"}, "must be a time zone such as", field="schedule.timezone"),
    row("schedule", {"cron": "noon"}, "must be five fields such as", field="schedule.cron"),
    row("schedule", DAILY | {"until": "0 releases"}, "must be a number of releases", field="schedule.until"),
    row("schedule", DAILY | {"until": "some day"}, "must be a number of releases", field="schedule.until"),
    row("schedule", {"timezone": "UTC"}, "must be given", field="schedule.cron"),
    *(
        row(
            "schedule",
            {"cron": cron, "timezone": timezone},
            f"must run at most once a day, because the id of a release holds the day; {cron} runs {runs}",
            field="schedule.cron",
            hint="trellis release",
        )
        for cron, timezone, runs in [
            ("0 */6 * * *", "UTC", "at 06:00 and at 12:00 on 2024-01-01 (UTC)"),
            ("*/30 3 * * *", "Europe/Rome", "at 03:00 and at 03:30"),
            ("0 3,15 29 2 *", "Europe/Rome", "at 03:00 and at 15:00 on 2024-02-29"),
            ("0 3,15 1 1 1", "America/Havana", "at 03:00 and at 15:00"),
        ]
    ),
    row("supersedes", "jobs-20250101T000000Z", "must be left out with a schedule", also={"schedule": DAILY}),
    row("supersedes", "", "must not be empty"),
    row("release.csv", "some", "release.csv must be true, false or every_level, got some."),
    row("release.csv", 1, "release.csv must be true, false or every_level, got 1."),
    # keys that the spec does not have, and keys that it needs
    *(
        row(key, "of no use", f"{key} is not a key of the spec.")
        for key in ("hierarchy.finest", "budget.rho", "Name", "delta", "str", "Hierarchy")
    ),
    *(row(f"hierarchy.{key}", "x", also=ENDS) for key in ("destination.finest", "origin.finest", "feature")),
    *(
        row(key, ABSENT, f"{key} must be given.")
        for key in [
            *("name", "dataset", "input", "hierarchy", "release", "privacy"),
            *("input.table", "input.origin", "input.destination", "hierarchy.levels"),
            *("release.tree", "release.finest", "privacy.unit", "privacy.neighbours", "privacy.max_records_per_unit"),
            *("privacy.delta", "budget.epsilon", "budget.delta"),
        ]
    ),
    row(
        "hierarchy.table",
        ABSENT,
        "hierarchy.table must be given: input.origin names one column, and without a codebook each of the levels cty, trct,"
        " bgrp, tabblk2010 needs its own.",
    ),
    row("release.finest", {"origin": "bgrp"}, "release.finest.destination", field="release.finest.destination"),
    row("release.finest", {"destination": "bgrp"}, "release.finest.origin", field="release.finest.origin"),
    row("hierarchy", {"origin": CODEBOOK}, field="hierarchy.destination"),
    row("hierarchy", {"destination": CODEBOOK}, field="hierarchy.origin"),
    # privacy
    *rows(NOT_POSITIVE, "privacy.epsilon", "budget.epsilon"),
    *rows([*NOT_POSITIVE, 1, 1.0, 1.5, "1", "1e-400"], "privacy.delta", "budget.delta"),
    *rows([0, -1, math.inf, True], "privacy.rho"),
    *(
        row(
            "privacy.epsilon",
            dict(given).get("privacy.epsilon", ABSENT),
            "privacy.epsilon, rho or target must be given, exactly one of them",
            also=dict(given),
        )
        for number in (0, 2, 3)
        for given in combinations(BUDGETS.items(), number)
    ),
    row("privacy.epsilon", "one", "privacy.epsilon must be a number, got “one”."),
    *rows(["addition", None], "privacy.neighbours"),
    row("privacy.unit", "", "privacy.unit must not be empty."),
    row("privacy.max_records_per_unit", 0, "privacy.max_records_per_unit must be >= 1, got 0."),
    row("privacy.max_records_per_unit", 2**20 + 1, "privacy.max_records_per_unit must be <= 1,048,576, got 1048577."),
    row("privacy.max_records_per_unit", "1", "privacy.max_records_per_unit must be a whole number, got “1”."),
    *rows([-1, 1.5, None, True], "privacy.max_records_per_unit"),
    *rows(["maybe", 2], "privacy.exact_records_per_unit"),
    *rows(["rdp", "PLD", 1], "privacy.accountant"),
    *rows(["county", ""], "privacy.distinct"),
    row("privacy.target.max_error", 0, also=TARGET),
    *(row("privacy.target.confidence", value, also=TARGET) for value in (1, 95)),
    row("privacy.target.level", None, also=TARGET),
    *rows(["even", [], {"arithmetic": 2}], "privacy.split"),
    row("privacy.split", [1, 0], field="privacy.split.1"),
    *(row("privacy.split", {law: 0}, field=f"privacy.split.{law}") for law in ("geometric", "finest")),
    row("privacy.invariants", ["cty"], "i_accept_unprotected: true"),
    row("privacy.neighbours", "add_remove", field="privacy.invariants", also=LAX),
    row("privacy", ["epsilon"], "privacy must be keys with values, got a list."),
    # input, hierarchy and release
    *rows(["", "S000", "h_geocode"], "input.unit"),
    row("input", None),
    row("input.table", 7, "input.table must be text, got 7; put it in quotes."),
    row("input.count", ["S000"]),
    row(
        "input.origin",
        [True],
        "input.origin.0 must be text, got true (YAML reads yes and on as true too); put it in quotes.",
        field="input.origin.0",
    ),
    *rows([COLUMNS[:3], [*COLUMNS, "room"], [], "h_geocode"], "input.destination"),
    row("input.destination", COLUMNS, also=ENDS),
    row("hierarchy", "codebook.csv"),
    row("hierarchy.levels", "cty", "hierarchy.levels must be a list, got “cty”."),
    *rows([[], ["cty", "cty", "bgrp"], None], "hierarchy.levels"),
    row("hierarchy.levels", [1, "bgrp"], field="hierarchy.levels.0"),
    row("hierarchy.labels", ["name"], "hierarchy.labels must be text or {level: text}, got a list."),
    row(
        "hierarchy.labels",
        {"cty": ["x"]},
        "hierarchy.labels.cty must be text, got a list.",
        field="hierarchy.labels.cty",
    ),
    row("hierarchy.boundaries", ["a.geojson"], "hierarchy.boundaries must be text or {level: text}, got a list."),
    row("release.tree", "both", "release.tree must be destination or origin, got “both”."),
    *rows([None, ["origin"]], "release.tree"),
    *(
        row("release.finest", finest, "cty, trct, bgrp, tabblk2010")
        for finest in ("county", "", {"origin": "bgrp", "destination": "county"})
    ),
    row("hierarchy", PER_END, field="release.finest"),
    # the rest
    *rows(["", "-a", "A", "a_b", "a b", "a/b", "../a", "a.b", "ä", "a\n", "a" * 65, 2019, None], "name", "dataset"),
    *rows(["A dataset", "lodes-ri-2019", 7], "same_people_as"),
    *rows([0, -1, 1.5, True, "many"], "expected_total"),
    row("keep_vault", "maybe", "keep_vault must be true or false, got “maybe”."),
    *rows(["maybe"], "keep_noisy_counts", "public_data"),
    *rows([1], "mechanism", "public_data"),
    row("output", None, "output must be text, got nothing."),
]


@pytest.mark.parametrize(("changes", "field", "said", "hint"), REFUSED, ids=lambda given: str(given)[:60])
def test_what_a_spec_cannot_say_is_refused_by_the_name_of_its_key(load, changes, field, said, hint):
    """What a key must be is said as a person would, with what the spec says; nothing is guessed or called as pydantic does."""
    error = refusal(load, changed(*changes))
    assert error.field == field
    assert said in str(error)
    assert hint in error.hint
    assert "<by" not in str(error)


@pytest.mark.parametrize(
    ("key", "value", "also"),
    [
        *((key, name, {}) for key in ("name", "dataset") for name in ("a", "0", "a-b-2019", "a" * 64)),
        *((key, value, {"privacy.epsilon": ABSENT}) for key, value in BUDGETS.items()),
        ("privacy.invariants", ["cty"], LAX),
        ("input.origin", COLUMNS, {}),
        ("input.destination", ["region", "plant"], ENDS),
        ("release.finest", {"origin": "cty", "destination": "tabblk2010"}, {}),
    ],
    ids=str,
)
def test_what_a_spec_may_say_beside_the_example(load, key, value, also):
    """Names fit for folders, any one of ε, ρ and a target, invariants that are accepted, a column for each level."""
    spec = load(changed(*also.items(), (key, value))).spec
    *above, last = key.split(".")
    of = getattr(spec, above[0]) if above else spec
    written = getattr(of, last)
    assert (written.model_dump() if isinstance(written, BaseModel) else written) == value
    assert [key for key in BUDGETS if getattr(spec.privacy, key.split(".")[1]) is not None] == [
        key if key in BUDGETS else "privacy.epsilon"
    ]


def test_each_end_has_its_own_codebook_and_finest_level(load):
    """The ends may have codebooks of their own, or different finest levels of one; each is sought in its own."""
    spec = load(changed(("hierarchy", PER_END), ("release.finest", {"origin": "trct", "destination": "plant"}))).spec
    assert (spec.levels("origin"), spec.levels("destination")) == (LEVELS, ["region", "plant"])
    assert spec.hierarchy_of("destination")[0] == "hierarchy.destination"
    spec = load(changed(("release.finest", {"origin": "cty", "destination": "tabblk2010"}))).spec
    assert (spec.finest("origin"), spec.finest("destination")) == ("cty", "tabblk2010")


@pytest.mark.parametrize(
    ("neighbours", "most", "exact", "public"),
    [
        ("substitution", 1, ABSENT, True),
        ("substitution", 3, ABSENT, False),
        ("substitution", 1, False, False),
        ("substitution", 3, True, True),
        ("add_remove", 1, ABSENT, False),
        ("add_remove", 3, False, False),
    ],
)
def test_the_total_is_public_only_where_no_neighbour_can_move_it(load, neighbours, most, exact, public):
    """Under substitution with exactly so many records per unit it is; exactness is the default for one record only."""
    keys = changed(
        ("privacy.neighbours", neighbours),
        ("privacy.max_records_per_unit", most),
        ("privacy.exact_records_per_unit", exact),
    )
    assert load(keys).spec.privacy.total_is_public is public


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("county=50@95%", ("county", 50, 0.95)),
        ("county=50@0.95", ("county", 50, 0.95)),
        ("block group=0.5@99.9%", ("block group", 0.5, 0.999)),
        *(
            (text, None)
            for text in ("", "county", "county=50", "county=50@", "county=x@95%", "county=-1@95%", "c=1@95")
        ),
    ],
)
def test_a_target_may_be_written_on_the_command_line(text, target):
    """LEVEL=ERROR@CONFIDENCE, the confidence as a part or in per cent; anything else is refused with an example."""
    if target:
        parsed = parse_target(text)
        assert (parsed.level, parsed.max_error, parsed.confidence) == target
        return
    with pytest.raises(UsageError) as refused:
        parse_target(text)
    assert refused.value.field == "--for"
    assert "county=50@95%" in refused.value.hint


def test_variables_need_no_quotes(load):
    """`${NAME}` stands without quotes inside braces and brackets as it does outside, and is published as it is written."""
    quoted = load(EXAMPLE)
    bare = load(EXAMPLE.replace('"', ""))
    assert bare.spec == quoted.spec
    assert bare.spec.input.table == "${TRELLIS_DATA}/lodes_ri_2019/ri_od_main_JT00_2019.csv.gz"
    assert bare.published() == quoted.published()
    assert bare.text == EXAMPLE.replace('"', "")
    assert is_same_spec(bare.text, quoted.text)
    whole = load(changed(("output", "${ONE}"), ("privacy.unit", "a job of ${A} {B} $C")))
    assert (whole.spec.output, whole.spec.privacy.unit) == ("${ONE}", "a job of ${A} {B} $C")


@pytest.mark.parametrize(
    ("written", "environment", "folder"),
    [
        ("${DATA}", {"DATA": "{here}/data"}, "data"),
        ("${DATA}", {"DATA": "data"}, "cwd/data"),
        ("data/${YEAR}", {"YEAR": "2019"}, "specs/data/2019"),
        ("./data", {}, "specs/data"),
        ("{here}/data", {}, "data"),
        ("$DATA/{YEAR}/$(YEAR)/${YEAR}", {"YEAR": "${DATA}", "DATA": "x"}, "specs/$DATA/{YEAR}/$(YEAR)/${DATA}"),
    ],
)
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
    file = load(
        changed(("input.table", f"{at}/trips.csv"), ("hierarchy.table", f"{at}/codes.csv"), ("output", f"{at}/out"))
    )
    assert file.source().table.path == tmp_path / folder / "trips.csv"
    assert file.source().axes[0].codebook.path == tmp_path / folder / "codes.csv"
    assert file.output() == tmp_path / folder / "out"


def test_unset_variables_are_refused(load, monkeypatch):
    """A variable that the environment does not have is named, with the key that wants it."""
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    with pytest.raises(SpecError, match="TRELLIS_DATA") as refused:
        load(EXAMPLE).source()
    assert refused.value.field in {"input.table", "hierarchy.table"}
    assert refused.value.hint == "Set TRELLIS_DATA."
    with pytest.raises(SpecError, match="TRELLIS_DATA") as refused:
        load(changed(("output", "${TRELLIS_DATA}/out"))).output()
    assert refused.value.field == "output"


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        ("trips.xls", "must end in"),
        ("trips.xlsx", "there is no file"),
        ("trips.xlsx::May", "there is no file"),
        ("trips.duckdb", "must end in"),
        ("trips.csv::inner", "must end in"),
        ("trips.csv", "there is no file"),
        ("trips.duckdb::trips", "there is no file"),
    ],
)
def test_tables_exist_and_are_of_a_known_kind(load, tmp_path, table, rule):
    """A table of another kind, or one that is not there, is refused by the key that names it."""
    load(EXAMPLE)
    (tmp_path / "specs" / "there.csv").touch()
    for key, other in (("input.table", "hierarchy.table"), ("hierarchy.table", "input.table")):
        with pytest.raises(InputError, match=rule) as refused:
            load(changed((key, table), (other, "there.csv"))).source()
        assert refused.value.field == key
        assert str(refused.value).startswith(key)


def test_published_spec_has_no_paths(load, tmp_path, monkeypatch):
    """What the manifest shows of the spec is as written, but for folders and expanded variables."""
    monkeypatch.setenv("TRELLIS_DATA", "/secret/place")
    published = load(EXAMPLE).published()
    assert published == changed(
        ("input.table", "ri_od_main_JT00_2019.csv.gz"),
        ("hierarchy.table", "ri_xwalk.csv.gz"),
        ("output", ABSENT),
        ("expected_total", ABSENT),
    )
    finest = {"origin": "bgrp", "destination": "plant"}
    codebooks = changed(
        ("origin.table", f"{tmp_path}/home.csv"), ("destination.table", "../x/work.csv"), keys=copy.deepcopy(PER_END)
    )
    per_end = changed(("hierarchy", codebooks), ("release.finest", finest), ("input.table", "~/db/trips.duckdb::trips"))
    published = load(per_end).published()
    assert published["input"]["table"] == "trips.duckdb::trips"
    assert published["hierarchy"]["origin"] == {"table": "home.csv", "levels": LEVELS}
    assert published["hierarchy"]["destination"]["table"] == "work.csv"
    assert "/" not in yaml.safe_dump(published)
    for_us = changed(("expected_total", 123_457), ("run", {"workers": "processes"}))
    assert load(for_us).published() == load(EXAMPLE).published()


@pytest.mark.parametrize(
    ("written", "said", "hint"),
    [
        *(
            (text, "", "")
            for text in ("name: [unclosed", "a: b: c", "\tname: x", "name: !!python/name:os.system x", "{")
        ),
        *((code, "", "") for code in (b"\xff\xfe\x00", b"a: \x00")),
        *((text, "mapping", "") for text in ("", "# only a remark\n", "- name\n- dataset\n", "a word", "4", "null")),
        (EXAMPLE.replace("one job", "one {job} a day"), "The spec is not YAML (line 7).", "in quotes"),
        ("input:\n\ttable: trips.csv\n", "not YAML (line 2)", "has a tab"),
        (f"name: {'[' * 20_000}{']' * 20_000}", "nested too deep", ""),
        (f"name: {'{a: ' * 20_000}{'}' * 20_000}", "nested too deep", ""),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_is_no_mapping_in_yaml_is_refused(load, written, said, hint):
    """A file that is no YAML, or wants to run code, or is nested too deep, is refused in a sentence with what to look at."""
    error = refusal(load, written)
    assert error.field == "SPEC"
    assert said in str(error)
    assert hint in error.hint
    assert "\n" not in str(error)


def test_a_spec_that_is_not_there_is_refused(tmp_path):
    """No file, or a folder in its place, is refused with the path."""
    for path in (tmp_path / "nothing.yaml", tmp_path):
        with pytest.raises(SpecError) as refused:
            load_spec(path)
        assert refused.value.field == "SPEC"
        assert str(path) in str(refused.value)


def paths_of(keys: Keys, above: str = "") -> list[str]:
    """Return the dotted name of every key of a spec."""
    names = []
    for key, value in keys.items():
        names.append(f"{above}{key}")
        if isinstance(value, dict):
            names += paths_of(value, f"{above}{key}.")
    return names


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.sampled_from(["", "x", "cty", "1e-8", "origin", "${UNSET}"]),
    st.lists(st.sampled_from(["cty", "trct", "x", 1, None]), max_size=5),
    st.dictionaries(
        st.sampled_from(["origin", "destination", "table", "levels", "x"]), st.text(max_size=3), max_size=3
    ),
    st.sampled_from([CODEBOOK, PER_END, {"origin": CODEBOOK}, {**PER_END, "x": 1}]),
)


@given(data=st.data())
def test_every_refusal_names_its_field(tmp_path_factory, data):
    """However a spec is spoilt, it loads or is refused with a field, in a sentence that names that field."""
    keys = example()
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(paths_of(keys)))
        keys = changed((name, data.draw(st.one_of(st.just(ABSENT), VALUES))), keys=keys)
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
