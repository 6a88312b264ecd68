"""Two processes that hold a release to the same approved plan at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.answers.release_status import releases_answer
from flows.api import plan
from flows.cli.json_object import json_object
from storage.database.connections import store
from storage.ledger.events import read_books
from storage.releases.plan_file import bound_json
from tests.support.office import ROWS, Office

# Passes the first look at the approval, and reserves once it is told to; says how that went.
CHILD = """
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


def test_two_processes_do_not_both_pass_on_one_approval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap has room for both, and both had passed the first look: one reserves, and to the other the budget is not as approved."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    office, specs = Office(tmp_path), []
    for number in range(5):
        (tmp_path / f"people{number}.csv").write_text("home,work\n" + ROWS + f"a0,b{number % 3}\n" * number)
        spec = office.spec(f"people{number}", f"people{number}.csv", budget={"epsilon": 5.0, "delta": 1e-6})
        spec.with_suffix(".json").write_text(json.dumps(bound_json(json_object(plan(spec)))))
        specs.append(str(spec))
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, *specs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [child.communicate(timeout=240)[0].split() for child in children]
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(specs)
    with store() as con:
        books = read_books(con)
        assert con.execute("SELECT count(*) FROM approvals").fetchall() == [(len(specs),)]
    assert {len(account.claims) for account in books.accounts.values()} == {1}
    states = sorted(listed.state for listed in releases_answer().releases)
    assert set(states) <= {"reserved", "failed", "refused"}
    assert states.count("refused") == len(specs)
