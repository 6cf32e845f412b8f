"""The market of a run that learns target weights: signals of its panel, closes, and the days of each split."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.market.config import CostConfig, PortfolioConfig
from flatwater_trading.market.cost_rates import rate_tables
from flatwater_trading.market.costs import CostRates
from flatwater_trading.market.portfolio import PortfolioPrices, portfolio_prices
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import OWN_SIGNALS, Signals, find_signals, market_signals
from flatwater_trading.panel.splits import Splits
from flatwater_trading.training.weights.config import WeightsConfig
from flatwater_trading.training.weights.state import SignalMarket, outline_signals


@dataclass(frozen=True)
class WeightsMarket:
    """The market and the days of a run."""

    market: SignalMarket
    splits: Splits


def build_market(config: WeightsConfig, panel: Panel, device: torch.device) -> WeightsMarket:
    """Compute the signals of a panel and the rates of its costs, and split its days.

    Raises:
        DataError: a cost needs the volume, and the panel has none.
    """
    signals = find_signals(panel)
    rates = rate_tables(panel, config.account)
    if rates is not None:
        last_close = portfolio_prices(panel_closes(panel)).last_close
        # Rates for a value of 1 instead of a share: the account that members learn with has weights and no shares.
        # Before an instrument's first close nothing is traded, so any number may stand for its price.
        rates = CostRates(rates.share / last_close.where(last_close > 0, 1.0), rates.impact)
    return WeightsMarket(signal_market(signals, device, rates), config.split(len(panel.dates)))


def signal_market(signals: Signals, device: torch.device, rates: CostRates | None = None) -> SignalMarket:
    """Copy signals and the rates of costs to a device.

    Args:
        signals: signals of a panel.
        device: device of the tensors.
        rates: rates of costs for a value of 1; None if all costs are in proportion to the value.
    """
    # Tables without rows stand for costs that are all in proportion to the value.
    no_rates = torch.empty(0, signals.own.shape[1], device=device)
    return SignalMarket(
        own=torch.from_numpy(signals.own).to(device),
        shared=torch.from_numpy(signals.market).to(device),
        following=torch.from_numpy(signals.following).to(device),
        tradable=torch.from_numpy(signals.tradable).to(device),
        share_rate=no_rates if rates is None else rates.share.float().to(device),
        impact_rate=no_rates if rates is None else rates.impact.float().to(device),
    )


def outline_market(panel: Panel, device: torch.device, costs: CostConfig | None = None) -> SignalMarket:
    """Return a market of a panel's size with unfilled tensors; those of rates are empty unless `costs` need them."""
    columns, investable = len(panel.instruments), len(panel.investable)
    return outline_signals(
        days=len(panel.dates),
        instruments=investable,
        own_signals=OWN_SIGNALS,
        shared=market_signals(columns, investable),
        device=device,
        costs=costs,
    )


def account_prices(panel: Panel, account: PortfolioConfig) -> PortfolioPrices:
    """Return the prices that accounts are played at, with the rates of their costs, on the CPU.

    Raises:
        DataError: a cost needs the volume, and the panel has none.
    """
    return portfolio_prices(panel_closes(panel), rate_tables(panel, account))


def panel_closes(panel: Panel) -> Float[Tensor, "T K"]:
    """Return the closes of the instruments that can be bought, float64; NaN on days without a close."""
    close = torch.from_numpy(panel.feature("close")[:, panel.investable].astype("float64"))
    return close.where(torch.from_numpy(panel.valid[:, panel.investable].copy()), torch.nan)
