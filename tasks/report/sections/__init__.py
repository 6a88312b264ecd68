"""Sections of a report that take more than a table: its maps, its largest counts, and the numbers behind its charts."""
