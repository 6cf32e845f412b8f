"""Simple rules of target weights, played by the account of a policy of weights: what learning has to beat.

Each rule gives the weights of a day from closes up to that day. So rules and policy have the same costs and the same
days, and differ only in their weights.

Months and years are counted by the dates: where a row is a week, a year of covariance has 52 rows.

- equal weight: equal parts of what is traded.
- inverse volatility: parts in proportion to 1 / the deviation of the last three months or so.
- minimum variance, risk parity: by the covariance of the last year, shrunk half-way to its diagonal and computed again
  every month: long only, the least variance, and equal parts of the variance (Maillard, Roncalli & Teiletche 2010).
  Both are found by a few hundred iterations of a closed step, which needs no library.
- volatility rule: equal weights, less where the market's deviation of the last days is above that of the last year, by
  the square of their ratio (Moreira & Muir 2017).
- 20-day momentum: equal parts of the five instruments with the largest return of 20 rows, if it is above 0; where a row
  is a week, it is named 20-week momentum.
- ridge: a linear regression of the next day's return on the signals that the policy sees, fitted to its training days;
  `top five` holds equal parts of the five with the largest forecasts, `weights` parts in proportion to them; cash if no
  forecast is above 0.
"""

from collections.abc import Callable, Mapping
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater_trading.panel.calendar import DAILY, Calendar
from flatwater_trading.panel.signals import deviation_so_far, mean_so_far

USUAL, SLOW, QUICK = 60, 250, 8
"""Trading days over which deviations are averaged: the same numbers as those of the signals."""
MOMENTUM = 20
"""Rows of the momentum, as in the rules of purchases."""
TOP = 5
"""Instruments that the rules of the best hold."""
COVARIANCE_DAYS = 20
"""Trading days after which the covariance is computed again."""
MINIMUM_ROWS = 2
"""Fewest rows that stand for some trading days: eight days are no row of monthly prices, and one has no deviation."""
SHRINKAGE = 0.5
"""Part of the way that a covariance is moved to its diagonal: a year has fewer days than the covariance has numbers."""
ITERATIONS = 300
"""Iterations of the search for weights by a covariance."""
PENALTY = 1.0
"""Penalty of ridge, in days, on signals of deviation about 1."""
MINIMUM_DIVISOR = 1e-12

Weights = Float[Tensor, "D K"]


def weight_rules(
    closes: "Closes", signals: Float[Tensor, "T K F"], learned_rows: range, days: range
) -> Mapping[str, Callable[[], Weights]]:
    """Return rules by name, each as the function that computes the rule's weights [D, K] on `days`.

    Args:
        closes: prices, of which each rule sees those up to its day.
        signals: signals that the policy sees of each instrument.
        learned_rows: rows that ridge is fitted to.
        days: rows that are played.
    """
    # Cached, as two rules use the forecasts.
    ridge = cache(lambda: ridge_forecasts(closes, signals, learned_rows, days))
    tradable = closes.tradable[days.start : days.stop]
    return {
        "equal weight": lambda: _proportional_weights(tradable.double()),
        "inverse volatility": lambda: _proportional_weights(
            (1 / closes.deviation(closes.rows(USUAL))[days.start : days.stop]).where(tradable, 0)
        ),
        "minimum variance": lambda: _covariance_weights(closes, days, minimum_variance),
        "risk parity": lambda: _covariance_weights(closes, days, risk_parity),
        "volatility rule": lambda: _volatility_rule(closes, days),
        f"{MOMENTUM}-{closes.calendar.unit} momentum": lambda: _top_weights(
            closes.past_return(MOMENTUM)[days.start : days.stop], tradable
        ),
        "ridge, top five": lambda: _top_weights(ridge(), tradable),
        "ridge, weights": lambda: _proportional_weights(ridge().clamp(min=0).where(tradable, 0)),
    }


class Closes:
    """Closes of K instruments on T days, with the moves, deviations and returns that rules use; float64."""

    def __init__(self, last_close: Float[Tensor, "T K"], tradable: Bool[Tensor, "T K"], calendar: Calendar) -> None:
        """Compute the moves of each day.

        Args:
            last_close: last closes so far; 0 before an instrument's first close.
            tradable: mask of the instruments that have a close on the day.
            calendar: frequency of the rows.
        """
        self.last_close, self.tradable, self.calendar = last_close, tradable, calendar
        self.moves = self.past_return(1)

    def rows(self, trading_days: int) -> int:
        """Return the number of rows that are as long as `trading_days` trading days, at least `MINIMUM_ROWS`."""
        return max(MINIMUM_ROWS, round(trading_days * self.calendar.a_year / DAILY.a_year))

    def deviation(self, span: int) -> Float[Tensor, "T K"]:
        """Return the deviation of moves about 0 over the days so far, by an exponential mean with this span."""
        return torch.from_numpy(deviation_so_far(self.moves.numpy(), span, (self.last_close > 0).numpy()))

    def past_return(self, days: int) -> Float[Tensor, "T K"]:
        """Return the simple return over the last `days` rows; 0 for an instrument without a close at their start."""
        returns = torch.zeros_like(self.last_close)
        is_priced = self.last_close[:-days] > 0
        returns[days:] = (self.last_close[days:] / self.last_close[:-days].where(is_priced, 1) - 1).where(is_priced, 0)
        return returns


def _proportional_weights(parts: Float[Tensor, "*D K"]) -> Float[Tensor, "*D K"]:
    """Return weights in proportion to numbers of 0 or more; cash where all are 0."""
    return parts / parts.sum(-1, keepdim=True).clamp(min=MINIMUM_DIVISOR)


