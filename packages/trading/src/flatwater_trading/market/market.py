"""The market of a simulator: exogenous tensors, shared by every episode and never written.

A row is usable for an instrument if its close is finite and positive. Other rows have neither a close nor a high:
nothing can be bought, no target can be met, and open positions keep the value of the last usable close.
"""

from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.state.tree import derived_field, state
from flatwater_trading.market.config import CostConfig
from flatwater_trading.market.cost_rates import rate_tables
from flatwater_trading.market.costs import CostRates, Costs
from flatwater_trading.panel.normalise import normalise_panel, training_statistics
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.signals import fill_holes
from flatwater_watch.errors import ConfigError, DataError


@state
class Market:
    """Prices of the K investable instruments, and the observations of all N columns, over T days."""

    observations: Float[Tensor, "N T F"] = derived_field()
    """Normalised features; missing cells are 0."""
    close: Float[Tensor, "T K"] = derived_field()
    """Closes; NaN on rows that are not usable."""
    high: Float[Tensor, "T K"] = derived_field()
    """Highs, never below the close; NaN on rows that are not usable. Stored instrument by instrument, because a
    purchase reads an instrument's next days."""
    last_close: Float[Tensor, "T K"] = derived_field()
    """The last usable close so far, for mark-to-market; 0 before the first."""
    last_day: Int[Tensor, " K"] = derived_field()
    """Row of the last usable close, which may be read only after it; -1 for an instrument without a usable close."""
    investable: Int[Tensor, " K"] = derived_field()
    """Numbers of the instruments among the N columns."""
    share_rate: Float[Tensor, "R K"] = derived_field()
    """Commission for each share, in the market's prices; R is 0 if all costs are in proportion to the value, else T."""
    impact_rate: Float[Tensor, "R K"] = derived_field()
    """Impact of a trade of value 1, as a part of it."""

    def costs(self, config: CostConfig, row: Int[Tensor, "*B"] | int, instrument: Int[Tensor, "*B"]) -> Costs:
        """Return the costs of trades by their rows and instruments.

        Raises:
            ConfigError: the market was built without the rates that these costs need.
        """
        if config.is_proportional:
            return Costs(config)
        if not len(self.share_rate):
            raise ConfigError(
                f"{config.table}: the market was built without the rates of these costs. Build it with "
                "build_market(..., costs=config.account)."
            )
        # Offset in the flat storage of [T, K].
        cell = row * len(self.investable) + instrument
        return Costs(config, CostRates(self.share_rate, self.impact_rate).take(cell))


def build_market(
    panel: Panel, observations: Float[Tensor, "N T F"], device: torch.device, costs: CostConfig | None = None
) -> Market:
    """Build the market of a panel's investable instruments.

    Args:
        panel: days, prices and validity.
        observations: features normalised by statistics of the training days, without NaN; kept, not copied, if they are
            on `device` already.
        device: device on which the simulator will run.
        costs: costs of the trades that will be made; None for costs in proportion to the value.

    Raises:
        DataError: the observations do not cover the panel's columns and days, or the costs need a volume that the panel
            has not.
    """
    days, columns = panel.valid.shape
    if tuple(observations.shape[:2]) != (columns, days):
        raise DataError(
            f"observations: expected [{columns}, {days}, features] for this panel, got {list(observations.shape)}. "
            "Normalise this panel, not another."
        )
    # The columns are copied, as the panel is read-only and often mapped from a file.
    close = _investable_columns(panel.feature("close"), panel)
    usable = panel.valid[:, panel.investable]
    close[~usable] = np.nan
    # A day's high is at least its close; a missing high on a usable day becomes the close.
    high = np.fmax(_investable_columns(panel.feature("high"), panel), close)
    high[~usable] = np.nan
    rates = None if costs is None else rate_tables(panel, costs)
    return Market(
        observations=observations.to(device),
        close=torch.from_numpy(close).to(device),
        # [K, T] in memory, a view [T, K]: an instrument's next days are adjacent.
        high=torch.from_numpy(np.ascontiguousarray(high.T)).to(device).T,
        last_close=torch.from_numpy(last_usable_closes(close)).to(device),
        last_day=torch.from_numpy(last_usable_rows(usable)).to(device),
        investable=torch.from_numpy(np.array(panel.investable, dtype=np.int64)).to(device),
        share_rate=_no_rates(close.shape[1], device) if rates is None else rates.share.float().to(device),
        impact_rate=_no_rates(close.shape[1], device) if rates is None else rates.impact.float().to(device),
    )


