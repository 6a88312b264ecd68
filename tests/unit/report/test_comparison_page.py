"""The page of a comparison, whatever there is to show."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.trials.comparison import MEASURES
from tasks.report.comparison_page import _format_spread, comparison_page
from tasks.report.coverage_section import marks_section
from tasks.report.svg import STYLES, level_ticks, log_ticks
from tasks.report.trial_results import ComparedLevel, CoverageSpread, GroupIntervals, MechanismResult, Spread
from tasks.validate.coverage import GROUPS
from tests.support.comparisons import NOTHING, level_result, results_of

THIRD = Spread((0.1 + 0.1 + 0.1) / 3, 0.1, 0.1)  # the mean of equal numbers may be above each of them


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [THIRD, NOTHING])
def test_a_page_is_drawn_of_any_numbers(spread: Spread) -> None:
    """Equal runs, whose mean is beside them by rounding, and levels without any error are drawn; names are escaped."""
    assert THIRD.mean != THIRD.min
    coverage = CoverageSpread(spread.mean, spread.min, spread.max, standard_error=0.0)
    covered, few = (GroupIntervals(many, coverage, spread) for many in (70, 33))
    none = GroupIntervals(0, None, None)
    intervals = [None, dict.fromkeys(GROUPS, none), dict.fromkeys(GROUPS, covered) | {"2 to 10": few}]
    known = {"rows_covered": spread, "row_width": spread}
    levels = [level_result(level, spread, intervals=of, **known) for level, of in enumerate(intervals)]
    tried = [("one", 0.1), ("one", 1.0), ("a & b", 0.1), ("a & b", 1.0), ("late", 1.0)]
    results = [MechanismResult(name, epsilon, [], THIRD, levels) for name, epsilon in tried]
    refused, notes = {"gaussian": "it has too many leaves"}, {"one": ["It <has> no split."]}
    page = comparison_page(results_of(results, name="<made up>", refused=refused, notes=notes))
    assert "<made up>" not in page
    assert '<th scope="col">a &amp; b</th>' in page
    assert "it has too many leaves" in page
    assert "<p>For <b>one</b> It &lt;has&gt; no split.</p>" in page
    assert page.count('<th scope="col">late</th>') == len(MEASURES)  # of the ε at which it could be tried
    assert "late, ε = 1<" in page
    assert "late, ε = 0.1<" not in page
    assert ">0.1</text>" in page[page.index("<h2>Seconds</h2>") :]  # and no 6 × 10⁻¹
    assert page.count('style="max-width: 960px"') == len(MEASURES) + 2  # two panels fill the page, and so do four
    assert f"<td>{100 * spread.mean:.1f} ± 0.0</td><td>{spread.mean:.1f}</td>" in page
    assert page.count(f"<td>({100 * spread.mean:.1f} ± 0.0)</td>") == 5  # of 99 intervals, for each result
    assert "of at least 90%" in page
    tags = [page.index(f"<h2>{title}</h2>") for title in ("Maximum absolute error", "False discovery rate", "Seconds")]
    assert all(one < other for one, other in pairwise(tags))


def test_false_rows_are_shown_with_the_mark_and_without() -> None:
    """Beside the share of noise among all rows of a level stands that among its marked rows, which is empty if none was marked."""
    half = Spread(0.5, 0.25, 0.75)
    levels = [
        level_result(level, half, false_rows=half, false_signal=marked)
        for level, marked in enumerate([Spread(0.05, 0.0, 0.1), None, None])
    ]
    compared = [ComparedLevel(level, {}, None, 0, view="by_mode" if level == 2 else "") for level in range(3)]
    found = results_of([MechanismResult("one", 1.0, [], THIRD, levels)], levels=compared)
    section = marks_section(found)
    all_rows = "<td>50.0 [25.0, 75.0]</td>"
    assert '<th scope="col">of all rows, %</th><th scope="col">of the marked rows, %</th>' in section
    assert f'<th scope="row">0</th><td>one</td>{all_rows}<td>5.0 [0.0, 10.0]</td>' in section
    assert f'<th scope="row">1</th><td>one</td>{all_rows}<td></td>' in section
    assert "by_mode" not in section
    assert section in comparison_page(found)


def test_numbers_of_levels_do_not_run_together() -> None:
    """As many levels have a number as there is room for, from 0 on and evenly."""
    assert list(level_ticks(3, 2.4)) == [0, 1, 2]
    assert list(level_ticks(16, 4.1)) == list(range(16))
    assert list(level_ticks(16, 2.4)) == list(range(0, 16, 2))
    for levels, inches in product((1, 17, 61, 100, 1000), (0.1, 2.4, 8.0)):
        assert len(level_ticks(levels, inches)) <= max(1, 4 * inches)


@given(st.floats(1e-5, 1e4), st.floats(1, 1e5))
def test_seconds_are_read_as_numbers(least: float, times: float) -> None:
    """A logarithmic axis has a few numbers, two at the least, of which the first is not above any value and the last not below."""
    ticks = log_ticks(least, least * times)
    assert 2 <= len(ticks) <= 13
    assert ticks[0] < least
    assert ticks[-1] >= least * times
    assert {f"{tick:e}"[0] for tick in ticks} <= {"1", "2", "5"}
    assert all(one < other for one, other in pairwise(ticks))


def test_numbers_beside_one_another_are_written_alike() -> None:
    """Mean, least and most of one measure have thousands and tenths alike, whatever their size; rates are per cent."""
    spread = Spread(10_004.66, 9_798.2, 10_160.0)
    assert _format_spread(spread, "l1") == "10,005 [9,798, 10,160]"
    assert _format_spread(Spread(3.25, 3, 4), "max_absolute") == "3.2 [3.0, 4.0]"
    assert _format_spread(THIRD, "false_negative") == "10.0% [10.0, 10.0]"


def test_mechanisms_are_told_apart_without_colour() -> None:
    """Twelve mechanisms have colours, markers and dashes of which no two are alike."""
    assert len(STYLES) >= 10
    for kind in zip(*STYLES, strict=True):
        assert len(set(kind)) == len(STYLES)
