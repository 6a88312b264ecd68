"""What README and docs list is what there is."""

import re
from pathlib import Path

import yaml

from flows.keys import DEFAULT_MECHANISM, Spec
from flows.mechanisms import MECHANISMS

REPOSITORY = Path(__file__).parents[2]
RUN_BY_OTHERS = {"inf_tda.py", "paper_page.py"}  # by peers.py, and by paper.py --page


def text(name: str) -> str:
    """Return a page."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_the_readme_lists_every_key_of_a_spec() -> None:
    """Its listing has all keys of the first rank, every mechanism, and as `mechanism:` the one that is taken without."""
    listing = re.search(r"^## The spec\n\n((?:    .*\n)+)", text("README.md"), re.MULTILINE)
    assert listing is not None
    keys = yaml.safe_load(listing[1])
    assert keys.keys() == Spec.model_fields.keys()
    assert keys["mechanism"] == DEFAULT_MECHANISM
    assert {name for name in MECHANISMS if not re.search(rf"\b{name}\b", listing[1])} == set()
    assert keys["priority"] in MECHANISMS[DEFAULT_MECHANISM].optimisers


def test_the_page_of_mechanisms_says_which_state_a_bound_and_which_is_taken() -> None:
    """Its first table has a line for every mechanism, a bound for those that state one, and the default alone called so."""
    lines = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", text("docs/mechanisms.md").split("## `inftda`")[0], re.MULTILINE)
    )
    assert list(lines) == list(MECHANISMS)
    assert {name for name, line in lines.items() if "no bound" not in line} == {
        name for name, recipe in MECHANISMS.items() if recipe.bounds
    }
    assert [name for name, line in lines.items() if "the default" in line] == [DEFAULT_MECHANISM]


def test_every_benchmark_is_listed() -> None:
    """The page of benchmarks names each that can be run, and begins as the program that writes it has it."""
    page = text("benchmarks/README.md")
    programs = {path.name for path in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(re.findall(r"`(?:python benchmarks/)?(\w+\.py)`", page)) == programs - RUN_BY_OTHERS
    assert page.split("## ")[0] in text("benchmarks/report.py")
