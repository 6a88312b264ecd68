"""What all stages have in common: what there is to do, how it becomes a task, and the cores and memory to do it with."""
