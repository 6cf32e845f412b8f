"""Off-policy transitions: row numbers for panels, observations stored once for everything else."""
