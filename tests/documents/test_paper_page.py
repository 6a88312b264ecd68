"""The page that holds our figures beside the authors', of a made-up result."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from flows.synthetic import synthesise_answer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LEVELS = 3
SETS = ("binary_dense", "random_sparse")
EPSILONS = (0.1, 1.0, 10.0)
SIGMA = 10.0  # of the made-up errors of theirs


@pytest.fixture
def page_of(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that writes the page."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("paper_page")


def made_up(page: ModuleType) -> list[dict[str, Any]]:
    """Return rows in which every mechanism has errors of √½ of theirs, and every variant theirs."""
    names = [*page.MECHANISMS, *page.RECONCILED]
    variants = [ours for ours, _ in page.RATIOS.values() if ours not in names]
    rows: list[dict[str, Any]] = []
    for of in SETS:
        rows.append({"set": of, "pairs": 9, "people": 99, "top_areas": 4, "share": 0.25, "draws": [120, 80, 90]})
        rows.append({"set": f"closest_{of}", "pairs": 9, "people": 111, "top_areas": 2, "share": 0.5})
        tried = [(of, name) for name in [*names, *variants]] + [
            (f"closest_{of}", name) for name in ["gaussian", *variants]
        ]
        for name, mechanism in tried:
            error = SIGMA if mechanism in variants else SIGMA * 0.5**0.5
            level = {"max_absolute": error, "false_discovery": 0.25, "false_negative": 0.1}
            spreads = {measure: {"mean": mean, "min": mean, "max": mean} for measure, mean in level.items()}
            row = {"set": name, "mechanism": mechanism, "runs": 3, "seconds": {"mean": 0.5}}
            row["levels"] = [{"level": k} | spreads for k in range(LEVELS + 1)]
            rows += [row | {"epsilon": epsilon} for epsilon in EPSILONS]
    return rows


@pytest.fixture
def theirs(page_of: ModuleType, tmp_path: Path) -> Any:
    """Return figures of theirs, as their files hold them."""
    head = "set,mechanism,epsilon,level,max_error_mean,max_error_min,max_error_max,false_discovery_percent_mean,false_negative_percent_mean"
    errors, seconds = [head], ["set,mechanism,epsilon,seconds_mean,runs"]
    for of in SETS:
        for name in page_of.MECHANISMS:
            for epsilon in EPSILONS:
                seconds.append(f"{of},{name},{epsilon},77.0,10")
                errors += [
                    f"{of},{name},{epsilon},{k},{60.0 if k == 0 else SIGMA},0,0,25.0,12.5" for k in range(LEVELS + 1)
                ]
    (tmp_path / "errors.csv").write_text("\n".join(errors))
    (tmp_path / "seconds.csv").write_text("\n".join(seconds))
    return import_module("paper_figures").theirs_of(tmp_path)


def test_the_page_sets_ours_beside_theirs(page_of: ModuleType, theirs: Any) -> None:
    """Ratios, cells, rates and draws are those of the figures, and the picture has a line for each of four."""
    rows = made_up(page_of)
    page = page_of.page(rows, "a machine", theirs)
    assert "| all | 0.71 | 1.00 | 0.71 | 1.00 | 0.71 | 1.00 | 0.71 | 0.71 | 1.00 | 0.71 |" in page
    assert "| all closest | – | 1.00 | – | 1.00 | – | 1.00 | 0.71 | – | 1.00 | – |" in page
    assert "| 1 | 2 |" + " 7.1 / 10.0 |" * 5 + " 7.1 | 7.1 |" in page
    assert "| random sparse | 10 |" + " 25.0 / 25.0 |" * 5 + " 25.0 | 25.0 |" in page
    assert "2.5 percentage points of theirs" in page
    assert "1.00 of theirs on our tree of 4 areas, and 1.00 of theirs on the closest draws' tree of 2" in page
    assert "| 0.5 / 77.0 |" in page
    assert "| binary dense | 99 | 80 to 120 | 111 | 25%, 50% / 17% | 10.0 / 60.0 |" in page
    assert "3 runs of each" in page
    drawn = page_of.draw(import_module("paper_figures").SideBySide(rows, theirs), "binary")
    assert all(f">{name}<" in drawn for name in page_of.DRAWN)


def test_the_page_says_that_theirs_are_not_at_hand(page_of: ModuleType, tmp_path: Path) -> None:
    """Without the authors' files the page has ours alone, and no word of why they differ."""
    absent = import_module("paper_figures").theirs_of(tmp_path / "absent")
    page = page_of.page(made_up(page_of), "a machine", absent)
    assert "were not at hand" in page
    assert "7.1 / " not in page
    assert "| 1 | 2 |" + " 7.1 |" * 7 in page
    assert "With half of ρ" not in page


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that runs the mechanisms; it looks into a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("paper")


def test_variants_change_what_they_say(paper: ModuleType, tmp_path: Path) -> None:
    """Beside each mechanism runs its variant, with √2 of the noise where half of ρ is spent."""
    spec = Path(synthesise_answer("random", "sparse", tmp_path / "random_sparse", 1).spec)
    rows = {row["mechanism"]: row for row in paper.rows_of(spec, ["inftda", "gaussian"], "lemma", [1.0], 1)}
    assert list(rows) == ["inftda", "gaussian", "inftda, half ρ"]
    assert rows["inftda, half ρ"]["sigmas"][1:] == pytest.approx([2**0.5 * of for of in rows["inftda"]["sigmas"][1:]])
    assert {row["set"] for row in rows.values()} == {"random_sparse"}


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that looks for close draws."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("paper_draws")


def test_what_their_histogram_loses_is_what_it_draws(draws: ModuleType) -> None:
    """The expected loss is the mean of draws, within six standard errors; with little noise it is what is below the threshold."""
    people, runs = np.repeat([1, 20, 30, 300], 50), 400
    law, generator = draws.TheirHistogram(1.0), np.random.default_rng(1)
    assert law.threshold == pytest.approx(26.5, abs=0.05)
    found = [people.sum() - law.draw(people, generator)[1].sum() for _ in range(runs)]
    assert np.mean(found) == pytest.approx(law.lost(people), abs=6 * np.std(found) / runs**0.5)
    assert draws.TheirHistogram(100.0).lost(np.array([1, 1, 5, 1000])) == pytest.approx(2, abs=0.01)


def test_the_closest_draw_is_found_again(draws: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of the draws loses, and the share of another's largest area, find the people of the one and the tree of the other."""
    monkeypatch.setattr(draws, "DRAWS", 3)
    people = draws.draw_people("random", "sparse", 1)
    tree = draws.draw_set("random", "sparse", 2)
    found = draws.closest("random", "sparse", draws.TheirHistogram(0.1).lost(people), draws.largest_share(tree))
    assert found.trips["people"].to_list() == people.tolist()
    assert found.codebook.equals(tree.codebook)
