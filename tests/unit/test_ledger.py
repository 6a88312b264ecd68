"""The ledger: what it lets through, what it refuses, and the chain that shows whether anybody touched it."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread

import duckdb
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test

from storage.database import Connection, store, transaction
from storage.errors import BudgetExceeded, SpecError, StoreError
from storage.ledger import (
    Account,
    Charge,
    DatasetTerms,
    Head,
    advance,
    agreed_terms,
    charges_of,
    check_fits,
    head,
    note,
    read_accounts,
    reserve,
)
from storage.releases import LevelTerms

CAPS = {"first": Fraction(1), "second": Fraction(2, 7)}
STATE_BEFORE = {"drawing": "reserved", "sealed": "drawing", "released": "sealed", "void": "reserved"}
DRAWN = {"drawing", "sealed", "released"}

# Tries to reserve two thirds of each dataset's cap once it is told to, and says how that went.
CHILD = """
import sys
from fractions import Fraction
from storage.database import store, transaction
from storage.errors import BudgetExceeded
from storage.ledger import DatasetTerms, reserve
from storage.releases import LevelTerms

level = LevelTerms(
    level=1, axes={}, possible_cells=2, is_invariant=False,
    rho=Fraction(2, 3), sigma=1.0, l2_sensitivity_squared=2, bound=1.0,
)
print("ready", flush=True)
sys.stdin.readline()
for dataset in sys.argv[2:]:
    terms = DatasetTerms(dataset, "one job", "substitution", 1.0, 1e-8, Fraction(1))
    try:
        with store() as con, transaction(con):
            reserve(con, f"{dataset}-{sys.argv[1]}", terms, [level])
        print("reserved")
    except BudgetExceeded:
        print("refused")
"""


def terms_of(dataset: str, cap: Fraction) -> DatasetTerms:
    """Return the terms of a dataset with a cap in ρ."""
    return DatasetTerms(dataset, "one job", "substitution", 1.0, 1e-8, cap)


def levels_of(shares: Sequence[Fraction]) -> list[LevelTerms]:
    """Return levels with these shares of ρ; a share of 0 makes a level invariant."""
    return [
        LevelTerms(
            level=number,
            axes={},
            possible_cells=2**number,
            is_invariant=share == 0,
            rho=share,
            sigma=1.5,
            l2_sensitivity_squared=2,
            bound=3.0,
        )
        for number, share in enumerate(shares)
    ]


def reserve_at_once(con: Connection, release_id: str, terms: DatasetTerms, shares: Sequence[Fraction]) -> None:
    """Reserve a release in one transaction, as the driver does."""
    with transaction(con):
        reserve(con, release_id, terms, levels_of(shares))


def read_chain(con: Connection) -> list[str]:
    """Return the texts of all events, having recomputed every hash and every text."""
    last, texts = "", []
    for position, (at, text, hashed) in enumerate(
        con.execute("SELECT position, event, hash FROM ledger ORDER BY position").fetchall()
    ):
        assert at == position
        assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        last = hashlib.sha256((last + "\n" + text).encode()).hexdigest()
        assert hashed == last
        texts.append(text)
    assert head(con) == Head(last, len(texts))
    return texts


@pytest.fixture
def con(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """Open a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    with store() as con:
        yield con


