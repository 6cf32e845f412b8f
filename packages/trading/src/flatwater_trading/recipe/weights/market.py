"""The market of a run that learns target weights: signals of its panel, and closes."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.runs.planning import META
from flatwater_trading.market.config import CostConfig, PortfolioConfig
from flatwater_trading.market.cost_rates import rate_tables
from flatwater_trading.market.portfolio import PortfolioPrices, portfolio_prices
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import OWN_SIGNALS, find_signals, market_signals
from flatwater_trading.training.weights.state import SignalMarket


def signal_market(panel: Panel, device: torch.device, costs: CostConfig | None = None) -> SignalMarket:
    """Compute the signals of a panel, and the rates of the costs that members learn with.

    Args:
        panel: prices.
        device: device of the tensors.
        costs: costs that are learned with; None where nothing is learned.

    Raises:
        DataError: a cost needs the volume, and the panel has none.
    """
    signals = find_signals(panel)
    rates = None if costs is None else rate_tables(panel, costs)
    # Tables without rows stand for costs that are all in proportion to the value of a trade.
    share_rate = impact_rate = torch.empty(0, signals.own.shape[1])
    if rates is not None:
        last_close = portfolio_prices(panel_closes(panel)).last_close
        # Rates for a value of 1 instead of a share: the account that members learn with has weights and no shares.
        # Before an instrument's first close nothing is traded, so any number may stand for its price.
        share_rate, impact_rate = rates.share / last_close.where(last_close > 0, 1.0), rates.impact
    return SignalMarket(
        own=torch.from_numpy(signals.own).to(device),
        shared=torch.from_numpy(signals.market).to(device),
        following=torch.from_numpy(signals.following).to(device),
        tradable=torch.from_numpy(signals.tradable).to(device),
        share_rate=share_rate.float().to(device),
        impact_rate=impact_rate.float().to(device),
    )


def outline_market(panel: Panel, costs: CostConfig | None = None) -> SignalMarket:
    """Return a market with the sizes of a panel on the meta device, where tensors have no values.

    The tables of rates are empty unless `costs` depend on the number of shares or on the volume.
    """
    days, columns, instruments = len(panel.dates), len(panel.instruments), len(panel.investable)
    rate_days = 0 if costs is None or costs.is_proportional else days
    return SignalMarket(
        own=torch.empty(days, instruments, OWN_SIGNALS, device=META),
        shared=torch.empty(days, market_signals(columns, instruments), device=META),
        following=torch.empty(days, instruments, device=META),
        tradable=torch.empty(days, instruments, dtype=torch.bool, device=META),
        share_rate=torch.empty(rate_days, instruments, device=META),
        impact_rate=torch.empty(rate_days, instruments, device=META),
    )


def account_prices(panel: Panel, account: PortfolioConfig) -> PortfolioPrices:
    """Return the prices that accounts are played at, with the rates of their costs, on the CPU.

    Raises:
        DataError: a cost needs the volume, and the panel has none.
    """
    return portfolio_prices(panel_closes(panel), rate_tables(panel, account))


def panel_closes(panel: Panel) -> Float[Tensor, "T K"]:
    """Return the closes of the instruments that can be bought, float64; NaN on days without a close."""
    return torch.from_numpy(panel.closes(panel.investable).astype("float64"))
