"""Every public table that a release reads is the same from the plan to the last day of a series, whatever it is for."""

import json

import pytest

from flows.forecast.answer import plan_answer
from flows.planning.admission import check_unchanged
from flows.planning.plan import make_plan
from flows.run.reservation import new_release, plan_again, reserve_release
from flows.specification.file import keys_of_release, load_spec, places_in
from storage.database.connections import store
from storage.errors import InputError
from storage.releases.register import find_release
from tasks.ingest.task import ingest
from tests.support.households import PRIVACY as OF_HOMES


@pytest.fixture
def office(fresh):
    """Give a folder with a table, and every kind of public table."""
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    towns = [{"type": "Feature", "properties": {"code": "a0"}, "geometry": square}]
    near = "".join(f"a{a},b{b},{a == b}\n" for a in (0, 1) for b in (0, 1, 2))
    for name, content in {
        "members.csv": "family,home\n1,a0\n1,a0\n2,a1\n",
        "names.csv": "code,name\na0,Ada\na1,Eda\n",
        "works.csv": "code,name\nb0,Bay\nb1,Bow\n",
        "near.csv": "home,work,near\n" + near,
        "families.csv": "family,home\n1,a0\n2,a1\n3,a1\n",
        "homes.geojson": json.dumps({"type": "FeatureCollection", "features": towns}),
    }.items():
        (fresh.folder / name).write_text(content)
    return fresh


def of_people(office):
    """Write the spec of a table of people, with a codebook, names, shapes and a derived column."""
    home = {"table": "homes.csv", "levels": ["home"], "labels": "names.csv", "boundaries": {"home": "homes.geojson"}}
    return office.spec(
        "people",
        "people.csv",
        mechanism="cbdp",
        hierarchy={"home": home, "work": {"values": ["b0", "b1", "b2"], "labels": "works.csv"}},
        release={"order": ["home", "work"], "views": {"near": {"near": "near"}}},
        derived={"near": {"table": "near.csv", "of": ["home", "work"]}},
    )


def of_groups(office):
    """Write the spec of a table of families, with a list of them."""
    return office.spec(
        "families",
        "members.csv",
        mechanism="group_sizes",
        input={"table": "members.csv", "group": "family", "groups": {"table": "families.csv", "levels": "home"}},
        hierarchy={"region": {"table": "homes.csv", "levels": ["home"]}},
        release={"group_sizes": {"region": "home", "largest": 3}},
        privacy=OF_HOMES | {"epsilon": 0.5},
    )


TABLES = {
    "hierarchy.home.table": (of_people, "homes.csv", "a2\n"),
    "hierarchy.home.labels": (of_people, "names.csv", "\n"),
    "hierarchy.home.boundaries.home": (of_people, "homes.geojson", "\n"),
    "hierarchy.work.labels": (of_people, "works.csv", "b2,Bee\n"),
    "derived.near.table": (of_people, "near.csv", "\n"),
    "hierarchy.region.table": (of_groups, "homes.csv", "a2\n"),
    "input.groups.table": (of_groups, "families.csv", "4,a1\n"),
}


@pytest.mark.parametrize("spec_of", [of_people, of_groups])
def test_every_file_that_a_spec_names_is_a_public_table_or_the_confidential_one(office, spec_of):
    """One place lists them; plans, approvals and reservations know the same ones."""
    plan = make_plan(load_spec(spec_of(office)))
    listed = plan.source.public_tables.keys()
    named = {key for key, _ in places_in(keys_of_release(plan.file))}
    assert listed == named - {"input.table"} == {key for key, (of, *_) in TABLES.items() if of is spec_of}
    assert listed == plan.source.hashes.keys() == plan.terms.files.tables.keys()
    approval = plan_answer(plan).approval
    of_hierarchy = sum(key.count(".table") for key in listed if key.startswith("hierarchy"))
    assert len(listed) == len(approval.tables) + of_hierarchy


@pytest.mark.parametrize("key", TABLES)
def test_a_public_table_that_changes_is_refused_by_its_key(office, key):
    """It is compared when the table is read, when the release goes on, and when it is planned again; put back, it passes."""
    spec_of, name, more = TABLES[key]
    plan = make_plan(load_spec(spec_of(office)))
    release = new_release(plan)
    reserve_release(release, plan)
    with store() as con:
        release = find_release(con, release.id)
    file = office.folder / name
    before = file.read_text()
    check_unchanged(release)
    file.write_text(before + more)
    for refuse in (
        lambda: check_unchanged(release),
        lambda: plan_again(release),
        lambda: ingest.fn("another", plan.source, plan.units, plan.promised, 2**30),
    ):
        with pytest.raises(InputError, match=" changed since ") as refused:
            refuse()
        assert refused.value.field == key
    file.unlink()
    check_unchanged(release)  # the shards keep what was read of it
    file.write_text(before)
    assert plan_again(release).source.hashes == plan.source.hashes
