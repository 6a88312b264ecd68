"""Releases that are held to an approved plan: what passes, and every difference that is refused before anything is spent."""

import json
import re

import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.answers.ledger import balance_answer, budget_answer
from flows.answers.release_status import approved_plan, releases_answer, show_answer
from flows.api import plan, plan_page, release
from flows.cli.arguments import json_object
from flows.cli.release_commands import _make
from flows.run.backups import back_up, restore
from flows.run.reservation import new_release
from storage.database.connections import store
from storage.errors import BudgetExceeded, BudgetNotAsApproved, InputError, SpecError, UsageError
from storage.ledger.events import head
from storage.releases.register import how_to_go_on
from tasks.words.numbers import rounded_down

CAP = {"epsilon": 5.0, "delta": 1e-6}


def spec_of(office, **more):
    """Write a spec of which several releases fit the cap, and that reads a codebook."""
    hierarchy = {"home": {"table": "homes.csv", "levels": ["home"]}, "work": {"values": ["b0", "b1", "b2"]}}
    return office.spec("people", "people.csv", **{"budget": CAP, "hierarchy": hierarchy, **more})


def approved(office, spec, name="plan.json"):
    """Write the plan of a spec as JSON, or as a page."""
    text = plan_page(spec) if name.endswith(".html") else json.dumps(json_object(plan(spec)))
    (office.folder / name).write_text(text)
    return office.folder / name


def events():
    """Return how many events the ledger has."""
    with store() as con:
        return head(con).length


def plan_fingerprint(file):
    """Return the fingerprint that a plan states, read as text."""
    return file.read_text().split('"fingerprint": "')[1].split('"')[0]


@pytest.mark.parametrize("name", ["plan.json", "plan.html"])
def test_a_release_that_is_as_approved_is_made_and_keeps_its_plan(fresh, name, monkeypatch):
    """Page and JSON are the same approval, carried elsewhere too; the store keeps the file, also in a backup, says what it is of, and the audit finds what was edited in it."""
    spec = spec_of(fresh)
    file = approved(fresh, spec, name)
    if name == "plan.json":  # another layout, and then line ends of another system
        file.write_text(json.dumps(json.loads(file.read_text()), indent=1, sort_keys=True))
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    made = release(spec, approved_plan=file)
    shown = show_answer(made.id).approved_plan
    assert shown.fingerprint == plan_fingerprint(file)
    assert approved_plan(made.id) == file.read_text()
    assert shown.fingerprint not in (made.folder / "manifest.json").read_text()
    assert audit_answer().ok
    with pytest.raises(BudgetNotAsApproved, match=f"charged since: {made.id}"):
        release(spec, approved_plan=file)  # an approval is good for one release
    back_up(fresh.folder / "kept")
    monkeypatch.setenv("TRELLIS_HOME", str(fresh.folder / "new-home"))
    restore(fresh.folder / "kept")
    assert show_answer(made.id).approved_plan == shown
    assert approved_plan(made.id) == file.read_text()
    other = release(spec)
    assert "approved_plan" not in json_object(show_answer(other.id))
    with pytest.raises(UsageError, match="under no approved plan"):
        approved_plan(other.id)
    with store() as con:  # what is edited in a kept plan does not state what the ledger does
        con.execute("UPDATE approvals SET plan = replace(plan, '\"spent\": 0', '\"spent\": 1')")
    assert [(finding.event, finding.release) for finding in audit_answer().findings] == [("approved plan", made.id)]


def test_the_page_and_the_json_of_a_plan_have_one_fingerprint(fresh):
    """When they were made is not part of it, and neither is what changes nothing of a release."""
    spec = spec_of(fresh)
    one, other = approved(fresh, spec), approved(fresh, spec, "plan.html")
    assert plan_fingerprint(one) == plan_fingerprint(other)
    again = spec_of(fresh, output="elsewhere", expected_total=60, run={"workers": "processes"})
    assert plan_fingerprint(approved(fresh, again)) == plan_fingerprint(other)


def test_a_release_that_is_refused_after_its_turn_came_is_charged_nothing(fresh, capsys):
    """Another one has spent the budget while it waited: the command says that nothing is charged, and not how to go on."""
    planned = fresh.plan("people", "people.csv")
    waits = new_release(planned)
    release(fresh.folder / "people.yaml")
    before = events()
    with pytest.raises(BudgetExceeded) as refused:
        _make(waits.id, 0.0, as_json=False, server=False, prefect=True, planned=(planned, waits))
    assert f"{waits.id} is refused. Nothing is charged." in capsys.readouterr().err
    assert "rerun" not in f"{refused.value} {refused.value.hint}"
    with store() as con:
        assert how_to_go_on(con, waits.id) == "Nothing was reserved."
    assert events() == before


