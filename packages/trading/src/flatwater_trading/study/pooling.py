"""Pooling of a study's folds, from the folders of its runs alone.

In each fold the money is split evenly among the seeds' champions, and nothing is moved between them; the next fold
begins with what the last one ended with. So there is one equity curve over all test days for the champions, and one for
each simple rule. Random traders are pooled in the same way: the first of each run together, the second, and so on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
import torch

from flatwater.metrics.short_numbers import finite_or_none
from flatwater.recipe import Recipe
from flatwater.rundir.layout import RunFolder
from flatwater.rundir.results import read_result
from flatwater_trading.market import equity_measures
from flatwater_trading.panel.calendar import infer_calendar
from flatwater_trading.recipe.comparison import Comparison, beaten_share, compare_champion, oracle_sentence
from flatwater_trading.recipe.return_difference import ReturnDifference, estimate_difference, period_returns
from flatwater_trading.recipe.tables import EQUITY, TraderFolder, read_table
from flatwater_trading.recipe.trader_names import CHAMPION, EQUAL_WEIGHT, simple_rules
from flatwater_trading.study.config import StudyConfig
from flatwater_trading.study.deflated_sharpe import DeflatedSharpe, deflated_sharpe
from flatwater_trading.study.folder import StudyFolder
from flatwater_trading.study.purchase_rules import pooled_rules
from flatwater_watch.errors import RunError


@dataclass(frozen=True, kw_only=True)
class FoldResult:
    """The result of a run on its fold's test days."""

    seed: int
    result: Mapping[str, Any]
    """Contents of holdout.json."""
    equity: pl.DataFrame
    """Opening cash, then the value at each close: a column for each trader."""

    def relative_equity(self, trader: str) -> np.ndarray:
        """Return a trader's equity, 1 at the start."""
        curve = self.equity[trader].to_numpy()
        return np.asarray(curve / curve[0])


@dataclass(frozen=True, kw_only=True)
class PooledResult:
    """The pooled result of the complete folds."""

    folds: Sequence[Sequence[FoldResult]]
    """Runs of each fold."""
    dates: np.ndarray
    """The day before the first test day, then every test day."""
    equity: Mapping[str, torch.Tensor]
    """Equity by trader, 1 on the first date."""
    comparison: Comparison
    against_equal: ReturnDifference
    """The champions' return less that of equal weight."""
    deflated: DeflatedSharpe
    """Deflated Sharpe ratio of the champions."""
    deflated_excess: DeflatedSharpe
    """Deflated Sharpe ratio of the champions' return less that of equal weight."""
    tries: int
    """Traders among which the champions were chosen, of all runs together."""
    tries_phrase: str
    """What was tried in each run: `members x generations`."""
    traders_key: str
    """The field of holdout.json with a row for each trader."""

    @property
    def a_year(self) -> int:
        """Periods of a year, by the test days."""
        return infer_calendar(self.dates).a_year

    @property
    def years(self) -> float:
        """Length of all test days together, in years."""
        return (len(self.dates) - 1) / self.a_year

    @property
    def verdict(self) -> str:
        """Sentences on the comparison, equal weight, the oracle and the deflated Sharpe ratios."""
        sentences = [self.comparison.sentence]
        if self.comparison.best != EQUAL_WEIGHT:
            sentences.append(f"It {self.against_equal.comparison_phrase(EQUAL_WEIGHT)}.")
        returns = {name: float(curve[-1] / curve[0] - 1) for name, curve in self.equity.items()}
        if oracle_text := oracle_sentence(returns):  # empty on a panel without an oracle
            sentences.append(oracle_text)
        champion_probability, excess_probability = self.deflated.probability, self.deflated_excess.probability
        sentences.append(
            f"Deflated for the {self.tries:,} tries of the study, the probability that its Sharpe ratio is above 0 is "
            f"{champion_probability:.0%}, and for its lead over equal weight {excess_probability:.0%}."
        )
        return " ".join(sentences)


def read_fold_result(folder: RunFolder, recipe: Recipe, seed: int) -> FoldResult | None:
    """Read the result of a run's test days; None if it has not played them yet.

    Raises:
        RunError: a file is damaged.
    """
    curves = TraderFolder.from_folder(folder).holdout_equity
    result, equity = read_result(folder.holdout, recipe), read_table(curves, EQUITY)
    if result is None or equity is None:
        return None
    chance = result.get("chance")  # returns of the random traders
    traders = result[recipe.players]  # numbers by trader
    required_types = {"tries": int, "tried": str, "comparison": dict}
    has_chance = isinstance(chance, list) and bool(chance) and all(isinstance(value, float) for value in chance)
    has_required = all(type(result.get(name)) is kind for name, kind in required_types.items())
    if not (has_chance and has_required):
        raise RunError(f"{folder.holdout}: is damaged. Remove it, and go on with the study: the days are played again.")
    missing_curves = {CHAMPION, EQUAL_WEIGHT, *traders} - {*equity.columns}
    if missing_curves or not len(equity):
        raise RunError(f"{curves}: has not every trader of {folder.holdout.name}. Remove both.")
    return FoldResult(seed=seed, result=result, equity=equity)


