"""Two processes that reserve at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from storage.database.connections import store
from storage.ledger.events import (
    read_books,
)
from tests.support.ledger import cap_at, read_chain

# Tries to reserve two thirds of each dataset's cap once it is told to, and says how that went.
CHILD = """
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
    said = [child.communicate(timeout=240)[0].split() for child in children]
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(datasets)
    with store() as con:
        assert {name: account.spent for name, account in read_books(con).accounts.items()} == dict.fromkeys(
            datasets, cap_at(1.0).rho * 2 / 3
        )
        assert len(read_chain(con)) == 2 * len(datasets)
