"""Series declared in advance: their days, what they cost together, what abandoning one of them gives back, and the audit."""

import asyncio
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prefect.client.schemas.schedules import CronSchedule
from prefect.server.schemas.schedules import CronSchedule as ServedCronSchedule
from scipy.optimize import minimize_scalar

import flows.run.series
from flows.answers.audit import audit_answer
from flows.planning.budget import abandon, charge_in_words, declare
from flows.planning.composition import standing_of
from flows.planning.guarantee import Guarantee, epsilon_of_series
from flows.planning.plan import make_plan
from flows.run.driver import rehearse
from flows.run.ending import abandon_release
from flows.run.reservation import new_release
from flows.run.runner import submit_to
from flows.run.series import declare_series, foresee_series
from flows.specification.file import load_spec
from flows.specification.sections.schedule import MOST_RELEASES, day_of, days_of_series
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, SpecError, StoreError
from storage.ledger.accounts import Asked, Claim, Series
from storage.ledger.events import Reservation, advance, head, read_books
from storage.ledger.spending import Contributions, Spending
from storage.releases.parts import Part
from storage.releases.register import find_release, list_releases, set_state, state_of
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, uniform
from tasks.accounting.conversions import zcdp_epsilon
from tasks.synthesize.areas import write_country
from tests.support.cases import country_of
from tests.support.ledger import cap_at, events_of, replace_ledger
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in

DELTA = 1e-6
ROME = ZoneInfo("Europe/Rome")
LEVELS = 2
ONE_RECORD = Contributions("promise", distinct=None, exact_records_per_unit=True, max_records_per_unit=1)


# the days -------------------------------------------------------------------------------------------------------------


@given(
    cron=st.sampled_from(["0 3 1 * *", "30 2 * * *", "*/20 * * * *", "0 0 * * 0", "59 23 31 * *"]),
    timezone=st.sampled_from(["Europe/Rome", "UTC", "Pacific/Auckland", "America/Sao_Paulo"]),
    after=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    many=st.integers(1, 20),
)
@settings(max_examples=40)
def test_a_series_has_its_days_once_and_in_their_order(cron, timezone, after, many):
    """So many releases are so many days, none before the declaration, and as many up to the last of them."""
    found = days_of_series(cron, timezone, f"{many} releases", after)
    assert len(found) == len(set(found)) == many
    assert found == sorted(found)
    assert found[0] >= day_of(after, timezone)
    assert days_of_series(cron, timezone, found[-1].isoformat(), after) == found
    assert days_of_series(cron, timezone, (found[-1] - timedelta(1)).isoformat(), after) == found[:-1]


@pytest.mark.parametrize("changes", [datetime(2027, 3, 27, 12, tzinfo=ROME), datetime(2027, 10, 30, 12, tzinfo=ROME)])
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 */2 * * *", "0 0 * * *"])
def test_a_day_on_which_the_clock_changes_is_a_day_once(changes, cron):
    """Where half past two does not come, or comes twice, the day has one release, as Prefect's schedule has it."""
    first = changes.date() + timedelta(0 if cron == "0 */2 * * *" else 1)
    expected = [first + timedelta(number) for number in range(3)]
    assert days_of_series(cron, "Europe/Rome", "3 releases", changes) == expected
    served = ServedCronSchedule.model_validate(CronSchedule(cron=cron, timezone="Europe/Rome").model_dump())
    moments = asyncio.run(served.get_dates(40, changes + timedelta(minutes=1)))
    ours = (datetime.fromisoformat(moment.isoformat()) for moment in moments)
    coming = list(dict.fromkeys(day_of(moment, "Europe/Rome") for moment in ours))
    assert coming[:3] == expected


def test_a_series_ends_on_its_last_day(place):
    """The end counts, in the schedule's own time zone; where no day is left, or more than a series may have, the end is refused."""
    monthly = days_of_series("0 3 1 * *", "Europe/Rome", "2027-03-01", NOW)
    assert monthly == [date(2027, 2, 1), date(2027, 3, 1)]
    late = datetime(2027, 1, 15, 12, 30, tzinfo=UTC)  # half past one in the night of the 16th in Auckland
    for cron, timezone, day in (("0 3", "Pacific/Auckland", 16), ("0 3", "UTC", 16), ("0 1", "Pacific/Auckland", 17)):
        assert days_of_series(f"{cron} * * *", timezone, "1 release", late) == [date(2027, 1, day)]
    # so that none thinks it whole
    assert len(days_of_series("0 3 * * *", "UTC", "2099-12-31", NOW)) == MOST_RELEASES + 1
    for until, words in (("2027-01-31", "no day left"), ("2200-01-01", "at most 1000")):
        with pytest.raises(SpecError, match=words) as refusal:
            place.declare(schedule=SPEC["schedule"] | {"until": until})
        assert refusal.value.field == "schedule.until"
    assert place.events() == []


