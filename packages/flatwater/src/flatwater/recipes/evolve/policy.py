"""The champion of a run, ready for use: observations in, actions out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from flatwater.envs.world import Array
from flatwater.nets.mlp import MLPActor
from flatwater.nets.stack import join_weights, views
from flatwater.recipes.evolve.run import EvolveRun
from flatwater.rundir.layout import RunFolder
from flatwater.runs.portable import Portable, observation_rows
from flatwater_watch.files.content import convert_to

Bounds = tuple[tuple[float, float], ...]


def make_champion(run: EvolveRun, _folder: RunFolder | None = None) -> "Champion":
    """Return the champion of a restored run; it keeps a copy of its weights, and nothing else of the run."""
    setup = run.trainer.setup
    actor = setup.nets.actor
    assert isinstance(actor, MLPActor)  # noqa: S101  (for the type checker: `build_setup` makes no other)
    assert setup.spaces.bounds is not None  # noqa: S101  (same: the recipe takes no other worlds)
    # A copy of one row: the run, with all its members, can be freed.
    return Champion(actor, setup.spaces.bounds, run.trainer.run.learner.actor[-1:].clone())


class ChampionModule(nn.Module):
    """The champion as a module: observations in, actions within their bounds out."""

    weights: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, actor: MLPActor, bounds: Bounds, weights: Float[Tensor, "1 n"]) -> None:
        """Hold weights and bounds as buffers, so that an export has them."""
        super().__init__()
        self._actor = actor
        self.register_buffer("weights", weights)
        low, high = torch.tensor(bounds, dtype=torch.float32, device=weights.device).T
        self.register_buffer("low", low.contiguous())
        self.register_buffer("high", high.contiguous())

    def forward(self, obs: Float[Tensor, "B N"]) -> Float[Tensor, "B A"]:
        """Return the action on each observation; cut to the bounds, which rounding would leave."""
        # An axis of one member in front, and off again.
        action = self._actor(views(self.weights, self._actor.layout), obs[None])[0]
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        return torch.minimum(torch.maximum(action * half + middle, self.low), self.high)


class Champion:
    """The policy of the champion, without noise and without memory."""

    def __init__(self, actor: MLPActor, bounds: Bounds, weights: Float[Tensor, "1 n"]) -> None:
        self._actor, self._bounds, self._weights = actor, bounds, weights
        self._module = ChampionModule(actor, bounds, weights)

    def act(self, obs: Array) -> Array:
        """Return the action on an observation [N], or the actions on several, [B, N]: numbers within their bounds.

        Raises:
            ConfigError: an observation has another shape than in training.
        """
        rows, is_single = observation_rows(obs, (self._actor.obs,))
        batch = torch.from_numpy(np.array(rows, np.float32)).to(self._weights.device)
        with torch.no_grad():
            actions: Array = self._module(batch).cpu().numpy()
        action: Array = actions[0] if is_single else actions
        return action

    def portable(self) -> Portable:
        """Return the champion without its run, to be exported."""
        actor, weights = self._actor, self._weights.cpu()
        return Portable(
            recipe="evolve",
            module=ChampionModule(actor, self._bounds, weights),
            example=lambda rows: (torch.randn(rows, actor.obs, generator=torch.Generator().manual_seed(0)),),
            axes=(0,),
            inputs={"obs": f"float32 [rows, {actor.obs}]"},
            outputs={"action": f"float32 [rows, {actor.action}], within the bounds"},
            meaning={"bounds": [list(bound) for bound in self._bounds]},
            header={
                "obs": actor.obs,
                "hidden": list(actor.hidden),
                "drawn": actor.drawn,
                "bounds": [list(bound) for bound in self._bounds],
            },
            tensors={name: weight[0] for name, weight in views(weights, actor.layout).items()},
        )


@dataclass(frozen=True)
class _ChampionHeader:
    """Facts of an exported champion besides its weights."""

    obs: int
    hidden: tuple[int, ...]
    drawn: bool
    bounds: Bounds


def rebuild_champion(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Champion:
    """Return the champion of a .safetensors file."""
    values = convert_to(dict(header), _ChampionHeader)
    # By the number of bounds: an action has as many numbers.
    actor = MLPActor(values.obs, len(values.bounds), values.hidden, drawn=values.drawn)
    return Champion(actor, values.bounds, join_weights(tensors, actor.layout))
