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
from tests.support.explored import DRAWN, land_released
from tests.support.folders import with_sums
from tests.support.library import Library


@pytest.fixture(scope="module")
def land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the published folder of trips with names, maps, views and rows that stand out."""
    place = tmp_path_factory.mktemp("pages")
    views = {"tree": "destination", "finest": "town", "csv": "every_level", "rows": "signal", "views": "margins"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield land_released(place / "trips", DRAWN, name="viewed", dataset="viewed", release=views)


@pytest.fixture
def copy(land: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder of trips that a test may change."""
    return shutil.copytree(land, tmp_path / "copy")


def changed(file: Path, pattern: str, other: str) -> None:
    """Replace what a pattern finds first in a file."""
    text, many = re.subn(pattern, other, file.read_text(encoding="utf-8"), count=1)
    assert many == 1
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["land", "walked", "sizes by tails"])
def test_pages_are_written_again_as_they_are(land: Path, library: Library, name: str) -> None:
    """Of every kind of release, all pages are compared, and each is what its tables give."""
    found = verify_answer(land if name == "land" else library[name].folder)
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
    told = [f"{name} does not say what follows from the tables and the manifest."]
    assert pages.page_failures(copy) == told
    if spoilt == "no explorer":
        with_sums(copy)
        assert verify_answer(copy).failures == told


def test_the_report_of_a_large_release_is_named(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of rows the report is left to its checksum, and `verify` says so."""
    monkeypatch.setattr(pages, "MOST_ROWS", 10)
    found = verify_answer(copy)
    assert found.ok
    assert found.unread == ["report.html: only the checksum was compared, because it has many rows."]


def test_the_code_of_pages_is_that_of_the_stages(monkeypatch: pytest.MonkeyPatch, land: Path) -> None:
    """The manifest has a hash over the code that wrote the pages; another version of a library that draws is other code."""
    manifest = json.loads((land / "manifest.json").read_text())
    assert manifest["pages"]["code"] == written_by.code_of_pages()
    written_by.code_of_pages.cache_clear()
    monkeypatch.setattr(written_by, "version", lambda _: "0")
    assert written_by.code_of_pages() != manifest["pages"]["code"]
    written_by.code_of_pages.cache_clear()