# what a series costs --------------------------------------------------------------------------------------------------


def guarantee_at(accountant, rho, squares):
    """Return a guarantee of some noise; its own ε does not matter here."""
    measurements = Allocation(uniform(len(squares)), squares).measurements(rho)
    return Guarantee(ACCOUNTANTS[accountant], 1.0, DELTA, measurements)


def true_delta(measurements, epsilon):
    """Return δ at ε of discrete Gaussians of one σ, computed from their probabilities with nothing rounded."""
    # Of one, at x, the privacy loss is (1 - 2x) / 2σ²; of k together it depends on their sum, a k-fold convolution.
    [sigma] = {measurement.sigma for measurement in measurements}
    times = sum(measurement.l2_sensitivity_squared for measurement in measurements)
    reach = math.ceil(12 * sigma)
    one = np.exp(-np.square(np.arange(-reach, reach + 1)) / (2 * sigma**2))
    together = one = one / one.sum()
    for _ in range(times - 1):
        together = np.convolve(together, one)
    sums = np.arange(len(together)) - times * reach
    losses = (times - 2 * sums) / (2 * sigma**2)
    return float(together @ np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses))))


@pytest.mark.parametrize(("squares", "releases", "rho"), [((2, 2), 3, Fraction(1, 8)), ((1, 1, 1), 4, Fraction(1, 30))])
def test_the_statement_of_a_series_is_the_true_composition(squares, releases, rho):
    """By pld it is never less than what the probabilities come to, and within two parts in a hundred of it."""
    guarantee = guarantee_at("pld", rho, squares)
    epsilon = epsilon_of_series(guarantee, releases, DELTA)
    together = guarantee.measurements * releases
    assert true_delta(together, epsilon) <= DELTA
    assert true_delta(together, epsilon * 0.98) > DELTA
    assert epsilon < zcdp_epsilon(releases * rho, DELTA)
    assert epsilon_of_series(guarantee, releases + 1, DELTA) > epsilon
    wide = guarantee_at("pld", Fraction(1, 10**10), squares)  # noise out of its range: the other statement holds
    assert epsilon_of_series(wide, 10, DELTA) == zcdp_epsilon(10 * wide.rho, DELTA)


@pytest.mark.parametrize("accountant", ["zcdp", "lemma"])
@given(rho=st.fractions(Fraction(1, 1000), Fraction(1, 5), max_denominator=1000), releases=st.integers(1, 30))
@settings(max_examples=20)
def test_a_series_without_pld_converts_the_sum_of_its_rho(accountant, rho, releases):
    """By the other accountants it is Proposition 12 of Canonne, Kamath and Steinke at the sum, minimised by hand."""
    epsilon = epsilon_of_series(guarantee_at(accountant, rho, (2, 2)), releases, DELTA)

    def at(log_of_alpha_less_one):
        alpha = 1 + math.exp(log_of_alpha_less_one)
        return alpha * releases * float(rho) + math.log1p(-1 / alpha) - math.log(alpha * DELTA) / (alpha - 1)

    assert epsilon == pytest.approx(minimize_scalar(at, bounds=(-12, 12), method="bounded").fun, rel=1e-6)


# the ledger -----------------------------------------------------------------------------------------------------------


CAP = cap_at(1.0, DELTA)


def declare_of(con, rho, epsilon, ids=("a", "b", "c")):
    """Declare a series of releases of two levels that costs so much ρ in all, and states ε of itself."""
    share = rho / len(ids) / LEVELS
    levels = [Part(level, {}, 2, False, share, 1.5, 2, 3.0) for level in range(LEVELS)]
    asked = Asked("jobs", "one job", "substitution", CAP)
    claims = [Claim(id_, "jobs", "zcdp", math.inf, DELTA, "jobs.csv", (), False, ONE_RECORD) for id_ in ids]
    with transaction(con):
        whole = Spending(rho, (), epsilon, DELTA)
        declare(con, "jobs", [Reservation(asked, levels, claim) for claim in claims], whole)


