"""Laws of every family of releases, by every law of noise and for every kind of neighbours, in memory."""

from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from flows.api import release
from storage.database.connections import store
from storage.tables import column_name, flat_features
from tasks.folder.publish.views import view_table
from tasks.mechanisms import MECHANISMS
from tests.support import ages, households, town
from tests.support.cases import case_csv
from tests.support.making import no_noise
from tests.support.passes import check_rows, counts_of, try_spec
from tests.support.spec import spec_in

pytestmark = pytest.mark.usefixtures("own_home")

thorough = pytest.mark.thorough


def of_trips(**changes):
    """Return what writes trips between municipalities."""
    return lambda folder: case_csv(folder).keys | changes


def of_town(zones="", **changes):
    """Return what writes the town, whose features take turns, with its views or without, and with a codebook of its own if any."""

    def write(folder):
        made = town.Town(folder)
        if zones:
            (folder / "zones.csv").write_text(zones)
            codebook = {"table": "zones.csv", "levels": zones.partition("\n")[0].split(",")}
            changes.setdefault("hierarchy", {"from": codebook, "to": codebook})
        return made.keys(**changes)

    return write


def of_people(of=lambda people: people, **changes):
    """Return what writes people by zone and age, an ordered axis."""

    def write(folder):
        of(ages.draw_people()).write_csv(folder / "people.csv")
        return ages.SPEC | changes

    return write


def of_product(folder):
    """Write people by zone in regions, sex and age."""
    ages.with_sex(ages.draw_people(), folder).write_csv(folder / "people.csv")
    return ages.SPEC | ages.PRODUCT


def of_homes(of=lambda homes: homes, **changes):
    """Return what writes homes in counties, which are counted by their size."""

    def write(folder):
        households.write_tables(folder, of(households.draw_homes()))
        return households.SPEC | changes

    return write


def nobody(write):
    """Return what empties the confidential table of a family."""

    def written(folder):
        keys = write(folder)
        table = folder / keys["input"]["table"]
        table.write_text(table.read_text().splitlines()[0] + "\n")
        return keys

    return written


NO_VIEWS = {"release__views": None, "derived": None}
ONE_NATION = "nation,district,block,zone\n" + "".join(f"N,{district},b{zone},{zone}\n" for district, zone in town.ZONES)


def in_one(*names):
    """Return what gives all people the code 0."""
    return lambda people: people.with_columns(pl.lit("0").alias(name) for name in names)


def dotted(views):
    """Return what writes the town with dots in the names of its features."""
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}

    def write(folder):
        keys = town.Town(folder).keys(
            input={"table": "trips.csv", "features": ["a.from", "a.to"], "count": "n"},
            hierarchy={"a.from": codebook, "a.to": codebook},
            derived={"mode": {"table": "modes.csv", "of": ["a.from.zone", "a.to"]}},
            release={"order": ["a.from.district", "a.to", "a.from"], "views": views, "csv": "every_level"},
        )
        for name in ("trips.csv", "modes.csv"):
            (folder / name).write_text((folder / name).read_text().replace("from,to", "a.from,a.to"))
        return keys

    return write


def of_one_country(folder):
    """Write homes in regions of which a level repeats everything, and another one the counties."""
    keys = of_homes()(folder)
    rows = [{"nation": "all", "county": county, "part": f"{county}'s"} for county in ("A1", "A2", "B1", "B2")]
    pl.DataFrame(rows).write_csv(folder / "counties.csv")
    region = {"region": {"table": "counties.csv", "levels": ["nation", "county", "part"]}}
    ends = {"input": keys["input"] | {"region": "part"}, "release": {"group_sizes": {"region": "part", "largest": 6}}}
    people = pl.read_csv(folder / "people.csv").with_columns(part=pl.col("county") + "'s")
    people.drop("county").write_csv(folder / "people.csv")
    return keys | {"hierarchy": region, **ends}