def pool_folds(
    folder: StudyFolder, setup: StudyConfig, recipe: Recipe, trial_runs: Mapping[int, float] = MappingProxyType({})
) -> PooledResult | None:
    """Pool the complete folds of a study, which every seed has been tested on; None if no fold is complete.

    Args:
        folder: folder of the study.
        setup: folds and seeds of the study.
        recipe: recipe of its runs.
        trial_runs: fold -> rounds of the trials that searched for its settings, in multiples of a run's rounds.
    """
    # For each fold the results of its runs, one for each seed; None for a run that has not been tested.
    runs_by_fold = [
        [read_fold_result(folder.run(fold, seed), recipe, seed) for seed in setup.seeds]
        for fold in range(1, setup.folds + 1)
    ]
    # An incomplete fold is left out: which of its seeds have been tested by now must not choose what is shown.
    complete_folds = [[run for run in runs if run is not None] for runs in runs_by_fold if None not in runs]
    if not complete_folds:
        return None
    traders = list(complete_folds[0][0].result[recipe.players])
    # Trader -> its equity over all test days: in each fold the mean of the seeds, one fold after the other.
    equity = {
        name: torch.from_numpy(chain_curves([_mean_equity(runs, name) for runs in complete_folds])) for name in traders
    }
    # Total returns of the random traders: number r of one fold goes on as number r of the next. They have no skill, so
    # any may follow any other.
    chance = np.prod([_chance_equity(runs) for runs in complete_folds], axis=0) - 1
    champion_returns, equal_returns = period_returns(equity[CHAMPION]), period_returns(equity[EQUAL_WEIGHT])
    tries = sum(_count_tries(runs, trial_runs.get(fold, 0)) for fold, runs in enumerate(runs_by_fold, 1))
    dates_by_fold = [runs[0].equity["date"].to_numpy() for runs in complete_folds]
    # A fold's first row is the cash on the day before, which is the last day of the fold before it.
    dates = np.concatenate([dates_by_fold[0][:1], *(days[1:] for days in dates_by_fold)])
    a_year = infer_calendar(dates).a_year
    return PooledResult(
        folds=complete_folds,
        dates=dates,
        equity=equity,
        comparison=compare_champion(equity, torch.from_numpy(chance), a_year=a_year),
        against_equal=estimate_difference(champion_returns, equal_returns, a_year=a_year),
        deflated=deflated_sharpe(champion_returns, tries),
        deflated_excess=deflated_sharpe(champion_returns - equal_returns, tries),
        tries=tries,
        tries_phrase=complete_folds[0][0].result["tried"]
        + (", of the trials of the search too," if trial_runs else ""),
        traders_key=recipe.players,
    )


def _count_tries(runs: Sequence[FoldResult | None], trial_runs: float) -> int:
    """Return the number of candidates that were tried for a fold's result; 0 if the fold is not complete.

    Args:
        runs: results of the fold's runs; None for a run that has not been tested.
        trial_runs: rounds of the trials that searched for the fold's settings, in multiples of a run's rounds.
    """
    tries: list[int] = [run.result["tries"] for run in runs if run is not None]
    if len(tries) < len(runs):
        return 0
    # A round of a trial counts as many tries as a round of the runs that its settings were chosen for.
    return sum(tries) + ceil(trial_runs * max(tries))


def chain_curves(curves: Sequence[np.ndarray]) -> np.ndarray:
    """Chain equity curves that begin at 1 to one curve: each continues where the curve before has ended."""
    pieces = [np.ones(1)]
    for curve in curves:
        # Without its first value, which is the last one of the curve before.
        pieces.append(pieces[-1][-1] * curve[1:])
    return np.concatenate(pieces)


def _mean_equity(runs: Sequence[FoldResult], trader: str) -> np.ndarray:
    return np.asarray(np.mean([run.relative_equity(trader) for run in runs], axis=0))


def _chance_equity(runs: Sequence[FoldResult]) -> np.ndarray:
    """Return the final equity [R] of the random traders in a fold, 1 at the start, as means over the fold's runs."""
    # Runs of another version may have played another number of random traders: as many as all runs have.
    fewest = min(len(run.result["chance"]) for run in runs)
    return 1 + np.asarray(np.mean([run.result["chance"][:fewest] for run in runs], axis=0))


