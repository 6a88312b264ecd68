"""Two processes that reserve at once: what has room for one release, or was approved once, lets one of them in."""

import json
from pathlib import Path

import pytest

from flows.answers.release_status import releases_answer
from flows.api import plan
from flows.cli.json_object import json_object
from storage.database.connections import store
from storage.ledger.events import read_books
from storage.releases.plan_file import bound_json
from tests.support.ledger import cap_at, read_chain
from tests.support.office import ROWS, Office
from tests.support.processes import at_once

# Tries to reserve two thirds of each dataset's cap once it is told to, and says how that went.
RESERVING = """
import sys
from flows.planning.composition import cap_of
from flows.planning.budget import reserve
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded
from storage.ledger.books import Asked, Claim
from storage.ledger.spending import Contributions
from storage.ledger.events import Reservation
from storage.releases.terms import LevelTerms

cap = cap_of(1.0, 1e-6)
one_record = Contributions("promise", distinct=None, exact_records_per_unit=True, max_records_per_unit=1)
level = LevelTerms(
    level=1, axes={}, possible_cells=2, is_invariant=False,
    rho=cap.rho * 2 / 3, sigma=1.0, l2_sensitivity_squared=2, bound=1.0,
)
print("ready", flush=True)
sys.stdin.readline()
for dataset in sys.argv[2:]:
    claim = Claim(f"{dataset}-{sys.argv[1]}", dataset, "zcdp", 0.9, 1e-6, dataset, (), (), one_record)
    asked = Asked(dataset, "one job", "substitution", cap)
    try:
        with store() as con, transaction(con):
            reserve(con, Reservation(asked, [level], claim))
        print("reserved")
    except BudgetExceeded:
        print("refused")
"""


# Passes the first look at the approval, and reserves once it is told to; says how that went.
APPROVED = """
import sys
from dataclasses import replace
from pathlib import Path
from flows.execution.reservation import new_release, reserve_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import BudgetNotAsApproved
from storage.releases.plan_file import read_approved_plan

plans = [
    replace(make_plan(load_spec(Path(spec))), approved=read_approved_plan(Path(spec).with_suffix(".json")))
    for spec in sys.argv[1:]
]
made = [new_release(plan) for plan in plans]
print("ready", flush=True)
sys.stdin.readline()
for plan, release in zip(plans, made):
    try:
        reserve_release(release, plan)
        print("reserved")
    except BudgetNotAsApproved:
        print("refused")
"""


def test_of_two_processes_that_reserve_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the cap allows one of two releases, exactly one fits, dataset after dataset, whoever comes first."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    datasets = [f"d{number}" for number in range(6)]
    said = at_once(RESERVING, ["one", *datasets], ["other", *datasets])
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(datasets)
    with store() as con:
        spent = {name: account.spent for name, account in read_books(con).accounts.items()}
        assert spent == dict.fromkeys(datasets, cap_at(1.0).rho * 2 / 3)
        assert len(read_chain(con)) == 2 * len(datasets)


@pytest.mark.thorough
@pytest.mark.heavy("two processes plan three releases each")
def test_two_processes_do_not_both_pass_on_one_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap has room for both, and both had passed the first look: one reserves, and to the other the budget is not as approved."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    office, specs = Office(tmp_path), list[str]()
    for number in range(3):
        (tmp_path / f"people{number}.csv").write_text("home,work\n" + ROWS + f"a0,b{number % 3}\n" * number)
        spec = office.spec(f"people{number}", f"people{number}.csv", budget={"epsilon": 5.0, "delta": 1e-6})
        spec.with_suffix(".json").write_text(json.dumps(bound_json(json_object(plan(spec)))))
        specs.append(str(spec))
    said = at_once(APPROVED, specs, specs)
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(specs)
    with store() as con:
        books = read_books(con)
        assert con.execute("SELECT count(*) FROM approvals").fetchall() == [(len(specs),)]
    assert {len(account.claims) for account in books.accounts.values()} == {1}
    states = sorted(listed.state for listed in releases_answer().releases)
    assert set(states) <= {"reserved", "failed", "refused"}
    assert states.count("refused") == len(specs)
