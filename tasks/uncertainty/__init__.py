"""What can be said of released counts and their errors: intervals, bounds, marks, and how much of a level is noise.

`noises` and `possible_cells` are of levels 0 to T; `noise` is of one leaf, where cells are sums. `cells` is how many cells a level has, or of
it were measured, `rows` how many of these have a row, and `zeros` how many more there are, whose noisy counts are 0. `confidence` is 1 − α of
intervals and 1 − β of bounds, in (0, 1). `total` is the exact count of everything; None where it is not published exactly.
"""
