"""Group sizes: how many groups have each number of records, in whole counts that add up over regions, and their intervals."""