class LedgerInAnyOrder(RuleBasedStateMachine):
    """Reserve and advance in any order, beside a model that holds a state and a ρ per charge."""

    releases = Bundle("releases")

    def __init__(self) -> None:
        super().__init__()
        self.open = ExitStack()
        folder = self.open.enter_context(TemporaryDirectory())
        self.open.enter_context(pytest.MonkeyPatch.context()).setenv("TRELLIS_HOME", folder)
        self.con = self.open.enter_context(store())
        self.charges: dict[tuple[str, int], tuple[str, Fraction]] = {}
        self.dataset_of: dict[str, str] = {}
        self.events: list[str] = []

    def spent(self, dataset: str, states: Sequence[str] = ("reserved", *DRAWN)) -> Fraction:
        """Return what the model has spent of a dataset on charges in these states."""
        of = [charge for (release, _), charge in self.charges.items() if self.dataset_of[release] == dataset]
        return sum((rho for state, rho in of if state in states), Fraction(0))

    @rule(
        target=releases,
        dataset=st.sampled_from(sorted(CAPS)),
        shares=st.lists(st.fractions(0, Fraction(1, 2), max_denominator=9), min_size=1, max_size=4),
    )
    def reserve(self, dataset: str, shares: list[Fraction]) -> object:
        """Reserve a release; it is refused just where its cost would pass the cap."""
        release_id = f"release-{len(self.events)}"
        left = CAPS[dataset] - self.spent(dataset)
        if sum(shares) > left:
            with pytest.raises(BudgetExceeded) as refusal:
                reserve_at_once(self.con, release_id, terms_of(dataset, CAPS[dataset]), shares)
            assert refusal.value.left == left
            return multiple()
        if dataset not in self.dataset_of.values():
            self.events.append("dataset")
        reserve_at_once(self.con, release_id, terms_of(dataset, CAPS[dataset]), shares)
        self.events.append("reserved")
        self.dataset_of[release_id] = dataset
        self.charges |= {(release_id, level): ("reserved", rho) for level, rho in enumerate(shares) if rho}
        return release_id

    @rule(release_id=releases)
    def reserve_again(self, release_id: str) -> None:
        """Reserve a release that is charged already; it is refused before its cost is looked at."""
        if any(release == release_id for release, _ in self.charges):
            dataset = self.dataset_of[release_id]
            with pytest.raises(StoreError):
                reserve_at_once(self.con, release_id, terms_of(dataset, CAPS[dataset]), [Fraction(1, 100)])

    @rule(release_id=releases, level=st.integers(0, 4), state=st.sampled_from(sorted(STATE_BEFORE)))
    def advance(self, release_id: str, level: int, state: str) -> None:
        """Advance a charge, or one that there is not; it is refused unless that state is the next."""
        was, rho = self.charges.get((release_id, level), ("", Fraction(0)))
        if was != STATE_BEFORE[state]:
            with pytest.raises(StoreError):
                advance(self.con, release_id, level, state)
            return
        advance(self.con, release_id, level, state)
        self.events.append(state)
        self.charges[release_id, level] = state, rho

    @rule(release_id=releases)
    def go_on(self, release_id: str) -> None:
        """Advance every charge of a release that is not at its end."""
        after = {before: state for state, before in STATE_BEFORE.items() if state != "void"}
        for (release, level), (state, _) in list(self.charges.items()):
            if release == release_id and state in after:
                self.advance(release, level, after[state])

    @rule(release_id=releases)
    def note(self, release_id: str) -> None:
        """Note something that costs nothing."""
        note(self.con, "unsealed shard removed unread", release_id, level=1, branch="Ü b00")
        self.events.append("unsealed shard removed unread")

    @invariant()
    def accounts_agree_with_the_model(self) -> None:
        """Nothing is spent beyond a cap, nothing twice, and nothing is drawn that is not paid for."""
        accounts = read_accounts(self.con)
        assert set(accounts) == set(self.dataset_of.values())
        for dataset, account in accounts.items():
            assert account.spent == self.spent(dataset) <= account.terms.cap_rho == CAPS[dataset]
            assert account.left == CAPS[dataset] - account.spent
            assert self.spent(dataset, tuple(DRAWN)) <= account.spent
        held = {key: charge for account in accounts.values() for key, charge in account.charges.items()}
        assert {key: (charge.state, charge.rho) for key, charge in held.items()} == self.charges

    @invariant()
    def chain_is_whole(self) -> None:
        """Every event is there once, in its order, and hashed onto the one before."""
        events = [json.loads(text) for text in read_chain(self.con)]
        assert [event["event"] for event in events] == self.events
        charged = [
            (event["release"], level["level"])
            for event in events
            if event["event"] == "reserved"
            for level in event["levels"]
        ]
        assert sorted(charged) == sorted(self.charges)

    def teardown(self) -> None:
        """Close the store and delete it."""
        self.open.close()


def test_the_ledger_agrees_with_a_model_in_any_order() -> None:
    """Whatever is asked in whatever order, no cap is passed, no level is charged twice and the chain is whole."""
    any_order = settings(max_examples=25, stateful_step_count=12, deadline=None)
    run_state_machine_as_test(LedgerInAnyOrder, settings=any_order)  # type: ignore[no-untyped-call]


def test_a_release_exactly_at_the_cap_fits_and_nothing_after_it(con: Connection) -> None:
    """Shares that add up to the cap are reserved; the smallest further share is refused."""
    terms = terms_of("jobs", Fraction(1))
    reserve_at_once(con, "all-of-it", terms, [Fraction(1, 3)] * 3)
    assert read_accounts(con)["jobs"].left == 0
    with pytest.raises(BudgetExceeded):
        reserve_at_once(con, "one-more", terms, [Fraction(1, 10**30)])


def test_a_refused_release_leaves_no_trace_in_the_ledger(con: Connection) -> None:
    """After BudgetExceeded the head, the accounts and the charges are as before, and for a first release empty."""
    with pytest.raises(BudgetExceeded):
        reserve_at_once(con, "too-much", terms_of("jobs", Fraction(1)), [Fraction(0), Fraction(2)])
    assert head(con) == Head("", 0)
    reserve_at_once(con, "fits", terms_of("jobs", Fraction(1)), [Fraction(1, 2)])
    before = head(con), read_accounts(con)["jobs"].charges
    with pytest.raises(BudgetExceeded) as refusal:
        reserve_at_once(con, "too-much", terms_of("jobs", Fraction(1)), [Fraction(1, 4), Fraction(1, 3)])
    assert (head(con), read_accounts(con)["jobs"].charges) == before
    assert refusal.value.left == Fraction(1, 2)
    assert charges_of(con, "too-much") == {}


def test_the_cap_of_the_first_release_stays(con: Connection) -> None:
    """A later release that claims a larger cap is measured against the dataset's."""
    reserve_at_once(con, "one", terms_of("jobs", Fraction(1)), [Fraction(3, 4)])
    with pytest.raises(BudgetExceeded):
        reserve_at_once(con, "two", terms_of("jobs", Fraction(10)), [Fraction(3, 4)])


