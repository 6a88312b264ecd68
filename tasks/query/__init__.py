"""Questions to a published folder: from areas to a count, its interval, and how both were put together."""
