"""The market of a run that learns target weights: signals of its panel, closes, and the days of each split."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

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
    """Compute the signals of a panel, and split its days."""
    return WeightsMarket(signal_market(find_signals(panel), device), config.split(len(panel.dates)))


def signal_market(signals: Signals, device: torch.device) -> SignalMarket:
    """Bring signals to a device."""
    return SignalMarket(
        own=torch.from_numpy(signals.own).to(device),
        shared=torch.from_numpy(signals.market).to(device),
        following=torch.from_numpy(signals.following).to(device),
        tradable=torch.from_numpy(signals.tradable).to(device),
    )


def outline_market(panel: Panel, device: torch.device) -> SignalMarket:
    """Build a market of a panel's size, without contents."""
    columns, investable = len(panel.instruments), len(panel.investable)
    return outline_signals(
        days=len(panel.dates),
        instruments=investable,
        own=OWN_SIGNALS,
        shared=market_signals(columns, investable),
        device=device,
    )


def account_prices(panel: Panel) -> PortfolioPrices:
    """Return the prices that accounts are played at, on the CPU."""
    return portfolio_prices(panel_closes(panel))


def panel_closes(panel: Panel) -> Float[Tensor, "T K"]:
    """Return the closes of the instruments that can be bought, float64; NaN on days without a close."""
    close = torch.from_numpy(panel.feature("close")[:, panel.investable].astype("float64"))
    return close.where(torch.from_numpy(panel.valid[:, panel.investable].copy()), torch.nan)
