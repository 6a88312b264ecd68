"""What a plan measures of views: each cell once, under its name, with its weight and by the right law."""

from fractions import Fraction

import pytest

from flows.forecast.answer import plan_answer
from storage.errors import SpecError
from tests.support.town import DISTRICT, NAMES, Town


@pytest.fixture
def town(tmp_path, own_home):
    """Return a town with a store of its own."""
    return Town(tmp_path)


def shares(town, **changes):
    """Return the share of everything that is measured, by its number and the view that has its cells."""
    plan = town.plan(**changes)
    scheme = plan.scheme
    names = {terms.level: terms.view for terms in (*plan.levels, *plan.views)}
    return {(of, names[of]): own for of, own in zip(scheme.measured, scheme.allocation.shares, strict=True)}


def test_auto_takes_the_law_with_less_noise_at_the_leaves(town):
    """Where the leaves have nearly the whole budget the law is Laplace, however little a view has; with little of it, Gaussian."""
    views = {"by_mode": {"mode": "mode"}}
    laws = [
        town.plan(release__views=views, noise={"law": "auto"}, privacy__split={"leaves": weight, "by_mode": other}).law
        for weight, other in ((1000, 1), (1, 1000))
    ]
    assert laws == ["laplace", "gaussian"]


def test_levels_that_views_repeat_are_levels_of_a_tree(town):
    """A mechanism that measures all levels has a share for each, also where all views are levels; a weight moves it to the view."""
    views = {"pairs": {"from": "district", "to": "district"}}
    plain = shares(town, mechanism="inftda", release__views=views)
    assert plain == {(of, "pairs" if of == 2 else ""): Fraction(1, 5) for of in range(5)}
    weighted = shares(town, mechanism="inftda", release__views=views, privacy__split={"pairs": 3, "tree": 2})
    assert weighted == {
        (of, "pairs" if of == 2 else ""): Fraction(3 if of == 2 else Fraction(1, 2), 5) for of in range(5)
    }


def in_one_country(town, *, of_districts=True):
    """Return the keys of a release whose zones lie in one country, in districts of their own if they are not those of the town."""
    rows = "".join(f"X,{DISTRICT[zone] if of_districts else f'd{zone}'},{zone}\n" for zone in NAMES)
    (town.folder / "zones.csv").write_text(f"country,district,zone\n{rows}")
    codebook = {"table": "zones.csv", "levels": ["country", "district", "zone"]}
    return {"hierarchy": {"from": codebook, "to": codebook}, "derived": None, "release__order": ["from", "to"]}


@pytest.mark.parametrize(
    ("mechanism", "neighbours"),
    [("cbdp", "substitution"), ("cbdp", "add_remove"), ("inftda_reconciled", "substitution")],
)
def test_a_view_with_the_cells_of_a_level_by_the_codebooks_takes_no_share(town, mechanism, neighbours):
    """The level is measured in its place, or exact if it is everything and public; the intervals of the view follow from it."""
    keys = in_one_country(town)
    views = {"home": {"to": "country"}, "pairs": {"from": "district", "to": "country"}, "zones": {"to": "zone"}}
    plan = town.plan(**keys, release__views=views, mechanism=mechanism, privacy__neighbours=neighbours)
    home, pairs, zones = plan.views
    is_public = neighbours == "substitution"
    root, districts = (0 if is_public else 1), 2
    assert [(home.view, home.source), (pairs.view, pairs.source)] == [("home", root), ("pairs", districts)]
    assert (home.sigma == 0) == is_public
    assert [(of.is_summed, of.is_charged) for of in plan.views] == [(True, False), (True, False), (False, True)]
    assert (pairs.sigma, pairs.mechanism) == (plan.levels[districts].sigma, plan.levels[districts].mechanism)
    measured = {root, districts, 6} | ({4, 5} if mechanism != "cbdp" else set())
    assert set(plan.scheme.measured) == measured - ({0} if is_public else set()) | {zones.level}
    assert sum(plan.scheme.allocation.shares) == 1


