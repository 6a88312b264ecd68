"""Questions to a published folder by the command line, and releases from Python as in a notebook."""

import json
import re
import sys
from pathlib import Path
from textwrap import indent

import pytest

from tests.support.processes import ran

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "from-python.md"

NOTEBOOK = """\
import asyncio, json, os, sys

async def cell():
{code}
    again = trellis.open_release(released.folder)
    answers = again.query(origin=["01", "02"]).to_dicts()
    assert row.to_dicts() == answers[:1]
    assert matrix["count"].sum() == table["count"].sum()
    return released.id, str(released.folder), answers, levels["level"].to_list(), oct(os.umask(0o022))

print(json.dumps([*asyncio.run(cell()), "prefect.flows" in sys.modules and bool(os.environ.get("PREFECT_API_URL"))]))
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory, settle):
    """Return a user who has run the code of the page about Python, inside a running event loop, and what that said."""
    user = settle(tmp_path_factory.mktemp("notebook"))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    environment = {name: value for name, value in user.environment.items() if not name.startswith("PREFECT_")}
    script = NOTEBOOK.format(code=indent(code, "    "))
    done = ran(sys.executable, "-c", script, cwd=user.folder, env=environment)
    assert done.returncode == 0, done.stderr
    return user, json.loads(done.stdout)


@pytest.mark.thorough
def test_a_release_from_a_notebook_needs_no_server(notebook):
    """It publishes, charges and records like the command, leaves no server's files, and the umask as it was."""
    user, (release_id, folder, rows, levels, umask, beneath_a_server) = notebook
    assert Path(folder) == user.folder / "public" / release_id
    assert (umask, levels, beneath_a_server) == ("0o22", list(range(7)), False)
    assert not (user.folder / "home" / "prefect").exists()
    assert user.run("ledger", "--json").json()["datasets"][0]["releases"][0]["release"] == release_id
    assert user.run("verify", folder, "--json").json()["ok"]
    assert not [path for path in (user.folder / "home").rglob("*") if path.stat().st_mode & 0o077]
    assert [row["origin"] for row in rows] == ["01", "02"]
    assert sum(row["count"] for row in rows) == 500


def test_a_question_is_answered_from_the_folder_alone(notebook, tmp_path):
    """`trellis query` answers without a store, in JSON and for people as Python does; a wrong area ends with 2 and the levels."""
    user, (release_id, folder, rows, *_) = notebook
    told = user.run("query", folder, "--origin", "01", "--json", TRELLIS_HOME=str(tmp_path / "none"))
    answer = told.json()
    assert (told.code, (tmp_path / "none").exists()) == (0, False)
    assert (answer["id"], answer["level"], answer["confidence"]) == (release_id, 2, 0.9)
    assert all(answer[key] == rows[0][key] for key in ("count", "low", "high", "how"))
    said = user.run("query", folder, "--where", "origin=region=01", "--destination", "all")
    assert said.code == 0
    for words in (f"count: {answer['count']:,}", f"{answer['low']:,} to {answer['high']:,}; with 90%", answer["how"]):
        assert words in said.stdout
    wrong = user.run("query", folder, "--origin", "99", "--json")
    assert (wrong.code, wrong.json()["field"]) == (2, "origin")
    assert "no level has an area 99" in wrong.json()["error"]
    assert "region, province, municipality" in re.sub(r" \(.*?\)", "", wrong.json()["hint"])
