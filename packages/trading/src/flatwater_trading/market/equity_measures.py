"""Measures of an equity curve: pure functions of curves [.., D + 1] that start with the opening cash.

A curve that is shorter than the others of its batch ends in NaN, which all functions leave out. Annualised measures
take `a_year`, the number of the curve's periods (days, weeks, months) in a year, as `panel.calendar` infers it.
"""

from jaxtyping import Bool, Float
from torch import Tensor


def total_return(equity: Float[Tensor, "*B D1"]) -> Float[Tensor, "*B"]:
    """Return the gain over the whole curve as a fraction: last value over first, minus 1."""
    # NaN stands only after the end, so counting finds the last value without waiting for the device.
    last_index = equity.isfinite().sum(-1, keepdim=True) - 1
    return equity.gather(-1, last_index.clamp(min=0)).squeeze(-1) / equity[..., 0] - 1


def period_returns(equity: Float[Tensor, "*B D1"]) -> Float[Tensor, "*B D"]:
    """Return the change over each period as a fraction; NaN after the end."""
    return equity[..., 1:] / equity[..., :-1] - 1


def sharpe(equity: Float[Tensor, "*B D1"], a_year: int) -> Float[Tensor, "*B"]:
    """Return the annualised Sharpe ratio of the periods' returns, without a risk-free rate (Sharpe 1994).

    It is the mean over the sample deviation (divided by n - 1), times the square root of the periods of a year; 0 if
    the returns do not vary.
    """
    # Sums in float64, as returns of 1e-4 and their squares lose digits in a float32 sum over years.
    returns = period_returns(equity).double()
    is_known = returns.isfinite()
    count = is_known.sum(-1)
    mean = returns.nanmean(-1)
    spread = (returns - mean[..., None]).where(is_known, 0).square().sum(-1)
    deviation = (spread / (count - 1).clamp(min=1)).sqrt()
    # Float32 equity is rounded by 6e-8 of its value a period, which must not count as variation.
    varies = (deviation > 1e-7) & (count > 1)  # noqa: PLR2004  (float32 has 7 digits)
    ratio: Tensor = mean / deviation.where(varies, 1) * a_year**0.5
    return ratio.where(varies, 0).to(equity.dtype)


def sortino(equity: Float[Tensor, "*B D1"], a_year: int) -> Float[Tensor, "*B"]:
    """Return the annualised Sortino ratio of the periods' returns with a target of 0 (Sortino & Price 1994).

    It is the mean over the root of the mean square of the losses, gains counted as 0, times the square root of the
    periods of a year; 0 without a loss.
    """
    returns = period_returns(equity).double()
    is_known = returns.isfinite()
    square_loss = returns.clamp(max=0).where(is_known, 0).square().sum(-1) / is_known.sum(-1).clamp(min=1)
    ratio: Tensor = returns.nanmean(-1) / square_loss.sqrt().where(square_loss > 0, 1) * a_year**0.5
    return ratio.where(square_loss > 0, 0).to(equity.dtype)


def calmar(equity: Float[Tensor, "*B D1"], a_year: int) -> Float[Tensor, "*B"]:
    """Return the compounded return of a year over the largest drawdown (Young 1991); 0 without a drawdown."""
    periods = equity.isfinite().sum(-1) - 1
    # A loss of more than everything counts as a loss of everything, as a root of a negative number is NaN.
    annual_return = (1 + total_return(equity)).clamp(min=0) ** (a_year / periods.clamp(min=1)) - 1
    largest_drawdown = drawdown(equity)
    ratio = annual_return / largest_drawdown.where(largest_drawdown > 0, 1)
    return ratio.where(largest_drawdown > 0, 0)


def alpha_beta(
    equity: Float[Tensor, "*B D1"], market: Float[Tensor, "D1"], a_year: int
) -> tuple[Float[Tensor, "*B"], Float[Tensor, "*B"]]:
    """Return annualised alpha, and beta: intercept and slope of the returns regressed on the market's (Jensen 1968).

    Both are 0 if the market does not move; there is no risk-free rate. NaN in an equity marks periods after its end.
    """
    returns, market_returns = period_returns(equity).double(), period_returns(market).double()
    is_known = returns.isfinite() & market_returns.isfinite()
    count = is_known.sum(-1).clamp(min=1)
    mean = returns.where(is_known, 0).sum(-1) / count
    # Over the periods of the curve alone, as a curve that ended early has no later periods.
    market_mean = market_returns.expand_as(returns).where(is_known, 0).sum(-1) / count
    market_deviations = (market_returns - market_mean[..., None]).where(is_known, 0)
    spread = market_deviations.square().sum(-1)
    beta = (market_deviations * (returns - mean[..., None]).where(is_known, 0)).sum(-1) / spread.where(spread > 0, 1)
    alpha = (mean - beta * market_mean).where(spread > 0, 0) * a_year
    return alpha.to(equity.dtype), beta.to(equity.dtype)


def drawdown(equity: Float[Tensor, "*B D1"]) -> Float[Tensor, "*B"]:
    """Return the largest fall from a peak as a fraction of the peak, 0 .. 1."""
    # 0 instead of NaN, which cummax would spread to all later values; 0 is never a peak.
    without_nan = equity.nan_to_num(nan=0.0)
    falls = 1 - equity / without_nan.cummax(-1).values
    return falls.nan_to_num(nan=0.0).amax(-1)


def exposure(equity: Float[Tensor, "*B D1"], invested_value: Float[Tensor, "*B D1"]) -> Float[Tensor, "*B"]:
    """Return the mean share of equity that was invested at the closes."""
    # Column 0 is the opening cash, before the first close at which anything can be held.
    share: Tensor = (invested_value / equity)[..., 1:].nanmean(-1)
    return share


def turnover(equity: Float[Tensor, "*B D1"], traded_value: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Return the value bought and sold, in multiples of the mean equity."""
    return traded_value / equity.nanmean(-1)


def win_rate(gain: Float[Tensor, "*B D"], is_trade: Bool[Tensor, "*B D"]) -> Float[Tensor, "*B"]:
    """Return the share of the trades, which `is_trade` marks, whose gain is above 0; 0 without a trade."""
    return ((gain > 0) & is_trade).sum(-1) / is_trade.sum(-1).clamp(min=1)
