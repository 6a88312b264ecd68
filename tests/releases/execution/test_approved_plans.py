"""Releases that are held to an approved plan: what passes, and every difference that is refused before anything is spent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.answers.ledger import balance_answer, budget_answer
from flows.answers.release_status import approved_plan, releases_answer, show_answer
from flows.api import plan, plan_page, release
from flows.cli.json_object import json_object
from flows.cli.release_commands import _make
from flows.cli.run_flow import run_plainly
from flows.execution.backups import back_up, restore
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.database.connections import store
from storage.errors import BudgetExceeded, BudgetNotAsApproved, InputError, SpecError, UsageError
from storage.ledger.events import head
from storage.releases.plan_file import bound_json
from storage.releases.register import how_to_go_on
from tasks.words.numbers import rounded_down
from tests.support.office import ROWS, Office

CAP = {"epsilon": 5.0, "delta": 1e-6}


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Give a folder with a table, a codebook and an empty store."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    (tmp_path / "homes.csv").write_text("home\na0\na1\n")
    return Office(tmp_path)


def spec_of(office: Office, **more: Any) -> Path:
    """Write a spec of which several releases fit the cap, and that reads a codebook."""
    hierarchy = {
        "home": {"table": "homes.csv", "levels": ["home"]},
        "work": {"values": ["b0", "b1", "b2"]},
    }
    return office.spec("people", "people.csv", **{"budget": CAP, "hierarchy": hierarchy, **more})


def approved(office: Office, spec: Path, name: str = "plan.json") -> Path:
    """Write the plan of a spec as JSON, or as a page."""
    text = plan_page(spec) if name.endswith(".html") else json.dumps(bound_json(json_object(plan(spec))))
    (office.folder / name).write_text(text)
    return office.folder / name


def events() -> int:
    """Return how many events the ledger has."""
    with store() as con:
        return head(con).length


@pytest.mark.parametrize("name", ["plan.json", "plan.html"])
def test_a_release_that_is_as_approved_is_made_and_keeps_its_plan(
    office: Office, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page and JSON are the same approval; the store keeps the file, also in a backup, and says what a release was made under."""
    spec = spec_of(office)
    file = approved(office, spec, name)
    made = release(spec, approved_plan=file)
    shown = show_answer(made.id).approved_plan
    assert shown is not None
    assert shown.fingerprint == plan_fingerprint(file)
    assert approved_plan(made.id) == file.read_text()
    assert shown.fingerprint not in (made.folder / "manifest.json").read_text()
    assert audit_answer().ok
    with pytest.raises(BudgetNotAsApproved, match=f"charged since: {made.id}"):
        release(spec, approved_plan=file)  # an approval is good for one release
    back_up(office.folder / "kept")
    monkeypatch.setenv("TRELLIS_HOME", str(office.folder / "new-home"))
    restore(office.folder / "kept")
    assert show_answer(made.id).approved_plan == shown
    assert approved_plan(made.id) == file.read_text()


def plan_fingerprint(file: Path) -> str:
    """Return the fingerprint that a plan states, read as text."""
    return file.read_text().split('"fingerprint": "')[1].split('"')[0]


def test_the_page_and_the_json_of_a_plan_have_one_fingerprint(office: Office) -> None:
    """When they were made is not part of it, and neither is what changes nothing of a release."""
    spec = spec_of(office)
    one, other = approved(office, spec), approved(office, spec, "plan.html")
    assert plan_fingerprint(one) == plan_fingerprint(other)
    again = spec_of(office, output="elsewhere", expected_total=60, run={"workers": "processes"})
    assert plan_fingerprint(approved(office, again)) == plan_fingerprint(other)


