"""What can be said of released counts and their errors: intervals, bounds, marks, and how much of a level is noise."""
