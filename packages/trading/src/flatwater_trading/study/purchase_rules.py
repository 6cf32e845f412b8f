"""Rules of purchases, pooled over a study's folds: returns by other holding times, and the rules that were chosen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flatwater.metrics.short_numbers import finite_or_none
from flatwater_trading.recipe.rule_tables import holding_times, settings_rule_return

if TYPE_CHECKING:
    from flatwater_trading.study.pooling import FoldResult


def pooled_rules(folds: "Sequence[Sequence[FoldResult]]") -> dict[str, Any]:
    """Return returns by holding time over all folds, and each run's chosen rule; empty where runs have no rule.

    Returns:
        holding_times: total return by holding time, where every run has one, pooled like the champions: the mean of
        the seeds in each fold, one fold after the other. rules: a row for each run, with its fold and seed; empty if
        nothing was to be chosen. unchosen_return: total return by the rule of the settings, pooled in the same way.
    """
    if not all("rule" in run.result for runs in folds for run in runs):  # runs that do not trade by a rule of purchases
        return {}
    # For each run of each fold: holding time in rows -> total return, None if it is not finite.
    returns_by_fold = [[holding_times(run.result) for run in runs] for runs in folds]
    # Holding times for which every run of every fold has a return.
    common_times = sorted(set.intersection(*(set(returns) for runs in returns_by_fold for returns in runs)))
    times = {
        str(rows): _pool_returns([[returns[rows] for returns in runs] for runs in returns_by_fold])
        for rows in common_times
    }
    rules = [
        {"fold": fold, "seed": run.seed, **run.result["rule"]["chosen"]}
        for fold, runs in enumerate(folds, 1)
        for run in runs
        if run.result["rule"]["tried"]
    ]
    return_by_settings = None
    if rules:  # else all were played by the rule of the settings
        return_by_settings = _pool_returns([[_return_by_settings(run.result) for run in runs] for runs in folds])
    return {"holding_times": times, "rules": rules, "unchosen_return": return_by_settings}


def _return_by_settings(result: Mapping[str, Any]) -> float | None:
    """Return the total return of a champion's choices by the rule of the settings; None if it is not finite."""
    return_by_settings = settings_rule_return(result)
    if return_by_settings is None:  # no other rule was chosen: it was played by this one
        return_by_settings = result["traders"]["champion"]["total_return"]
    return return_by_settings


def _pool_returns(folds: Sequence[Sequence[float | None]]) -> float | None:
    """Return the total return over all folds, in each of which the money is split evenly among the seeds.

    Args:
        folds: for each fold the return of each seed's run; None, if it was not finite, counts as 0.
    """
    growth_by_fold = [np.mean([1 + (value or 0.0) for value in runs]) for runs in folds]
    return finite_or_none(float(np.prod(growth_by_fold)) - 1)
