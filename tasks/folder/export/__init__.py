"""Published counts in the kinds of files that spreadsheets, transport models, maps and statistical offices read."""
