"""The stages of a release, the numbers that they compute, and the files, checks, pages and answers of a published folder."""
