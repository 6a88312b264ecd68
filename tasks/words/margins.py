"""Words for the totals of one axis that a release does not measure by themselves."""

from collections.abc import Mapping


def poor_totals(errors: Mapping[str, float]) -> str:
    """Return a warning about such totals, in Markdown; empty if there are none.

    Args:
        errors: by the name of the totals, the mean absolute noise of each before counts are settled, records.
    """
    if not errors:
        return ""
    named = ", ".join(f"`{name}` (± {error:,.3g})" for name, error in errors.items())
    return (
        "Totals of one axis that nothing measures by itself, with the mean noise of the best sum of measurements before counts are"
        f" settled, in records: {named}. The released sums, and those of synthetic records, are usually nearer to the truth; they are"
        " further from it where many small counts ended at zero. `release.views: margins` measures these totals."
    )
