"""Learning of a stacked population: one file for each algorithm, which reads from top to bottom."""
