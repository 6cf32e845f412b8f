"""Studies: the same settings trained in each fold of a walk-forward, with several seeds, and pooled."""
