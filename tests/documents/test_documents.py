"""What README and docs list is what there is."""

import re

import numpy as np
import pytest
import yaml
from typer.main import get_command

from flows.cli.main import app
from flows.specification.keys import Spec
from storage.releases.terms import DEFAULT_FOR_SIZES
from tasks.mechanisms import MECHANISMS, OTHERWISE, WITH_BOUND, WITH_PRIORS
from tasks.settle.controlled import round_controlled
from tasks.settle.overlapping import Grouping, settle_overlapping
from tasks.unbiased.task import Unbiased
from tests.support.user import REPOSITORY

READ = [path for of in ("benchmarks", "docs") for path in (REPOSITORY / of).rglob("*.md")]
PAGES = ["README.md", *(str(path.relative_to(REPOSITORY)) for path in READ)]
NO_SPECS = ["docs/operations.md", *(f"docs/how-to/{of}.md" for of in ("cluster", "explorer", "formats"))]  # but others


def text(name):
    """Return a page."""
    return (REPOSITORY / name).read_text(encoding="utf-8")


def spec_of_readme():
    """Return the listing of the README."""
    listing = re.search(r"^## The spec\n\n((?:    .*\n)+)", text("README.md"), re.MULTILINE)
    assert listing
    return dict(yaml.safe_load(listing[1]))


def test_the_readme_is_short_and_shows_a_spec_and_a_report():
    """It has at most 900 words, docs/ 45,000 without proofs and what is generated; its spec names no mechanism, so that the default is taken."""
    page, guides = text("README.md"), [of for of in READ if of.parent.name in {"docs", "how-to"}]
    assert len(page.split()) <= 900
    assert sum(len(of.read_text("utf-8").split()) for of in guides) <= 45_000
    assert not Spec.model_validate(spec_of_readme()).mechanism
    assert re.findall(r"!\[.+?\]\((.+?)\)", page)[0] == "docs/report.png"


@pytest.mark.parametrize("page", PAGES)
def test_links_commands_and_keys_of_a_page_are_there(page):
    """What a page links to is there, with its heading; `trellis …` can be called with these options; each piece of a spec makes one."""
    # It does in place of those keys of the spec above it, or of the README's.
    dead, known = [], get_command(app).commands  # type: ignore[attr-defined]
    for link in re.findall(r"\]\((?!\w+:)(.+?)\)", text(page)):
        file, _, heading = link.partition("#")
        target = (REPOSITORY / page).parent / file if file else REPOSITORY / page
        if not target.is_file() or (heading and heading not in headings(target.read_text("utf-8"))):
            dead.append(link)
    assert dead == []
    for name, rest in re.findall(r"\btrellis ([a-z]+)\b(?!:)((?:\s+--[a-z-]+)*)", text(page)):
        options = {option for of in known[name].params for option in [*of.opts, *of.secondary_opts]}
        assert set(rest.split()) <= options | {"--help"}, (name, rest)
    whole = spec_of_readme()
    for listing in re.findall(r"```yaml\n(.*?)```", text(page), re.DOTALL) if page not in NO_SPECS else []:
        piece = yaml.safe_load(listing)
        whole = piece if "name" in piece else whole
        privacy = piece.get("privacy", whole["privacy"])
        if "unit" not in privacy:  # the piece has what differs
            left = {name: of for name, of in whole["privacy"].items() if name != "epsilon" or "target" not in privacy}
            privacy = left | privacy
        Spec.model_validate(whole | piece | {"privacy": privacy})
    assert re.findall(r"\(line \d+\)", text(page)) == []  # what a starter spec says at which line changes with it


def headings(page):
    """Return the headings of a page as links name them."""
    found = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_the_page_of_mechanisms_is_that_of_the_table():
    """Each mechanism has a line and a section, in order, and no other has; a line tells of a bound where one is stated, a row of another page of a default."""
    page = text("docs/mechanisms.md")
    lines = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page.split("## `inftda`")[0], re.MULTILINE))
    assert list(lines) == re.findall(r"^## `(\w+)`$", page, re.MULTILINE) == list(MECHANISMS)
    bounded = {name for name, recipe in MECHANISMS.items() if recipe.bounds or isinstance(recipe.finish, Unbiased)}
    assert {name for name, line in lines.items() if "no bound" not in line} == bounded
    defaults = {DEFAULT_FOR_SIZES, WITH_BOUND, WITH_PRIORS, OTHERWISE}
    rows = re.findall(r"^\| .+\| (.+?) \| .+ \|$", text("docs/how-to/which-mechanism.md"), re.MULTILINE)
    assert {re.findall(r"`(\w+)`", row)[0] for row in rows if "the default" in row} == defaults


def test_nearest_rounding_is_as_far_from_the_truth_as_the_errata_say():
    """The 28 leaves of docs/proofs/errata.md: nearest rounding is 19 times as far off as the measurements, controlled rounding is not."""
    truth, total = np.ones(28), np.zeros(28, dtype=np.int32)
    noisy = truth + (np.arange(28) < 13)
    settled = settle_overlapping(noisy, 1 / 28, [Grouping(total, np.array([28.0]), 1.0)])

    def distance(leaves, of_total):
        return float(np.sqrt(((leaves - truth) ** 2).sum() / 28 + (of_total - 28) ** 2))

    measured, nearest = distance(noisy, 28), np.rint(settled)
    assert sorted({round(float(value), 3) for value in settled}) == [0.536, 1.536]
    assert nearest.sum() == 41
    assert 19 < distance(nearest, nearest.sum()) / measured < 19.2
    assert distance(settled, settled.sum()) <= measured
    controlled = round_controlled(settled, [total]).counts.astype(float)
    assert distance(controlled, controlled.sum()) < distance(settled, settled.sum()) + np.sqrt(2)
