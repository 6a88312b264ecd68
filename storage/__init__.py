"""What outlives a process: the DuckDB store, the vaults of true counts, sealed shards, and the budget ledger."""
