"""The benchmarks keep up with what they measure, and their pages with what they found."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from flows.synthetic import synthesise_answer
from tasks.synthesize.country import draw_country
from tests.support.user import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"
ELSEWHERE = {"inf_tda"}  # runs in an environment that `peers.py` makes
RUN_BY_OTHERS = {"inf_tda.py", "paper_page.py"}  # by peers.py, and by paper.py --page


@pytest.fixture
def imported(tmp_path):
    """Return what imports a benchmark, as one that runs as a file does, in a store of its own; it is forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
        patch.setattr(sys, "path", [str(BENCHMARKS), *(path for path in sys.path if Path(path) != REPOSITORY)])
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            patch.delitem(sys.modules, name)
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.mark.parametrize("program", sorted({path.stem for path in BENCHMARKS.glob("*.py")} - ELSEWHERE))
def test_each_benchmark_is_imported_and_listed(imported, program):
    """Every name that it takes from the code is there; the page names each that can be run, and begins as its writer has it."""
    assert isinstance(imported(program), ModuleType)
    page = (BENCHMARKS / "README.md").read_text("utf-8")
    programs = {path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(re.findall(r"`(?:python benchmarks/)?(\w+\.py)`", page)) == programs - RUN_BY_OTHERS
    assert page.split("## ")[0] in (BENCHMARKS / "report.py").read_text("utf-8")


def test_a_release_in_memory_measures_every_level(imported):
    """The mechanism over arrays alone, which most benchmarks time, releases a small country."""
    compute = imported("compute")
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(7))
    tree, ends, people = compute.table_of(country)
    for sampler in compute.samplers("both").values():
        done = compute.release(tree, ends, people, compute.measurements(tree.depth, 4.0), sampler)
        assert [frontier.level for frontier in done.frontiers] == list(range(tree.depth + 1))
        assert {int(frontier.counts.sum()) for frontier in done.frontiers} == {int(people.sum())}


def test_ours_are_set_beside_theirs_by_geometric_means(imported, tmp_path):
    """A ratio is over all ε, and over the levels that are asked for, or from 3 on; without theirs there is none."""
    figures, epsilons = imported("paper_figures"), (0.1, 1.0)
    ours, theirs = np.random.default_rng(1).uniform(1, 100, (2, len(epsilons), 6))
    rows = [{"set": "sparse"}]
    lines = ["set,mechanism,epsilon,level,max_error_mean"]
    for epsilon, of_ours, of_theirs in zip(epsilons, ours, theirs, strict=True):
        levels = [{"max_absolute": {"mean": value}} for value in of_ours]
        rows.append({"set": "sparse", "mechanism": "gaussian", "epsilon": epsilon, "levels": levels})
        lines += [f"sparse,inftda,{epsilon},{level},{value}" for level, value in enumerate(of_theirs)]
    (tmp_path / "errors.csv").write_text("\n".join(lines))
    (tmp_path / "seconds.csv").write_text("set,mechanism,epsilon,seconds_mean\n")
    beside, alone = (figures.SideBySide(rows, figures.theirs_of(of)) for of in (tmp_path, tmp_path / "absent"))
    of_all = np.log(ours / theirs)
    assert beside.ratio(["sparse"], "gaussian", "inftda") == pytest.approx(np.exp(of_all[:, 3:].mean()))
    assert beside.ratio(["sparse"], "gaussian", "inftda", [1, -1]) == pytest.approx(np.exp(of_all[:, [1, -1]].mean()))
    assert alone.ratio(["sparse"], "gaussian", "inftda") is None


def test_variants_change_what_they_say(imported, tmp_path):
    """Beside each mechanism runs its variant, with √2 of the noise where half of ρ is spent."""
    spec = Path(synthesise_answer("random", tmp_path / "random_sparse", 1, density="sparse").spec)
    found = imported("paper").rows_of(spec, ["inftda", "gaussian"], "lemma", [1.0], 1)
    sigmas = {row["mechanism"]: np.array(row["sigmas"][1:]) for row in found}
    assert list(sigmas) == ["inftda", "gaussian", "inftda, half ρ"]
    assert sigmas["inftda, half ρ"] == pytest.approx(2**0.5 * sigmas["inftda"])


def test_what_their_histogram_loses_finds_their_draw(imported, monkeypatch):
    """The expected loss is the mean of draws, within six standard errors; it and the share of the largest area find a draw again."""
    draws = imported("paper_draws")
    counts, runs = np.repeat([1, 20, 30, 300], 50), 400
    law, generator = draws.TheirHistogram(1.0), np.random.default_rng(1)
    found = [counts.sum() - law.draw(counts, generator)[1].sum() for _ in range(runs)]
    assert np.mean(found) == pytest.approx(law.lost(counts), abs=6 * np.std(found) / runs**0.5)
    monkeypatch.setattr(draws, "DRAWS", 3)
    people, tree = draws.draw_people("random", "sparse", 1), draws.draw_set("random", "sparse", 2)
    closest = draws.closest("random", "sparse", draws.TheirHistogram(0.1).lost(people), draws.largest_share(tree))
    assert closest.trips["people"].to_list() == people.tolist()
    assert closest.codebook.equals(tree.codebook)


def test_figures_of_views_are_told_with_their_verdicts(imported):
    """One beyond its bound is missed, one that noise could have put on the other side says so; so on the page as it stands, of every part."""
    views = imported("views")
    for value, error, told in (
        (4.0, 0.1, "reached"),
        (4.9, 0.1, "reached, but within two standard errors of the bound"),
        (5.1, 0.1, "MISSED, but within two standard errors of the bound"),
        (6.0, float("nan"), "MISSED"),
    ):
        figure = {"what": "an error", "value": value, "error": error, "least": float("-inf"), "most": 5.0}
        part = {"machine": "a machine", "rows": [{"runs": 7, "text": "a table", "figures": [figure]}]}
        stated = "" if error != error else f"{error:.2g}"
        assert f"| an error | {value:.4g} | {stated} | at most 5 | {told} |" in views.page({"city": part})
    page = (BENCHMARKS / "views.md").read_text("utf-8")
    titles = [part.title for part in views.PARTS.values()]
    assert re.findall("^## (.+)$", page, re.MULTILINE) == ["What was asked for", *titles]
    figures = re.findall(r"^\| (.+?) \| ([\d.,]+) \| .*? \| (.+?) \| (reached|MISSED)", page, re.MULTILINE)
    assert len(figures) == 19
    for what, shown, asked, verdict in figures:
        number, bounds = float(shown.replace(",", "")), re.findall(r"at (least|most) ([\d.]+)", asked)
        holds = [number >= float(of) if side == "least" else number <= float(of) for side, of in bounds]
        assert (verdict == "reached") == (holds != [] and all(holds)), what
