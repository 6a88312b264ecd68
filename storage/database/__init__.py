"""DuckDB: connections and short transactions, the schema of the store, and what a shell completes from it."""
