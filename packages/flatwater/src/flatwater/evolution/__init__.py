"""Selection, crossover and mutation of stacked members, in place."""
