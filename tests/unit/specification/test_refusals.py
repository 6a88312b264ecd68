"""What a spec must not say: changes of valid specs, each with the key that it is refused by, and the rule in words."""

import re
from itertools import cycle
from math import inf, nan

import pytest
import yaml

from flows.answers.check import check_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.errors import TrellisError
from tests.support.ages import SPEC as AGES
from tests.support.keys import ABSENT, EDUCATION, changed, features_of
from tests.support.keys import ADULT as ADULT_BY_RHO
from tests.support.spec import SPEC as TRIPS
from tests.support.spec import spec_in
from tests.support.town import NAMES, Town, mode_of, modes

PLANTED = 777_001  # a count of the confidential table
CODEBOOK = TRIPS["hierarchy"]
TOWN = Town.keys(Town.__new__(Town), release__views={"one": {"from": "zone"}})
TURNS = changed(TOWN, {"derived": ABSENT, "release.order": ["from", "to"]})
TREE = changed(TURNS, {"release": {"order": ["from", "to"]}, "mechanism": "inftda"})
ADULT = changed(ADULT_BY_RHO, {"privacy.accountant": ABSENT})
STOPS = {"table": "stops.csv", "levels": ["zone", "district", "stop"]}
FLEET = changed(
    TREE,
    {
        "input": {"table": "rides.csv", "features": ["from", "hour", "to"]},
        "hierarchy": {"from": STOPS, "to": STOPS, "hour": {"values": 24}},
        "release": {"order": ["hour", "from", "to"], "finest": {"from": "district"}},
        "utility": {"fleet": {"period": "hour", "minutes": 60, "capacity": 8, "durations": "data/minutes.csv"}},
    },
)
SHAPED = {"table": "areas.csv", "levels": ["county", "town"], "boundaries": "towns.geojson"}
GEOMETRY = AGES | {
    "input": {"table": "people.csv", "features": ["Geometry", "area"]},
    "hierarchy": {"Geometry": {"values": 2}, "area": SHAPED},
    "release": {"order": ["Geometry", "area"]},
}
LISTED = [(one, other) for one in NAMES for other in NAMES]
TABLES = {
    "data/trips.csv": "home,work,people\nm1,m1,5\n",
    "data/codebook.csv": "region,province,municipality\nr1,p1,m1\nr1,p2,m2\n",
    "people.csv": ",".join(f"f{number}" for number in range(40)) + "\n",
    "adult.csv": "sex,race,education\n0,white,1\n",
    "education.csv": EDUCATION,
    "rides.csv": "from,hour,to\ns1,1,s1\n",
    "stops.csv": "zone,district,stop\nz1,d1,s1\nz1,d1,s2\n",
    "country.csv": "country,zone\n" + "".join(f"X,{zone}\n" for zone in NAMES),
    "pairs.csv": "from,pair\nA,x\nB,y\n",
    "ways.csv": "from,to,way\n" + "".join(f"{a},{b},{mode_of(a, b)[::-1]}\n" for a, b in LISTED),
    "fewer.csv": modes(LISTED[1:]),
    "twice.csv": modes([*LISTED, LISTED[0]]),
    "others.csv": modes() + "A9,A1,walk\n",
    "no_mode.csv": modes(LISTED[1:]) + "A1,A1,  \n",
    "no_from.csv": modes(LISTED[1:]) + ",A1,walk\n",
    "kinds.csv": modes().replace("mode", "kind"),
    "counted.csv": "from,to,n,mode\n" + "".join(f"{a},{b},1,{mode_of(a, b)}\n" for a, b in LISTED),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the tables of all specs, one count of which must not show."""
    folder = tmp_path_factory.mktemp("town")
    Town(folder, [("A1", "A2", 3), ("A2", "A2", PLANTED)])
    (folder / "data").mkdir()
    for name, text in TABLES.items():
        (folder / name).write_text(text)
    return folder


def of(keys, key, said, *values, **also):
    """Return that each value of a key is refused by this key, and with other changes that `also` has as `changes`."""
    return [(keys, also.get("changes", {}) | {key: value}, key, said) for value in values]


GIVEN = ["name", "dataset", "input", "hierarchy", "release", "privacy", "input.table", "input.origin"]
GIVEN += ["input.destination", "hierarchy.levels", "release.tree", "release.finest", "privacy.unit"]
GIVEN += ["privacy.neighbours", "privacy.max_records_per_unit", "privacy.delta", "budget.epsilon", "budget.delta"]
NO_NAMES = ["", "-a", "A", "a_b", "a b", "a/b", "../a", "a.b", "ä", "a\n", "a" * 65, 2019, None]
POSITIVE = "must be a finite number > 0"
NOT_POSITIVE = [0, 0.0, -1, -1e-300, inf, -inf, nan]
NO_NUMBER = [True, False, "four", "", None, [4.0], {"is": 4}]
TARGET = {"level": "region", "max_error": 50, "confidence": 0.95}
ONE_BUDGET = "privacy.epsilon, rho or target must be given, exactly one of them"
FOR_ERROR = {"privacy.epsilon": ABSENT, "privacy.target": TARGET}
LAX = {"privacy.invariants": ["region"], "privacy.i_accept_unprotected": True}
PER_END = {"origin": CODEBOOK, "destination": {"table": "work.csv", "levels": ["area", "plant"]}}
ENDS = {"hierarchy": PER_END, "release.finest": {"origin": "region", "destination": "plant"}}
OF_LEVELS = "region, province, municipality"
MARKS = ["FILL IN", "fill in", "FILL IN (ask the owner)", "FILL IN: one person", "FILL_IN", "fill  in", "<FILL IN>"]
NEEDED = ["name", "dataset", "input", "hierarchy", "hierarchy.levels", "privacy", "privacy.unit", "privacy.neighbours"]
NEEDED += ["privacy.max_records_per_unit", "privacy.delta", "budget.epsilon", "input.table", "input.origin", "release.tree"]  # fmt: skip
# which may be left out, and have no meaning without a value
NEEDED += ["output", "mechanism", "public_data", "privacy.split"]
MARKED = [*NEEDED, "title", "input.count", "input.unit", "hierarchy.table", "release.finest"]  # fmt: skip
MARKED += ["privacy.epsilon", "privacy.distinct", "expected_total"]
DAILY = {"schedule.cron": "0 3 1 * *"}
DAILY_KEYS = {"cron": "0 3 1 * *"}
ONCE_A_DAY = "must run at most once a day, because the id of a release holds the day; "
OF_TRIPS = [  # each row: a valid spec, what is changed of it, the key that is told, and words
    # what is undecided: a mark in place of a value, or no value where there must be one
    *[row for key, mark in zip(MARKED, cycle(MARKS), strict=False) for row in of(TRIPS, key, f"{key} is undecided.", mark)],
    *of(TRIPS, "title", "title is undecided.", *MARKS),
    *[row for key in NEEDED for row in of(TRIPS, key, f"{key} is undecided.", None)],
    *of(TRIPS, "hierarchy.levels", "hierarchy.levels is undecided.", ["region", "FILL IN"]),
    (TRIPS, {"schedule": DAILY_KEYS | {"timezone": None}}, "schedule.timezone", "schedule.timezone is undecided."),
    (TRIPS, {"hierarchy": {"FILL IN": CODEBOOK}}, "hierarchy.FILL IN", "hierarchy.FILL IN is undecided."),
    *[row for key in ("privacy.unit", "title", "source") for row in of(TRIPS, key, f"{key} must not be blank.", " ", "\n\t")],
    # run, schedule and files
    *of(TRIPS, "run.max_memory", "must be >= 256,000,000", "1MB"),
    *of(TRIPS, "run.max_memory", "run.max_memory must be bytes, such as 4GB, got “much”.", "much"),
    *of(TRIPS, "run.workers", "threads", "cluster"),
    *of(TRIPS, "noise.sampler", "opendp", "dice"),
    *of(TRIPS, "schedule.every", "is not a key of the spec", "month", changes=DAILY),
    *of(TRIPS, "schedule.timezone", "must be a time zone such as", "Rome", changes=DAILY),
    *of(TRIPS, "schedule.until", "must be a number of releases", "0 releases", "some day", changes=DAILY),
    *of(TRIPS, "schedule.cron", "must be five fields such as", "noon"),
    *of(TRIPS, "schedule.cron", "must be given", ABSENT, changes={"schedule.timezone": "UTC"}),
    *of(TRIPS, "schedule.cron", f"{ONCE_A_DAY}0 */6 * * * runs at 06:00 and at 12:00 on 2024-01-01 (", "0 */6 * * *"),
    *of(TRIPS, "schedule.cron", "runs at 03:00 and at 15:00 on 2024-02-29", "0 3,15 29 2 *"),
    *of(TRIPS, "schedule.cron", "and at 03:30", "*/30 3 * * *", changes={"schedule.timezone": "Europe/Rome"}),
    *of(TRIPS, "schedule.cron", "and at 15:00", "0 3,15 1 1 1", changes={"schedule.timezone": "America/Havana"}),
    *of(TRIPS, "supersedes", "must be left out with a schedule", "jobs-20250101T000000Z", changes=DAILY),
    *of(TRIPS, "supersedes", "must not be empty", ""),
    *of(TRIPS, "release.csv", "release.csv must be true, false or every_level, got some.", "some"),
    # keys that the spec does not have, and keys that it needs
    *of(TRIPS, "hierarchy.destination.finest", "is not a key of the spec", "x", changes=ENDS),
    *of(TRIPS, "hierarchy.feature", "must be left out: it is no end of trips", "x", changes=ENDS),
    *[row for key in GIVEN for row in of(TRIPS, key, f"{key} must be given.", ABSENT)],
    *of(TRIPS, "hierarchy.table", f"without a codebook each of the levels {OF_LEVELS} needs its own.", ABSENT),
    (TRIPS, {"release.finest": {"origin": "region"}}, "release.finest.destination", "must be given"),
    (TRIPS, {"hierarchy": {"destination": CODEBOOK}}, "hierarchy.origin", "must be given"),
    # privacy
    *of(TRIPS, "privacy.epsilon", POSITIVE, *NOT_POSITIVE),
    *of(TRIPS, "privacy.epsilon", "privacy.epsilon must be a number, got", *NO_NUMBER[:4], *NO_NUMBER[5:]),
    *of(TRIPS, "budget.epsilon", "", 0, -1e-300, inf, nan, True, "four", None),
    *of(TRIPS, "privacy.delta", "", *NOT_POSITIVE, *NO_NUMBER, 1, 1.0, 1.5, "1", "1e-400"),
    *of(TRIPS, "budget.delta", "", 0, -1e-300, inf, nan, True, "four", None, 1.0),
    *of(TRIPS, "privacy.rho", "", 0, -1, inf, True),
    *of(TRIPS, "privacy.epsilon", ONE_BUDGET, ABSENT),
    *of(TRIPS, "privacy.epsilon", ONE_BUDGET, 4.0, changes={"privacy.rho": 0.1}),
    *of(TRIPS, "privacy.epsilon", ONE_BUDGET, 4.0, changes={"privacy.target": TARGET}),
    *of(TRIPS, "privacy.epsilon", ONE_BUDGET, ABSENT, changes={"privacy.rho": 0.1, "privacy.target": TARGET}),
    *of(TRIPS, "privacy.neighbours", "", "addition", None),
    *of(TRIPS, "privacy.unit", "privacy.unit must not be empty.", ""),
    *of(TRIPS, "privacy.max_records_per_unit", "privacy.max_records_per_unit must be >= 1, got 0.", 0),
    *of(TRIPS, "privacy.max_records_per_unit", "must be <= 1,048,576, got 1048577.", 2**20 + 1),
    *of(TRIPS, "privacy.max_records_per_unit", "must be a whole number, got “1”.", "1"),
    *of(TRIPS, "privacy.max_records_per_unit", "", -1, 1.5, None, True),
    *of(TRIPS, "privacy.exact_records_per_unit", "", "maybe", 2),
    *of(TRIPS, "privacy.accountant", "", "rdp", "PLD", 1),
    *of(TRIPS, "privacy.distinct", "", "county", ""),
    *of(TRIPS, "privacy.target.max_error", "", 0, changes=FOR_ERROR),
    *of(TRIPS, "privacy.target.confidence", "", 1, 95, changes=FOR_ERROR),
    *of(TRIPS, "privacy.target.level", "", None, changes=FOR_ERROR),
    *of(TRIPS, "privacy.split", "", "even", [], {"arithmetic": 2}),
    *of(TRIPS, "privacy.split", "must list 2 shares, one per measured level, got 4", [1, 2, 3, 4]),
    (TRIPS, {"privacy.split": [1, 0]}, "privacy.split.1", POSITIVE),
    (TRIPS, {"privacy.split": {"geometric": 0}}, "privacy.split.geometric", POSITIVE),
    (TRIPS, {"privacy.split": {"finest": 0}}, "privacy.split.finest", POSITIVE),
    *of(TRIPS, "privacy.split", "with mechanism gaussian: one level", [1, 2], changes={"mechanism": "gaussian"}),
    *of(TRIPS, "privacy.invariants", "i_accept_unprotected: true", ["region"]),
    (TRIPS, LAX | {"privacy.neighbours": "add_remove"}, "privacy.invariants", ""),
    *of(TRIPS, "privacy", "privacy must be keys with values, got a list.", ["epsilon"]),
    # input, hierarchy and release
    *of(TRIPS, "input.unit", "", "", "people", "home"),
    *of(TRIPS, "input", "", None),
    *of(TRIPS, "input.table", "input.table must be text, got 7; put it in quotes.", 7),
    *of(TRIPS, "input.table", "must hold no user and no password", "postgresql://me:pw@host/d::a.b"),
    *of(TRIPS, "input.table", "must end in", "trips.xls", "trips.duckdb", "trips.csv::inner"),
    *of(TRIPS, "hierarchy.table", "must end in", "trips.xls"),
    *of(TRIPS, "input.table", "there is no file", "gone.csv", "gone.xlsx::May", "gone.duckdb::trips"),
    *of(TRIPS, "hierarchy.table", "TRELLIS_NOWHERE", "${TRELLIS_NOWHERE}/codes.csv"),
    *of(TRIPS, "input.count", "", ["people"]),
    (TRIPS, {"input.origin": [True]}, "input.origin.0", "(YAML reads yes and on as true too); put it in quotes."),
    *of(TRIPS, "input.destination", "", ["a", "b"], ["a", "b", "c", "d"], [], "home"),
    *of(TRIPS, "input.destination", "", ["a", "b", "c"], changes=ENDS),
    *of(TRIPS, "hierarchy", "", "codebook.csv"),
    *of(TRIPS, "hierarchy.levels", "hierarchy.levels must be a list, got “cty”.", "cty"),
    *of(TRIPS, "hierarchy.levels", "", [], ["region", "region", "municipality"], None),
    (TRIPS, {"hierarchy.levels": [1, "municipality"]}, "hierarchy.levels.0", "must be text"),
    *of(TRIPS, "hierarchy.labels", "hierarchy.labels must be text or {level: text}, got a list.", ["name"]),
    (TRIPS, {"hierarchy.labels": {"region": ["x"]}}, "hierarchy.labels.region", "must be text, got a list."),
    *of(TRIPS, "hierarchy.boundaries", "must be text or {level: text}, got a list.", ["a.geojson"]),
    *of(TRIPS, "release.tree", "release.tree must be destination or origin, got “both”.", "both"),
    *of(TRIPS, "release.tree", "", None, ["origin"]),
    *of(TRIPS, "release.finest", OF_LEVELS, "county", "", {"origin": "region", "destination": "county"}),
    (TRIPS, {"hierarchy": PER_END}, "release.finest", ""),
    # the rest
    *of(TRIPS, "name", "", *NO_NAMES),
    *of(TRIPS, "dataset", "", "A", "../a", "a" * 65, None),
    *of(TRIPS, "same_people_as", "", "A dataset", TRIPS["dataset"], 7),
    *of(TRIPS, "expected_total", "", 0, -1, 1.5, True, "many"),
    *of(TRIPS, "keep_vault", "keep_vault must be true or false, got “maybe”.", "maybe"),
    *of(TRIPS, "keep_noisy_counts", "", "maybe"),
    *of(TRIPS, "public_data", "", "maybe", 1),
    *of(TRIPS, "mechanism", "", 1),
    # formats
    *of(TRIPS, "release.formats", "must list each format once", ["xlsx", "xlsx"]),
    (TRIPS, {"release.formats": ["pdf"]}, "release.formats.0", "must be parquet, csv"),
    *of(TRIPS, "release.formats", "must not list csv where", ["csv"], changes={"release.csv": False}),
    *of(TRIPS, "release.formats", "must not list geoparquet without hierarchy.boundaries", ["geoparquet"]),
    *of(GEOMETRY, "release.formats", "two columns of a published file the name geometry", ["geoparquet"]),
    *of(AGES, "release.formats", "must not list omx without input.origin and input.destination", ["omx"]),
    *of(TRIPS, "release.formats", "must not list omx unless both ends have one hierarchy.table", ["omx"], changes=ENDS),
]  # fmt: skip

FEATURES = ADULT["input"]["features"]


def added(name):
    """Return what adds a feature to the domains and the order of the others."""
    return {f"hierarchy.{name}": [1], ORDER: [*FEATURES, name]}


NO_TABLE, PER_LEVEL = {"hierarchy.education.table": ABSENT}, {"input.origin": ["h1", "h2", "h3"]}
RECODE = {"table": "changes.csv", "from": "old", "to": "new"}
RECODED = {"hierarchy.sex.recode": RECODE}
DAYS = {"ordered": {"first": "2024-01-01", "last": "2024-12-31"}, "calendar": ["month"]}
NO_CODES = [{"column": "when", "take": "year"}, {"column": "code", "first": 2}, {"column": "sex"}]
TAKEN = {"hierarchy.sex": {"from": {"column": "when"}}}
TAKEN_TWICE = {"hierarchy.sex": {"from": {"column": "when", "bins": [0, 1]}}}
MANY = features_of({f"f{number}": 100 for number in range(40)}, mechanism="gaussian")
QUOTES, CODES = "put it in quotes", "from 1 to 2**20"
LAPLACE = {"noise.law": "laplace"}
ORDER = "release.order"
ALONE = {"mechanism": "stability_histogram"}
TWO_COLUMNS = "would give two columns of the published tables the name"
OF_FEATURES = [
    (ADULT, {"input.origin": "home"}, "input.destination", "must be given"),
    *of(ADULT, "hierarchy.sex", "must list its codes by table and levels,", *({"from": of} for of in NO_CODES)),
    *of(ADULT, "hierarchy.sex.from.bins", "two numbers or more, from the smallest", [5], [5, 1], [1, 1], changes=TAKEN),
    *of(ADULT, "hierarchy.sex.from.take", "must be hour, weekday, day,", "minute", ["hour"], changes=TAKEN),
    *of(ADULT, "hierarchy.sex.from.take", "must be the only one of take,", "hour", changes=TAKEN_TWICE),
    *of(ADULT, "hierarchy.sex.from.first", "must be >= 1, got 0.", 0, changes=TAKEN),
    *of(ADULT, "hierarchy.sex.from.column", "must be given.", ABSENT, changes=TAKEN),
    *of(ADULT, "hierarchy.sex.from.zone", "must be a time zone such as Europe/Rome", "Rome", changes=TAKEN),
    *of(ADULT, "hierarchy.sex.from.zone", "must be left out without take", "UTC", changes=TAKEN),
    (ADULT, TAKEN | {"hierarchy.sex.from.bins": {"first": 0, "last": 1, "step": 0.3}}, "hierarchy.sex.from.bins.last", "must be above first by a whole number"),
    (ADULT, TAKEN | {"hierarchy.sex.from.bins": {"first": 0, "last": 1e30, "step": 0.1}}, "hierarchy.sex.from.bins.step", "at most 2**20 bins"),
    (ADULT, TAKEN | {"hierarchy.sex.from.bins": [1, "x"]}, "hierarchy.sex.from.bins.1", "must be a number, got “x”."),
    *of(ADULT, "hierarchy.sex.unlisted", "must be a code that is not blank.", "", "  "),
    *of(ADULT, "hierarchy.education.unlisted", "must be left out without table", "x", changes=NO_TABLE),
    *of(ADULT, "hierarchy.education.recode", "must be left out without table", RECODE, changes=NO_TABLE),
    (ADULT, {"hierarchy.sex": {"ordered": 3, "unlisted": "0..9"}}, "hierarchy.sex.unlisted", "must be a code that has no .. in it."),
    (ADULT, {"hierarchy.sex": DAYS | {"unlisted": "none"}}, "hierarchy.sex.unlisted", "must be left out with calendar"),
    *of(ADULT, "hierarchy.sex.recode.to", "must name another column than from.", "old", changes=RECODED),
    *of(ADULT, "hierarchy.sex.recode.from", "must be given.", ABSENT, changes=RECODED),
    *of(TRIPS, "hierarchy.recode", "since input.origin names several columns", RECODE, changes=PER_LEVEL),
    *of(TRIPS, "hierarchy.from", "no feature: write input.origin: {column: …, take: …}", {"column": "code", "first": 2}),
    *of(TRIPS, "input.origin.column", "must be given.", ABSENT, changes={"input.origin": {"first": 2}}),
    *of(ADULT, "release.tree", "must be left out with release.order", "origin"),
    *of(ADULT, "release.grid", "must make at most 500 tables", FEATURES, changes={ORDER: ABSENT} | {f"hierarchy.{of}": {"ordered": 100} for of in FEATURES}),
    (
        ADULT,
        {"release.tree": "origin", ORDER: ABSENT},
        "release.tree",
        "must be left out when input.origin is not given",
    ),
    *of(ADULT, ORDER, "must be given", ABSENT),
    (ADULT, {"input.features": ABSENT}, "input.origin", "must be given"),
    *of(ADULT, "input.features", "must not be empty", []),
    *of(ADULT, "input.features", "must name each column once", [*FEATURES, "sex"]),
    *of(ADULT, "input.features", "case", [*FEATURES, "Sex"], changes=added("Sex")),
    *of(ADULT, "input.features", "no slash", ["a/b"], changes={"hierarchy": {"a/b": [1]}}),
    *of(ADULT, "input.features", TWO_COLUMNS, [*FEATURES, "COUNT"], changes=added("COUNT")),
    *of(ADULT, "input.features", TWO_COLUMNS, [*FEATURES, "education_stage"], changes=added("education_stage")),
    (ADULT, {"input.features": ["sex", True]}, "input.features.1", "YAML reads yes and on as true too"),
    *of(ADULT, "input.count", "must not be a column of codes", "race"),
    *of(ADULT, "input.unit", "must not be a column of codes", "race"),
    *of(ADULT, ORDER, "education is missing", FEATURES[:2]),
    *of(ADULT, "release.finest", "{feature: level}", "stage"),
    *of(ADULT, "release.finest", "stage, grade", {"education": "year"}),
    *of(ADULT, "release.finest", "must name axes (sex, race, education), got age", {"age": "stage"}),
    *of(ADULT, "release.records", "must be true or false", "yes"),
    *of(ADULT, "hierarchy.sex", "must be given", ABSENT),
    *of(ADULT, "hierarchy.age", "is not one of input.features", {"values": 2}),
    (ADULT, {"hierarchy.sex": {"levels": ["a", "b"]}}, "hierarchy.sex.table", "given: a feature has one column"),
    (ADULT, {"hierarchy.sex.levels": ["a"]}, "hierarchy.sex.levels", "is not a key of the spec"),
    *of(ADULT, "hierarchy.sex.values", "hierarchy.sex.values is undecided.", *MARKS, ["m", "FILL IN"], None),
    *of(ADULT, "hierarchy.sex", "hierarchy.sex is undecided.", "FILL IN", None),
    *of(ADULT, "hierarchy.sex.values", CODES, 0, 2**20 + 1, True),
    *of(ADULT, "hierarchy.sex.values", "at least one code", []),
    *of(ADULT, "hierarchy.sex.values", "each code once", ["m", "f", "m"], [1, "1"]),
    *of(ADULT, "hierarchy.sex.values", "no blank code", ["m", " "]),
    *of(ADULT, "hierarchy.sex.values", QUOTES, ["m", False], ["m", None], [1.5]),
    *of(ADULT, "privacy.distinct", "must be a level", "age"),
    (MANY, {}, "input.features", "got 1.000e+80."),
    (features_of(dict.fromkeys(map("f{}".format, range(61)), 2)), {}, "input.features", "must name 1 to 60 columns, got 61"),
    # the law of the noise
    *of(ADULT, "privacy.rho", "must be left out with noise.law", 0.1, changes=LAPLACE | {"privacy.epsilon": ABSENT}),
    *of(ADULT, "privacy.accountant", "must be left out with noise.law", "zcdp", changes=LAPLACE),
    *of(ADULT, "privacy.epsilon", "the noise scale must be", 1e-9, 1e4, changes=LAPLACE),
    *of(ADULT, "privacy.epsilon", "needs more delta", 80.0, changes=LAPLACE | {"noise.sampler": "table"}),
    *of(ADULT, "noise.law", "gaussian", "cauchy"),
    *of(ADULT, "noise.law", "must be laplace with mechanism", "gaussian", changes=ALONE),
    # what is measured
    *of(ADULT, "measure", "with mechanism inftda, which has no second pass", "all"),
    *of(ADULT, "measure", "with mechanism gaussian, which always", "survivors", changes={"mechanism": "gaussian"}),
    *of(ADULT, "measure", "left out with mechanism stability_histogram", "all", changes=ALONE),
    *of(ADULT, "measure", "all, survivors or auto", "most"),
]  # fmt: skip

BY_MODE = changed(
    TRIPS,
    {"input.features": ["mode"], "hierarchy": {"origin": CODEBOOK, "destination": CODEBOOK, "mode": ["car", "bus"]}},
)
NAMED = {"input.features": ["origin"], "hierarchy.mode": ABSENT}
BESIDE = {"input.features": ["origin_region"], "hierarchy.mode": ABSENT, "hierarchy.origin_region": [1]}
FOR_EACH = "must have an entry for each axis (origin, destination, mode)"
NO_TREE = {"release.tree": ABSENT}
HIDDEN = {"hierarchy.mode": {"levels": ["mode"]}, "mechanism": "stability_histogram"}
OF_BOTH = [
    (BY_MODE, NAMED, "input.features", "must not name origin beside input.origin"),
    (BY_MODE, BESIDE, "input.features", f"{TWO_COLUMNS} origin_region"),
    *of(BY_MODE, "input.destination", "must be given", ABSENT),
    *of(BY_MODE, "hierarchy.mode", "must be given: every feature needs its codes", ABSENT),
    *of(BY_MODE, "hierarchy.destination", "must be given: each end of trips needs its codebook", ABSENT),
    *of(BY_MODE, "hierarchy.destination", "must be a codebook with its levels", ["m1"], {"ordered": 3}),
    *of(BY_MODE, "hierarchy.purpose", "purpose is not one of input.features", [1]),
    (BY_MODE, {"hierarchy": CODEBOOK}, "hierarchy", f"{FOR_EACH}, got table, levels. Write origin: {{table: …, levels"),
    (BY_MODE, {"hierarchy": {"home": CODEBOOK, "mode": ["m1"]}}, "hierarchy", f"{FOR_EACH}, got home, mode."),
    *of(BY_MODE, "release.formats", "without a codebook of mode: there is a matrix", ["omx"], changes=HIDDEN),
    *of(BY_MODE, "release.grid", "must name every axis of the release", ["mode", "origin"], changes=NO_TREE),
    *of(BY_MODE, "release.tree", "must be left out with release.grid", "origin", changes={"release.grid": ["origin"]}),
    *of(BY_MODE, "release.tree", "must be left out with release.order", "origin", changes={ORDER: ["origin", "mode"]}),
    *of(BY_MODE, ORDER, "destination is missing", ["origin", "mode"], changes={"release.tree": ABSENT}),
    *of(BY_MODE, "release.finest", "must name axes (origin, destination, mode), got hour", {"hour": "hour"}),
    *of(BY_MODE, "release.finest", OF_LEVELS, "county", {"origin": "county"}),
]

IN_FLEET = "utility.fleet"
ZONES = "released levels of from (zone, district), got "
MUST = "must be given: besides the named ones there are"
AND_PURPOSE = {
    "input.features": ["from", "hour", "to", "purpose"],
    "hierarchy.purpose": {"values": 3},
    "release": {"order": ["hour", "from", "to", "purpose"]},
}
HOURS = "must be one of input.features (from, hour, to), got hours. Did you mean hour?"
OF_A_FLEET = [
    *of(FLEET, "utility.fleet.period", HOURS, "hours"),
    *of(FLEET, "utility.fleet.origin", "Did you mean from?", "fro"),
    (FLEET, {"utility.fleet.origin": "hour"}, IN_FLEET, "another feature for period, origin and destination each"),
    (FLEET, AND_PURPOSE, "utility.fleet.origin", f"{MUST} 3 features"),
    (FLEET, AND_PURPOSE | {"utility.fleet.origin": "from"}, "utility.fleet.destination", f"{MUST} 2 features"),
    *of(FLEET, "utility.fleet.zone", f"{ZONES}zones. Did you mean zone?", "zones"),
    *of(FLEET, "utility.fleet.zone", f"{ZONES}stop.", "stop"),
    *of(FLEET, "utility.fleet.zone", "one level for both ends, or one for each; got 3", ["zone"] * 3),
    *of(FLEET, "utility.fleet.minutes", f"{POSITIVE}, got", 0, inf),
    *of(FLEET, "utility.fleet.capacity", "must be >= 1, got 0", 0),
    *of(FLEET, "utility.fleet.capacity", "must be a whole number", 2.5),
    *of(FLEET, "utility.fleet.seats", "is not a key of the spec", 2),
    (FLEET, {"hierarchy.from": {"levels": ["zone"]}, "release.finest": ABSENT}, IN_FLEET, "needs hierarchy.from.table"),
    (TRIPS, {"utility": FLEET["utility"]}, IN_FLEET, "needs input.features"),
    *[row for key in FLEET["utility"]["fleet"] for row in of(FLEET, f"utility.fleet.{key}", "must be given", ABSENT)],
    *of(FLEET, "utility", "got flet. Did you mean fleet?", {"flet": FLEET["utility"]["fleet"]}),
    *of(FLEET, IN_FLEET, "must be keys with values", 3),
    *of(FLEET, "utility", "", 3),
]

VIEWS, ONE, TWO, SPLIT = "release.views", "release.views.one", "release.views.two", "privacy.split"
ALIKE = "must not repeat another view: it has the cells of one."
LEAVES = "must be coarser than the leaves"
COUNTRY = {"hierarchy.to": {"table": "country.csv", "levels": ["country", "zone"]}, "release.finest": {"to": "country"}}
MANY_LEAVES = {"hierarchy": {"from": {"values": 4000}, "to": {"values": 4000}}, ONE: {"from": "from"}}
INFTDA = {"mechanism": "inftda"}
BY_ERROR = INFTDA | {"privacy.epsilon": ABSENT}
TO_ZONES = {"level": "zone", "max_error": 9, "confidence": 0.9}
EXACT = {"privacy.neighbours": "substitution", "privacy.invariants": ["district"], "privacy.i_accept_unprotected": True}
PAIR = {"table": "pairs.csv", "of": ["from.district"]}
WAY = {"table": "ways.csv", "of": ["from.zone", "to.zone"]}
OTHER_WAY = {"derived.way": WAY, ONE: {"mode": "mode"}}
HISTOGRAM = {"mechanism": "stability_histogram", "release.noisy_counts": ABSENT, "privacy.accountant": ABSENT}
TAKEN = ["leaves", "tree", "margins", "uniform", "minimise", "finest", "geometric", "level_3", "a/b", "by mode", "é"]
ITS_OWN = "must have a name of its own"
NOT_ITS_OWN = ["from", "TO", "from_zone", "a/b", "a b", "count", "Low", "HIGH", "simultaneous_low", "signal"]
NOT_ITS_OWN += ["Variance", "noisy_count", "age_1"]
AGE = {"input.features": ["from", "to", "age"], "hierarchy.age": {"ordered": 10}, ORDER: ["from", "to", "age"]}
OF_VIEWS = [
    *of(TOWN, VIEWS, "must be given with mechanism cbdp", ABSENT, changes={"derived": ABSENT}),
    *of(TOWN, VIEWS, "must not be empty.", {}),
    *of(TOWN, VIEWS, "margins", "margin"),
    *[row for name in [*TAKEN, "x" * 65] for row in of(TURNS, f"{VIEWS}.{name}", "must have a name", {"from": "zone"})],
    # axes, levels and derived columns
    *of(TOWN, ONE, "(from, to, mode), got form. Did you mean from?", {"form": "zone"}),
    *of(TOWN, ONE, "got mood. Did you mean mode?", {"mood": "mood"}),
    *of(TOWN, f"{ONE}.from", "levels district, zone, got zones. Did you mean zone?", "zones"),
    (TURNS, {"release.finest": {"from": "district"}}, f"{ONE}.from", "levels district, got zone."),
    *of(TOWN, f"{ONE}.mode", "must be mode: a derived column has one level.", "kind"),
    (TURNS, MANY_LEAVES, "input.features", "must leave at most 10,000,000 leaves"),
    # the leaves, and two views alike, by names or by the codebooks
    *of(TOWN, ONE, LEAVES, {"from": "zone", "to": "zone"}, {"from": "zone", "to": "zone", "mode": "mode"}),
    (TURNS, COUNTRY, ONE, f"{LEAVES}, which are measured anyway: by the codebooks, each of its cells is one leaf."),
    *of(TOWN, TWO, ALIKE, {"from": "zone"}),
    *of(TOWN, TWO, ALIKE, {"from": "zone", "pair": "pair"}, changes={"derived.pair": PAIR}),
    *of(TURNS, TWO, ALIKE, {"from": "zone", "to": "country"}, changes=COUNTRY | {"release.finest": ABSENT}),
    *of(TOWN, TWO, ALIKE, {"way": "way"}, changes=OTHER_WAY),
    # what mechanisms do with views
    *of(TOWN, "release.intervals.simultaneous", "left out with release.views", True),
    *of(TOWN, "priority", "must be left out with release.views", "false_positives", changes=INFTDA),
    *of(TOWN, "privacy.target", "with release.views it states no error bound.", TO_ZONES, changes=BY_ERROR),
    (TOWN, EXACT, "privacy.invariants", "must be left out with mechanism cbdp"),
    (TOWN, EXACT | INFTDA, "privacy.invariants", "with release.views only a public total is met exactly"),
    (TOWN, HISTOGRAM, VIEWS, "must be left out with mechanism stability_histogram"),
    (TURNS, {"hierarchy.from": {"levels": ["from"]}, ONE: {"to": "zone"}}, "hierarchy.from.table", "mechanism cbdp"),
    *of(TOWN, "measure", "all or left out with release.views", "survivors", changes={"mechanism": "inftda_reconciled"}),
    (TOWN, LAPLACE | {"privacy.epsilon": ABSENT, "privacy.rho": 1.0}, "privacy.rho", "left out with noise.law laplace"),
    # weights
    *of(TOWN, SPLIT, "(one, leaves, tree), got on. Did you mean one?", {"on": 2}),
    *of(TOWN, f"{SPLIT}.one", POSITIVE, 0, inf),
    *of(TREE, SPLIT, "must be left out without release.views", {"one": 2}),
    *of(TOWN, SPLIT, "must call it leaves, got tree", {"tree": 2}),
    *of(TOWN, SPLIT, "must call it tree, got leaves", {"leaves": 2}, changes=INFTDA),
    *of(TOWN, SPLIT, "must be uniform, {view: weight}", [1, 2, 3], {"geometric": 2}),
    *of(TOWN, SPLIT, "must not name two", {"two": 2}, changes={"privacy.neighbours": "substitution", TWO: {}}),
    # derived columns
    *[row for name in NOT_ITS_OWN for row in of(TURNS, f"derived.{name}", ITS_OWN, WAY, changes=AGE)],
    *of(TOWN, "derived.Mode", ITS_OWN, WAY),
    *of(TOWN, "derived.mode.table", "must list all 16 combinations of codes, and lacks some.", "fewer.csv"),
    *of(TOWN, "derived.mode.table", "lists a combination twice.", "twice.csv"),
    *of(TOWN, "derived.mode.table", "has a code that level zone of the codebook does not list.", "others.csv"),
    *of(TOWN, "derived.mode.table", "column mode has a blank code.", "no_mode.csv"),
    *of(TOWN, "derived.mode.table", "column from has a blank code.", "no_from.csv"),
    *of(TOWN, "derived.mode.table", "has no column mode", "kinds.csv"),
    *of(TOWN, "derived.mode.table", "there is no file", "gone.csv"),
    *of(TOWN, "derived.mode.table", "confidential table", "trips.csv", "data/../trips.csv"),
    *of(TOWN, "derived.mode.table", "has the columns of the confidential table.", "counted.csv"),
    *of(TOWN, "derived.mode.of", "must name released levels as axis.level, got mode.", ["from", "mode"]),
    *of(TOWN, "derived.mode.of", "must name each axis once.", ["from.zone", "from.district"]),
    *of(TOWN, "derived.mode.of", "must not be empty.", []),
]


@pytest.mark.parametrize(
    ("keys", "changes", "field", "said"),
    [*OF_TRIPS, *OF_FEATURES, *OF_BOTH, *OF_A_FLEET, *OF_VIEWS],
    ids=lambda given: str(given)[:60] if isinstance(given, str) else "",
)
def test_what_a_spec_must_not_say_is_refused_by_its_key(keys, changes, field, said, folder, tmp_path, monkeypatch):
    """A plan is refused for what `check` tells first: by the key, with its line, in words that repeat nothing confidential."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(changed(keys, changes), sort_keys=False, allow_unicode=True))
    with pytest.raises(TrellisError) as refused:
        make_plan(load_spec(path))
    error = str(refused.value)
    first, *_ = check_answer(path).problems
    assert refused.value.field == field
    assert (first.error, first.field) == (error, field)
    assert field in error
    assert said in error
    assert error.endswith((".", "?"))
    assert not any(text in f"{error} {first.hint} {refused.value.hint}" for text in ("<by", str(PLANTED), "pw"))
    line, next_step = re.findall(r"^(?:Line (\d+)\.)? ?(.*)$", first.hint, re.DOTALL)[0]
    assert next_step or said in {"is not a key of the spec", "there is no file", "must end in"}
    assert line or "must be given" in error
    if line:
        assert any(part in path.read_text().splitlines()[int(line) - 1] for part in field.split("."))


@pytest.mark.parametrize(
    "hierarchy", [CODEBOOK, CODEBOOK | {"mode": ["m1"]}, {"from": CODEBOOK, "to": CODEBOOK, "mode": ["m1"]}]
)
def test_a_hierarchy_that_is_not_by_axis_is_one_problem(hierarchy, folder, own_home):
    """Whoever adds features to the one codebook of both ends, or names axes by their columns, is told so once."""
    read = {"table": "counted.csv", "origin": "from", "destination": "to", "features": ["mode"]}
    path = spec_in(folder, changed(BY_MODE, {"input": read, "hierarchy": hierarchy}))
    assert [problem.field for problem in check_answer(path).problems] == ["hierarchy"]