def test_a_void_charge_is_given_back_and_a_drawn_one_never(con: Connection) -> None:
    """What was voided may be reserved again; from drawing on nothing leads to void."""
    terms = terms_of("jobs", Fraction(1))
    reserve_at_once(con, "one", terms, [Fraction(1, 2), Fraction(1, 2)])
    advance(con, "one", 0, "void")
    for state in ("drawing", "sealed", "released"):
        advance(con, "one", 1, state)
        with pytest.raises(StoreError):
            advance(con, "one", 1, "void")
    reserve_at_once(con, "two", terms, [Fraction(1, 2)])
    assert read_accounts(con)["jobs"].left == 0


def test_a_release_is_reserved_once(con: Connection) -> None:
    """A second reservation of the same release is refused, and what was drawn stays drawn."""
    terms = terms_of("jobs", Fraction(1))
    reserve_at_once(con, "one", terms, [Fraction(1, 4)])
    advance(con, "one", 0, "drawing")
    with pytest.raises(StoreError):
        reserve_at_once(con, "one", terms, [Fraction(1, 4)])
    assert charges_of(con, "one") == {0: Charge("one", 0, "drawing", Fraction(1, 4), 1.5)}


def test_one_altered_character_breaks_the_chain(con: Connection) -> None:
    """Recomputing the hashes finds an event whose text was changed."""
    reserve_at_once(con, "one", terms_of("jobs", Fraction(1)), [Fraction(1, 2)])
    assert len(read_chain(con)) == 2
    con.execute("""UPDATE ledger SET event = replace(event, '"rho":"1/2"', '"rho":"1/3"') WHERE position = 1""")
    with pytest.raises(AssertionError):
        read_chain(con)


ACCOUNT = Account(terms_of("jobs", Fraction(1)))


def test_the_terms_of_a_dataset_may_be_repeated_or_left_out() -> None:
    """A later release names the same budget, or none."""
    agreed_terms(ACCOUNT, ACCOUNT.terms, unit="one job", neighbours="substitution")
    agreed_terms(ACCOUNT, None, unit="one job", neighbours="substitution")


@pytest.mark.parametrize(
    ("asked", "unit", "neighbours", "field"),
    [
        (None, "one person", "substitution", "privacy.unit"),
        (None, "one job", "add_remove", "privacy.neighbours"),
        (replace(ACCOUNT.terms, cap_epsilon=2.0), "one job", "substitution", "budget"),
        (replace(ACCOUNT.terms, cap_delta=1e-7), "one job", "substitution", "budget"),
    ],
)
def test_other_terms_than_the_first_are_refused(
    asked: DatasetTerms | None, unit: str, neighbours: str, field: str
) -> None:
    """Another unit, other neighbours or another budget is refused, naming the key of the spec."""
    with pytest.raises(SpecError) as refusal:
        agreed_terms(ACCOUNT, asked, unit=unit, neighbours=neighbours)
    assert refusal.value.field == field
    assert "jobs" in refusal.value.hint


def test_the_first_release_must_name_a_budget() -> None:
    """A dataset that the ledger does not know needs a budget, and any will do."""
    with pytest.raises(SpecError) as refusal:
        agreed_terms(None, None, unit="one job", neighbours="substitution")
    assert refusal.value.field == "budget"
    agreed_terms(None, ACCOUNT.terms, unit="one person", neighbours="substitution")


def test_what_does_not_fit_is_refused_before_anything_is_written() -> None:
    """The early check agrees with the reservation: at the cap it fits, above it does not."""
    check_fits(None, ACCOUNT.terms, Fraction(1))
    with pytest.raises(BudgetExceeded):
        check_fits(None, ACCOUNT.terms, Fraction(1) + Fraction(1, 10**30))


def test_of_two_processes_that_reserve_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cap allows one of two releases, exactly one fits, dataset after dataset, whoever comes first."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    datasets = [f"d{number}" for number in range(6)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, name, *datasets], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "other")
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=60)[0].split() for child in children]
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(datasets)
    with store() as con:
        assert {name: account.spent for name, account in read_accounts(con).items()} == dict.fromkeys(
            datasets, Fraction(2, 3)
        )
        assert len(read_chain(con)) == 2 * len(datasets)


def test_of_two_threads_that_reserve_at_once_one_fits(con: Connection) -> None:
    """Threads that share the open store reserve no more than the cap either, and leave the chain whole."""
    at_once = Barrier(2)
    faults: list[Exception] = []

    def try_to_reserve(name: str) -> None:
        with store() as own:
            at_once.wait()
            try:
                reserve_at_once(own, name, terms_of("jobs", Fraction(1)), [Fraction(2, 3)])
            except (BudgetExceeded, duckdb.Error) as fault:
                faults.append(fault)

    threads = [Thread(target=try_to_reserve, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(faults) == 1
    assert read_accounts(con)["jobs"].spent == Fraction(2, 3)
    assert len(read_chain(con)) == 2
