"""Words for people: numbers, levels and ε as text, names as people write them, and what areas are called."""
