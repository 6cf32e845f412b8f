"""Studies: the same settings trained anew in each fold of a walk-forward, with several seeds, and pooled."""
