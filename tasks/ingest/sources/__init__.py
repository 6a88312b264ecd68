"""What a table can be: a file, a sheet of a workbook, a matrix of zones, or a relation of a PostgreSQL database."""
