"""Observations: chosen features, scaled by the statistics of training days; 0 for a missing value.

Mean and deviation are taken over training days alone, so that no information of validation or holdout reaches an agent
through the scale: for each column and feature; for a feature that is free of scale, over all columns that can be bought
together. A context column (an index, a yield, a spread) is different, as a yield that moves from 0.1 to 0.2 has risen
by 100 %. So it has its own statistics for every feature, and those of the shares do not depend on it. Both functions
work in blocks of columns: temporaries are a few megabytes, whatever the size of the panel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater_trading.panel.features import find_features, observed_features
from flatwater_trading.panel.panel import Panel

OBSERVATION_LIMIT = 10.0
"""Limit of normalised values, in deviations: a single wrong price must not dominate a network's inputs."""

SEPARATE_SCALES = "shares and context columns apart"
"""Name of the scaling. Runs on panels with context columns store it: their weights need the same scaling."""

BLOCK_BYTES = 2 << 20
"""Bytes of the values that are normalised at a time, in double precision."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Statistics:
    """Mean and deviation of each column and feature over the training days; equal in all columns that are pooled."""

    mean: np.ndarray
    """Means [N, F'] float64 of N columns and F' observed features; 0 without a value on those days."""
    deviation: np.ndarray
    """Deviations [N, F'] float64, of the population (divided by the count); 1 in the place of 0.

    Infinite without a value on the training days: such a column is observed as 0, like a missing column. (With a
    deviation of 1 the price of a share that was listed later would be observed as 10, the limit.)
    """


def scale_kind(panel: Panel) -> str | None:
    """Return `SEPARATE_SCALES` for a panel with context columns; None without them, as all scalings agree then."""
    return SEPARATE_SCALES if len(panel.investable) < len(panel.instruments) else None


def training_statistics(panel: Panel, features: tuple[str, ...], stop: int) -> Statistics:
    """Compute mean and deviation of `features` over the rows before `stop`, the end of training, summed in float64.

    Raises:
        DataError: a feature is unknown.
    """
    scale_free = np.array([feature.scale_free for feature in find_features(features, panel.features)])
    # [N, F']: features that are free of scale have one mean and deviation over all columns that can be bought.
    is_pooled = np.isin(np.arange(len(panel.instruments)), panel.investable)[:, None] & scale_free
    shape = (len(panel.instruments), len(features))
    count, total, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for columns, block in _column_blocks(panel, features, stop):
        count[columns] = np.isfinite(block).sum(axis=0)
        total[columns] = np.nansum(block, axis=0)
    pooled_count = _pool_sums(count, is_pooled)
    mean = _pool_sums(total, is_pooled) / np.maximum(pooled_count, 1)
    # A second pass squares differences from the mean, as squares of the values would lose digits.
    for columns, block in _column_blocks(panel, features, stop):
        np.subtract(block, mean[columns], out=block)
        squares[columns] = np.nansum(np.square(block, out=block), axis=0)
    spread = np.sqrt(_pool_sums(squares, is_pooled) / np.maximum(pooled_count, 1))
    # Sums of a constant float32 are exact in float64, so a constant column's deviation is exactly 0.
    deviation = np.where(pooled_count == 0, np.inf, np.where(spread > 0, spread, 1.0))
    return Statistics(mean=mean, deviation=deviation)


def _pool_sums(sums: np.ndarray, is_pooled: np.ndarray) -> np.ndarray:
    """Return sums [N, F'] in which each entry marked in `is_pooled` [N, F'] is the sum over all marked columns."""
    return np.where(is_pooled, np.where(is_pooled, sums, 0).sum(axis=0), sums)


def normalise_panel(panel: Panel, features: tuple[str, ...], stats: Statistics) -> Float[Tensor, "N T F"]:
    """Return (value - mean) / deviation, clipped to +-`OBSERVATION_LIMIT`; 0 for a missing value.

    Args:
        panel: T days of N columns.
        features: names of the features, in the order of the last axis.
        stats: statistics of `training_statistics` for the same features.

    Raises:
        DataError: a feature is not in the panel.
    """
    observations = torch.empty(len(panel.instruments), len(panel.dates), len(features))
    for columns, block in _column_blocks(panel, features, len(panel.dates)):
        np.subtract(block, stats.mean[columns], out=block)
        np.divide(block, stats.deviation[columns], out=block)
        # A missing value becomes 0, which is also the mean.
        np.nan_to_num(block, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        # In place: the block is fresh, and only one is in memory at a time.
        np.clip(block, -OBSERVATION_LIMIT, OBSERVATION_LIMIT, out=block)
        observations[columns].copy_(torch.from_numpy(block).transpose(0, 1))
    return observations


def _column_blocks(panel: Panel, features: tuple[str, ...], stop: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of columns as fresh float64 [rows, columns, F']; NaN if the value or the day's close is missing.

    A block is as wide as `BLOCK_BYTES` allow, at least one column.

    Args:
        panel: T days of N columns.
        features: names of the F' features.
        stop: row after the last row.

    Raises:
        DataError: the panel has no such feature.
    """
    feature_list = find_features(features, panel.features)
    column_bytes = stop * len(features) * 8  # float64
    width = max(1, BLOCK_BYTES // max(1, column_bytes))
    for first in range(0, len(panel.instruments), width):
        columns = slice(first, min(first + width, len(panel.instruments)))
        yield columns, observed_features(panel, feature_list, stop, columns)
