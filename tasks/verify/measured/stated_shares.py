"""Whether a manifest states of a level how much of its rows is noise as it follows from the noisy counts."""

import math

from tasks.format.manifest import LevelEntry
from tasks.uncertainty.shares import Shares

_APART = 0.002  # by which a share that was estimated on another machine may differ


def states_shares(entry: LevelEntry, shares: Shares | None) -> bool:
    """Return whether `noise_rows` and `above_noise` of a level are those that were found; None where it has no row."""
    noise, above = entry.noise_rows, entry.above_noise
    if shares is None or noise is None or above is None:
        return shares is None and noise is None and above is None
    if noise.at_most != shares.noise_at_most:
        return False
    stated = (noise.estimate, above.rows, above.records)
    found = (shares.noise, shares.rows_above, shares.records_above)
    return all(
        of == one if of is None or one is None else math.isclose(of, one, abs_tol=_APART)
        for of, one in zip(stated, found, strict=True)
    )
