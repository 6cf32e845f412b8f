"""Masks of legal actions as an input of an exported program: its description, and examples."""

import torch
from torch import Tensor

from flatwater.envs.world import Spaces
from flatwater.envs.wrapped.masks import MASK_KEY


def mask_input(spaces: Spaces) -> dict[str, str]:
    """Return the name and description of the masks as a program's input; empty where actions have no masks."""
    if not spaces.masked:
        return {}
    lists = f", the flags of the lists of {', '.join(map(str, spaces.choices))} in a row" if spaces.choices else ""
    return {MASK_KEY: f"bool [rows, {spaces.legal}]: true for each legal action{lists}"}


def example_mask(spaces: Spaces, rows: int) -> Tensor:
    """Return random masks, bool [rows, R], with a legal action in each list; the same ones in each call."""
    rng = torch.Generator().manual_seed(1)
    lists = torch.rand(rows, spaces.legal, generator=rng).split_with_sizes([*spaces.lists], 1)
    # The largest number of each list is above its own half.
    return torch.cat([numbers > 0.5 * numbers.amax(1, keepdim=True) for numbers in lists], 1)
