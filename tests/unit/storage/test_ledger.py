"""The ledger: what it lets through, what it refuses, and the chain that shows whether anybody touched it."""

import hashlib
import json
import math
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import cache
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import Phase, given, settings, stateful
from hypothesis import strategies as st

from flows.answers.audit import audit_answer
from flows.planning.budget import abandon, agreed_terms, declare, raise_cap, reserve, users_of_table
from flows.planning.composition import composed_epsilon, standing_of
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, SpecError, StoreError, UsageError
from storage.ledger import events
from storage.ledger.books import Books
from storage.ledger.checkpoint import CHECKPOINT, NOTHING, read_checkpoint, usable_checkpoint, write_checkpoint
from storage.ledger.events import advance, head, note, read_books
from storage.ledger.recognition import Columns, Content, RecognisedTable, keep_recognised
from storage.ledger.spending import Spending
from storage.machine.home import home
from tasks.accounting.conversions import zcdp_epsilon
from tests.support.ledger import (
    DELTA,
    NEVER_ALONE,
    ONE_RECORD,
    asked_of,
    cap_at,
    charges_of,
    events_of,
    read_chain,
    reservation_of,
    rows_of,
)

STATE_BEFORE = {"drawing": "reserved", "sealed": "drawing", "released": "sealed", "void": "reserved"}


def reserve_at_once(con, release_id, asked, shares, **claimed):
    """Reserve a release in one transaction, as the driver does."""
    with transaction(con):
        reserve(con, reservation_of(release_id, asked, shares, **claimed))


@cache
def converted(rho, delta):
    """Return ε of ρ-zCDP by Proposition 12 of Canonne, Kamath and Steinke, minimised over α without the code's help."""
    if rho == 0:
        return 0.0

    def at(log_of_alpha_less_one):
        alpha = 1 + math.exp(log_of_alpha_less_one)
        return alpha * float(rho) + math.log1p(-1 / alpha) - (math.log(alpha) + math.log(delta)) / (alpha - 1)

    low, high = -12.0, 25.0
    for _ in range(120):
        third = (high - low) / 3
        low, high = (low, high - third) if at(low + third) < at(high - third) else (low + third, high)
    return max(0.0, at(low))


class Crash(Exception):
    """Stops a transaction in its midst."""


@dataclass
class Modelled:
    """A release as the model holds it: a state and a ρ per level, and its own statement, or that of its series."""

    people: str
    dataset: str
    epsilon: float
    delta: float
    levels: dict[int, tuple[str, Fraction]] = field(default_factory=dict)
    series: str = ""  # by which it was declared; all releases of one hold its statement

    @property
    def rho(self):
        """What of it is not void."""
        return sum((rho for state, rho in self.levels.values() if state != "void"), Fraction(0))


def charged(shares):
    """Return the levels of a release that is just reserved."""
    return {level: ("reserved", share) for level, share in enumerate(shares) if share}


FIRST_CAPS = {"first": cap_at(1.0, DELTA), "second": cap_at(2.0, 1e-8)}
PEOPLE_OF = {"first": "first", "second": "second", "sharing": "first", "joining": "first"}  # → the first of its people
SAME_PEOPLE_AS = {"sharing": "first", "joining": "sharing"}  # as the first release of a dataset says
DATASETS = st.sampled_from(sorted(PEOPLE_OF))
SHARES = st.lists(st.fractions(0, Fraction(1, 2), max_denominator=9), min_size=1, max_size=3).filter(any)
STATEMENTS = st.sampled_from([NEVER_ALONE, 1.0, 2.0, 0.25])


