"""The rollout: T steps of B environments, side by side, as one tensor per column.

It is allocated whole before the first step, and each round overwrites the round before. A row of a column, such as
`rollout["obs"][t]`, is a view, into which an environment can write its observations directly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state


@dataclass(frozen=True)
class ColumnSpec:
    """Form of one environment's value in one step."""

    shape: tuple[int, ...] = ()
    """Shape without the axes of time and batch; () for one number."""
    dtype: torch.dtype = torch.float32


@state
class Rollout:
    """Steps of a block, allocated whole by `build_rollout`; `write_step_` writes one step in place."""

    columns: dict[str, Tensor]
    """Columns by name, each [T, B, *shape]."""

    def __getitem__(self, name: str) -> Tensor:
        """Return a column, [T, B, *shape]."""
        return self.columns[name]


def build_rollout(columns: Mapping[str, ColumnSpec], *, steps: int, batch: int, device: torch.device) -> Rollout:
    """Return columns [steps, batch, *shape] of zeros. On the meta device they are shapes alone, for a memory plan.

    Args:
        columns: form of a value of each column.
        steps: steps of a block.
        batch: values in each step.
        device: device of the columns.
    """
    zeros = partial(filled_tensor, 0, steps, batch, device=device)
    return Rollout(columns={name: zeros(*column.shape, dtype=column.dtype) for name, column in columns.items()})


def write_step_(rollout: Rollout, t: int, **columns: Tensor) -> None:
    """Copy one step of the named columns, each [B, *shape], to row `t`.

    Raises:
        KeyError: there is no column of a name.
        ValueError: a step has another shape or dtype than its column.
    """
    for name, values in columns.items():
        if name not in rollout.columns:
            raise KeyError(f"{name}: expected one of {', '.join(rollout.columns)}")
        row = rollout.columns[name][t]
        # `copy_` would silently broadcast another shape, and cast another dtype.
        if values.shape != row.shape or values.dtype != row.dtype:
            raise ValueError(
                f"{name}: {values.dtype} {list(values.shape)} does not fit a row of {row.dtype} {list(row.shape)}"
            )
        row.copy_(values)
