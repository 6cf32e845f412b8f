"""Rules of purchases of a study: returns of the same scores by other holding times, and the rules that were chosen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flatwater.metrics.figures import finite_or_none
from flatwater_trading.recipe.rule_tables import holding_times

if TYPE_CHECKING:
    from flatwater_trading.study.pooling import FoldResult


def pooled_rules(folds: "Sequence[Sequence[FoldResult]]") -> dict[str, Any]:
    """Return returns by holding time over all folds, and each run's chosen rule; empty where runs have no rule.

    Returns:
        holding_times: total return by holding time, where every run has one, pooled like the champions: the mean of
        the seeds in each fold, one fold after the other. rules: a row for each run, with its fold and seed; empty if
        nothing was to be chosen.
    """
    if not all("rule" in run.result for runs in folds for run in runs):
        return {}
    # For each run of each fold: holding time in rows -> total return, None if it is not finite.
    returns_by_fold = [[holding_times(run.result) for run in runs] for runs in folds]
    common_times = sorted(set.intersection(*(set(returns) for runs in returns_by_fold for returns in runs)))
    growth = {
        rows: float(np.prod([np.mean([1 + (returns[rows] or 0.0) for returns in runs]) for runs in returns_by_fold]))
        for rows in common_times
    }
    rules = [
        {"fold": fold, "seed": run.seed, **run.result["rule"]["chosen"]}
        for fold, runs in enumerate(folds, 1)
        for run in runs
        if run.result["rule"]["tried"]
    ]
    return {
        "holding_times": {str(rows): finite_or_none(value - 1) for rows, value in growth.items()},
        "rules": rules,
    }
