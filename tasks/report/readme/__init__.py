"""The README of a published folder; the report and the workbook share its words."""
