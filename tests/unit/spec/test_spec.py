"""The spec: what a person may write, and that whatever is wrong with it is refused by the name of its key."""

import copy
import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.spec.file import SpecFile, expand_variables, is_same_spec, load_spec, parse_spec, parse_target
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

ABSENT = object()


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
    spec = load(EXAMPLE).spec
    assert (spec.name, spec.dataset, spec.mechanism) == ("rhode-island-commuting", "lodes-ri-2019", "inftda")
    assert (spec.input.origin, spec.input.destination, spec.input.count) == (["h_geocode"], ["w_geocode"], "S000")
    assert spec.levels("origin") == spec.levels("destination") == LEVELS
    assert spec.release.tree == "destination"
    assert spec.finest("origin") == spec.finest("destination") == "bgrp"
    assert (spec.privacy.epsilon, spec.privacy.delta) == (4.0, 1e-8)
    assert (spec.privacy.unit, spec.privacy.neighbours, spec.privacy.max_records_per_unit) == (
        "one job",
        "substitution",
        1,
    )
    assert spec.budget
    assert (spec.budget.epsilon, spec.budget.delta) == (10.0, 1e-7)
    assert spec.output == "out"


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


@pytest.mark.parametrize(
    ("key", "default"),
    [
        *(
            (key, None)
            for key in ("budget", "same_people_as", "expected_total", "input.count", "input.unit", "supersedes")
        ),
        *((f"privacy.{key}", None) for key in ("exact_records_per_unit", "distinct", "accountant")),
        ("privacy.split", "uniform"),
        ("privacy.invariants", []),
        ("privacy.i_accept_unprotected", False),
        ("keep_noisy_counts", True),
        ("keep_vault", False),
        ("public_data", False),
        ("output", "out"),
        ("mechanism", "inftda_reconciled"),
        ("priority", None),
        *((f"release.{key}", None) for key in ("csv", "order")),
        ("release.records", False),
    ],
)
def test_optional_keys_may_be_left_out(load, key, default):
    """These keys, and no others, have defaults."""
    value: Any = load(changed((key, ABSENT))).spec
    for part in key.split("."):
        value = getattr(value, part)
    assert value == default


UNKNOWN = {
    "hierarchy.finest": "bgrp",
    "budget.rho": 1.0,
    "Name": "rhode-island-commuting",
    "delta": 1e-8,
    "str": "a word that the code uses for itself",
    "Hierarchy": "and another",
}


@pytest.mark.parametrize(
    ("key", "given", "field", "said"),
    [
        ("run", {"max_memory": "1MB"}, "run.max_memory", "must be >= 256,000,000"),
        ("run", {"max_memory": "much"}, "run.max_memory", "must be bytes, such as 4GB"),
        ("noise", {"sampler": "dice"}, "noise.sampler", "opendp"),
        ("run", {"workers": "cluster"}, "run.workers", "threads"),
        ("schedule", {"cron": "0 3 1 * *", "every": "month"}, "schedule.every", "is not a key of the spec"),
        ("schedule", {"cron": "0 3 1 * *", "timezone": "Rome"}, "schedule.timezone", "must be a time zone such as"),
        ("schedule", {"cron": "noon"}, "schedule.cron", "must be five fields such as"),
        ("schedule", {"cron": "0 3 1 * *", "until": "0 releases"}, "schedule.until", "must be a number of releases"),
        ("schedule", {"cron": "0 3 1 * *", "until": "some day"}, "schedule.until", "must be a number of releases"),
        ("schedule", {"timezone": "UTC"}, "schedule.cron", "must be given"),
        ("release.csv", "some", "release.csv", "release.csv must be true, false or every_level, got some."),
        ("release.csv", 1, "release.csv", "release.csv must be true, false or every_level, got 1."),
        ("supersedes", "", "supersedes", "must not be empty"),
    ],
)
def test_what_run_and_schedule_cannot_be(load, key, given, field, said):
    """Workers, cron expressions, time zones and ends of a series are checked when the spec is read."""
    error = refusal(load, changed((key, given)))
    assert error.field == field
    assert said in str(error)


