"""The pages of a published folder follow from its tables: `verify` writes them again and compares them."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.answers.verify import verify_answer
from tasks.export import written_by
from tasks.verify import pages
from tests.support.ages import people_released
from tests.support.explored import DRAWN, land_released
from tests.support.folders import with_sums
from tests.support.households import homes_released


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Return the published folders of trips with names, maps and views, of ages, and of households."""
    place = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        (place / "ages").mkdir()
        (place / "homes").mkdir()
        views = {"tree": "destination", "finest": "town", "csv": "every_level", "rows": "signal", "views": "margins"}
        yield {
            "trips": land_released(place / "trips", DRAWN, name="viewed", dataset="viewed", release=views),
            "ages": people_released(place / "ages").folder,
            "homes": homes_released(place / "homes", dataset="homes").folder,
        }


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the folder of trips that a test may change."""
    return shutil.copytree(made["trips"], tmp_path / "copy")


def changed(file: Path, pattern: str, other: str) -> None:
    """Replace what a pattern finds first in a file."""
    text, many = re.subn(pattern, other, file.read_text(encoding="utf-8"), count=1)
    assert many == 1
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["trips", "ages", "homes"])
def test_pages_are_written_again_as_they_are(name: str, made: dict[str, Path]) -> None:
    """Of every kind of release, all pages are compared, and each is what its tables give."""
    found = verify_answer(made[name])
    assert found.failures == []
    assert found.unread is None


SPOILT: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a number of the report": ("report.html", lambda path: changed(path, r"<b>(\d)", r"<b>9\1")),
    "a sentence of the README": ("README.md", lambda path: changed(path, "Not protected", "Protected")),
    "the program of the explorer": ("explorer.html", lambda path: changed(path, r"toLocaleString\(", "toString(")),
    "data before the data": (
        "explorer.html",
        lambda path: changed(path, "<main>", '<script type="application/json" id="data">{}</script><main>'),
    ),
    "no explorer": ("explorer.html", Path.unlink),
    "epsilon in the metadata": ("metadata.json", lambda path: changed(path, '"epsilon": [0-9.]+', '"epsilon": 0.1')),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_pages_that_say_something_else_are_found(copy: Path, spoilt: str) -> None:
    """Whatever a page is made to say, and whichever is removed, also where the checksums are written anew."""
    name, spoil = SPOILT[spoilt]
    spoil(copy / name)
    with_sums(copy)
    assert verify_answer(copy).failures == [f"{name} does not say what follows from the tables and the manifest."]


def test_pages_of_other_code_are_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that another version wrote are not compared, and `verify` says so; the numbers in the explorer are compared all the same."""
    changed(copy / "report.html", r"<b>(\d)", r"<b>9\1")
    with_sums(copy)
    monkeypatch.setattr(pages, "code_of_pages", lambda: "0" * 64)
    found = verify_answer(copy)
    assert found.ok
    assert found.unread is not None
    assert "other code of Trellis wrote them" in found.unread[0]
    changed(copy / "explorer.html", '"signal_rate":0.1', '"signal_rate":0.2')
    with_sums(copy)
    assert verify_answer(copy).failures == ["explorer.html does not show what the tables hold."]


def test_the_report_of_a_large_release_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of rows the report is left to its checksum, and `verify` says so."""
    monkeypatch.setattr(pages, "MOST_ROWS", 10)
    found = verify_answer(copy)
    assert found.ok
    assert found.unread == ["report.html: only the checksum was compared, because it has many rows."]


def test_the_code_of_pages_is_that_of_the_stages(monkeypatch: pytest.MonkeyPatch, made: dict[str, Path]) -> None:
    """The manifest has a hash over the code that wrote the pages; another version of a library that draws is other code."""
    manifest = json.loads((made["trips"] / "manifest.json").read_text())
    assert manifest["pages"]["code"] == written_by.code_of_pages()
    written_by.code_of_pages.cache_clear()
    monkeypatch.setattr(written_by, "version", lambda _: "0")
    assert written_by.code_of_pages() != manifest["pages"]["code"]
    written_by.code_of_pages.cache_clear()
