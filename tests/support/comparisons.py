"""What a comparison comes to, in this process."""

import polars as pl

from flows.trials.comparison import Comparison, comparison_answer, trials_of
from tasks.report.trial_results import TrialResults


def rows_of(comparison: Comparison, runs: int = 1) -> pl.DataFrame:
    """Try every entry so many times, and return the rows."""
    rows = [row for entry in comparison.entries for row in trials_of(comparison, entry, list(range(1, runs + 1)))]
    return pl.DataFrame(rows, infer_schema_length=None)


def answer_of(comparison: Comparison, runs: int = 1) -> TrialResults:
    """Try every entry so many times, and return the answer."""
    return comparison_answer(comparison, rows_of(comparison, runs), "nowhere")
