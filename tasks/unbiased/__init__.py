"""Unbiased trees: every node measured, least squares, whole numbers by prefix sums.

`precisions` are p of levels 0 to T, as in `tree_variances`, and `squares` Δ₂² of these levels, 0 for level 0 where it is exact. `ordered` are
the numbers of the ordered axes. `first` and `stop` are boxes: per axis, int64, shape (boxes,), the first finest area inside, and the first one
after it that is outside.
"""