class LedgerInAnyOrder(stateful.RuleBasedStateMachine):
    """Do to the ledger whatever can be done, in any order and with crashes, beside a model of what it must hold."""

    releases = stateful.Bundle("releases")

    def __init__(self):
        super().__init__()
        self.place, self.opened = ExitStack(), ExitStack()
        folder = self.place.enter_context(TemporaryDirectory())
        self.patch = self.place.enter_context(pytest.MonkeyPatch.context())
        self.patch.setenv("TRELLIS_HOME", folder)
        self.patch.setattr(events, "CHECKPOINT_EVERY", 3)
        self.con = self.opened.enter_context(store())
        self.made = {}
        self.caps = {}
        self.datasets = []
        self.events = []
        self.standings = []  # of every event that records one
        self.stated = {}  # what the last of them leaves some people
        self.asked = 0

    def composed(self, people, cap, *plus):
        """Return ε of all that is reserved or drawn of some people, by the rule of composition."""
        kept = [made for made in self.made.values() if made.people == people and made.rho] + list(plus)
        together = converted(sum((made.rho for made in kept), Fraction(0)), cap.delta)
        is_one = len(kept) == 1 or (len({made.series for made in kept}) == 1 and kept[0].series)
        if is_one and kept[0].delta <= cap.delta:
            return min(together, kept[0].epsilon)
        return together

    def left(self, people, cap):
        """Return the ρ that some people's cap leaves."""
        spent = sum((made.rho for made in self.made.values() if made.people == people), Fraction(0))
        return max(Fraction(0), cap.rho - spent)

    def record_standing(self, people):
        """Note where some people stand now, as the event just recorded must say."""
        self.standings.append((self.composed(people, self.caps[people]), self.left(people, self.caps[people])))
        self.stated[people] = self.standings[-1][1]

    def crash(self, action):
        """Do something in a transaction that does not end well, and see that nothing of it is left."""
        before = rows_of(self.con)

        def stopped():
            with transaction(self.con):
                action()
                assert len(rows_of(self.con)) > len(before)
                raise Crash

        with pytest.raises(Crash):
            stopped()
        assert rows_of(self.con) == before

    @stateful.initialize(
        target=releases, before=st.lists(st.tuples(DATASETS, SHARES, STATEMENTS), min_size=2, max_size=5)
    )
    def begin(self, before):
        """Begin with a few releases, so that there is something to go on with."""
        for dataset, shares, statement in [("first", [Fraction(1, 9)], 1.0), *before]:
            self.reserve(dataset, shares, statement, DELTA, crashes=False)
        return stateful.multiple(*self.made)

    def attempt(self, made, action, crashes):
        """Charge releases of one dataset together; they are refused just where all of its people would pass their cap."""
        one = next(iter(made.values()))
        cap = self.caps.get(one.people, FIRST_CAPS[one.people])
        after, before = self.composed(one.people, cap, *made.values()), rows_of(self.con)
        if after != cap.epsilon and abs(after / cap.epsilon - 1) < 1e-9:
            return stateful.multiple()  # within rounding of the cap: either answer would do
        if after > cap.epsilon:
            with pytest.raises(BudgetExceeded) as refusal, transaction(self.con):
                action()
            assert refusal.value.left == self.left(one.people, cap)
            assert rows_of(self.con) == before
            return stateful.multiple()
        if crashes:
            self.crash(action)
            return stateful.multiple()
        with transaction(self.con):
            action()
        if one.dataset not in self.datasets:
            self.datasets.append(one.dataset)
            self.events.append("dataset")
        self.events += ["series"] if one.series else []
        self.caps[one.people] = cap
        for release_id, release in made.items():
            self.made[release_id] = release
            self.events.append("reserved")
            self.record_standing(one.people)
        return stateful.multiple(*made)

    @stateful.rule(
        target=releases, dataset=DATASETS, shares=SHARES, statement=STATEMENTS,
        delta=st.sampled_from([DELTA, 1e-8]), crashes=st.sampled_from([False, False, True]),
    )  # fmt: skip
    def reserve(self, dataset, shares, statement, delta, crashes):
        """Reserve a release."""
        people = PEOPLE_OF[dataset]
        same_people = None if dataset in self.datasets else SAME_PEOPLE_AS.get(dataset)
        asked = asked_of(dataset, FIRST_CAPS.get(dataset), same_people)
        self.asked += 1
        release_id = f"release-{self.asked}"
        if same_people and same_people not in self.datasets:
            with pytest.raises(SpecError, match="the ledger has no dataset"):
                reserve_at_once(self.con, release_id, asked, shares)
            return stateful.multiple()
        scaled = [share * FIRST_CAPS[people].rho for share in shares]
        made = Modelled(people, dataset, statement, delta, charged(scaled))
        claimed = {"epsilon": statement, "delta": delta, "unprotected": (f"the total of {dataset}",)}
        reservation = reservation_of(release_id, asked, scaled, **claimed)
        return self.attempt({release_id: made}, lambda: reserve(self.con, reservation), crashes)

    @stateful.rule(
        target=releases, people=st.sampled_from(sorted(FIRST_CAPS)), shares=SHARES, statement=STATEMENTS,
        number=st.integers(1, 3), crashes=st.sampled_from([False, True]),
    )  # fmt: skip
    def declare(self, people, shares, statement, number, crashes):
        """Declare a series of equal releases; it is let in or refused as one, by its ρ or its own statement."""
        self.asked += 1
        ids = [f"series-{self.asked}-{one}" for one in range(number)]
        cap, asked = FIRST_CAPS[people], asked_of(people, FIRST_CAPS[people])
        scaled = [share * cap.rho for share in shares]
        made = {id_: Modelled(people, people, statement, cap.delta, charged(scaled), ids[0]) for id_ in ids}
        whole = Spending(sum(scaled) * number, (), statement, cap.delta)
        reservations = [reservation_of(id_, asked, scaled) for id_ in ids]
        return self.attempt(made, lambda: declare(self.con, "name", reservations, whole), crashes)

    @stateful.rule(release_id=releases, dataset=DATASETS)
    def reserve_again(self, release_id, dataset):
        """Reserve a release a second time, of any dataset; it is refused before its cost is looked at."""
        with pytest.raises(StoreError, match="already reserved"):
            reserve_at_once(self.con, release_id, asked_of(dataset, FIRST_CAPS.get(dataset)), [Fraction(1, 10**9)])

    @stateful.rule(release_id=releases, level=st.integers(0, 4), state=st.sampled_from(sorted(STATE_BEFORE)))
    def advance(self, release_id, level, state):
        """Advance a charge, or one that there is not; it is refused unless that state is the next."""
        was, rho = self.made[release_id].levels.get(level, ("", Fraction(0)))
        if was != STATE_BEFORE[state]:
            with pytest.raises(StoreError):
                advance(self.con, release_id, level, state)
            return
        self.crash(lambda: advance(self.con, release_id, level, state))
        advance(self.con, release_id, level, state)
        self.events.append(state)
        self.made[release_id].levels[level] = state, rho

    @stateful.rule(release_id=releases, times=st.integers(1, 3))
    def go_on(self, release_id, times):
        """Advance every charge of a release that is not at its end, once or all the way."""
        after = {before: state for state, before in STATE_BEFORE.items() if state != "void"}
        for _ in range(times):
            for level, (state, _rho) in list(self.made[release_id].levels.items()):
                if state in after:
                    self.advance(release_id, level, after[state])

    @stateful.rule(release_id=releases)
    def abandon(self, release_id):
        """End a release, after a crash: what it had only reserved is given back, and no more."""
        # Nothing is given back where it, or the series that it belongs to, has drawn and costs more than the cap's ρ.
        self.crash(lambda: abandon(self.con, release_id))
        with transaction(self.con):
            abandon(self.con, release_id)
        made = self.made[release_id]
        together = [other for other in self.made.values() if made.series and other.series == made.series] or [made]
        charges = [charge for other in together for charge in other.levels.values()]
        drawn = any(state not in {"reserved", "void"} for state, _ in charges)
        too_dear = sum(rho for _, rho in charges) > self.caps[made.people].rho
        for level, (state, rho) in made.levels.items():
            if state == "reserved" and not (drawn and too_dear):
                self.events.append("void")
                made.levels[level] = "void", rho
        self.events.append("abandoned")
        self.record_standing(made.people)

    @stateful.rule(
        dataset=DATASETS,
        epsilon=st.sampled_from([1.0, 2.0, 3.0, 4.0]),
        factor=st.sampled_from([1.0, 1.0, 0.1, 1 - 2**-52, 1 + 2**-52, 10.0]),
    )
    def raise_cap(self, dataset, epsilon, factor):
        """Raise a cap, after a crash; it is refused unless ε rises, δ stays as it is, and there is one."""
        people = PEOPLE_OF[dataset]
        cap = cap_at(epsilon, FIRST_CAPS[people].delta * factor)
        if dataset not in self.datasets or epsilon <= self.caps[people].epsilon or factor != 1:
            before = rows_of(self.con)
            with pytest.raises((UsageError, StoreError)), transaction(self.con):
                raise_cap(self.con, dataset, cap, "a court asks for it")
            assert rows_of(self.con) == before
            return
        self.crash(lambda: raise_cap(self.con, dataset, cap, "a court asks for it"))
        with transaction(self.con):
            raise_cap(self.con, dataset, cap, "a court asks for it")
        self.caps[people] = cap
        self.events.append("budget raised")
        self.record_standing(people)
        assert read_chain(self.con)[-1]["reason"] == "a court asks for it"

    @stateful.rule(release_id=releases)
    def note(self, release_id):
        """Note something that costs nothing."""
        note(self.con, "unsealed shard removed unread", release_id, level=1, branch="Ü b00")
        self.events.append("unsealed shard removed unread")

    @stateful.rule()
    def reopen(self):
        """Close the store and open it again, as the next process does, which has a checkpoint at most."""
        self.opened.close()
        self.patch.setattr(events, "_kept", NOTHING)
        self.con = self.opened.enter_context(store())

    @stateful.invariant()
    def accounts_agree_with_the_model(self):
        """Nothing is spent beyond a cap, nothing twice, and every charge is in the state in which it was left."""
        books = read_books(self.con)
        assert replace(books, others={}) == books_of(*events_of(self.con))
        assert {name: account.terms.cap for name, account in books.accounts.items()} == self.caps
        assert books.holder == {dataset: PEOPLE_OF[dataset] for dataset in self.datasets}
        for people, account in books.accounts.items():
            composed, cap = self.composed(people, self.caps[people]), self.caps[people]
            assert composed <= cap.epsilon * (1 + 1e-9)
            assert composed_epsilon(account.spendings, cap.delta) == pytest.approx(composed, rel=1e-9)
            assert account.first_cap == FIRST_CAPS[people]
            assert account.standing.left_rho == self.stated[people]
            claimed = [made.dataset for made in self.made.values() if made.people == people and not made.series]
            assert account.unprotected == [f"the total of {dataset}" for dataset in dict.fromkeys(claimed)]
        held = {key: charge for account in books.accounts.values() for key, charge in account.charges.items()}
        charged = {(release, level): of for release, made in self.made.items() for level, of in made.levels.items()}
        assert {key: (charge.state, charge.rho) for key, charge in held.items()} == charged

    @stateful.invariant()
    def chain_is_whole(self):
        """Every event is there once, in its order, hashed onto the one before, with the standing that it led to."""
        events = read_chain(self.con)
        assert [event["event"] for event in events] == self.events
        stated = [event["standing"] for event in events if "standing" in event]
        epsilons = [epsilon for epsilon, _ in self.standings]
        assert [standing["epsilon"] for standing in stated] == pytest.approx(epsilons, rel=1e-9)
        assert [Fraction(standing["left_rho"]) for standing in stated] == [left for _, left in self.standings]

        self.keeps_the_laws(events)

    def keeps_the_laws(self, events):
        """Read without the code: nothing is drawn before it is charged, charged twice, or uncapped but by a raise."""
        state_of = {}
        caps = {}
        for event in events:
            kind, dataset = event["event"], event.get("dataset", "")
            if kind == "reserved":
                charges = {(event["release"], level["level"]): kind for level in event["levels"]}
                assert state_of.keys().isdisjoint(charges)
                state_of |= charges
            elif kind in STATE_BEFORE:
                assert state_of[event["release"], event["level"]] == STATE_BEFORE[kind]
                state_of[event["release"], event["level"]] = kind
            elif "cap" in event:
                before = event["before"]["epsilon"] if kind == "budget raised" else 0.0
                assert caps.get(dataset, 0.0) == before < event["cap"]["epsilon"]
                caps[dataset] = event["cap"]["epsilon"]
        assert caps == {people: cap.epsilon for people, cap in self.caps.items()}

    def teardown(self):
        """Close the store and delete it."""
        self.opened.close()
        self.place.close()


