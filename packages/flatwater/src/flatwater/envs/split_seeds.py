"""Seeds of environments that are trained on, and seeds that are kept apart to judge the result."""

HELD_OUT = 1 << 30
"""Seeds below are drawn for training; those of held-out episodes begin here."""
HOLDOUT = HELD_OUT + (1 << 24)
"""First seed of the episodes that not even a person has looked at while the run went on."""
FIRST_SEEDS = {"held-out": HELD_OUT, "holdout": HOLDOUT}
NOTES = {
    "held-out": "no training on these episodes, but settings may have been tuned on their returns "
    "(flatwater evaluate --holdout plays others)",
    "holdout": "no training and no tuning on these episodes; trust the result less with each look "
    "(holdout_looks.jsonl)",
}
"""Notes on how far a result on these episodes can be trusted."""
