"""The one loop that takes the steps of a release, and which steps come next."""