def normalised_market(
    panel: Panel, features: tuple[str, ...], train_stop: int, device: torch.device, costs: CostConfig
) -> Market:
    """Build the market of a panel, with observations scaled by statistics of the rows before `train_stop`."""
    # Days up to the end of training alone, as later prices must not reach an agent through the scale.
    stats = training_statistics(panel, features, train_stop)
    return build_market(panel, normalise_panel(panel, features, stats), device, costs)


def _no_rates(instruments: int, device: torch.device) -> Float[Tensor, "0 K"]:
    """Return an empty table of rates, for costs that are all in proportion to the value."""
    return torch.empty(0, instruments, device=device)


def market_tensors(market: Market) -> dict[str, Tensor]:
    """Return the tensors of a market by field name, as a file stores them: contiguous, `high` as [K, T].

    Empty tables of rates are left out, as nothing of size 0 can be mapped from a file.
    """
    tensors = {field.name: getattr(market, field.name) for field in fields(market)} | {"high": market.high.T}
    return {name: each for name, each in tensors.items() if each.numel()}


def make_market(tensors: Mapping[str, Tensor]) -> Market:
    """Build a market from the fields of `market_tensors`, with the left-out tables empty and `high` again [T, K]."""
    no_rates = _no_rates(len(tensors["investable"]), tensors["close"].device)
    values = {"share_rate": no_rates, "impact_rate": no_rates}
    values.update(tensors)  # with its own rates, if there are any
    values["high"] = tensors["high"].T
    return Market(**values)


def outline_market(
    *, columns: int, days: int, features: int, investable: int, device: torch.device, costs: CostConfig | None = None
) -> Market:
    """Build a market of this size with unfilled tensors; on the meta device, for a memory plan.

    Args:
        columns: number N of columns, context columns included.
        days: number T of days.
        features: number F of features of a column on a day.
        investable: number K of columns that can be bought.
        device: device of the tensors.
        costs: costs of the trades; None for costs in proportion to the value.

    Returns:
        A market whose tensors are allocated and not written.
    """

    def price_table() -> Tensor:
        """Allocate a table [T, K]."""
        return torch.empty((days, investable), device=device)

    def rate_table() -> Tensor:
        """Allocate a table [T, K] of rates of costs; without rows if all costs are in proportion to the value."""
        return _no_rates(investable, device) if costs is None or costs.is_proportional else price_table()

    return Market(
        observations=torch.empty((columns, days, features), device=device),
        close=price_table(),
        high=price_table(),
        last_close=price_table(),
        last_day=torch.empty(investable, dtype=torch.int64, device=device),
        investable=torch.empty(investable, dtype=torch.int64, device=device),
        share_rate=rate_table(),
        impact_rate=rate_table(),
    )


def _investable_columns(feature: np.ndarray, panel: Panel) -> np.ndarray:
    return np.ascontiguousarray(feature[:, panel.investable], dtype=np.float32)


def last_usable_closes(close: np.ndarray) -> np.ndarray:
    """Fill each row with the last close up to it that is not NaN; 0 before the first. [T, K] -> [T, K]."""
    return fill_holes(close).astype(np.float32)


def last_usable_rows(usable: np.ndarray) -> np.ndarray:
    """Return the last usable row of each column; -1 for a column without a usable row. [T, K] -> [K]."""
    # argmax of reversed booleans gives the distance of the last True from the end.
    last_row = len(usable) - 1 - np.argmax(usable[::-1], axis=0)
    return np.where(usable.any(axis=0), last_row, -1).astype(np.int64)