def test_margins_leave_out_what_others_hold(town):
    """One country has the total; districts of one zone each have the totals of their zones, whose table names the districts too."""
    # Of one axis alone districts are left beside zones, which are the leaves; where nothing is left, the spec is refused.
    margins = {"release__views": "margins"}
    one = {"input": {"table": "trips.csv", "features": ["from"], "count": "n"}, "derived": None, **margins}
    one |= {"release__order": ["from"], "hierarchy": {"from": {"table": "zones.csv", "levels": ["district", "zone"]}}}
    names = [[terms.name for terms in town.plan(**keys).named_views] for keys in (margins, one)]
    assert names == [["from_district", "from_zone", "to_district", "to_zone"], ["from_district"]]
    with pytest.raises(SpecError, match="margins must stand for some totals") as refused:
        town.plan(**one | {"hierarchy": {"from": NAMES}})
    assert refused.value.field == "release.views"
    plan = town.plan(**in_one_country(town), **margins)
    assert [terms.name for terms in plan.named_views] == names[0]
    keys = in_one_country(town, of_districts=False) | margins
    assert [terms.name for terms in town.plan(**keys).named_views] == ["from_zone", "to_zone"]
    with pytest.raises(SpecError, match="must not name to_country"):
        town.plan(**keys, privacy__split={"to_country": 2})


def test_one_way_views_are_the_finest_totals_and_cost_little_beside_priors(town):
    """Each costs a fifth of what levels do in the mean where priors count the leaves, which cost more, and more below ε = 1; elsewhere both cost a quarter of what five levels do."""
    rows = [("inftda_shrunk", 1.0, "26/125", "6/5"), ("inftda_shrunk", 0.5, "52/125", "6/5"), ("inftda_shrunk", 0.1, "13/25", "6/5"), ("inftda_reconciled", 0.5, "5/8", "1")]  # fmt: skip
    for mechanism, epsilon, part, leaves in rows:
        plan = town.plan(mechanism=mechanism, release__views="one_way", derived=None, privacy__epsilon=epsilon)
        shares = plan.scheme.allocation.shares
        assert [terms.name for terms in plan.named_views] == ["from_zone", "to_zone"]
        assert [of / shares[0] for of in shares] == [*[1] * 4, Fraction(leaves), Fraction(part), Fraction(part)]


def test_a_view_of_one_cell_is_measured_once_or_public(town):
    """Everything in one cell is measured once under add_remove, and under substitution it is exact and costs nothing."""
    views = {"total": {}, "living": {"from": "zone"}}
    assert set(shares(town, release__views=views)) == {(0, "total"), (4, ""), (5, "living")}
    assert set(shares(town, release__views=views, privacy__neighbours="substitution")) == {(4, ""), (5, "living")}


@pytest.mark.parametrize("mechanism", ["cbdp", "inftda_reconciled"])
def test_a_plan_names_views_whose_cells_count_less_than_the_noise(town, mechanism):
    """Also those that are levels, by the cells that some leaf can be in: no bus starts in B, so `mode_from` has five of six."""
    plan = town.plan(mechanism=mechanism)
    sigma = {terms.view: terms.sigma for terms in (*plan.levels, *plan.views) if terms.view}
    cells = {"total": 1, "living": 4, "working": 4, "by_mode": 3, "mode_from": 5, "pairs": 4}
    assert {terms.view: terms.possible_cells for terms in (*plan.levels, *plan.views) if terms.view} == cells
    for total in (round(4 * sigma["pairs"]) - 2, round(5.5 * max(sigma.values()))):
        forecast = plan_answer(town.plan(mechanism=mechanism, expected_total=total))
        below = [name for name, many in cells.items() if total / many < sigma[name]]
        assert forecast.typical
        assert forecast.typical.views_below_noise == below
        assert ("pairs" in below) == (total < 4 * sigma["pairs"])


def test_more_memory_than_settling_may_take_is_refused(town):
    """A million leaves do not fit into 256 MB: the refusal names the key and how much is enough, and so much is."""
    many = {"values": 1000}
    keys = {"hierarchy": {"from": many, "to": many}, "derived": None, "release__order": ["from", "to"]}
    keys |= {"release__views": "margins"}
    with pytest.raises(SpecError, match=r"run\.max_memory must be at least 0\.5") as refused:
        town.plan(**keys, run={"prefect": False, "max_memory": "256MB"})
    assert refused.value.field == "run.max_memory"
    enough = str(refused.value).split("at least ")[1].split(":")[0]
    plan = town.plan(**keys, run={"prefect": False, "max_memory": enough})
    needed = plan_answer(plan).settling_memory
    assert needed == 1_000_000 * (400 + 16 * 2) + 24 * 2000**2 + 50_000_000
    assert float(enough.removesuffix("GB")) * 1e9 >= needed
    assert plan_answer(town.plan(mechanism="inftda", release__views=None, derived=None)).settling_memory is None
