"""Small random markets with everything that goes wrong in real ones, as panels."""

import numpy as np
import torch

from flatwater_trading.market.market import Market, build_market
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel

CPU = torch.device("cpu")


def rough_panel(seed: int, *, days: int, columns: int, context_columns: int = 0) -> Panel:
    """Large moves, late listings, delistings, halts, prices of 0 and below, and highs that are missing."""
    rng = np.random.default_rng(seed)
    close = 100 * np.exp(np.cumsum(rng.normal(0, 0.06, (days, columns)), axis=0))
    high = close * (1 + np.abs(rng.normal(0, 0.04, close.shape)))
    for column in range(columns):
        if rng.random() < 0.4:
            close[: rng.integers(0, days), column] = np.nan
        if rng.random() < 0.4:
            close[rng.integers(0, days) :, column] = np.nan
        for _ in range(rng.integers(0, 4)):
            at = rng.integers(0, days)
            close[at : at + rng.integers(1, 6), column] = rng.choice([np.nan, 0.0, -3.0])
    high[rng.random(high.shape) < 0.05] = np.nan
    return panel_of(close, high, context_columns=context_columns)


def panel_of(close: np.ndarray, high: np.ndarray | None = None, *, context_columns: int = 0) -> Panel:
    """A panel of these closes and highs; the first `context_columns` columns cannot be traded."""
    days, columns = close.shape
    values = np.full((days, columns, len(FEATURES)), np.nan, dtype=np.float32)
    values[:] = np.asarray(close, dtype=np.float32)[..., None]
    values[..., FEATURES.index("high")] = close if high is None else high
    names = [f"X{i}" for i in range(columns)]
    return build_panel(
        values=values,
        dates=np.datetime64("2001-01-01") + np.arange(days),
        instruments=names,
        investable=names[context_columns:],
    )


def market_of(panel: Panel, features: int = 2) -> Market:
    """The panel's market, with observations that say where they come from: column, row, feature."""
    days, columns = panel.valid.shape
    numbers = torch.arange(columns * days * features, dtype=torch.float32).reshape(columns, days, features)
    return build_market(panel, numbers / numbers.numel(), CPU)


def flat_market(days: int, columns: int) -> Market:
    """Every price is 100 on every day."""
    return market_of(panel_of(np.full((days, columns), 100.0)))


DEAR = {
    "cost_bps": 3.0,
    "slippage_bps": 2.0,
    "half_spread_bps": 4.0,
    "per_share": 0.02,
    "least_commission": 2.5,
    "impact": 0.7,
    "impact_power": 0.6,
}
"""Costs of all kinds at once."""


def with_volume(panel: Panel, seed: int, *, splits: bool = True) -> Panel:
    """The panel with a volume, of which a few days are missing, and with closes as they were traded."""
    rng = np.random.default_rng([seed, 7])
    close, shape = panel.feature("close"), panel.valid.shape
    steps = np.where(rng.random(shape) < 0.05, rng.choice([0.5, 1 / 7, 3.0, 0.98], shape), 1.0)
    ratio = 7 * steps.cumprod(0) if splits else np.ones(shape)
    volume = rng.lognormal(6, 0.7, shape)
    volume[1:][rng.random((shape[0] - 1, shape[1])) < 0.05] = np.nan
    first = np.argmax(panel.valid, axis=0)
    volume[first, np.arange(shape[1])] = 500.0  # an instrument has a volume on its first day
    return build_panel(
        values=np.concatenate([panel.values, volume[..., None].astype(np.float32)], axis=-1),
        dates=panel.dates,
        instruments=panel.instruments,
        investable=[panel.instruments[n] for n in panel.investable],
        features=(*panel.features, "volume"),
        origins={"volume": "column volume"},
        raw_close=(close * ratio).astype(np.float32),
    )
