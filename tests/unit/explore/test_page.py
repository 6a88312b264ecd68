"""The page of the explorer: its scripts are one, its library is whole, and its data cannot end it."""

import re
from pathlib import Path

import pytest

from tasks.explore import page
from tasks.explore.library import library
from tests.support.user import REPOSITORY

ASSETS = REPOSITORY / "tasks" / "explore" / "assets"
IMPORTS = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";$', re.MULTILINE)


def test_every_script_is_in_the_page_after_those_that_it_imports() -> None:
    """No script of the folder is left out, and none uses one that comes later."""
    assert sorted(page._SCRIPTS) == sorted(path.stem for path in ASSETS.glob("*.js"))
    for place, name in enumerate(page._SCRIPTS):
        text = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
        assert text.count("\nimport ") + text.startswith("import ") == len(IMPORTS.findall(text)), name
        assert set(IMPORTS.findall(text)) <= set(page._SCRIPTS[:place]), name


def test_scripts_share_only_what_they_export() -> None:
    """Within the page each script is a function that returns what its module exports, so that two may use one name for things of their own."""
    script = page._script()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert re.findall(r"^const \$(\w+) = ", script, re.MULTILINE) == list(page._SCRIPTS)
    for name in page._SCRIPTS:
        text = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
        exported = re.findall(r"^export (?:async )?(?:function|const) (\w+)", text, re.MULTILINE)
        assert text.count("\nexport ") + text.startswith("export ") == len(exported)
        assert f"return {{ {', '.join(exported)} }};" in script


def test_a_page_has_one_policy_and_ends_where_it_should() -> None:
    """Titles are text, the library cannot end its script early, and there are no more scripts than the page's three."""
    made = page.explorer_page("a <b> & c", '{"name":"\\u003c/script>"}')
    assert "<title>a &lt;b&gt; &amp; c</title>" in made
    assert made.count("</script") == 3
    assert made.count("Content-Security-Policy") == 1
    assert not re.search(r'(?:src|href)="(?!report\.html)', made[: made.index("<script")])


@pytest.mark.thorough
def test_the_library_is_kept_in_the_cache_and_made_again_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is what was made, and closed to other users. A cache that is spoilt or cannot be written does not matter."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    made = library()
    [kept] = (tmp_path / "trellis").iterdir()
    assert kept.read_text(encoding="utf-8") == made
    assert kept.stat().st_mode & 0o077 == 0
    kept.write_text(made.replace("vegaEmbed", "anotherOne"), encoding="utf-8")
    library.cache_clear()
    assert library() == made
    assert kept.read_text(encoding="utf-8") == made
    monkeypatch.setattr("tasks.explore.library._made", lambda: "made again")
    library.cache_clear()
    assert library() == made
    monkeypatch.undo()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    library.cache_clear()
    assert library() == made
    library.cache_clear()
