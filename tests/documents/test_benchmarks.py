"""The benchmarks keep up with what they measure, and their pages with what they found."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flows.synthetic import synthesise_answer
from tasks.synthesize.country import draw_country
from tests.support.user import REPOSITORY

BENCHMARKS, DOCS = REPOSITORY / "benchmarks", REPOSITORY / "docs"
ELSEWHERE = {"inf_tda"}  # runs in an environment that `peers.py` makes
RUN_BY_OTHERS = {"inf_tda.py", "paper_page.py"}  # by peers.py, and by paper.py --page
SETS, EPSILONS, SIGMA, LEVELS = ("binary_dense", "random_sparse"), (0.1, 1.0, 10.0), 10.0, 3
ERRORS = (
    "set,mechanism,epsilon,level,max_error_mean,max_error_min,max_error_max,"
    "false_discovery_percent_mean,false_negative_percent_mean"
)


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Return what imports a benchmark, as one that runs does, in a store of its own; it is forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
            del sys.modules[name]


@pytest.mark.parametrize("program", sorted({path.stem for path in BENCHMARKS.glob("*.py")} - ELSEWHERE))
def test_each_benchmark_is_imported_and_listed(imported: Callable[[str], Any], program: str) -> None:
    """Every name that it takes from the code is there; the page names each that can be run, and begins as its writer has it."""
    assert isinstance(imported(program), ModuleType)
    page = (BENCHMARKS / "README.md").read_text("utf-8")
    programs = {path.name for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert set(re.findall(r"`(?:python benchmarks/)?(\w+\.py)`", page)) == programs - RUN_BY_OTHERS
    assert page.split("## ")[0] in (BENCHMARKS / "report.py").read_text("utf-8")


def test_a_release_in_memory_measures_every_level(imported: Callable[[str], Any]) -> None:
    """The mechanism over arrays alone, which most benchmarks time, releases a small country."""
    compute = imported("compute")
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(7))
    tree, ends, people = compute.table_of(country)
    for sampler in compute.samplers("both").values():
        done = compute.release(tree, ends, people, compute.measurements(tree.depth, 4.0), sampler)
        assert [frontier.level for frontier in done.frontiers] == list(range(tree.depth + 1))
        assert {int(frontier.counts.sum()) for frontier in done.frontiers} == {int(people.sum())}


def test_serial_is_what_one_thread_takes_alone(imported: Callable[[str], Any]) -> None:
    """CPU counts as serial where at most one thread runs, up to the time that has passed, and by the stage that ran."""
    serial = imported("serial")
    looks = [(0.5, 0.5, 0.4, 1), (1.5, 0.5, 0.5, 1), (2.0, 0.5, 0.9, 2), (2.5, 0.5, 0.8, 1), (3.5, 0.5, 0.1, 0)]
    release, stages = serial.Ran("release", 1.0, 4.0), [serial.Ran("grow", 1.2, 3.0)]
    found = serial.serial_part([serial.Look(*look) for look in looks], release, stages)
    assert (found.wall, found.cpu, found.serial) == pytest.approx((3.0, 2.3, 1.1))
    assert found.of_stages == pytest.approx({"grow": 1.0, serial.BETWEEN: 0.1})


def made_up(page: ModuleType) -> list[dict[str, Any]]:
    """Return rows of paper.py in which every mechanism has errors of √½ of theirs, and every variant theirs."""
    names = [*page.MECHANISMS, *page.RECONCILED]
    variants = [ours for ours, _ in page.RATIOS.values() if ours not in names]
    rows: list[dict[str, Any]] = []
    for of in SETS:
        rows.append({"set": of, "pairs": 9, "people": 99, "top_areas": 4, "share": 0.25, "draws": [120, 80, 90]})
        rows.append({"set": f"closest_{of}", "pairs": 9, "people": 111, "top_areas": 2, "share": 0.5})
        tried = [(of, name) for name in [*names, *variants]]
        for name, mechanism in tried + [(f"closest_{of}", name) for name in ["gaussian", *variants]]:
            error = SIGMA if mechanism in variants else SIGMA * 0.5**0.5
            level = {"max_absolute": error, "false_discovery": 0.25, "false_negative": 0.1}
            spreads = {measure: {"mean": mean, "min": mean, "max": mean} for measure, mean in level.items()}
            row = {"set": name, "mechanism": mechanism, "runs": 3, "seconds": {"mean": 0.5}}
            row["levels"] = [{"level": k} | spreads for k in range(LEVELS + 1)]
            rows += [row | {"epsilon": epsilon} for epsilon in EPSILONS]
    return rows


def test_the_page_sets_ours_beside_theirs(imported: Callable[[str], Any], tmp_path: Path) -> None:
    """Ratios, cells, rates and draws are those of the figures, the picture has a line for each; where theirs are missing it says so."""
    module, figures = imported("paper_page"), imported("paper_figures")
    rows, trials = made_up(module), [(of, name, at) for of in SETS for name in module.MECHANISMS for at in EPSILONS]
    errors = [
        f"{of},{name},{at},{k},{SIGMA if k else 60.0},0,0,25.0,12.5"
        for of, name, at in trials
        for k in range(LEVELS + 1)
    ]
    (tmp_path / "errors.csv").write_text("\n".join([ERRORS, *errors]))
    seconds = [f"{of},{name},{at},77.0,10" for of, name, at in trials]
    (tmp_path / "seconds.csv").write_text("\n".join(["set,mechanism,epsilon,seconds_mean,runs", *seconds]))
    theirs = figures.theirs_of(tmp_path)
    page = module.page(rows, "a machine", theirs)
    for told in (
        "| all | 0.71 | 1.00 | 0.71 | 1.00 | 0.71 | 1.00 | 0.71 | 0.71 | 1.00 | 0.71 |",
        "| all closest | – | 1.00 | – | 1.00 | – | 1.00 | 0.71 | – | 1.00 | – |",
        "| 1 | 2 |" + " 7.1 / 10.0 |" * 5 + " 7.1 | 7.1 |",
        "| random sparse | 10 |" + " 25.0 / 25.0 |" * 5 + " 25.0 | 25.0 |",
        "2.5 percentage points of theirs",
        "1.00 of theirs on our tree of 4 areas, and 1.00 of theirs on the closest draws' tree of 2",
        "| binary dense | 99 | 80 to 120 | 111 | 25%, 50% / 17% | 10.0 / 60.0 |",
    ):
        assert told in page
    drawn = module.draw(figures.SideBySide(rows, theirs), "binary")
    assert all(f">{name}<" in drawn for name in module.DRAWN)
    alone = module.page(rows, "a machine", figures.theirs_of(tmp_path / "absent"))
    assert "were not at hand" in alone
    assert "| 1 | 2 |" + " 7.1 |" * 7 in alone


def test_variants_change_what_they_say(imported: Callable[[str], Any], tmp_path: Path) -> None:
    """Beside each mechanism runs its variant, with √2 of the noise where half of ρ is spent."""
    spec = Path(synthesise_answer("random", "sparse", tmp_path / "random_sparse", 1).spec)
    found = imported("paper").rows_of(spec, ["inftda", "gaussian"], "lemma", [1.0], 1)
    sigmas = {row["mechanism"]: np.array(row["sigmas"][1:]) for row in found}
    assert list(sigmas) == ["inftda", "gaussian", "inftda, half ρ"]
    assert sigmas["inftda, half ρ"] == pytest.approx(2**0.5 * sigmas["inftda"])


def test_what_their_histogram_loses_finds_their_draw(
    imported: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_figures_of_views_are_told_with_their_verdicts(imported: Callable[[str], Any]) -> None:
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
    page, mechanisms = (BENCHMARKS / "views.md").read_text("utf-8"), (DOCS / "mechanisms.md").read_text("utf-8")
    titles = [part.title for part in views.PARTS.values()]
    assert re.findall("^## (.+)$", page, re.MULTILINE) == ["What was asked for", *titles]
    figures = re.findall(r"^\| (.+?) \| ([\d.,]+) \| .*? \| (.+?) \| (reached|MISSED)", page, re.MULTILINE)
    assert len(figures) == 19
    for what, shown, asked, verdict in figures:
        number, bounds = float(shown.replace(",", "")), re.findall(r"at (least|most) ([\d.]+)", asked)
        holds = [number >= float(of) if side == "least" else number <= float(of) for side, of in bounds]
        assert (verdict == "reached") == (holds != [] and all(holds)), what
    for name in ("laplace", "hay", "hay:pruned", "hay:geometric", "hay:pruned_geometric", "cbdp"):
        row = "cbdp, o5" if name == "cbdp" else name
        (errors,) = re.findall(rf"^\| {re.escape(row)} (\|.+)$", page, re.MULTILINE)
        assert f"| {name} {errors}" in mechanisms, name
