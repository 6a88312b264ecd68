"""What can be said of released counts and their errors: intervals, bounds, marks, and how much of a level is noise.

`possible` or `possible_cells` is how many cells a level has, `measured` how many of them were measured, and `rows` how many of these have a
row. `noises` are of levels 0 to T; `noise` is of one leaf, where cells are sums. `confidence` is 1 − α of intervals and 1 − β of bounds, in
(0, 1). `total` is the exact count of everything; None where it is not published exactly. `log_tail` is the natural logarithm of a probability,
< 0. `rate` is, of the marked rows, the share that is expected to have a true count of 0 at most.
"""
