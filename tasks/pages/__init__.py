"""Pages for people: the report and the README of a release, and the page of a comparison."""