@pytest.mark.parametrize(
    ("cron", "timezone", "said"),
    [
        ("0 */6 * * *", "UTC", "runs at 06:00 and at 12:00 on 2024-01-01 (UTC)"),
        ("*/30 3 * * *", "Europe/Rome", "runs at 03:00 and at 03:30"),
        ("0 3,15 29 2 *", "Europe/Rome", "on 2024-02-29"),
        ("0 3,15 1 1 1", "America/Havana", "runs at 03:00 and at 15:00"),
    ],
)
def test_a_schedule_runs_once_a_day(load, cron, timezone, said):
    """A second run on any day is refused with both times and the next step: a release id holds the day."""
    error = refusal(load, changed(("schedule", {"cron": cron, "timezone": timezone})))
    assert error.field == "schedule.cron"
    assert "must run at most once a day, because the id of a release holds the day" in str(error)
    assert said in str(error)
    assert "trellis release" in error.hint


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Rome", "America/Havana", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "45 1 * * *", "30 0 * * *", "0 0 1 * 1", "59 23 29 2 *"])
def test_a_clock_that_changes_makes_no_second_run(load, cron, timezone):
    """A schedule with one minute and one hour is accepted in every time zone, also where an hour happens twice."""
    assert load(changed(("schedule", {"cron": cron, "timezone": timezone}))).spec.schedule.cron == cron


def test_a_stored_spec_keeps_a_schedule_of_before(load):
    """A release that was reserved with a schedule that is refused today can be continued: its spec can still be read."""
    text = yaml.safe_dump(changed(("schedule", {"cron": "0 */6 * * *"})))
    assert parse_spec(text, Path("spec.yaml")).spec.schedule.cron == "0 */6 * * *"


def test_a_schedule_supersedes_nothing(load):
    """Of the releases of a schedule one alone could take another's place, so that the two keys are refused together."""
    error = refusal(load, changed(("schedule", {"cron": "0 3 1 * *"}), ("supersedes", "jobs-20250101T000000Z")))
    assert error.field == "supersedes"
    assert "must be left out with a schedule" in str(error)


@pytest.mark.parametrize("key", UNKNOWN)
def test_unknown_keys_are_refused(load, key):
    """A key that the spec does not have, or does not have yet, is refused by its name."""
    error = refusal(load, changed((key, UNKNOWN[key])))
    assert error.field == key
    assert str(error) == f"{key} is not a key of the spec."


@pytest.mark.parametrize("key", ["hierarchy.destination.finest", "hierarchy.origin.finest", "hierarchy.feature"])
def test_unknown_keys_of_one_end_are_refused(load, key):
    """With a codebook for each end, an unknown key of one of them is refused by its own name."""
    per_end = changed(("hierarchy", PER_END), ("release.finest", {"origin": "bgrp", "destination": "plant"}))
    error = refusal(load, changed((key, "bgrp"), keys=per_end))
    assert error.field == key
    assert key in str(error)


@given(data=st.data())
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


@pytest.mark.parametrize(
    "key",
    [
        *("name", "dataset", "input", "hierarchy", "release", "privacy"),
        *("input.table", "input.origin", "input.destination", "hierarchy.levels"),
        *("release.tree", "release.finest", "privacy.unit", "privacy.neighbours", "privacy.max_records_per_unit"),
        *("privacy.delta", "budget.epsilon", "budget.delta"),
    ],
)
def test_missing_keys_are_refused(load, key):
    """A key that every spec needs is missed by its name."""
    error = refusal(load, changed((key, ABSENT)))
    assert error.field == key
    assert str(error) == f"{key} must be given."


def test_a_codebook_is_missed_where_one_column_has_the_codes(load):
    """Without it only a column per level tells where an area lies; the error says so by the name of its key."""
    error = refusal(load, changed(("hierarchy.table", ABSENT)))
    assert error.field == "hierarchy.table"
    assert str(error) == (
        "hierarchy.table must be given: input.origin names one column, and without a codebook each of the levels cty, trct,"
        " bgrp, tabblk2010 needs its own."
    )


@pytest.mark.parametrize("end", ["origin", "destination"])
def test_missing_ends_are_refused(load, end):
    """A codebook or a finest level for one end alone is refused by the name of the other."""
    other = "destination" if end == "origin" else "origin"
    finest = refusal(load, changed(("release.finest", {end: "bgrp"})))
    assert f"release.finest.{other}" in str(finest)
    codebook = refusal(load, changed(("hierarchy", {end: CODEBOOK})))
    assert f"hierarchy.{other}" in str(codebook)


