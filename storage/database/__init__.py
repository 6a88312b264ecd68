"""DuckDB: connections and short transactions, and the schema of the store."""
