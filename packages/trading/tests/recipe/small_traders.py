"""Settings of small runs of purchases and of target weights, which train in a second; a test adds its panel."""

from typing import Any

SMALL_PURCHASES: dict[str, Any] = {
    "rounds": 1,
    "threads": 1,
    "trackers": (),
    "population": {"size": 4},
    "evaluation": {"train_slices": 2, "validation_slices": 2},
    "env": {
        "episode": {"context": 20, "trading_days": 15, "settlement_days": 5},
        "trade": {"hold_days": 5, "target_low": 1.0, "target_high": 4.0},
    },
    "net": {"channels": 4, "hidden": 8},
}
SMALL_WEIGHTS: dict[str, Any] = {
    "rounds": 1,
    "threads": 1,
    "trackers": (),
    "history": 40,
    "splits": {"holdout_days": 90, "validation_days": 60},
    "members": {"size": 2, "hidden": 4},
    "learner": {"updates": 3, "days": 20},
}