@pytest.mark.parametrize(
    "histories", [8, pytest.param(60, marks=[pytest.mark.thorough, pytest.mark.heavy("sixty histories of a ledger")])]
)
def test_the_ledger_agrees_with_a_model_in_any_order(histories):
    """Whatever is asked in whatever order, no cap is passed, no level is charged twice and the chain is whole."""
    phases = [phase for phase in Phase if histories > 12 or phase is not Phase.shrink]  # which takes minutes
    any_order = settings(max_examples=histories, stateful_step_count=16, deadline=None, phases=phases)
    stateful.run_state_machine_as_test(LedgerInAnyOrder, settings=any_order)  # type: ignore[no-untyped-call]


def test_a_release_exactly_at_the_cap_fits_and_nothing_after_it(con):
    """Shares that add up to the cap's ρ are reserved; one more that takes ρ to the next float is refused."""
    cap = cap_at(1.0)
    reserve_at_once(con, "all-of-it", asked_of(cap=cap), [cap.rho / 3] * 3)
    account = read_books(con).accounts["jobs"]
    assert account.spent == cap.rho
    assert account.standing.left_rho == 0
    assert account.standing.epsilon <= 1.0
    more = Fraction(math.nextafter(float(cap.rho), 1.0)) - cap.rho
    with pytest.raises(BudgetExceeded):
        reserve_at_once(con, "one-more", asked_of(), [more])


