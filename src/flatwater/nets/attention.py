"""Attention over columns: learned queries weigh the columns of a day, and the weights are reported as importance."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.nets.stack import Params, Weight, linear

MISSING = -1e9
"""Score of a column without data. Finite, so that a day on which every column is missing gives no NaN."""


def attention_weights(width: int, heads: int) -> dict[str, Weight]:
    """The scores' linear map, [width] to one score per head."""
    return linear("attention", width, heads)


def attend(
    params: Params, tokens: Float[Tensor, "P M N W"], missing: Bool[Tensor, "P M N"]
) -> tuple[Float[Tensor, "P M HW"], Float[Tensor, "P M H N"]]:
    """The market's summary and the weight of each column; a missing column gets none.

    Returns:
        The weighted means of the tokens, one per head, and the weights, which sum to 1 over the columns.
    """
    scores = torch.matmul(tokens, params["attention.weight"].unsqueeze(1))
    scores = scores + params["attention.bias"][:, None, None]
    weights = torch.softmax(scores.transpose(-1, -2).masked_fill(missing.unsqueeze(-2), MISSING), dim=-1)
    return torch.matmul(weights, tokens).flatten(-2), weights
