"""What README and docs list is what there is."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from flows.mechanisms import MECHANISMS
from flows.spec.keys import DEFAULT_MECHANISM, Spec
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.unbiased.task import Unbiased

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *(str(path.relative_to(REPOSITORY)) for of in ("benchmarks", "docs") for path in (REPOSITORY / of).rglob("*.md")),
]
HOW_TOS = [
    *("new-dataset", "choose-epsilon", "publish", "other-sources"),
    *("ages-hours-days", "margins", "trips-by-mode-and-hour", "households-by-size"),
]
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


@pytest.mark.parametrize("page", PAGES)
def test_no_link_to_a_file_is_dead(page: str) -> None:
    """Whatever a page links to is there, with the heading that the link names."""
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


@pytest.mark.parametrize("page", HOW_TOS)
def test_the_keys_that_how_tos_show_are_those_of_a_spec(page: str) -> None:
    """Each piece of a spec that a how-to shows makes one, in place of those keys of the spec above it, or of the README's."""
    listing = re.search(r"^## The spec\n\n((?:    .*\n)+)", text("README.md"), re.MULTILINE)
    assert listing is not None
    pieces = [
        yaml.safe_load(piece) for piece in re.findall(r"```yaml\n(.*?)```", text(f"docs/how-to/{page}.md"), re.DOTALL)
    ]
    assert pieces
    whole = yaml.safe_load(listing[1])
    for piece in pieces:
        whole = piece if "name" in piece else whole
        privacy = piece.get("privacy", whole["privacy"])
        if "unit" not in privacy:  # the piece has what differs
            left = {name: of for name, of in whole["privacy"].items() if name != "epsilon" or "target" not in privacy}
            privacy = left | privacy
        Spec.model_validate(whole | piece | {"privacy": privacy})


def test_the_page_of_mechanisms_is_that_of_the_table() -> None:
    """Each mechanism has a line and a section, in order, and no other has; a line tells of a bound where one is stated, and of the default."""
    page = text("docs/mechanisms.md")
    lines = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page.split("## `inftda`")[0], re.MULTILINE))
    assert list(lines) == re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == list(MECHANISMS)
    assert {name for name, line in lines.items() if "no bound" not in line} == {
        name for name, recipe in MECHANISMS.items() if recipe.bounds or isinstance(recipe.finish, Unbiased)
    }
    assert [name for name, line in lines.items() if "the default" in line] == [DEFAULT_MECHANISM]


def test_nearest_rounding_is_as_far_from_the_truth_as_the_errata_say() -> None:
    """The 28 leaves of docs/privacy.md: nearest rounding is 19 times as far off as the measurements, controlled rounding is not."""
    truth, total = np.ones(28), np.zeros(28, dtype=np.int32)
    noisy = truth + (np.arange(28) < 13)
    settled = settle_overlapping(noisy, 1 / 28, [Grouping(total, np.array([28.0]), 1.0)])

    def distance(leaves: np.ndarray, of_total: float) -> float:
        return float(np.sqrt(((leaves - truth) ** 2).sum() / 28 + (of_total - 28) ** 2))

    measured, nearest = distance(noisy, 28), np.rint(settled)
    assert sorted({round(float(value), 3) for value in settled}) == [0.536, 1.536]
    assert nearest.sum() == 41
    assert 19 < distance(nearest, nearest.sum()) / measured < 19.2
    assert distance(settled, settled.sum()) <= measured
    controlled = round_controlled(settled, [total]).counts.astype(float)
    assert distance(controlled, controlled.sum()) < distance(settled, settled.sum()) + np.sqrt(2)


def test_every_benchmark_is_listed() -> None:
    """The page of benchmarks names each that can be run, and begins as the program that writes it has it."""
    page = text("benchmarks/README.md")
    programs = {path.name for path in (REPOSITORY / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(re.findall(r"`(?:python benchmarks/)?(\w+\.py)`", page)) == programs - RUN_BY_OTHERS
    assert page.split("## ")[0] in text("benchmarks/report.py")
