"""What the store knows about each release: its terms, its seals, and the flow runs that worked on it."""
