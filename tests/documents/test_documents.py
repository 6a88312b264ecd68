"""What README and docs list is what there is."""

import re
from pathlib import Path

import pytest
import yaml

from flows.mechanisms import MECHANISMS
from flows.spec.keys import DEFAULT_MECHANISM, Spec
from tasks.unbiased.task import Unbiased

REPOSITORY = Path(__file__).parents[2]
RUN_BY_OTHERS = {"inf_tda.py", "paper_page.py"}  # by peers.py, and by paper.py --page


def text(name: str) -> str:
    """Return a page."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def test_the_spec_of_the_readme_is_one() -> None:
    """Its listing is a whole spec, which names no mechanism, so that the default is taken."""
    listing = re.search(r"^## The spec\n\n((?:    .*\n)+)", text("README.md"), re.MULTILINE)
    assert listing is not None
    keys = yaml.safe_load(listing[1])
    assert Spec.model_validate(keys).mechanism == DEFAULT_MECHANISM
    assert "mechanism" not in keys


def test_the_readme_stays_short_and_opens_with_a_report() -> None:
    """It has fewer than 200 lines, and its first picture is that of a report."""
    assert len(text("README.md").splitlines()) < 200
    assert re.findall(r"!\[.+?\]\((.+?)\)", text("README.md"))[0] == "docs/report.png"


def test_the_readme_names_views_and_ordered_axes() -> None:
    """Who reads the beginning of the first page alone finds the pages on groupings beside the tree and on ranges."""
    first = text("README.md").split("## Two commands")[0]
    assert {"`release.views`", "`cbdp`"} <= set(re.findall("`.+?`", first))
    assert {"docs/how-to/margins.md", "docs/how-to/ages-hours-days.md"} <= set(re.findall(r"\]\((.+?)\)", first))


@pytest.mark.parametrize("page", ["README.md", "benchmarks/README.md", "benchmarks/paper.md", "benchmarks/views.md"])
def test_no_link_to_a_file_is_dead(page: str) -> None:
    """Whatever a page outside of docs/ links to is there, with the heading that the link names."""
    dead = []
    for link in re.findall(r"\]\((?!\w+:)(.+?)\)", text(page)):
        file, _, heading = link.partition("#")
        target = (REPOSITORY / page).parent / file if file else REPOSITORY / page
        if not target.is_file() or (heading and heading not in headings(target)):
            dead.append(link)
    assert dead == []


def headings(page: Path) -> set[str]:
    """Return the headings of a page as links name them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@pytest.mark.parametrize("page", ["new-dataset", "choose-epsilon", "publish", "other-sources"])
def test_the_keys_that_how_tos_show_are_those_of_a_spec(page: str) -> None:
    """Each piece of a spec that a how-to shows makes one, in place of those keys of the README's."""
    listing = re.search(r"^## The spec\n\n((?:    .*\n)+)", text("README.md"), re.MULTILINE)
    assert listing is not None
    pieces = [
        yaml.safe_load(piece) for piece in re.findall(r"```yaml\n(.*?)```", text(f"docs/how-to/{page}.md"), re.DOTALL)
    ]
    assert pieces
    for piece in pieces:
        keys = yaml.safe_load(listing[1])
        if "target" in piece.get("privacy", {}):
            piece["privacy"] = {name: of for name, of in keys["privacy"].items() if name != "epsilon"} | piece[
                "privacy"
            ]
        Spec.model_validate(keys | piece)


def test_the_page_of_mechanisms_says_which_state_a_bound_and_which_is_taken() -> None:
    """Its first table has a line for every mechanism, a bound for those that state one, and the default alone called so."""
    lines = dict(
        re.findall(r"^\| `(\w+)` \| (.*) \|$", text("docs/mechanisms.md").split("## `inftda`")[0], re.MULTILINE)
    )
    assert list(lines) == list(MECHANISMS)
    assert {name for name, line in lines.items() if "no bound" not in line} == {
        name for name, recipe in MECHANISMS.items() if recipe.bounds or isinstance(recipe.finish, Unbiased)
    }
    assert [name for name, line in lines.items() if "the default" in line] == [DEFAULT_MECHANISM]


def test_every_benchmark_is_listed() -> None:
    """The page of benchmarks names each that can be run, and begins as the program that writes it has it."""
    page = text("benchmarks/README.md")
    programs = {path.name for path in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(re.findall(r"`(?:python benchmarks/)?(\w+\.py)`", page)) == programs - RUN_BY_OTHERS
    assert page.split("## ")[0] in text("benchmarks/report.py")