NOT_POSITIVE = [0, 0.0, -1, -1e-300, math.inf, -math.inf, math.nan, True, False, "four", "", None, [4.0], {"is": 4}]


@pytest.mark.parametrize("key", ["privacy.epsilon", "budget.epsilon"])
@pytest.mark.parametrize("value", NOT_POSITIVE, ids=repr)
def test_epsilon_is_a_finite_number_above_zero(load, key, value):
    """Zero, negative and infinite ones, no number, and booleans are refused."""
    error = refusal(load, changed((key, value)))
    assert error.field == key
    assert key in str(error)


@pytest.mark.parametrize("key", ["privacy.delta", "budget.delta"])
@pytest.mark.parametrize("value", [*NOT_POSITIVE, 1, 1.0, 1.5, "1", "1e-400"], ids=repr)
def test_delta_is_between_zero_and_one(load, key, value):
    """Zero, one, what lies outside of them, no number, and booleans are refused."""
    error = refusal(load, changed((key, value)))
    assert error.field == key
    assert key in str(error)


@pytest.mark.parametrize("key", ["privacy.epsilon", "privacy.delta", "budget.epsilon", "budget.delta"])
def test_yaml_numbers_without_a_point_are_numbers(load, key):
    """`1e-8` is a number, although YAML 1.1 reads it as text."""
    text = changed((key, "1e-8"))
    assert isinstance(yaml.safe_load("1e-8"), str)
    section, last = key.split(".")
    assert getattr(getattr(load(text).spec, section), last) == 1e-8


@given(
    epsilon=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    delta=st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True),
)
def test_every_useful_number_is_taken_as_it_is(epsilon, delta):
    """No positive finite epsilon, and no delta between zero and one, is refused or changed."""
    spec = Spec.model_validate(changed(("privacy.epsilon", epsilon), ("privacy.delta", delta)))
    assert (spec.privacy.epsilon, spec.privacy.delta) == (epsilon, delta)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("privacy.neighbours", value) for value in ("addition", None)),
        *(("privacy.max_records_per_unit", value) for value in (0, -1, 2**20 + 1, 1.5, "1", None, True)),
        *(("privacy.exact_records_per_unit", value) for value in ("maybe", 2)),
        *(("privacy.accountant", value) for value in ("rdp", "PLD", 1)),
        *(("privacy.rho", value) for value in (0, -1, math.inf, True)),
        *(("expected_total", value) for value in (0, -1, 1.5, True, "many")),
        *(("same_people_as", value) for value in ("A dataset", "lodes-ri-2019", 7)),
        ("privacy.distinct", "county"),
        ("privacy.distinct", ""),
        ("input.unit", ""),
        ("input.unit", "S000"),
        ("input.unit", "h_geocode"),
        ("keep_noisy_counts", "maybe"),
        ("privacy.unit", ""),
        *(("release.tree", value) for value in ("both", None, ["origin"])),
        ("mechanism", 1),
        ("keep_vault", "maybe"),
        *(("public_data", value) for value in ("maybe", 1)),
        ("output", None),
        ("input", None),
        ("privacy", ["epsilon"]),
        ("hierarchy", "codebook.csv"),
        ("input.table", 7),
        ("input.count", ["S000"]),
    ],
)
def test_values_of_another_kind_are_refused(load, key, value):
    """A value that a key cannot have is refused by the key's name; nothing is guessed."""
    error = refusal(load, changed((key, value)))
    assert error.field == key
    assert key in str(error)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("privacy.max_records_per_unit", 0, "privacy.max_records_per_unit must be >= 1, got 0."),
        ("privacy.max_records_per_unit", 2**20 + 1, "privacy.max_records_per_unit must be <= 1,048,576, got 1048577."),
        ("privacy.max_records_per_unit", "1", "privacy.max_records_per_unit must be a whole number, got “1”."),
        ("privacy.epsilon", "one", "privacy.epsilon must be a number, got “one”."),
        ("privacy.unit", "", "privacy.unit must not be empty."),
        ("privacy", ["epsilon"], "privacy must be keys with values, got a list."),
        ("release.tree", "both", "release.tree must be destination or origin, got “both”."),
        ("input.table", 7, "input.table must be text, got 7; put it in quotes."),
        (
            "input.origin",
            [True],
            "input.origin.0 must be text, got true (YAML reads yes and on as true too); put it in quotes.",
        ),
        ("hierarchy.levels", "cty", "hierarchy.levels must be a list, got “cty”."),
        ("keep_vault", "maybe", "keep_vault must be true or false, got “maybe”."),
        ("run", {"max_memory": "much"}, "run.max_memory must be bytes, such as 4GB, got “much”."),
        ("hierarchy.labels", ["name"], "hierarchy.labels must be text or {level: text}, got a list."),
        ("hierarchy.labels", {"cty": ["name"]}, "hierarchy.labels.cty must be text, got a list."),
        ("hierarchy.boundaries", ["a.geojson"], "hierarchy.boundaries must be text or {level: text}, got a list."),
        ("output", None, "output must be text, got nothing."),
    ],
)
def test_a_refusal_is_in_words(load, key, value, said):
    """What a key must be is said as a person would, with what the spec says, and what to do about what YAML made of it."""
    error = refusal(load, changed((key, value)))
    assert (str(error), error.field) == (said, said.partition(" ")[0])