def test_a_release_that_is_refused_after_its_turn_came_is_charged_nothing(
    office: Office, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another one has spent the budget while it waited: the command says that nothing is charged, and not how to go on."""
    spec = spec_of(office, budget={"epsilon": 1.0, "delta": 1e-6})
    planned = make_plan(load_spec(spec))
    waits = new_release(planned)
    release(spec)
    before = events()
    with pytest.raises(BudgetExceeded) as refused:
        _make(waits.id, lambda: run_plainly(waits.id, (planned, waits)), 0.0, as_json=False)
    assert f"{waits.id} is refused. Nothing is charged." in capsys.readouterr().err
    assert "rerun" not in f"{refused.value} {refused.value.hint}"
    assert how_it_goes_on(waits.id) == "Nothing was reserved."
    assert events() == before


def how_it_goes_on(release_id: str) -> str:
    """Return what a command that was interrupted would say."""
    with store() as con:
        return how_to_go_on(con, release_id)


def left_on(page: str) -> list[str]:
    """Return what a plan's page says is left before the release and with it."""
    return re.findall(r"left (?:before|with it)</th><td>([^<]*)", page)


def test_a_page_says_of_what_is_left_what_the_ledger_says(office: Office) -> None:
    """What is left before and with a release is the ε that the ledger states and `trellis release` prints."""
    spec = spec_of(office)
    release(spec)
    page = plan_page(spec)
    before, after = left_on(page)
    assert before == rounded_down(balance_answer("people").left)
    release(spec)
    assert after == rounded_down(balance_answer("people").left) == left_on(plan_page(spec))[0]
    assert rounded_down(CAP["epsilon"] - balance_answer("people").spent) not in page


def test_a_page_lists_the_files_of_a_release(office: Office) -> None:
    """The explorer is always among the files; names, shapes and further formats are where the spec asks for them."""
    plain = plan_page(spec_of(office))
    assert "<code>explorer.html</code>" in plain
    assert "<code>names/</code>" not in plain
    assert "<code>boundaries/</code>" not in plain
    assert "further formats" not in plain
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}
    towns = [{"type": "Feature", "properties": {"code": "a0"}, "geometry": square}]
    (office.folder / "homes.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": towns}))
    (office.folder / "homes.csv").write_text("home,name\na0,Ada\na1,Eda\n")
    home = {"table": "homes.csv", "levels": ["home"], "labels": {"home": "name"}, "boundaries": "homes.geojson"}
    more = plan_page(
        spec_of(
            office,
            hierarchy={"home": home, "work": {"values": ["b0", "b1", "b2"]}},
            release={"order": ["home", "work"], "formats": ["csv", "xlsx"]},
        )
    )
    for named in (
        "<code>explorer.html</code>",
        "<code>names/</code>",
        "<code>boundaries/</code>",
        "further formats: xlsx",
    ):
        assert named in more


def test_a_release_without_an_approval_says_so(office: Office) -> None:
    """`show` has no approved plan, and there is none to print."""
    made = release(spec_of(office))
    assert "approved_plan" not in json_object(show_answer(made.id))
    with pytest.raises(UsageError, match="under no approved plan"):
        approved_plan(made.id)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"privacy": {"epsilon": 2.0}}, "privacy.epsilon: 1 → 2"),
        ({"dataset": "others"}, "dataset: people → others"),
        ({"mechanism": "inftda_reconciled"}, "mechanism: inftda → inftda_reconciled"),
        ({"release": {"order": ["home", "work"], "records": True}}, "release.records: left out → true"),
        (
            {"input": {"table": "copies/people.csv", "features": ["home", "work"]}},
            "input.table: a file of the same name",
        ),
    ],
)
def test_another_spec_is_refused(office: Office, changed: dict[str, Any], told: str) -> None:
    """A key that was edited is named with what it was and is; nothing is reserved, and no path is told."""
    spec = spec_of(office)
    file, before = approved(office, spec), events()
    (office.folder / "copies").mkdir()
    (office.folder / "copies" / "people.csv").write_text((office.folder / "people.csv").read_text())
    keys = yaml.safe_load(spec.read_text())
    for key, value in changed.items():
        keys[key] = keys[key] | value if key == "privacy" else value
    spec.write_text(yaml.safe_dump(keys))
    with pytest.raises(SpecError) as refusal:
        release(spec, approved_plan=file)
    assert told in str(refusal.value)
    assert str(office.folder) not in str(refusal.value)
    assert "copies" not in str(refusal.value)
    assert events() == before
    assert releases_answer().releases == []