def _top_weights(scores: Weights, tradable: Bool[Tensor, "D K"]) -> Weights:
    """Return a fifth of the money for each of the five instruments with the largest scores, if they are above 0."""
    known_scores = scores.where(tradable, -torch.inf)
    top = known_scores.topk(min(TOP, scores.shape[-1]), dim=-1)
    return torch.zeros_like(known_scores).scatter(-1, top.indices, (top.values > 0).double() / TOP)


def _volatility_rule(closes: Closes, days: range) -> Weights:
    """Return equal weights, lowered where the market has become more restless (Moreira & Muir 2017).

    They are multiplied by the variance of the market's moves over about a year (`SLOW` days) over that of the last days
    (`QUICK`), at most 1; the rest is cash.
    """
    equal_shares = _proportional_weights(closes.tradable.double())
    # The market's move on a day is the mean of the instruments'.
    market_moves = (equal_shares * closes.moves).sum(-1, keepdim=True)
    squares = market_moves.square().numpy()
    quick_variance = torch.from_numpy(mean_so_far(squares, closes.rows(QUICK)))
    slow_variance = torch.from_numpy(mean_so_far(squares, closes.rows(SLOW)))
    ratio = (slow_variance / quick_variance.clamp(min=MINIMUM_DIVISOR)).clamp(max=1)
    return (equal_shares * ratio)[days.start : days.stop]


def _covariance_weights(closes: Closes, days: range, weigh_covariance: Callable[[Tensor], Tensor]) -> Weights:
    """Return weights by the covariance of the last year, computed again every `COVARIANCE_DAYS` trading days.

    Args:
        closes: prices of all days.
        days: rows that are played.
        weigh_covariance: function that gives the weights [K] of a covariance [K, K].
    """
    weights = closes.last_close.new_zeros(len(days), closes.last_close.shape[1])
    # Weights of the newest covariance; computed on the first day, as 0 is a multiple of `month`.
    last_weights = closes.last_close.new_zeros(0)
    year, month = closes.rows(SLOW), closes.rows(COVARIANCE_DAYS)
    for number, day in enumerate(days):
        tradable = closes.tradable[day]
        if number % month == 0:
            moves = closes.moves[max(0, day + 1 - year) : day + 1]
            covariance = moves.T @ moves / len(moves)
            # Shrunk towards its diagonal. 1e-8, here and below, keeps the variance of an instrument that does not move
            # above 0.
            variance = covariance.diagonal().clamp(min=1e-8)
            shrunk_covariance = (1 - SHRINKAGE) * covariance + SHRINKAGE * torch.diag(variance)
            last_weights = weigh_covariance(shrunk_covariance + torch.diag(1e-8 * torch.ones_like(variance)))
        weights[number] = _proportional_weights(last_weights.where(tradable, 0))
    return weights


def minimum_variance(covariance: Float[Tensor, "K K"]) -> Float[Tensor, "K"]:
    """Return the weights with the least variance, each 0 or more and 1 in all, by exponentiated gradients."""
    deviation = covariance.diagonal().sqrt()
    weights = _proportional_weights(1 / deviation**2)
    for _ in range(ITERATIONS):
        slope = covariance @ weights
        variance = weights @ slope
        # slope / variance is an instrument's marginal variance over the mean of all: below 1 it gets more weight. A
        # step is limited to a factor of exp(1 / 2), as larger ones would not settle.
        weights = _proportional_weights(weights * torch.exp((1 - slope / variance).clamp(-1, 1) / 2))
    return weights


def risk_parity(covariance: Float[Tensor, "K K"]) -> Float[Tensor, "K"]:
    """Return the weights at which all instruments contribute the same part of the variance."""
    weights = _proportional_weights(1 / covariance.diagonal().sqrt())
    for _ in range(ITERATIONS):
        slope = covariance @ weights
        # An instrument contributes w (C w) to the variance, which is the same for all at the solution. The root of the
        # root dampens the step, so that it settles: w <- w / (w C w) ** (1/4).
        weights = _proportional_weights(weights * (weights * slope).clamp(min=MINIMUM_DIVISOR).rsqrt().sqrt())
    return weights


def ridge_forecasts(closes: Closes, signals: Float[Tensor, "T K F"], learned_rows: range, days: range) -> Weights:
    """Return the next day's return that ridge expects of each instrument, on each of `days`.

    Args:
        closes: prices of all days.
        signals: signals of all days.
        learned_rows: rows that ridge is fitted to.
        days: rows that are forecast.
    """
    # A target is the return of the next day, so the last target ends on the last row of `learned_rows`.
    rows = slice(learned_rows.start, max(learned_rows.start, learned_rows.stop - 1))
    is_known = closes.tradable[rows]
    samples = signals[rows][is_known].double()
    target = closes.moves[rows.start + 1 : rows.stop + 1][is_known]
    if not len(samples):
        return closes.last_close.new_zeros(len(days), closes.last_close.shape[1])
    mean = target.mean()
    # Solved by the normal equations. The mean is the intercept, and no penalty shrinks it.
    penalty = PENALTY * torch.eye(samples.shape[1], dtype=samples.dtype, device=samples.device)
    slopes: Tensor = torch.linalg.solve(samples.T @ samples + penalty, samples.T @ (target - mean))
    forecasts: Tensor = signals[days.start : days.stop].double() @ slopes + mean
    return forecasts