BUDGETS = {
    "privacy.epsilon": 4.0,
    "privacy.rho": 0.1,
    "privacy.target": {"level": "cty", "max_error": 50, "confidence": 0.95},
}


@pytest.mark.parametrize("given", [[], *map(list, combinations(BUDGETS, 2)), list(BUDGETS)], ids=" and ".join)
def test_exactly_one_of_epsilon_rho_and_target_is_given(load, given):
    """None of them is refused, two are, and all three."""
    error = refusal(load, changed(("privacy.epsilon", ABSENT), *((key, BUDGETS[key]) for key in given)))
    assert error.field == "privacy.epsilon"
    assert str(error).startswith("privacy.epsilon, rho or target must be given, exactly one of them")


@pytest.mark.parametrize("given", BUDGETS)
def test_any_one_of_epsilon_rho_and_target_will_do(load, given):
    """Each of them by itself is taken as it is."""
    keys = load(changed(("privacy.epsilon", ABSENT), (given, BUDGETS[given]))).spec.privacy
    assert [key for key in ("epsilon", "rho", "target") if getattr(keys, key) is not None] == [given.split(".")[1]]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("privacy.target.max_error", 0),
        ("privacy.target.confidence", 1),
        ("privacy.target.confidence", 95),
        ("privacy.target.level", None),
        ("privacy.split", "even"),
        ("privacy.split", []),
        ("privacy.split", [1, 0]),
        ("privacy.split", {"geometric": 0}),
        ("privacy.split", {"finest": 0}),
        ("privacy.split", {"arithmetic": 2}),
    ],
)
def test_a_target_or_a_split_beyond_use_is_refused(load, key, value):
    """Their parts are checked as any key, and the refusal names the part."""
    error = refusal(
        load, changed(("privacy.epsilon", ABSENT), ("privacy.target", BUDGETS["privacy.target"]), (key, value))
    )
    assert error.field.startswith(key)
    assert "<by" not in str(error)  # as pydantic is told to call the alternatives


def test_invariants_must_be_accepted_in_so_many_words(load):
    """Levels published exactly are refused without the acceptance, and under add_remove even with it."""
    error = refusal(load, changed(("privacy.invariants", ["cty"])))
    assert error.field == "privacy.invariants"
    assert "i_accept_unprotected: true" in str(error)
    accepted = changed(("privacy.invariants", ["cty"]), ("privacy.i_accept_unprotected", True))
    assert load(accepted).spec.privacy.invariants == ["cty"]
    under_add_remove = changed(("privacy.neighbours", "add_remove"), keys=accepted)
    assert refusal(load, under_add_remove).field == "privacy.invariants"


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
    ],
)
def test_a_target_may_be_written_on_the_command_line(text, target):
    """LEVEL=ERROR@CONFIDENCE, the confidence as a part or in per cent."""
    parsed = parse_target(text)
    assert (parsed.level, parsed.max_error, parsed.confidence) == target


