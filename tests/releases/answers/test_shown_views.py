"""Views where a release is looked at: in a terminal, as JSON and in the UI, each by its name."""

from typing import Any

import pytest

from flows.answers.release_status import release_answer, show_answer
from flows.console.release_view import show_one, show_release
from flows.server import artifacts
from storage.errors import StageFailed
from tests.support.town import VIEWS, Town

OF = {
    "total": "everything, same as level 0",
    "living": "from zone",
    "working": "to zone",
    "by_mode": "mode",
    "mode_from": "from district, mode",
    "pairs": "from district, to district, same as level 2",
}


@pytest.fixture(scope="module")
def release_id(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Release the town in a store that stays."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", "")
        return Town(tmp_path_factory.mktemp("town")).release().name


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, release_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into the store of that release."""
    monkeypatch.setenv("TRELLIS_HOME", str(next(tmp_path_factory.getbasetemp().glob("town*/home"))))


def test_a_terminal_lists_views_by_their_names(release_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`show` and `release` have a line for every view of the spec, with what it counts by or the level that it is."""
    for shown in (
        lambda: show_one(show_answer(release_id)),
        lambda: show_release(release_answer(release_id, {"total": 1})),
    ):
        shown()
        lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
        for name, of in OF.items():
            assert [line for line in lines if line.startswith(f"{name} {of} ")], (name, lines)


def test_json_has_every_view_and_each_cost_once(release_id: str) -> None:
    """A view that is a level has its number and costs nothing itself."""
    shown = show_answer(release_id)
    assert [(view.view, view.same_as) for view in shown.views] == [
        (name, {"total": 0, "pairs": 2}.get(name)) for name in VIEWS
    ]
    charged = sum(charge.rho for charge in shown.charges)
    assert sum(part.rho for part in [*shown.levels, *shown.views]) == pytest.approx(charged, rel=1e-12)


def test_the_ui_lists_views_by_their_names(release_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table beside that of the levels has them all, once they are published and after a failure."""
    tables: dict[str, list[dict[str, Any]]] = {}
    monkeypatch.setattr(artifacts, "create_table_artifact", lambda rows, key, _: tables.update({key: rows}))
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda *_: None)
    for show in (
        lambda: artifacts.show_published(release_id),
        lambda: artifacts.show_failure(release_id, StageFailed("It stopped."), deployed=False),
    ):
        tables.clear()
        show()
        assert {key.removeprefix(f"{release_id.lower()}-") for key in tables} - {"largest"} == {"levels", "views"}
        (rows,) = (rows for key, rows in tables.items() if key.endswith("-views"))
        assert {row["view"]: row["of"] for row in rows} == OF
        assert {row["done"] for row in rows} == {"yes"}
        assert {row["cells"] for row in rows} == {"1", "3", "4", "5"}


def test_progress_counts_views(release_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release is whole once all levels and views are, and not before."""
    from storage.database.connections import store
    from storage.releases.register import find_release

    shown: list[float] = []
    monkeypatch.setattr(artifacts.Progress, "show", lambda _, per_cent: shown.append(per_cent))
    with store() as con:
        release = find_release(con, release_id)
    told = artifacts.Progress(release, lambda *_: None)
    told.of_level.clear()
    for number in range(len(release.parts)):
        told.shown_at = float("-inf")
        told(number, 1, 1)
    assert shown == pytest.approx([100 * done / 9 for done in range(1, 10)])