def test_a_series_counts_as_one_by_its_own_statement(con):
    """It is let in although its ρ is beyond the cap's, each release reserved once; with others it counts by ρ, as the ledger's model has it."""
    with pytest.raises(StoreError, match="once"):
        declare_of(con, CAP.rho / 10, 0.0, ["x", "x"])
    declare_of(con, CAP.rho * Fraction(11, 10), epsilon=0.9)
    account = read_books(con).accounts["jobs"]
    [spending] = account.spendings
    assert (spending.rho, spending.epsilon) == (CAP.rho * Fraction(11, 10), 0.9)
    assert account.series == {"a": Series("a", "jobs", "jobs", ("a", "b", "c"), 0.9, DELTA)}
    assert {claim.series for claim in account.claims.values()} == {"a"}
    assert account.standing == standing_of(account.spendings, CAP)
    before = head(con)
    with pytest.raises(BudgetExceeded) as refusal:
        declare_of(con, CAP.rho / 10**6, 0.0, ["d"])
    assert refusal.value.left == 0
    assert head(con) == before


@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(11, 10)])
@pytest.mark.parametrize("drawn", range(LEVELS + 1))
def test_what_is_said_of_a_charge_is_what_abandoning_gives_back(con, share, drawn):
    """All, a part or nothing, by what is drawn, and by whether the release stands by its own statement alone."""
    declare_of(con, CAP.rho * share, epsilon=0.9, ids=["a"])
    for level in range(drawn):
        advance(con, "a", level, "drawing")
    if share < 1:
        with pytest.raises(StoreError, match="a is already reserved"):
            declare_of(con, CAP.rho / 10, 0.0, ["x", "a"])
    before, said = read_books(con).accounts["jobs"].spent, charge_in_words(read_books(con), "a")
    with transaction(con):
        abandon(con, "a")
    after = read_books(con).accounts["jobs"].spent
    part = "What it has drawn stays charged" if after < before else "Its whole charge stays."
    says = part if after else "Nothing is drawn"
    assert said.startswith(says)
    assert ("is given back if you run `trellis abandon a`" in said) == (after < before)
    said = charge_in_words(read_books(con), "a")
    assert said.startswith(says)
    assert ("was given back" in said) == (after < before)
    assert charge_in_words(read_books(con), "b") == "Nothing is charged."


def test_a_series_that_stood_by_its_own_statement_gives_nothing_back_once_any_of_it_is_drawn(con):
    """Not even a release of which nothing was drawn: else what was seen of the first could decide what follows."""
    declare_of(con, CAP.rho * Fraction(11, 10), epsilon=0.9)
    advance(con, "a", 0, "drawing")
    for release_id in ("b", "c", "a"):
        with transaction(con):
            abandon(con, release_id)
    assert read_books(con).accounts["jobs"].spent == CAP.rho * Fraction(11, 10)


# what a spec declares, and the audit ----------------------------------------------------------------------------------


SPEC = COUNTRY | {
    "name": "monthly",
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "municipality"]},
    "release": {"tree": "destination", "finest": "region"},
    "privacy": COUNTRY["privacy"] | {"epsilon": 1.0},
    "budget": {"epsilon": 1.7, "delta": 1.0e-7},
    "schedule": {"cron": "0 3 1 * *", "timezone": "Europe/Rome", "until": "3 releases"},
}
BY_PLD = {"privacy": SPEC["privacy"] | {"accountant": "pld"}}
NOW = datetime(2027, 1, 15, 12, tzinfo=UTC)
DAYS = ["2027-02-01", "2027-03-01", "2027-04-01"]
IDS = [f"monthly-{day}" for day in DAYS]


@dataclass(frozen=True)
class Place:
    """A folder with a country and a store of its own."""

    folder: Path

    def write(self, **keys):
        """Write the spec, with other keys, and return its path."""
        return spec_in(self.folder, SPEC | keys)

    def declare(self, now=NOW, **keys):
        """Declare the series of the spec, with other keys."""
        return declare_series(make_plan(load_spec(self.write(**keys))), now)

    def events(self):
        """Return the events of the ledger."""
        with store() as con:
            return events_of(con)


@pytest.fixture(scope="module")
def country(tmp_path_factory):
    """Write a made-up country, and return its folder."""
    folder = tmp_path_factory.mktemp("country")
    write_country(country_of(200, 3), folder / "data")
    return folder


