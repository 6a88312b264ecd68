"""The page of a comparison, whatever there is to show."""

from itertools import pairwise

import pytest

from tasks.publish.comparison import comparison_page

THIRD = {"mean": (0.1 + 0.1 + 0.1) / 3, "min": 0.1, "max": 0.1}  # the mean of equal numbers may be above each of them
NOTHING = {"mean": 0.0, "min": 0, "max": 0}
MEASURES = ("max_absolute", "mean_absolute", "l1", "false_discovery", "false_negative")


@pytest.mark.parametrize("spread", [THIRD, NOTHING])
def test_a_page_is_drawn_of_any_numbers(spread: dict[str, float]) -> None:
    """Equal runs, whose mean is beside them by rounding, and levels without any error are drawn; names are escaped."""
    assert THIRD["mean"] != THIRD["min"]
    levels = [{"level": level} | dict.fromkeys(MEASURES, spread) for level in range(3)]
    results = [
        {"mechanism": name, "epsilon": epsilon, "seconds": THIRD, "levels": levels}
        for name in ("one", "a & b")
        for epsilon in (0.1, 1.0)
    ]
    page = comparison_page(
        {
            "name": "<made up>",
            "neighbours": "substitution",
            "delta": 1e-8,
            "runs": 3,
            "levels": [{"level": level} for level in range(3)],
            "results": results,
            "refused": {"gaussian": "it has too many leaves"},
        }
    )
    assert "<made up>" not in page
    assert "<th>a &amp; b</th>" in page
    assert "it has too many leaves" in page
    tags = [page.index(f"<h2>{title}</h2>") for title in ("Maximum absolute error", "False discovery rate", "Seconds")]
    assert all(one < other for one, other in pairwise(tags))