def test_a_release_that_stood_by_its_own_statement_gives_nothing_back_once_drawn(con):
    """It was let in as the only one: what was seen of it could decide what follows, so that nothing can follow."""
    cap = cap_at(1.0)
    reserve_at_once(con, "one", asked_of(cap=cap), [cap.rho, cap.rho / 10], epsilon=1.0)
    advance(con, "one", 0, "drawing")
    with transaction(con):
        abandon(con, "one")
    assert {level: charge.state for level, charge in charges_of(con, "one").items()} == {0: "drawing", 1: "reserved"}
    with pytest.raises(BudgetExceeded):
        reserve_at_once(con, "two", asked_of(), [cap.rho / 1000])


def books_of(*events):
    """Return the books of some events."""
    books = Books()
    for event in events:
        books.post(event)
    return books


LIES = {
    "edited": lambda _, path: path.write_bytes(path.read_bytes().replace(b'"1/9"', b'"1/99"')),
    "forged": lambda *_: write_checkpoint(replace(read_checkpoint(), books=Books())),
    "of other events": lambda con, _: con.execute("UPDATE ledger SET event = replace(event, 'one job', 'no job')"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_checkpoint_that_lies_is_found(con, monkeypatch, name):
    """It is used as it was written, after the events that it was written after; the audit finds even one that has the key."""
    monkeypatch.setattr(events, "CHECKPOINT_EVERY", 1)
    reserve_at_once(con, "one", asked_of(cap=cap_at(4.0)), [Fraction(1, 9)])
    books = read_books(con)
    monkeypatch.setattr(events, "_kept", NOTHING)
    assert usable_checkpoint(con).books == books
    LIES[name](con, home() / CHECKPOINT)
    assert (usable_checkpoint(con) is NOTHING) == (name != "forged")
    assert ("checkpoint" in {finding.event for finding in audit_answer().findings}) == (name != "of other events")
    assert name == "forged" or read_books(con).accounts == books_of(*events_of(con)).accounts


STANDING = {"epsilon": 0.0, "left_rho": "0", "left_epsilon": 0.0}


def dataset_event(dataset="jobs", cap=None):
    """Return the event with which a dataset's account is opened."""
    cap = cap or cap_at(1.0)
    terms = {"epsilon": cap.epsilon, "delta": cap.delta, "rho": str(cap.rho)}
    return {"event": "dataset", "dataset": dataset, "unit": "one job", "neighbours": "substitution", "cap": terms}


def reserved_event(release, *levels, dataset="jobs", **claimed):
    """Return the event of a reservation, whole, with what is given of its levels and its claim."""
    plain = {
        "accountant": "zcdp", "epsilon": NEVER_ALONE, "delta": DELTA, "table": f"{dataset}.csv", "unprotected": [],
        "different_people": False, "contributions": asdict(ONE_RECORD), "standing": STANDING,
    }  # fmt: skip
    level = {"mechanism": "discrete_gaussian", "rho": "0", "sigma": 0.0, "l2_sensitivity_squared": 0}
    charged = [level | given for given in levels]
    return {"event": "reserved", "release": release, "dataset": dataset, "levels": charged, **plain, **claimed}


@pytest.mark.parametrize(("asked", "field"), [
    (replace(asked_of(), unit="one person"), "privacy.unit"),
    (replace(asked_of(), neighbours="add_remove"), "privacy.neighbours"),
    (asked_of(cap=cap_at(3.0)), "budget"),
    (asked_of(cap=cap_at(0.5)), "budget"),
    (asked_of(cap=cap_at(1.0, 1e-7)), "budget"),
    (replace(asked_of("wages", same_people_as="jobs"), unit="one person"), "privacy.unit"),
    (asked_of("wages", cap_at(3.0), same_people_as="jobs"), "budget"),
    (asked_of("shops", same_people_as="jobs"), "same_people_as"),
])  # fmt: skip
def test_other_terms_than_the_first_are_refused(asked, field):
    """Another unit, neighbours, budget or people, or a first release without a budget, is refused by the key of the spec."""
    # The first budget, the raised one, or none is not.
    more = {"event": "budget raised", "at": "now", "reason": "", "standing": STANDING}
    raised = dataset_event(cap=cap_at(2.0)) | more
    books = books_of(dataset_event(), raised, dataset_event("shops"))
    for cap in (cap_at(1.0), cap_at(2.0), None):
        assert agreed_terms(books, asked_of(cap=cap)) == books.accounts["jobs"].terms
    assert books.accounts["jobs"].terms.cap == cap_at(2.0)
    with pytest.raises(SpecError) as refusal:
        agreed_terms(books, asked)
    assert (refusal.value.field, "first release of" in refusal.value.hint) == (field, True)
    with pytest.raises(SpecError, match="budget must be given"):
        agreed_terms(books, asked_of("new"))


def test_a_table_that_another_dataset_has_used_must_be_answered_for(con):
    """It is asked about until the datasets share a ledger or are said to differ, which is then told either of them."""
    share, shops = cap_at(1.0).rho / 4, asked_of("shops", cap_at(1.0))
    trips = RecognisedTable("trips").is_of
    copied = RecognisedTable("copy", copies=frozenset({"one", "two"})).is_of
    reserve_at_once(con, "one", asked_of(cap=cap_at(1.0)), [share], table="trips")
    books = read_books(con)
    assert users_of_table(books, shops, trips) == users_of_table(books, shops, copied) == ["jobs"]
    assert users_of_table(books, shops, RecognisedTable("x").is_of) == users_of_table(books, asked_of(), trips) == []
    assert users_of_table(books, asked_of("wages", same_people_as="jobs"), copied) == []
    reserve_at_once(con, "two", shops, [share], table="copy", different_people=True)
    keep_recognised(con, "two", RecognisedTable("copy", Content(Columns(("home",)), "a")), ("jobs",))
    books = read_books(con)
    assert users_of_table(books, shops, copied) == users_of_table(books, asked_of(), copied) == []
    assert users_of_table(books, asked_of("third", cap_at(1.0)), copied) == ["jobs", "shops"]


def stability(level, epsilon, delta):
    """Return a level whose mechanism is only (ε, δ)."""
    return {"level": level, "mechanism": "stability_histogram", "epsilon": epsilon, "delta": delta}


def gaussian(level, rho):
    """Return a level whose mechanism is charged in ρ."""
    return {"level": level, "mechanism": "discrete_gaussian", "rho": str(rho), "sigma": 2.0}


def test_mechanisms_that_are_only_approximate_add_their_epsilon_and_take_their_delta():
    """ε is the sum of their ε and what Σρ converts to at the δ that theirs leave."""
    books = books_of(
        dataset_event(),
        reserved_event("one", gaussian(0, Fraction(1, 80)), stability(1, 0.25, 1e-7), epsilon=0.3, delta=DELTA),
        reserved_event("two", stability(1, 0.5, 3e-7), gaussian(2, Fraction(1, 90)), epsilon=0.6, delta=DELTA),
    )
    account = books.accounts["jobs"]
    assert account.charges["one", 1].mechanism == "stability_histogram"
    assert account.spent == Fraction(1, 80) + Fraction(1, 90)
    composed = composed_epsilon(account.spendings, DELTA)
    assert composed == pytest.approx(0.75 + converted(account.spent, DELTA - 4e-7), rel=1e-9)
    assert composed > 0.75 + converted(account.spent, DELTA) + 1e-3
    books.post({"event": "void", "release": "two", "level": 1})
    composed = composed_epsilon(account.spendings, DELTA)
    assert composed == pytest.approx(0.25 + converted(account.spent, DELTA - 1e-7), rel=1e-9)


@pytest.mark.parametrize(("epsilon", "rho", "pairs"), [(20.0, 1.0, [1.0, 0.5]), (20.0, 0.5, [4.0]), (1.0, 0.01, [0.3])])
def test_what_is_chosen_after_seeing_the_rest_keeps_within_one_renyi_order(epsilon, rho, pairs):
    """What is only (ε, δ) costs min(ε, α ε² / 2) at the cap's best order α; all is converted once, and no less than the sum."""
    cap = cap_at(epsilon)

    def converted_at(order, loss):
        return loss + (math.log(1 / DELTA) + (order - 1) * np.log(1 - 1 / order) - np.log(order)) / (order - 1)

    orders = 1 + np.geomspace(1e-3, 1e4, 200_001)
    order = float(orders[converted_at(orders, orders * float(cap.rho)).argmin()])
    at_order = converted_at(order, order * rho + sum(min(of, order * of**2 / 2) for of in pairs))
    added = sum(pairs) + zcdp_epsilon(Fraction(rho), DELTA)
    spendings = [Spending(Fraction(rho), (), NEVER_ALONE, DELTA)]
    spendings += [Spending(Fraction(0), ((of, 0.0),), NEVER_ALONE, DELTA) for of in pairs]
    assert composed_epsilon(spendings, DELTA, cap) == pytest.approx(max(added, at_order), rel=1e-4)


SPENDINGS = st.builds(
    Spending,
    st.fractions(0, Fraction(1, 10), max_denominator=10**6),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1e-7)), max_size=2).map(tuple),
    st.floats(0.01, 1),
    st.just(DELTA),
)


