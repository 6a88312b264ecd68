"""What a plan measures of views: each cell once, under its name, with its weight and by the right law."""

from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.town import NAMES, Town


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """Return a town with a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return Town(tmp_path)


def shares(town: Town, **changes: object) -> dict[tuple[int, str], Fraction]:
    """Return the share of everything that is measured, by its number and the view that has its cells."""
    plan = town.plan(**changes)
    scheme = plan.scheme
    names = {terms.level: terms.view for terms in (*plan.levels, *plan.views)}
    return {(of, names[of]): own for of, own in zip(scheme.measured, scheme.allocation.shares, strict=True)}


def test_auto_takes_the_law_with_less_noise_at_the_leaves(town: Town) -> None:
    """Where the leaves have nearly the whole budget the law is Laplace, however little a view has; with little of it, Gaussian."""
    views = {"by_mode": {"mode": "mode"}}
    laws = [
        town.plan(release__views=views, noise={"law": "auto"}, privacy__split={"leaves": weight, "by_mode": other}).law
        for weight, other in ((1000, 1), (1, 1000))
    ]
    assert laws == ["laplace", "gaussian"]


def test_levels_that_views_repeat_are_levels_of_a_tree(town: Town) -> None:
    """A mechanism that measures all levels has a share for each, also where all views are levels; a weight moves it to the view."""
    views = {"pairs": {"from": "district", "to": "district"}}
    plain = shares(town, mechanism="inftda", release__views=views)
    assert plain == {(of, "pairs" if of == 2 else ""): Fraction(1, 5) for of in range(5)}
    weighted = shares(town, mechanism="inftda", release__views=views, privacy__split={"pairs": 3, "tree": 2})
    assert weighted == {
        (of, "pairs" if of == 2 else ""): Fraction(3 if of == 2 else Fraction(1, 2), 5) for of in range(5)
    }


def test_a_view_of_a_level_that_repeats_another_has_its_own_weight(town: Town) -> None:
    """Where a level repeats the one above, both have one measurement, and views of both weigh together."""
    rows = "".join(f"X,d{zone},{zone}\n" for zone in NAMES)
    (town.folder / "zones.csv").write_text(f"country,district,zone\n{rows}")
    codebook = {"table": "zones.csv", "levels": ["country", "district", "zone"]}
    keys = {"hierarchy": {"from": codebook, "to": codebook}, "derived": None, "release__order": ["from", "to"]}
    one = {"country": {"from": "country"}, "district": {"from": "district"}}
    alike = one | {"zone": {"from": "zone"}, "beside": {"from": "zone", "to": "country"}}
    found = shares(
        town,
        **keys,
        release__views=alike,
        privacy__split={"district": 1, "zone": 2, "beside": 3, "country": 1, "leaves": 3},
    )
    assert found == {(1, "country"): Fraction(1, 10), (4, "district"): Fraction(6, 10), (6, ""): Fraction(3, 10)}


def test_a_view_of_one_cell_is_measured_once_or_public(town: Town) -> None:
    """Everything in one cell is measured once under add_remove, and under substitution it is exact and costs nothing."""
    views = {"total": {}, "living": {"from": "zone"}}
    assert set(shares(town, release__views=views)) == {(0, "total"), (4, ""), (5, "living")}
    assert set(shares(town, release__views=views, privacy__neighbours="substitution")) == {(4, ""), (5, "living")}