UNLISTED = {
    "hierarchy": {"from": {"levels": ["zone"]}, "to": {"table": "zones.csv", "levels": ["district", "zone"]}},
    "release": {"order": ["to.district", "from", "to"]},
}
WALKED = [name for name, recipe in MECHANISMS.items() if recipe.cells == "survivors"]
ON_EVERY_NODE = [name for name, recipe in MECHANISMS.items() if recipe.split or name == "unbiased_tree"]
COUNTING_GROUPS = [name for name, recipe in MECHANISMS.items() if recipe.counts_groups]
WITH_LIST = [name for name in COUNTING_GROUPS if MECHANISMS[name].takes_list]

# what is released: what writes its tables to a folder and returns the keys of its spec, and the mechanisms by which it is
FAMILIES = {
    "trips": (of_trips(), [*WALKED, "gaussian", "stability_histogram"]),
    "features in turn": (of_town(**NO_VIEWS), ["inftda_reconciled", "inftda_shrunk"]),
    "levels that repeat": (
        of_town(ONE_NATION, derived=None, release={"order": ["from.nation", "to", "from"]}),
        ["inftda", "inftda_reconciled", "inftda_lenient", "inftda_shrunk"],
    ),
    "ordered ages": (of_people(), ["inftda_reconciled", *ON_EVERY_NODE]),
    "ages alone": (of_people(**ages.BY_AGE), ["optimal_ranges"]),
    "a grid": (of_people(**ages.GRID), ON_EVERY_NODE),
    "regions, sex and ages": (of_product, [*ON_EVERY_NODE, "optimal_ranges"]),
    "ranges of two axes": (of_people(**ages.GRID), ["optimal_ranges"]),
    "a grid of trips": (of_trips(release={"grid": ["origin", "destination"], "finest": "province"}), ["unbiased_tree"]),
    "views": (of_town(), ["cbdp", "inftda_reconciled", "inftda_shrunk", *ON_EVERY_NODE]),
    "margins": (of_town(derived=None, release__views="margins"), ["inftda"]),
    "sizes": (of_homes(), COUNTING_GROUPS),
    "sizes within a list": (of_homes(**households.LISTED), WITH_LIST),
    "sizes by tenure": (of_homes(**households.TENURE), COUNTING_GROUPS),
    "sizes with views": (of_homes(**households.VIEWS), COUNTING_GROUPS),
    "sizes by tenure within a list": (of_homes(**households.LISTED_TENURE), WITH_LIST),
    "codes that no codebook lists": (of_town(**NO_VIEWS, **UNLISTED), ["stability_histogram"]),
}


def of_counties(largest=households.LARGEST, region="county", **changes):
    """Return what writes homes, of which some sizes are counted in some regions."""
    return of_homes(release={"group_sizes": {"region": region, "largest": largest}}, **changes)