def test_another_codebook_is_refused(office: Office) -> None:
    """A public table that was changed is named by its axis, and nothing is reserved."""
    spec = spec_of(office)
    file = approved(office, spec)
    (office.folder / "homes.csv").write_text("home\na0\na1\na2\n")
    with pytest.raises(InputError, match="the codebook of home: sha256"):
        release(spec, approved_plan=file)
    assert events() == 0


def test_a_budget_of_which_more_is_spent_is_refused(office: Office) -> None:
    """A release of the same people in the meantime is named, and nothing more is reserved."""
    spec = spec_of(office)
    file = approved(office, spec)
    other = office.folder / "other.yaml"
    other.write_text(spec.read_text().replace("name: people", "name: other"))
    made = release(other)
    before = events()
    with pytest.raises(BudgetNotAsApproved) as refusal:
        release(spec, approved_plan=file)
    assert f"charged since: {made.id}" in str(refusal.value)
    assert "ε = 0 →" in str(refusal.value)
    assert refusal.value.left > 0
    assert "plan" in refusal.value.hint
    assert events() == before
    states = [listed.state for listed in releases_answer().releases]
    assert states == ["published", "refused"]
    assert issubclass(BudgetNotAsApproved, BudgetExceeded)  # so the command line ends with 3


def test_a_raised_cap_is_refused(office: Office) -> None:
    """Whoever approved one budget has not approved a larger one."""
    spec = spec_of(office)
    release(spec)
    file = approved(office, spec)
    budget_answer("people", 9.0, "to see what is refused")
    with pytest.raises(BudgetNotAsApproved, match="the cap: ε = 5 at δ = 1e-06 → ε = 9 at δ = 1e-06"):
        release(spec, approved_plan=file)
    assert release(spec, approved_plan=approved(office, spec)).manifest.privacy.epsilon == 1


ALTERED_PAGES = {
    "at most 73.2 of 100 times": "at most 50.1 of 100 times",
    "<dd>± ": "<dd>± 1",
    "ε = 1</dd>": "ε = 0.01</dd>",
    "which has exactly 1 record": "which has exactly 9 records",
    "</main>": "<p>Approved.</p></main>",
    '"spent": 0': '"spent": 1',
    '"made": "2': '"made": "1',
    '"trellis": "0': '"trellis": "9',
    'data-sha256="': 'data-sha256="0',
    "73.2": "73.2\n",
}
ALTERED_KEYS: list[dict[str, Any]] = [
    {"epsilon": 0.01},
    {"statement": "Nothing is revealed."},
    {"levels": []},
    {"typical": {"total": 3}},
    {"approved_by": "the director"},
    {"sha256": "0" * 64},
    {"sha256": []},
]


def test_a_plan_that_was_altered_is_refused(office: Office) -> None:
    """Whoever signs a plan signs what it says: a word, number or key that was edited shows, whatever depends on it."""
    spec = spec_of(office)
    page, file = (approved(office, spec, name) for name in ("plan.html", "plan.json"))
    text, answer = page.read_text(), json.loads(file.read_text())
    assert [shown for shown in ALTERED_PAGES if shown not in text] == []
    without_budget = {key: value for key, value in answer.items() if key != "budget"}
    altered = [
        *((page, text.replace(shown, edited)) for shown, edited in ALTERED_PAGES.items()),
        *((file, json.dumps(answer | edited)) for edited in ALTERED_KEYS),
        *(
            (file, edited)
            for edited in (json.dumps(without_budget), json.dumps(answer).replace('"spent": 0', '"spent": 1'))
        ),
    ]
    for of, edited in altered:
        of.write_text(edited)
        with pytest.raises(UsageError, match="was altered after it was made") as refusal:
            release(spec, approved_plan=of)
        assert "the file that was approved" in refusal.value.hint
    assert events() == 0


