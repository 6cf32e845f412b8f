"""Observations: chosen features, scaled by the statistics of training days, with 0 where anything is missing.

Mean and deviation are taken per column and feature over training days alone, so that nothing of validation or holdout
reaches an agent through the scale. Both functions work in blocks of columns: the temporaries are a few megabytes,
whatever the size of the panel.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.panel.panel import Panel, feature_number

OBSERVATION_LIMIT = 10.0
"""Normalised values are clipped to +-10 deviations: one bad print must not swamp a network's inputs."""

_BLOCK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Statistics:
    """Mean and deviation of each column and feature over the training days."""

    mean: np.ndarray
    """[N, F'] float64; 0 where the column has no value on those days."""
    deviation: np.ndarray
    """[N, F'] float64, of the population (divided by the count); 1 where it is 0.

    Infinite where the column has no value on the training days: no scale is known for it, so it is observed as 0,
    which is what a missing column is. (A deviation of 1 would show a share that was listed later as clipped to 10.)
    """


def statistics(panel: Panel, features: tuple[str, ...], days: range | slice) -> Statistics:
    """Mean and deviation of `features` over `days` (rows 0 to the end of training), summed in float64.

    Raises:
        DataError: a feature is not in the panel.
    """
    start, stop, _ = days.indices(len(panel.dates)) if isinstance(days, slice) else (days.start, days.stop, 1)
    rows = slice(start, stop)
    mean = np.zeros((len(panel.instruments), len(features)))
    deviation = np.ones_like(mean)
    for columns, block in _blocks(panel, features, rows):
        known = np.isfinite(block)
        count = known.sum(axis=0)
        np.copyto(block, 0.0, where=~known)
        mean[columns] = block.sum(axis=0) / np.maximum(count, 1)
        np.subtract(block, mean[columns], out=block)
        np.copyto(block, 0.0, where=~known)
        np.square(block, out=block)
        spread = np.sqrt(block.sum(axis=0) / np.maximum(count, 1))
        # Sums of a constant float32 are exact in float64, so a constant column's deviation is 0 and no rounding error.
        deviation[columns] = np.where(spread > 0, spread, 1.0)
    return Statistics(mean=mean, deviation=deviation)


def observation_panel(
    panel: Panel,
    features: tuple[str, ...],
    stats: Statistics,
    out: Float[Tensor, "N T F"],
) -> None:
    """Write (value - mean) / deviation into `out`, clipped to +-`OBSERVATION_LIMIT`, and 0 where a value is missing.

    Args:
        panel: the market.
        features: their names, in the order of the last axis.
        stats: from `statistics`, for the same features.
        out: written in place; on any device.

    Raises:
        DataError: a feature is not in the panel.
        ValueError: `out` is not a contiguous float32 [N, T, F'] block.
    """
    shape = (len(panel.instruments), len(panel.dates), len(features))
    if tuple(out.shape) != shape or out.dtype != torch.float32 or not out.is_contiguous():
        raise ValueError(f"out is {out.dtype} {tuple(out.shape)}: wanted contiguous float32 {shape}")
    for columns, block in _blocks(panel, features, slice(0, len(panel.dates))):
        np.subtract(block, stats.mean[columns], out=block)
        np.divide(block, stats.deviation[columns], out=block)
        np.nan_to_num(block, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        np.clip(block, -OBSERVATION_LIMIT, OBSERVATION_LIMIT, out=block)
        out[columns].copy_(torch.from_numpy(block).transpose(0, 1))


def _blocks(panel: Panel, features: tuple[str, ...], rows: slice) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of columns as fresh float64 [rows, columns, F'], NaN where the value or the day's close is missing."""
    numbers = [feature_number(panel.features, name) for name in features]
    row_bytes = max(1, (rows.stop - rows.start) * len(features) * 8)
    width = max(1, _BLOCK_BYTES // row_bytes)
    for at in range(0, len(panel.instruments), width):
        columns = slice(at, min(at + width, len(panel.instruments)))
        block = panel.values[rows, columns][:, :, numbers].astype(np.float64)
        block[~panel.valid[rows, columns]] = np.nan
        yield columns, block
