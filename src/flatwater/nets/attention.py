"""Attention over columns: learned queries weigh the columns of a day, and the weights are reported as importance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Params, Weight, linear

MISSING = -1e9
"""Score of a column without data. Finite, so that a day on which every column is missing gives no NaN."""


def attention_weights(name: str, width: int, heads: int, columns: int = 0) -> dict[str, Weight]:
    """The scores' linear map, [width] to one score per head; and one score per column and head where columns are known.

    Without the latter a column is known by its numbers alone, so that the columns may be any.
    """
    known = {f"{name}.column": Weight((columns, heads), 0)} if columns else {}
    return linear(name, width, heads) | known


def attend(
    params: Params, name: str, tokens: Float[Tensor, "P M N W"], missing: Bool[Tensor, "P M N"]
) -> tuple[Float[Tensor, "P M HW"], Float[Tensor, "P M H N"]]:
    """The columns' summary and the weight of each; a missing column gets none.

    Returns:
        The weighted means of the tokens, one per head, and the weights, which sum to 1 over the columns; to 0 where
        every column is missing.
    """
    bias = params[f"{name}.bias"][:, None, None]
    if (known := params.get(f"{name}.column")) is not None:
        bias = bias + known[:, None]
    scores = torch.matmul(tokens, params[f"{name}.weight"].unsqueeze(1)) + bias
    absent = missing.unsqueeze(-2)
    weights = torch.softmax(scores.transpose(-1, -2).masked_fill(absent, MISSING), dim=-1).masked_fill(absent, 0.0)
    return torch.matmul(weights, tokens).flatten(-2), weights