@pytest.mark.parametrize("name", ["plan.json", "plan.html"])
def test_a_plan_that_was_only_carried_elsewhere_is_accepted(office: Office, name: str) -> None:
    """JSON that was written in another layout, and a file whose lines end as on another system, say the same as before."""
    spec = spec_of(office)
    file = approved(office, spec, name)
    if name == "plan.json":
        file.write_text(json.dumps(json.loads(file.read_text()), indent=4, sort_keys=True))
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    made = release(spec, approved_plan=file)
    assert audit_answer().ok
    assert show_answer(made.id).approved_plan is not None


def unbound(text: str) -> str:
    """Return the file of a plan as versions of Trellis wrote it that put no hash over all of it."""
    if text.startswith("{"):
        return json.dumps({key: value for key, value in json.loads(text).items() if key != "sha256"})
    return re.sub(r' data-sha256="[0-9a-f]{64}"', "", text)


@pytest.mark.parametrize("name", ["plan.json", "plan.html"])
def test_a_plan_without_a_hash_over_all_of_it_is_made_again(office: Office, name: str) -> None:
    """Nobody sees what was edited in it, so the error says to plan again; the audit accepts what a store keeps from before."""
    spec = spec_of(office)
    file = approved(office, spec, name)
    text = file.read_text()
    made = release(spec, approved_plan=file)
    with store() as con:
        con.execute("UPDATE approvals SET plan = ?", [unbound(text)])
    assert audit_answer().ok
    assert approved_plan(made.id) != text
    before = events()
    file.write_text(unbound(text))
    with pytest.raises(UsageError, match="must hold the hash over all of it") as refusal:
        release(spec, approved_plan=file)
    assert "Make a new plan" in refusal.value.hint
    assert events() == before


@pytest.mark.parametrize(
    ("name", "was", "is_now"),
    [("plan.html", "73.2 of 100", "50.1 of 100"), ("plan.json", '"spent": 0', '"spent": 1')],
)
def test_the_audit_finds_an_approved_plan_that_was_altered(office: Office, name: str, was: str, is_now: str) -> None:
    """The plan that the store keeps is the one that was approved, with all its words, and not only its approval."""
    spec = spec_of(office)
    made = release(spec, approved_plan=approved(office, spec, name))
    with store() as con:
        con.execute("UPDATE approvals SET plan = replace(plan, ?, ?)", [was, is_now])
    assert [(finding.event, finding.release) for finding in audit_answer().findings] == [("approved plan", made.id)]


def test_what_is_no_plan_is_refused(office: Office) -> None:
    """Anything else is named as no plan, with the commands that write one."""
    spec, file = spec_of(office), office.folder / "plan.json"
    for text in ("", "{}", "[1]", "{", "<html></html>", '{"approval": {"fingerprint": 3}}', "{" * 5000):
        file.write_text(text)
        with pytest.raises(UsageError, match="is no plan") as refusal:
            release(spec, approved_plan=file)
        assert "trellis plan" in refusal.value.hint
    with pytest.raises(UsageError, match="can be read"):
        release(spec, approved_plan=office.folder / "none.json")


def test_a_series_is_not_approved_by_file(office: Office) -> None:
    """The spec of a series, which is reserved as a whole, is refused with a plan: an approval is for a single release."""
    spec = spec_of(office, schedule={"cron": "0 3 1 * *", "timezone": "Europe/Rome", "until": "3 releases"})
    with pytest.raises(SpecError, match="declares a series"):
        release(spec, approved_plan=approved(office, spec))