ONE_CODE = {"zone": {"values": ["n", "s"]}, "age": {"ordered": 1}}
NO_POWERS = {"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 11, "branching": 3}}
ONE_COUNTRY = "country,district,zone\n" + "".join(f"X,{district},{zone}\n" for district, zone in town.ZONES)
MEETING = {"home": {"to": "country"}, "starts": {"from": "district", "to": "country"}, "ends": {"to": "zone"}}
BY_CODE = {"hierarchy": {"region": {"values": ["A1", "A2", "B1", "B2", "B3"]}}}
OF_COUNTY = {"input": households.SPEC["input"] | {"region": "county"}}

ONE_AGE = {"hierarchy": {"zone": ages.GRID["hierarchy"]["zone"], "age": {"ordered": 1}}}
ONE_ZONE = {"hierarchy": {"zone": ["0"], "age": {"ordered": 10}}}
ONE_LEAF = {"hierarchy": {"zone": {"ordered": ["0"]}, "age": {"ordered": 1}}}
GROUPS_AT_ONCE = {"csv": "every_level", "records": True, "intervals": {"simultaneous": True}}
OF_MEETING = {"derived": None, "release": {"order": ["from", "to"], "views": MEETING}}

# at the edge of what is allowed
EDGES = {
    "ages of nobody": (nobody(of_people()), ON_EVERY_NODE),
    "a grid of nobody": (nobody(of_people(**ages.GRID)), [*ON_EVERY_NODE, "optimal_ranges"]),
    "ages of nobody without noise": (nobody(of_people(privacy=ages.PRIVACY | {"epsilon": 240.0})), ON_EVERY_NODE),
    "homes of nobody without noise": (nobody(of_homes(**households.EXACT)), COUNTING_GROUPS),
    "views of nobody": (nobody(of_town()), ["cbdp", "unbiased_tree"]),
    "homes of nobody": (nobody(of_homes()), COUNTING_GROUPS),
    "leaves of nobody": (nobody(of_trips()), ["stability_histogram"]),
    "one leaf": (of_people(in_one("zone", "age"), **ONE_LEAF), ON_EVERY_NODE),
    "an axis of one area": (of_people(in_one("age"), hierarchy=ONE_CODE), ON_EVERY_NODE),
    "one age": (of_people(in_one("age"), **ages.BY_AGE | {"hierarchy": {"age": {"ordered": 1}}}), ["optimal_ranges"]),
    "ages alone of nobody": (nobody(of_people(**ages.BY_AGE)), ["optimal_ranges"]),
    "no power of three": (of_people(hierarchy=NO_POWERS), ON_EVERY_NODE),
    "a grid with one code": (of_people(in_one("age"), **ages.GRID | ONE_AGE), [*ON_EVERY_NODE, "optimal_ranges"]),
    "a grid with one zone": (of_people(in_one("zone"), **ages.GRID | ONE_ZONE), [*ON_EVERY_NODE, "optimal_ranges"]),
    "a grid of one leaf": (of_people(in_one("zone", "age"), **ages.GRID | ONE_LEAF), ON_EVERY_NODE),
    "ranges of one leaf": (of_people(in_one("zone", "age"), **ages.GRID | ONE_LEAF), ["optimal_ranges"]),
    "a grid with no powers": (of_people(**ages.GRID | {"hierarchy": NO_POWERS}), ON_EVERY_NODE),
    "one view of one cell": (of_town(release__views={"total": {}}), ["cbdp", "unbiased_tree"]),
    "views that are levels": (of_town(release__views={"pairs": town.VIEWS["pairs"]}), ["inftda", "unbiased_tree"]),
    "views that codebooks make levels": (of_town(ONE_COUNTRY, **OF_MEETING), ["inftda", "unbiased_tree"]),
    "dots in names": (dotted({"m": {"mode": "mode", "a.to": "district"}}), ["cbdp"]),
    "dots in margins": (dotted("margins"), ["cbdp"]),
    "one home": (of_homes(lambda homes: homes.head(1)), COUNTING_GROUPS),
    "one size": (of_counties(1), COUNTING_GROUPS),
    "every home is larger": (of_counties(2, of=lambda homes: homes.with_columns(people=9)), COUNTING_GROUPS),
    "more sizes than homes": (of_counties(2000, **households.LISTED), WITH_LIST),
    "states alone": (of_counties(region="state"), COUNTING_GROUPS),
    "regions by their codes": (of_counties(region="region", **BY_CODE, **OF_COUNTY), COUNTING_GROUPS),
    "regions that repeat": (of_one_country, WITH_LIST),
    "sizes by shares": (of_homes(privacy=households.PRIVACY | {"split": [1, 2, 3]}), COUNTING_GROUPS),
    "sizes with all there is": (of_homes(release=households.SPEC["release"] | GROUPS_AT_ONCE), ["group_sizes"]),
}


def listed(table, *, of_all):
    """Return the mechanisms of a table with all their laws and neighbours, or with the first law and one kind of neighbours."""
    return [
        pytest.param(write, mechanism, law, neighbours, id=f"{family} by {mechanism}, {law}, {neighbours}")
        for family, (write, mechanisms) in table.items()
        for mechanism in mechanisms
        for law in list(MECHANISMS[mechanism].laws)[: None if of_all else 1]
        for neighbours in (["add_remove", "substitution"] if of_all else ["add_remove"])
    ]


@pytest.fixture
def spec_of(tmp_path):
    """Return what writes the tables and the spec of a family."""

    def written(write, mechanism, law, neighbours, **privacy):
        spec = write(tmp_path) | {"mechanism": mechanism, "budget": {"epsilon": 1e4, "delta": 1e-3}}
        spec["privacy"] = spec["privacy"] | {"neighbours": neighbours, **privacy}
        spec["privacy"].pop("accountant", None)
        if law == "gaussian":
            spec["privacy"]["accountant"] = "zcdp"  # pld takes seconds
        spec["noise"] = {} if mechanism == "stability_histogram" else {"law": law}
        return spec_in(tmp_path, spec)

    return written


RELEASED = ("write", "mechanism", "law", "neighbours")


def check(plan, trial):
    """Check that rows and views are whole, add up, and lie within their intervals, of which those that hold at once are wider."""
    check_rows(trial, is_nested=True)
    is_calibrated = plan.named_views and plan.levels[-1].source is None and plan.mechanism.finish
    if not is_calibrated:  # views to which levels are calibrated are read from the store alone
        check_views(plan, trial)


def check_views(plan, trial):
    """Check that views have every cell once, in order, and are sums of one another and of the leaves, unless those are calibrated to them."""
    parts = {part.level: part for part in (*plan.levels, *plan.views)}
    tables = [pl.DataFrame({"count": trial.released[0].counts}), leaves_of(plan, trial)]
    for view in plan.named_views:
        cells, _ = trial.published.cells(view.number)
        rows = pl.DataFrame(view_table(trial.job.partition(view.number), frozenset(), cells))
        assert rows.height == parts[view.number].possible_cells == len({row[:-3] for row in rows.iter_rows()})
        assert rows["count"].dtype == pl.Int64
        if "counts_positive" not in plan.mechanism.waived:  # and so the axes have no order of their own
            assert (rows["count"] >= 0).all()
            assert rows.rows() == sorted(rows.rows())
        assert ((rows["low"] <= rows["count"].clip(0)) & (rows["count"] <= rows["high"])).all()
        tables.append(rows.drop("low", "high"))
    for coarse, fine in product(tables, tables):
        if set(codes := coarse.columns[:-1]) < set(fine.columns[:-1]):
            assert added_up(fine, codes) == added_up(coarse, codes)


def added_up(table, codes):
    """Return what a table counts by some of its codes, without cells of 0."""
    if not codes:
        return {(): table["count"].sum()}
    return {tuple(row[:-1]): row[-1] for row in table.group_by(codes).agg(pl.sum("count")).iter_rows() if row[-1]}


def leaves_of(plan, trial):
    """Return the finest level with the codes of all levels, and those of the town's derived column if it has one."""
    tree, flat = trial.job.tree, flat_features(yaml.safe_load(plan.file.text))
    nodes, codes = trial.released[-1], dict[str, pl.Series]()
    for axis, reached, areas in zip(tree.axes, tree.axis_levels(tree.depth), nodes.areas, strict=True):
        for own in range(1, reached + 1):
            above = axis.ancestors(areas.astype(np.int64), reached, own)
            codes[column_name(axis.name, axis.level_names[own - 1], flat)] = axis.codes[own - 1].gather(above)
    if "band" in plan.derived:
        codes["band"] = pl.Series([households.BANDS[size] for size in codes["size"]], dtype=pl.String)
    if "mode" in plan.derived:
        pairs = zip(*(codes[name] for name in codes if name.endswith("_zone")), strict=True)
        codes["mode"] = pl.Series([town.mode_of(*pair) for pair in pairs], dtype=pl.String)
    return pl.DataFrame(codes | {"count": nodes.counts})


@pytest.mark.parametrize(RELEASED, listed(FAMILIES, of_all=True))
def test_counts_add_up_and_are_sealed_as_they_are_charged(spec_of, write, mechanism, law, neighbours):
    """Rows and views are sums within their intervals; all that is measured is charged by name, adds up to the budget, and is sealed."""
    plan, table, trial = try_spec(spec_of(write, mechanism, law, neighbours))
    check(plan, trial)
    charges, is_exact = trial.job.record.charges, plan.levels[0].is_invariant
    assert charges.keys() == {part.level for part in (*plan.levels, *plan.views) if part.rho or part.epsilon}
    assert {level for level, _ in trial.job.record.shards["noisy"]} == charges.keys() | ({0} if is_exact else set())
    assert {charge.state for charge in charges.values()} == {"sealed"}
    if plan.mechanism.cells == "universe":  # zeros too
        assert trial.job.record.cells_of(plan.levels[-1].level)[0] == plan.levels[-1].possible_cells
    names = {view.number: view.name for view in plan.named_views}
    assert [charge.view for charge in charges.values()] == [names.get(level, "") for level in charges]
    assert sum(charge.rho for charge in charges.values()) == Fraction(plan.guarantee.rho)
    spent, epsilon = sum(Fraction(charge.epsilon) for charge in charges.values()), plan.file.spec.privacy.epsilon
    assert not spent if plan.guarantee.rho else 0.999 * epsilon < spent <= epsilon
    may_differ = plan.mechanism.counts_groups or "fixed_total" in plan.mechanism.waived
    assert is_exact == (neighbours == "substitution" and not may_differ)
    if is_exact:
        assert trial.released[0].counts.tolist() == table.levels[0].true_counts.tolist()


def far_below(true_counts, scale, threshold=None):
    """Return noisy counts far below zero, none of which reaches a threshold."""
    noisy = true_counts - 100_000
    return noisy if threshold is None else (np.zeros(0, dtype=np.int64), noisy[:0])


@pytest.mark.parametrize(RELEASED, listed(FAMILIES, of_all=False))
def test_without_noise_everything_is_the_truth(spec_of, write, mechanism, law, neighbours):
    """Every level is the true one, and with it every view."""
    plan, table, trial = try_spec(spec_of(write, mechanism, law, neighbours, epsilon=60.0), no_noise)
    check(plan, trial)
    for nodes, true in zip(trial.released, table.levels, strict=True) if not plan.mechanism.counts_groups else ():
        cells = zip(*(areas.tolist() for areas in true.areas), strict=True)
        found = {cell: count for cell, count in counts_of(nodes).items() if count}
        assert found == dict(zip(cells, true.true_counts.tolist(), strict=True))


@pytest.mark.parametrize(RELEASED, listed(FAMILIES, of_all=False))
def test_nothing_is_released_of_nobody_and_of_noise_far_below_zero(spec_of, write, mechanism, law, neighbours):
    """An empty table, and counts that are all negative, are sums of whole counts; where counts are positive, the latter are none."""
    check(*try_spec(spec_of(nobody(write), mechanism, law, neighbours))[::2])
    plan, _, trial = try_spec(spec_of(write, mechanism, law, neighbours), far_below)
    check(plan, trial)
    if "counts_positive" not in plan.mechanism.waived and not (plan.mechanism.counts_groups and plan.source.groups):
        assert [int(nodes.counts.sum()) for nodes in trial.released] == [0] * len(plan.levels)
        assert {charge.state for charge in trial.job.record.charges.values()} == {"sealed"}


@pytest.mark.parametrize(RELEASED, listed(EDGES, of_all=False))
def test_edges_add_up(spec_of, write, mechanism, law, neighbours):
    """Universes of one leaf, views that are levels, sizes that nobody has, are like any others."""
    check(*try_spec(spec_of(write, mechanism, law, neighbours))[::2])


WHOLE = ["homes of nobody without noise", "one leaf", "one view of one cell", "one size"]


@pytest.mark.parametrize("edge", [pytest.param(edge, marks=[] if edge in WHOLE else [thorough]) for edge in EDGES])
def test_edges_are_published_and_verified(spec_of, edge):
    """What is published of them is what `verify` and `audit` expect."""
    write, mechanisms = EDGES[edge]
    mechanism = mechanisms[list(EDGES).index(edge) % len(mechanisms)]
    law = next(iter(MECHANISMS[mechanism].laws))
    folder = release(spec_of(write, mechanism, law, "add_remove")).folder
    assert verify_answer(folder).failures == []
    with store():
        assert audit_answer([folder]).findings == []