def test_a_page_says_of_what_is_left_what_the_ledger_says(fresh):
    """What is left before and with a release is the ε that the ledger states and `trellis release` prints."""
    spec = spec_of(fresh)
    release(spec)
    page = plan_page(spec)
    before, after = re.findall(r"left (?:before|with it)</th><td>([^<]*)", page)
    assert before == rounded_down(balance_answer("people").left)
    release(spec)
    assert after == rounded_down(balance_answer("people").left)
    assert rounded_down(CAP["epsilon"] - balance_answer("people").spent) not in page


@pytest.mark.parametrize(("changed", "told"), [
    ({"privacy": {"epsilon": 2.0}}, "privacy.epsilon: 1 → 2"),
    ({"dataset": "others"}, "dataset: people → others"),
    ({"mechanism": "inftda_reconciled"}, "mechanism: inftda → inftda_reconciled"),
    ({"release": {"records": True}}, "release.records: left out → true"),
    ({"input": {"table": "copies/people.csv"}}, "input.table: a file of the same name"),
    ({}, "the codebook of home: sha256"),
])  # fmt: skip
def test_another_spec_or_codebook_is_refused(fresh, changed, told):
    """A key that was edited is named with what it was and is, a codebook by its axis; nothing is reserved, and no path is told."""
    spec = spec_of(fresh)
    file, before = approved(fresh, spec), events()
    (fresh.folder / "copies").mkdir()
    (fresh.folder / "copies" / "people.csv").write_text((fresh.folder / "people.csv").read_text())
    if not changed:
        (fresh.folder / "homes.csv").write_text("home\na0\na1\na2\n")
    keys = yaml.safe_load(spec.read_text())
    changed = {key: keys[key] | of if isinstance(of, dict) else of for key, of in changed.items()}
    spec.write_text(yaml.safe_dump(keys | changed))
    with pytest.raises(SpecError if changed else InputError) as refusal:
        release(spec, approved_plan=file)
    assert told in str(refusal.value)
    assert str(fresh.folder) not in str(refusal.value)
    assert "copies" not in str(refusal.value)
    assert events() == before
    assert releases_answer().releases == []


def test_another_budget_is_refused(fresh):
    """A release of the same people in the meantime is named, and so is a raised cap; nothing more is reserved."""
    spec = spec_of(fresh)
    file = approved(fresh, spec)
    other = fresh.folder / "other.yaml"
    other.write_text(spec.read_text().replace("name: people", "name: other"))
    made = release(other)
    before = events()
    with pytest.raises(BudgetNotAsApproved, match=rf"(?s)ε = 0 →.*charged since: {made.id}") as refusal:
        release(spec, approved_plan=file)
    assert refusal.value.left > 0
    assert "plan" in refusal.value.hint
    assert events() == before
    assert [listed.state for listed in releases_answer().releases] == ["published", "refused"]
    assert issubclass(BudgetNotAsApproved, BudgetExceeded)  # so the command line ends with 3
    file = approved(fresh, spec)
    budget_answer("people", 9.0, "to see what is refused")
    with pytest.raises(BudgetNotAsApproved, match="the cap: ε = 5 at δ = 1e-06 → ε = 9 at δ = 1e-06"):
        release(spec, approved_plan=file)
    assert release(spec, approved_plan=approved(fresh, spec)).manifest.privacy.epsilon == 1


def test_an_approval_that_was_altered_is_refused(fresh):
    """What a page or JSON states for approval has its fingerprint: a number, name or key of it that was edited shows."""
    spec = spec_of(fresh)
    page, file = (approved(fresh, spec, name) for name in ("plan.html", "plan.json"))
    answer = json.loads(file.read_text())
    stated = answer["approval"]
    edits = ({"epsilon": 0.01}, {"dataset": "others"}, {"keys": {}}, {"fingerprint": "0" * 64})
    altered = [(file, json.dumps(answer | {"approval": stated | edited})) for edited in edits]
    altered += [(of, of.read_text().replace('"spent": 0', '"spent": 1')) for of in (page, file)]
    for of, edited in altered:
        of.write_text(edited)
        with pytest.raises(UsageError, match="was altered after it was made") as refusal:
            release(spec, approved_plan=of)
        assert "the file that was approved" in refusal.value.hint
    assert events() == 0


def test_what_is_no_plan_is_refused(fresh):
    """Anything else is named as no plan, with the commands that write one; so is a plan for a series, which is more than a release."""
    spec, file = spec_of(fresh), fresh.folder / "plan.json"
    for text in ("", "{}", "[1]", "{", "<html></html>", '{"approval": {"fingerprint": 3}}', "{" * 5000):
        file.write_text(text)
        with pytest.raises(UsageError, match="is no plan") as refusal:
            release(spec, approved_plan=file)
        assert "trellis plan" in refusal.value.hint
    with pytest.raises(UsageError, match="can be read"):
        release(spec, approved_plan=fresh.folder / "none.json")
    spec = spec_of(fresh, schedule={"cron": "0 3 1 * *", "timezone": "Europe/Rome", "until": "3 releases"})
    with pytest.raises(SpecError, match="declares a series"):
        release(spec, approved_plan=approved(fresh, spec))