@pytest.mark.parametrize("text", ["", "county", "county=50", "county=50@", "county=x@95%", "county=-1@95%", "c=1@95"])
def test_a_target_that_is_none_is_refused(text):
    """Anything else is refused with an example."""
    with pytest.raises(UsageError) as refused:
        parse_target(text)
    assert refused.value.field == "--for"
    assert "county=50@95%" in refused.value.hint


@pytest.mark.parametrize("finest", ["county", "", {"origin": "bgrp", "destination": "county"}])
def test_finest_must_be_a_level(load, finest):
    """A finest level that the codebook does not have is refused with the levels that it has."""
    error = refusal(load, changed(("release.finest", finest)))
    assert error.field == "release.finest"
    assert "cty, trct, bgrp, tabblk2010" in str(error)


def test_each_end_has_its_own_finest(load):
    """The ends may be released down to different levels of one codebook."""
    spec = load(changed(("release.finest", {"origin": "cty", "destination": "tabblk2010"}))).spec
    assert (spec.finest("origin"), spec.finest("destination")) == ("cty", "tabblk2010")


def test_each_end_has_its_own_codebook(load):
    """The ends may have codebooks of their own, and each finest level is sought in its own."""
    finest = {"origin": "trct", "destination": "plant"}
    spec = load(changed(("hierarchy", PER_END), ("release.finest", finest))).spec
    assert (spec.levels("origin"), spec.levels("destination")) == (LEVELS, ["region", "plant"])
    assert spec.hierarchy_of("destination")[0] == "hierarchy.destination"
    assert refusal(load, changed(("hierarchy", PER_END))).field == "release.finest"


def test_columns_are_one_or_one_per_level(load):
    """An end has one column of finest codes, or exactly one column for each level of its codebook."""
    columns = ["county", "tract", "group", "block"]
    assert load(changed(("input.origin", columns))).spec.input.origin == columns
    for wrong in (columns[:3], [*columns, "room"], []):
        error = refusal(load, changed(("input.destination", wrong)))
        assert error.field == "input.destination"
        assert "input.destination" in str(error)
    per_end = changed(("hierarchy", PER_END), ("release.finest", {"origin": "bgrp", "destination": "plant"}))
    assert load(changed(("input.destination", ["region", "plant"]), keys=per_end))
    assert refusal(load, changed(("input.destination", columns), keys=per_end)).field == "input.destination"


def test_both_ends_of_one_column_are_refused(load):
    """A trip from a column to itself is a slip of the pen."""
    assert refusal(load, changed(("input.destination", "h_geocode"))).field == "input.destination"


@pytest.mark.parametrize("levels", [[], ["cty", "cty", "bgrp"], "bgrp", [1, "bgrp"], None])
def test_levels_are_a_list_of_different_names(load, levels):
    """No level, a level twice, or what is no list of names is refused."""
    error = refusal(load, changed(("hierarchy.levels", levels)))
    assert error.field.startswith("hierarchy.levels")
    assert "hierarchy.levels" in str(error)


@pytest.mark.parametrize("key", ["name", "dataset"])
def test_names_are_fit_for_folders(load, key):
    """A name is at most 64 lower-case letters, digits and hyphens; it begins with no hyphen and leads nowhere else."""
    for fit in ("a", "0", "a-b-2019", "a" * 64):
        assert getattr(load(changed((key, fit))).spec, key) == fit
    for unfit in ("", "-a", "A", "a_b", "a b", "a/b", "../a", "a.b", "ä", "a\n", "a" * 65, 2019, None):
        error = refusal(load, changed((key, unfit)))
        assert error.field == key
        assert key in str(error)


def write_tables(folder: Path) -> None:
    """Write empty files where the example's tables are sought."""
    for name in ("ri_od_main_JT00_2019.csv.gz", "ri_xwalk.csv.gz"):
        path = folder / "lodes_ri_2019" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


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


def test_what_is_no_yaml_says_what_to_look_at(load):
    """A text with braces of another kind is refused by its line, and the hint says that such texts need quotes."""
    error = refusal(load, EXAMPLE.replace("one job", "one {job} a day"))
    assert (str(error), error.field) == ("The spec is not YAML (line 7).", "SPEC")
    assert "in quotes" in error.hint