@given(data=st.data(), spendings=st.lists(SPENDINGS, max_size=5))
@settings(max_examples=20)
def test_the_order_of_releases_does_not_matter(data, spendings):
    """Whatever their order, releases come to the same ε, to the last bit, and leave the same."""
    shuffled = data.draw(st.permutations(spendings))
    assert standing_of(shuffled, cap_at(1.0)) == standing_of(spendings, cap_at(1.0))


@given(spendings=st.lists(SPENDINGS, min_size=1, max_size=4), more=SPENDINGS)
@settings(max_examples=20)
def test_one_more_release_never_makes_it_less(spendings, more):
    """Beyond the first, which may count by its own statement, every release takes ε up and what is left down."""
    before, after = (standing_of(of, cap_at(1.0)) for of in (spendings, [*spendings, more]))
    lowest = composed_epsilon([*spendings, Spending(Fraction(0), (), 0.0, 0.0)], DELTA, cap_at(1.0))
    assert after.epsilon >= lowest >= before.epsilon
    assert after.left_rho <= before.left_rho


def insert(con, *events):
    """Write events, or what should be, behind the last with correct hashes and no questions."""
    for event in events:
        last = head(con)
        text = event if isinstance(event, str) else json.dumps(event, sort_keys=True, separators=(",", ":"))
        hashed = hashlib.sha256(f"{last.hash}\n{text}".encode()).hexdigest()
        con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [last.length, text, hashed])


