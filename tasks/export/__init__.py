"""Published counts in the formats of their readers' trades: workbooks, matrices, maps, statistical data exchange."""