@pytest.mark.parametrize("brackets", ["[", "{a: "])
def test_a_spec_that_is_nested_too_deep_is_refused(brackets: str) -> None:
    """Twenty thousand brackets are a fault of the spec, and none of the program."""
    closing = {"[": "]", "{a: ": "}"}[brackets]
    with pytest.raises(SpecError, match="nested too deep") as refusal:
        parse_spec(f"name: {brackets * 20_000}{closing * 20_000}", Path("spec.yaml"))
    assert refusal.value.field == "SPEC"


def test_a_tab_before_a_key_is_named() -> None:
    """YAML does not accept a tab there, and does not say so in words that help."""
    with pytest.raises(SpecError, match=r"not YAML \(line 2\)") as refusal:
        parse_spec("input:\n\ttable: trips.csv\n", Path("spec.yaml"))
    assert "has a tab" in refusal.value.hint


def test_variables_come_from_the_environment(load, tmp_path, monkeypatch):
    """`${NAME}` in a path is what the environment says it is."""
    write_tables(tmp_path / "data")
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path / "data"))
    source = load(EXAMPLE).source()
    assert source.table.path == tmp_path / "data" / "lodes_ri_2019" / "ri_od_main_JT00_2019.csv.gz"
    assert source.axes[0].codebook.path == tmp_path / "data" / "lodes_ri_2019" / "ri_xwalk.csv.gz"


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


def test_a_path_that_begins_with_a_variable_is_relative_to_the_working_directory(load, tmp_path, monkeypatch):
    """The shell in which a variable was set had the working directory in mind, not the folder of the spec."""
    write_tables(tmp_path / "here" / "data")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TRELLIS_DATA", "data")
    assert load(EXAMPLE).source().table.path.parent == tmp_path / "here" / "data" / "lodes_ri_2019"
    assert load(changed(("output", "${TRELLIS_DATA}/out"))).output() == tmp_path / "here" / "data" / "out"


def test_other_paths_are_relative_to_the_spec(load, tmp_path, monkeypatch):
    """A path without a variable, or with one further inside, is sought from the folder of the spec."""
    write_tables(tmp_path / "specs" / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("YEAR", "2019")
    table, codebook = "data/lodes_ri_${YEAR}/ri_od_main_JT00_2019.csv.gz", "./data/lodes_ri_2019/ri_xwalk.csv.gz"
    file = load(changed(("input.table", table), ("hierarchy.table", codebook), ("output", "released/${YEAR}")))
    assert file.source().table.path == tmp_path / "specs" / "data" / "lodes_ri_2019" / "ri_od_main_JT00_2019.csv.gz"
    assert file.output() == tmp_path / "specs" / "released" / "2019"


def test_absolute_paths_stay_as_they_are(load, tmp_path):
    """An absolute path is relative to nothing, also in a variable."""
    assert load(changed(("output", str(tmp_path / "out")))).output() == tmp_path / "out"


def test_expansion_leaves_other_text_alone(monkeypatch):
    """Only `${NAME}` is replaced, and what it is replaced by is not looked at again."""
    monkeypatch.setenv("ONE", "${TWO}")
    monkeypatch.setenv("TWO", "2")
    assert expand_variables("output", "$ONE/a{TWO}/$(TWO)/b${ONE}/${TWO}") == "$ONE/a{TWO}/$(TWO)/b${TWO}/2"


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
    "written",
    ["name: [unclosed", "a: b: c", "\tname: x", "name: !!python/name:os.system x", "{", b"\xff\xfe\x00", b"a: \x00"],
)
def test_what_is_not_yaml_is_refused(load, written):
    """A file that is no YAML, or wants to run code, is refused in a sentence."""
    error = refusal(load, written)
    assert error.field == "SPEC"
    assert "\n" not in str(error)


@pytest.mark.parametrize("written", ["", "# only a remark\n", "- name\n- dataset\n", "a word", "4", "null"])
def test_what_is_no_mapping_is_refused(load, written):
    """YAML that is no mapping of keys to values is refused."""
    error = refusal(load, written)
    assert error.field == "SPEC"
    assert "mapping" in str(error)


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
