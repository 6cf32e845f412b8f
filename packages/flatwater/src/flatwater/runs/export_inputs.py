"""Observations, and masks of legal actions, as inputs of an exported program: their descriptions, and examples."""

import torch
from torch import Tensor

from flatwater.envs.world import Spaces
from flatwater.envs.wrapped.masks import MASK_KEY
from flatwater.nets.observation import view_numbers


def program_inputs(spaces: Spaces) -> dict[str, str]:
    """Return the name and description of a program's observations, and of its masks where actions have some."""
    obs = {"obs": f"{spaces.obs_type.__name__} [{', '.join(['rows', *map(str, spaces.obs)])}]"}
    if not spaces.masked:
        return obs
    lists = f", the flags of the lists of {', '.join(map(str, spaces.choices))} in a row" if spaces.choices else ""
    return obs | {MASK_KEY: f"bool [rows, {spaces.legal}]: true for each legal action{lists}"}


def example_inputs(spaces: Spaces, rows: int, rng: torch.Generator) -> tuple[Tensor, ...]:
    """Return random observations [rows, *obs], float32 or uint8, and masks [rows, R] where actions have some."""
    return example_observations(spaces, rows, rng), *((example_mask(spaces, rows),) if spaces.masked else ())


def example_observations(spaces: Spaces, rows: int, rng: torch.Generator) -> Tensor:
    """Return random observations [rows, *obs], drawn by `rng`."""
    shape = (rows, *spaces.obs)
    if spaces.form == "vector":
        return torch.randn(shape, generator=rng)
    obs = torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
    if spaces.form == "image":  # the numbers next to images are not random bytes; a view writes them
        numbers = view_numbers(obs.flatten(1), spaces.parts, torch.float32)
        numbers.copy_(torch.rand(numbers.shape, generator=rng))
    return obs


def example_mask(spaces: Spaces, rows: int) -> Tensor:
    """Return random masks, bool [rows, R], with a legal action in each list; the same ones in each call."""
    rng = torch.Generator().manual_seed(1)
    lists = torch.rand(rows, spaces.legal, generator=rng).split_with_sizes([*spaces.lists], 1)
    # The largest number of each list is above its own half.
    return torch.cat([numbers > 0.5 * numbers.amax(1, keepdim=True) for numbers in lists], 1)
