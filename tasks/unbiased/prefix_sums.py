"""Whole numbers from values of leaves: the sums of the first leaves are rounded, so that no range of leaves moves by more than 1."""

from collections.abc import Iterable, Iterator

import numpy as np

from tasks.tree.axis import FloatArray, IntArray


def round_prefix_sums(parts: Iterable[FloatArray]) -> Iterator[IntArray]:
    r"""Yield whole counts for the values of leaves, part by part.

    .. math:: c_i = \mathrm{rint}(F_i) - \mathrm{rint}(F_{i - 1}), \qquad F_i = f_1 + \dots + f_i

    Halves go to the even number. Every sum of adjacent leaves, and so every node, is within 1 of the sum of their values. Rounding adds
    about 1/6 to its variance, and no bias, since the noise is as likely to be as far above as below.

    Args:
        parts: f of all leaves in the order of the tree, float64, shape (leaves of the part,), records; below 2**50 in absolute value.
    Yields:
        int64, of the same shapes, records; they may be negative.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Whole and broken parts are summed apart, so that large totals lose nothing.
    """
    whole_before, part_before, before = 0, 0.0, 0
    for values in parts:
        floors = np.floor(values)
        broken = part_before + np.cumsum(values - floors)
        carried = np.floor(broken)
        whole = whole_before + np.cumsum(floors.astype(np.int64)) + carried.astype(np.int64)
        broken -= carried
        rounded = whole + ((broken > 0.5) | ((broken == 0.5) & (whole % 2 == 1)))
        yield np.diff(rounded, prepend=before)
        if len(values):
            whole_before, part_before, before = int(whole[-1]), float(broken[-1]), int(rounded[-1])
