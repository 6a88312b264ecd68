"""Group sizes: how many groups have each number of records, in whole counts that add up over regions, and their intervals.

`first_child` is where the children of each region begin, and the end: of each level but the last, shape (regions + 1,), int64.
"""
