"""The page of the explorer: its scripts are one, its library is whole, its data cannot end it, and units have their plural."""

import re

import pytest

from tasks.pages.explorer import page
from tasks.pages.explorer.page import library
from tasks.words.protection import unit_words
from tests.support.user import REPOSITORY

ASSETS = REPOSITORY / "tasks" / "pages" / "explorer" / "assets"
IMPORTS = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";$', re.MULTILINE)


def test_every_script_is_in_the_page_after_those_that_it_imports():
    """No script of the folder is left out, none uses one that comes later, and they share only what they export."""
    script = page._script()
    assert sorted(page._SCRIPTS) == sorted(path.stem for path in ASSETS.glob("*.js"))
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    for place, name in enumerate(page._SCRIPTS):
        text = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
        assert set(IMPORTS.findall(text)) <= set(page._SCRIPTS[:place]), name
        exported = re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, re.MULTILINE)
        assert f"return {{ {', '.join(exported)} }};" in script


def test_a_page_has_one_policy_and_ends_where_it_should():
    """Titles are text, the library cannot end its script early, and there are no more scripts than the page's three."""
    made = page.explorer_page("a <b> & c", '{"name":"\\u003c/script>"}')
    assert "<title>a &lt;b&gt; &amp; c</title>" in made
    assert made.count("</script") == 3
    assert made.count("Content-Security-Policy") == 1
    assert not re.search(r'(?:src|href)="(?!report\.html)', made[: made.index("<script")])


@pytest.mark.thorough
def test_the_library_is_kept_in_the_cache_and_made_again_without_it(tmp_path, monkeypatch):
    """What is kept is what was made, and closed to other users. A cache that is spoilt or cannot be written does not matter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    made = library()
    [kept] = (tmp_path / "trellis").iterdir()
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text(made.replace("vegaEmbed", "anotherOne"), encoding="utf-8")
    library.cache_clear()
    assert library() == made == kept.read_text(encoding="utf-8")
    monkeypatch.setattr("tasks.pages.explorer.page._made", lambda: "made again")
    library.cache_clear()
    assert library() == made
    monkeypatch.undo()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    library.cache_clear()
    assert library() == made
    library.cache_clear()


UNITS = {
    "one job": ("job", "jobs"), "a household": ("household", "households"), "": ("record", "records"),
    "one made-up person": ("made-up person", "made-up people"), "each company": ("company", "companies"),
    "one bus": ("bus", "buses"), "one person of the register": ("person of the register", "people of the register"),
}  # fmt: skip


def test_a_unit_with_one_record_names_the_records():
    """The article goes, and the noun has its plural; where a unit has several records, or no name, counts are of records."""
    assert {unit: unit_words(unit, 1) for unit in UNITS} == UNITS
    assert unit_words("one person", 3) == ("record", "records")