def as_json(result: PooledResult) -> dict[str, Any]:
    """Return the pooled result as plain values."""
    years = result.years
    tries = {"tries": result.tries, "tried": result.tries_phrase}  # of both deflated ratios
    return {
        "first_day": str(result.dates[1]),  # the first with a return
        "last_day": str(result.dates[-1]),
        "days": len(result.dates) - 1,
        "periods_per_year": result.a_year,
        "traders": {
            name: _curve_numbers(curve, years, result.a_year) | {"turnover": _annual_turnover(result, name, years)}
            for name, curve in result.equity.items()
        },
        "comparison": vars(result.comparison),
        "against_equal_weight": vars(result.against_equal),
        "deflated": vars(result.deflated) | tries,
        "deflated_lead_over_equal_weight": vars(result.deflated_excess) | tries,
        "by_seed": [_describe_seed(result, place, years) for place in range(len(result.folds[0]))],
        "by_fold": [_describe_fold(result, runs) for runs in result.folds],
        **pooled_rules(result.folds),
        "verdict": result.verdict,
    }


def _curve_numbers(curve: torch.Tensor, years: float, a_year: int) -> dict[str, float | None]:
    """Measure a curve of `years` years with `a_year` periods each; None for a number that is not finite."""
    return {
        "annual_return": finite_or_none(float(curve[-1] / curve[0]) ** (1 / years) - 1),
        "total_return": finite_or_none(float(equity_measures.total_return(curve))),
        "sharpe": finite_or_none(float(equity_measures.sharpe(curve, a_year))),
        "drawdown": finite_or_none(float(equity_measures.drawdown(curve))),
    }


def _annual_turnover(result: PooledResult, trader: str, years: float) -> float | None:
    """Return a trader's turnover in a year, in multiples of its equity; None for a trader that only holds."""
    turnover_by_fold = [
        [run.result[result.traders_key][trader].get("turnover") for run in runs] for runs in result.folds
    ]
    if any(None in turnovers for turnovers in turnover_by_fold):  # it buys once and holds, in some fold at least
        return None
    # A fold's turnover is that of its days; the runs of a fold, one for each seed, play the same days.
    return float(np.sum([np.mean(turnovers) for turnovers in turnover_by_fold]) / years)


def _describe_seed(result: PooledResult, place: int, years: float) -> dict[str, Any]:
    """Return the measures of one seed's champions, chained over the folds; `place` is the seed's index in each fold."""
    curve = torch.from_numpy(chain_curves([runs[place].relative_equity(CHAMPION) for runs in result.folds]))
    return {"seed": result.folds[0][place].seed} | _curve_numbers(curve, years, result.a_year)


def _describe_fold(result: PooledResult, runs: Sequence[FoldResult]) -> dict[str, Any]:
    """Return the row of a fold: the champions, and the best rule on these days."""
    rows, days = runs[0].result[result.traders_key], runs[0].result["days"]
    curve = torch.from_numpy(_mean_equity(runs, CHAMPION))
    champions = [run.result[result.traders_key][CHAMPION] for run in runs]
    returns = [row["total_return"] for row in champions]
    # Simple rules trade by the champion's rule of purchases, which may differ between runs: so their mean is taken.
    rules = {name: _mean_return(result, runs, name) for name in (EQUAL_WEIGHT, *simple_rules(rows))}
    best_rule = max(simple_rules(rows), key=rules.__getitem__)
    return {
        "first_day": runs[0].result["first_day"],
        "last_day": runs[0].result["last_day"],
        "days": days,
        **_curve_numbers(curve, days / result.a_year, result.a_year),
        "lowest": min(returns),
        "highest": max(returns),
        "turnover": float(np.mean([row["turnover"] for row in champions])),
        "equal_weight": rules[EQUAL_WEIGHT],
        "best_rule": best_rule,
        "best_rule_return": rules[best_rule],
        "beaten": beaten_share(float(curve[-1]), torch.from_numpy(_chance_equity(runs))),
    }


def _mean_return(result: PooledResult, runs: Sequence[FoldResult], trader: str) -> float:
    """Return the total return of a trader in a fold, as the mean over the fold's runs; 0 for a return of None."""
    returns = [run.result[result.traders_key][trader]["total_return"] or 0.0 for run in runs]
    all_are_equal = len(set(returns)) == 1  # as of a rule, which plays alike in all runs
    # The mean of equal numbers could differ from them in the last bit.
    return returns[0] if all_are_equal else float(np.mean(returns))


def equity_frame(result: PooledResult) -> pl.DataFrame:
    """Return date and each trader's pooled equity."""
    return pl.DataFrame({"date": result.dates} | {name: curve.numpy() for name, curve in result.equity.items()})