@pytest.fixture
def place(country, own_home):
    """Return the country with a store of its own, which is open all the time."""
    with store():
        yield Place(country)


def test_a_spec_declares_its_series_once(place):
    """All releases are reserved on the first call, by a statement that is tighter than theirs, and again by none."""
    series = place.declare(**BY_PLD)
    assert (series.id, series.name, series.releases) == (IDS[0], "monthly", tuple(IDS))
    assert [event["event"] for event in place.events()] == ["dataset", "series", "reserved", "reserved", "reserved"]
    with store() as con:
        account = read_books(con).accounts["synthetic-country"]
        assert [state_of(con, id_) for id_ in IDS] == ["reserved"] * 3
        assert {find_release(con, id_).terms.series for id_ in IDS} == {IDS[0]}
    assert account.spent > account.terms.cap.rho  # by ρ it would not have been let in
    assert account.standing.epsilon == series.epsilon < account.terms.cap.epsilon
    assert place.declare(now=datetime(2027, 2, 20, tzinfo=UTC), **BY_PLD) == series
    assert len(place.events()) == 5
    assert audit_answer().findings == []
    with pytest.raises(BudgetExceeded):  # by hand, between two days
        new_release(make_plan(load_spec(place.write(**BY_PLD | {"name": "by-hand"}))))


def test_a_series_is_foreseen_without_a_reservation(place):
    """What `trellis up` says when it starts: the releases to come, or those that are reserved; what could not be declared is refused."""
    plan = make_plan(load_spec(place.write()))
    assert foresee_series(plan, NOW) == (IDS, False)
    with pytest.raises(BudgetExceeded):
        foresee_series(make_plan(load_spec(place.write(budget={"epsilon": 1.5, "delta": 1.0e-7}))), NOW)
    with store() as con:
        assert (list_releases(con), place.events()) == ([], [])
    place.declare()
    events = place.events()
    assert foresee_series(plan, datetime(2027, 2, 20, tzinfo=UTC)) == (tuple(IDS), True)
    assert place.events() == events


def test_the_spec_of_a_declared_series_is_not_released_beside_it(place):
    """By hand it is refused, rehearsed too, with the command that makes the next one; once the series is over it is not."""
    place.declare(budget={"epsilon": 9.0, "delta": 1.0e-7})
    plan = make_plan(load_spec(place.folder / "spec.yaml"))
    with store() as con, ThreadPoolExecutor(1) as executor:
        for next_one in IDS:
            events = place.events()
            for begin in (lambda: new_release(plan), lambda: rehearse(plan, submit_to(executor))):
                with pytest.raises(SpecError, match="releases of the series monthly are already reserved") as refusal:
                    begin()
                assert refusal.value.field == "schedule.until"
                assert f"`trellis rerun {next_one}`" in refusal.value.hint
            assert place.events() == events
            set_state(con, next_one, "published")
        assert new_release(plan).state == "reserved"


def test_what_does_not_fit_leaves_nothing(place):
    """Neither releases nor events of a series; of a release only its refusal, whose place and day the series may take."""
    with pytest.raises(BudgetExceeded):
        place.declare(budget={"epsilon": 1.5, "delta": 1.0e-7})
    with store() as con:
        assert (list_releases(con), head(con).length) == ([], 0)
    plan = make_plan(load_spec(place.write(privacy=SPEC["privacy"] | {"epsilon": 3.0})))
    for _ in range(2):
        with pytest.raises(BudgetExceeded) as refusal:
            new_release(plan, release_id=IDS[1])
        assert refusal.value.release_id == IDS[1]
    with store() as con:
        assert [(entry.id, entry.state) for entry in list_releases(con)] == [(IDS[1], "refused")]
    assert place.events() == []
    assert place.declare().releases == tuple(IDS)
    with store() as con:
        assert (state_of(con, IDS[1]), find_release(con, IDS[1]).reason) == ("reserved", "")


def test_another_spec_waits_until_the_series_is_over(place):
    """What is declared is not changed while any of it is to come; after it, days that were taken are not taken again."""
    place.declare()
    longer = SPEC["schedule"] | {"until": "4 releases"}
    with pytest.raises(SpecError, match="3 of its releases are still due") as refusal:
        place.declare(schedule=longer)
    assert refusal.value.field == "schedule"
    assert "another name" in refusal.value.hint
    for id_ in IDS:
        abandon_release(id_)
    with pytest.raises(SpecError, match=rf"the store already has {IDS[0]} \(state: abandoned\)") as refusal:
        place.declare(schedule=longer)
    assert refusal.value.field == "name"
    assert place.declare() == place.declare()  # the old one, which is over
    shorter = SPEC["schedule"] | {"until": "2 releases"}
    later = place.declare(now=datetime(2027, 6, 2, tzinfo=UTC), schedule=shorter)
    assert later.releases[0] == "monthly-2027-07-01"
    assert audit_answer().findings == []


