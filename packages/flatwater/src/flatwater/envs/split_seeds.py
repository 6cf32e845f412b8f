"""Seeds of the episodes of training, and seeds that are kept apart to evaluate the result."""

HELD_OUT = 1 << 30
"""First seed of held-out episodes; training draws its seeds below it."""
HOLDOUT = HELD_OUT + (1 << 24)
"""First seed of the holdout: episodes whose returns nobody has seen during the run."""
FIRST_SEEDS = {"held-out": HELD_OUT, "holdout": HOLDOUT}
"""First seed of the episodes of each kind that training does not use."""
NOTES = {
    "held-out": "no training on these episodes, but settings may have been tuned on their returns "
    "(flatwater evaluate --holdout plays others)",
    "holdout": "no training and no tuning on these episodes; trust the result less with each look "
    "(holdout_looks.jsonl)",
}
"""Notes on how far a result on these episodes can be trusted."""