@pytest.mark.parametrize("event", [
    dataset_event(),
    {"event": "dataset", "dataset": "wages", "same_people_as": "nobody"},
    reserved_event("one", gaussian(5, Fraction(1, 100))),
    reserved_event("two", gaussian(1, Fraction(1, 100)), gaussian(1, Fraction(1, 100))),
    reserved_event("two", gaussian(1, Fraction(1, 100)), dataset="nobody"),
    reserved_event("two", {"rho": "1/100"}),
    reserved_event("two", {"level": 1, "rho": "a hundredth"}),
    {"event": "reserved", "release": "two", "dataset": "jobs"},
    {"event": "drawing", "release": "one", "level": 0},
    {"event": "released", "release": "one", "level": 0},
    {"event": "sealed", "release": "one", "level": 1},
    {"event": "void", "release": "one", "level": 0},
    {"event": "drawing", "release": "one", "level": 7},
    {"event": "drawing", "level": 0},
    {"event": "budget raised", "dataset": "nobody", "cap": dataset_event()["cap"]},
    {"event": "budget raised", "dataset": "jobs", "cap": {"epsilon": 2.0}},
    {"release": "one"},
    "{",
    "null",
    "[]",
])  # fmt: skip
def test_an_event_that_does_not_follow_stops_everything(con, event):
    """Books that do not add up are not read, whatever the hashes, and nothing more is reserved or drawn from them."""
    share = cap_at(1.0).rho / 4
    reserve_at_once(con, "one", asked_of(cap=cap_at(1.0)), [share, share])
    advance(con, "one", 0, "drawing")
    insert(con, event)
    wrong = head(con)
    with pytest.raises(StoreError, match="does not add up at event 3") as refusal:
        read_books(con)
    assert "audit" in refusal.value.hint
    with pytest.raises(StoreError):
        reserve_at_once(con, "new", asked_of(), [share])
    with pytest.raises(StoreError):
        advance(con, "one", 1, "drawing")
    assert head(con) == wrong
