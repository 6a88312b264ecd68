"""Words for the totals of one axis: those that a release does not measure by themselves, and those from which its levels differ."""

from collections.abc import Mapping


def poor_totals(errors: Mapping[str, float]) -> str:
    """Return a warning about such totals, empty if there are none.

    Args:
        errors: by the name of the totals, the mean absolute noise of each before counts are settled, records.
    """
    if not errors:
        return ""
    named = ", ".join(f"{name} (± {error:,.3g})" for name, error in errors.items())
    return (
        "Totals of one axis that nothing measures by itself, with the mean noise of the best sum of measurements before counts are"
        f" settled, in records: {named}. The released sums, and those of synthetic records, are usually nearer to the truth; they are"
        " further from it where many small counts ended at zero. release.views: margins measures these totals."
    )


def differing_views(differences: Mapping[str, tuple[int, float]]) -> str:
    """Return how far the sums of the finest level are from the views to which it is calibrated, empty if there are none.

    Args:
        differences: by the name of the view, the largest and the mean difference over its cells, records.
    """
    if not differences:
        return ""
    about = ", ".join(
        f"{name} by {largest:,} at most and {mean:,.3g} on average" for name, (largest, mean) in differences.items()
    )
    return (
        "The levels are calibrated to these views as far as the areas that are left in them allow. The sums of the finest level differ"
        f" from their tables, in records, over all cells: {about}. Read a view for its own totals: sums of levels, and of synthetic"
        " records, are further from the truth."
    )
