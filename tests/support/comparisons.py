"""Comparisons of mechanisms: what trials come to in this process, and results that are made up."""

import polars as pl

from flows.trials.comparison import MEASURES, comparison_answer, trials_of
from tasks.pages.trial_results import ComparedLevel, LevelResult, Spread, TrialResults

NOTHING = Spread(0.0, 0, 0)


def level_result(level, measured, **known):
    """Return what was measured of a level, the same by every measure, and what else is known of it."""
    unknown = dict.fromkeys(
        ("intervals", "false_rows", "false_signal", "noise_rows", "noise_rows_at_most", "bound_after")
    )
    values = {**dict.fromkeys(MEASURES, measured), "rows_covered": NOTHING, "row_width": NOTHING, **unknown}
    return LevelResult(level, **values | known)


def results_of(results, **other):
    """Return the results of mechanisms over as many levels as the first of them has, with other values."""
    values = {
        "name": "jobs", "dataset": "people", "neighbours": "substitution", "delta": 1e-8, "runs": 3, "confidence": 0.9,
        "levels": [ComparedLevel(of.level, {}, None, 0) for of in results[0].levels],
        "refused": {}, "notes": {}, "folder": "out",
    }  # fmt: skip
    return TrialResults(results=results, **values | other)


def rows_of(comparison, runs=1):
    """Try every entry so many times, and return the rows."""
    rows = [row for entry in comparison.entries for row in trials_of(comparison, entry, list(range(1, runs + 1)))]
    return pl.DataFrame(rows, infer_schema_length=None)


def answer_of(comparison, runs=1):
    """Try every entry so many times, and return the answer."""
    return comparison_answer(comparison, rows_of(comparison, runs), "nowhere")
