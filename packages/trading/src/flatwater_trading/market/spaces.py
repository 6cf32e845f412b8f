"""Spaces of both Gymnasium environments, and the normalised panel of their observations."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from flatwater_trading.market.config import TradeConfig, TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.observation import ACCOUNT_FEATURES
from flatwater_trading.panel.normalise import OBSERVATION_LIMIT
from flatwater_watch.errors import ConfigError, require


def action_space(trade: TradeConfig, instruments: int) -> spaces.Box:
    """Return the action space [K, 2]: coefficient and sale target in percent."""
    low = np.tile(np.array([0, trade.target_low], dtype=np.float32), (instruments, 1))
    high = np.tile(np.array([trade.coefficient_max, trade.target_high], dtype=np.float32), (instruments, 1))
    return spaces.Box(low, high, dtype=np.float32)


def observation_space(market: Market, config: TradingConfig) -> spaces.Space[Any]:
    """Return the space of observations: [context, N, F'], or with `account_observation` a Dict.

    The Dict has `panel` [context, N, F'] and `account` [K, 3].
    """
    columns, _, features = market.observations.shape
    shape = (config.episode.context, columns, features)
    panel = spaces.Box(-OBSERVATION_LIMIT, OBSERVATION_LIMIT, shape, dtype=np.float32)
    if not config.account_observation:
        return panel
    instruments = len(market.investable)
    # Bounds of open, share of the holding time, and gain: a price that falls to 0 is a gain of -1.
    low = np.tile(np.array([0, 0, -1], dtype=np.float32), (instruments, 1))
    high = np.tile(np.array([1, 1, np.inf], dtype=np.float32), (instruments, 1))
    return spaces.Dict({"panel": panel, "account": spaces.Box(low, high, (instruments, len(ACCOUNT_FEATURES)))})


def shown_panel(market: Market) -> np.ndarray:
    """Return the normalised panel as a read-only NumPy view [T, N, F'], from which observations are cut.

    Raises:
        ConfigError: the panel is not in main memory, or a value is outside the observation space.
    """
    require(market.observations.device.type == "cpu", "market device", str(market.observations.device), "cpu")
    low, high = torch.aminmax(market.observations)
    if not bool((low >= -OBSERVATION_LIMIT) & (high <= OBSERVATION_LIMIT)):
        raise ConfigError(
            f"observations: expected values within +-{OBSERVATION_LIMIT:g}, got NaN or values from {float(low):.3g} to "
            f"{float(high):.3g}. Normalise them with flatwater_trading.panel.normalise.normalise_panel."
        )
    panel = market.observations.numpy().transpose(1, 0, 2)
    # Read-only, as observations are views of it and a wrapper that scales in place would change later observations.
    panel.setflags(write=False)
    return panel
