"""What a table can be: a file, a table of an SQLite database, a sheet of a workbook, a matrix of zones, or a relation of PostgreSQL."""