def test_a_series_that_was_declared_a_moment_ago_is_not_declared_again(place, monkeypatch):
    """Where another declares it between the look and the reservation, its series is returned and nothing is added."""
    ahead = []

    def declared_meanwhile(*arguments):
        monkeypatch.setattr(flows.run.series, "days_of_series", days_of_series)
        ahead.append(place.declare())
        return days_of_series(*arguments)

    monkeypatch.setattr(flows.run.series, "days_of_series", declared_meanwhile)
    assert [place.declare()] == ahead
    assert [event["event"] for event in place.events()].count("series") == 1


@pytest.fixture(scope="module")
def declared(country, tmp_path_factory):
    """Declare a series that stands by its own statement, and return its store's folder."""
    home = tmp_path_factory.mktemp("declared") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(home))
        Place(country).declare(**BY_PLD)
    return home


@pytest.fixture
def spoilable(country, declared, tmp_path, own_home):
    """Return a copy of that store, which is open all the time."""
    shutil.copytree(declared, tmp_path / "home")
    with store():
        yield Place(country)


def spoilt(events):
    """Return, by name, what may be done to the ledger of a series, where it is to be found, and by which words."""
    opened, series, *made = events
    first, second, third = made
    alone = {key: value for key, value in second.items() if key != "series"}
    half = [level | {"rho": "1/10000", "sigma": 100.0} for level in second["levels"]]
    dearer = [
        level | {"rho": str(3 * Fraction(level["rho"])), "sigma": level["sigma"] / 1.7} for level in second["levels"]
    ]
    between = {"event": "vault deleted", "release": IDS[0]}
    less, lost, stray = "do not guarantee", "missing from its series", "does not belong to series"

    def stating(**keys):
        return [opened, series | keys, *made]

    return {
        "it states less": (1, less, stating(epsilon=series["epsilon"] * 0.99)),
        "it states nothing": (1, "must state an epsilon", stating(epsilon=-1.0)),
        "it states a smaller delta": (1, less, stating(delta=1e-9)),
        "one is missing": (3, lost, [opened, series, first, third]),
        "the last is missing": (4, "not reserved", events[:4]),
        "all are missing": (2, "not reserved", events[:2]),
        "one is not named": (3, lost, stating(releases=[IDS[0], IDS[2]])),
        "one more is named": (5, "not reserved", stating(releases=[*IDS, "more"])),
        "one is named twice": (1, "once", stating(releases=[*IDS[:2], IDS[0]])),
        "the order is another": (2, lost, [opened, series, second, first, third]),
        "one stands alone": (3, lost, [opened, series, first, alone, third]),
        "one is added": (5, stray, [*events, second | {"release": "more"}]),
        "one is of no series": (5, stray, [*events, second | {"release": "more", "series": "other"}]),
        "it is not declared": (1, stray, [opened, *made]),
        "it is declared twice": (5, "once", [*events, series]),
        "it is declared after": (2, "once", [opened, alone, series | {"releases": [IDS[1]]}]),
        "one costs less": (3, "", [opened, series, first, second | {"levels": half}, third]),
        "one costs more": (None, "", [opened, series, first, second | {"levels": dearer}, third]),
        "something comes between": (3, lost, [opened, series, first, between, second, third]),
    }


@pytest.mark.parametrize("what", list(spoilt([{"epsilon": 1.0, "levels": []}] * 5)))
def test_the_audit_finds_what_is_done_to_a_series(spoilable, what):
    """With all hashes right, a series that states less, lost a release, or took one in is found where it was done."""
    at, words, events = spoilt(spoilable.events())[what]
    replace_ledger(*events)
    answer = audit_answer()
    assert not answer.ok
    assert answer.first_bad
    assert words in answer.first_bad.reason
    assert at is None or answer.first_bad.position == at
    if what == "the last is missing":  # and nothing more is reserved or drawn from them
        with store() as con, pytest.raises(StoreError, match="does not add up at event 4"):
            read_books(con)
