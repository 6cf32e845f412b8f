"""The champion of a run, ready for use: observations in, actions out."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from flatwater.algorithms.critics import CriticMembers
from flatwater.algorithms.discrete_sac import ChosenValue, draw_choice
from flatwater.algorithms.sac import sample_action
from flatwater.envs.world import Spaces
from flatwater.envs.wrapped.native_spaces import NativeSpaces, find_native_spaces, read_native
from flatwater.nets.actions import bound_tensors, mask_logits, scale_to_bounds
from flatwater.nets.image_values import ImageValues, image_values
from flatwater.nets.mlp import MLPActor, MLPCritic, MLPValues, add_mask
from flatwater.nets.named_weights import NamedWeights
from flatwater.nets.stack import Layout, join_weights, views
from flatwater.recipes.evolve.run import EvolveRun
from flatwater.rundir.layout import RunFolder
from flatwater.runs.export_inputs import example_inputs, program_inputs
from flatwater.runs.policy_export import PolicyExport
from flatwater.runs.trained_policy import TrainedPolicy
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.json_values import convert_to_type


def make_trained_policy(run: EvolveRun, _folder: RunFolder | None = None) -> TrainedPolicy:
    """Return the champion of a restored run; it keeps a copy of its weights, and nothing else of the run.

    The folder is passed to such a function of every recipe; this one needs nothing from it.
    """
    setup, population = run.trainer.setup, run.trainer.run
    learner = population.learner
    actor, critic = setup.nets.actor, setup.nets.critic
    # The last row is the champion's. It is copied, so that the run with all its members can be freed.
    weights = _member_weights(learner.actor[-1:].clone(), actor.layout, prefix="")
    critics = learner.critics if isinstance(learner, CriticMembers) else ()
    for number, rows in enumerate(critics):
        weights |= _member_weights(rows[-1:].clone(), critic.layout, f"{CRITIC}{number}.")
    native = find_native_spaces(run.trainer.evaluator.world)  # None if the world has no spaces of Gymnasium
    return build_champion(actor, setup.spaces, native, weights, allow_nan=run.config.allow_nan)


CRITIC = "critic."
"""Beginning of the names of a critic's weights, before its number."""


def _member_weights(row: Float[Tensor, "1 n"], layout: Layout, prefix: str) -> dict[str, Tensor]:
    """Return the weights of one member by name, without the member axis; each name begins with `prefix`."""
    return {f"{prefix}{name}": weight[0] for name, weight in views(row, layout).items()}


def build_champion(
    actor: MLPActor | MLPValues,
    spaces: Spaces,
    native: NativeSpaces | None,
    weights: Mapping[str, Tensor],
    *,
    allow_nan: bool = False,
) -> TrainedPolicy:
    """Return a champion as a policy without a memory; its actions have no noise unless the caller draws them.

    Args:
        actor: network of the policy as a function.
        spaces: spaces of the world that it was trained in.
        native: spaces of the environment in that world, if it has any.
        weights: weights of the actor by name, and of critics, if any, as `critic.0.` and the name.
        allow_nan: whether it was trained with NaN and infinities in observations.
    """
    module = ChampionModule(actor, spaces, weights)
    build_export = partial(_build_export, module, native, allow_nan=allow_nan)
    return TrainedPolicy(module, spaces, native, build_export, allow_nan=allow_nan)


class ChampionModule(nn.Module):
    """The champion as a module: observations in, actions within their bounds out."""

    cells = 0
    """It remembers nothing."""
    low: Tensor
    high: Tensor

    def __init__(self, actor: MLPActor | MLPValues, spaces: Spaces, weights: Mapping[str, Tensor]) -> None:
        """Hold weights as parameters and bounds as buffers, so that an export has them."""
        super().__init__()
        self.actor, self.spaces, self.net = actor, spaces, NamedWeights(weights, {})
        # `critic.0.` and the name of a weight: the number is the second part.
        self.critics = len({name.split(".")[1] for name in weights if name.startswith(CRITIC)})
        """Number of critics."""
        low, high = bound_tensors(spaces.bounds, next(iter(weights.values())).device)
        self.register_buffer("low", low)
        self.register_buffer("high", high)

    def forward(self, obs: Float[Tensor, "B N"], action_mask: Bool[Tensor, "B A"] | None = None) -> Tensor:
        """Return the action on each observation: the position of a choice [B], or numbers within the bounds [B, A].

        Where actions have masks, choices outside of `action_mask` are not taken; left out, every choice is legal.
        """
        if isinstance(self.actor, MLPValues):
            return self._choice_values(self.actor, obs, action_mask).argmax(-1)
        # Networks have an axis of members; here there is one member.
        return scale_to_bounds(self.actor(self._params(), obs[None])[0], self.low, self.high)

    def act(
        self,
        obs: Tensor,
        memory: Tensor,
        *,
        legal: Tensor | None = None,
        rng: torch.Generator | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return actions, which `rng` draws if the algorithm has a distribution (SAC), and the memory unchanged."""
        if isinstance(self.actor, MLPValues):
            values = self._choice_values(self.actor, obs, legal)
            if rng is None or not self.actor.drawn:
                return values.argmax(-1), memory
            return draw_choice(values.cpu(), rng).to(obs.device), memory
        if rng is None or not self.actor.drawn:
            return self(obs), memory
        mean, log_deviation = self.actor.gaussian(self._params(), obs[None])
        noise = torch.empty(mean.shape).normal_(generator=rng).to(mean.device)
        actions, _log_prob, _random_parts = sample_action(mean, log_deviation, noise)
        return scale_to_bounds(actions[0], self.low, self.high), memory  # of the only member

    def value(self, obs: Tensor, memory: Tensor, *, legal: Tensor | None = None) -> Tensor:  # noqa: ARG002  (there is no memory)
        """Return the value [B] of the action without noise: the smallest of the critics', or the largest Q of DQN.

        Raises:
            ConfigError: there is no critic.
        """
        obs = self._with_mask(obs, legal)
        if isinstance(self.actor, MLPValues) and not self.actor.drawn:
            return self.actor.values(self._params(), obs[None]).amax(-1)[0]
        if not self.critics:
            raise ConfigError("value: the policy has no critic: its algorithm trains none, or its file is an older one")
        critic = matching_critic(self.actor)
        action = self.actor(self._params(), obs[None])
        # `obs[None]`: the axis of members, of which the champion is the only one.
        values = [critic(self._params(f"{CRITIC}{number}."), obs[None], action) for number in range(self.critics)]
        return torch.stack(values).amin(0)[0]

    def _choice_values(self, actor: MLPValues, obs: Tensor, legal: Tensor | None) -> Float[Tensor, "B A"]:
        """Return the actor's numbers of all choices; illegal ones have `IMPOSSIBLE_LOGIT`."""
        return mask_logits(actor.unmasked_values(self._params(), obs[None])[0], legal)

    def _with_mask(self, obs: Tensor, legal: Tensor | None) -> Tensor:
        """Return rows as the network reads them: where actions have masks, with `legal`, or all legal if it is None."""
        if not self.spaces.masked:
            return obs
        all_legal = torch.ones(len(obs), self.spaces.legal, dtype=torch.bool, device=obs.device)
        return add_mask(obs, all_legal if legal is None else legal)

    def _params(self, prefix: str = "") -> dict[str, Tensor]:
        """Return the weights [1, ...] whose names begin with `prefix`, by the rest of the name.

        Left out: all weights, of which the actor reads its own.
        """
        named_weights = self.net.weights_by_name().items()
        return {name.removeprefix(prefix): weight[None] for name, weight in named_weights if name.startswith(prefix)}


def matching_critic(actor: MLPActor | MLPValues) -> MLPCritic | ChosenValue:
    """Return the network of an actor's critics: of the chosen action's value, or of an observation and an action."""
    if isinstance(actor, MLPValues):
        # A critic's numbers are values, and not logits to draw a choice by.
        return ChosenValue(replace(actor, drawn=False))
    return MLPCritic(actor.obs, actor.action, actor.hidden)


def _build_export(module: ChampionModule, native: NativeSpaces | None, *, allow_nan: bool) -> PolicyExport:
    """Return the champion with its weights on the CPU, and the texts and numbers that an exported file needs."""
    actor, spaces = module.actor, module.spaces
    actions, bounds = list(spaces.actions), [list(bound) for bound in spaces.bounds or ()]
    weights = {name: weight.detach().cpu() for name, weight in module.net.weights_by_name().items()}
    image = {"image": [*spaces.obs], "network": actor.network} if isinstance(actor, ImageValues) else {}
    if isinstance(actor, MLPValues):
        choice_facts: dict[str, Any] = {"actions": actions, "duelling": actor.duelling}
        action_text = "int64 [rows], positions in the list"
    else:
        choice_facts, action_text = {}, f"float32 [rows, {actor.action}], within the bounds"
    return PolicyExport(
        recipe="evolve",
        module=ChampionModule(actor, spaces, weights),
        example=lambda rows: example_inputs(spaces, rows, torch.Generator().manual_seed(0)),
        axes=(0, 0) if spaces.masked else (0,),  # rows are axis 0 of the observations and masks
        inputs=program_inputs(spaces),
        outputs={"action": action_text},
        meaning={"bounds": bounds} if bounds else {"actions": actions},
        header={
            "obs": actor.obs,
            **image,
            "hidden": list(actor.hidden),
            "bounds": bounds,
            **choice_facts,
            "masked": spaces.masked,
            "drawn": actor.drawn,
            "critics": module.critics,
            "allow_nan": allow_nan,
            "env": None if native is None else native.header(),
        },
        tensors=weights,
    )


@dataclass(frozen=True)
class _ChampionHeader:
    """Facts of an exported champion besides its weights."""

    obs: int
    hidden: tuple[int, ...]
    drawn: bool
    bounds: tuple[tuple[float, float], ...]
    critics: int = 0
    env: dict[str, Any] | None = None
    actions: tuple[str, ...] = ()
    """Names of the choices, where an action is one."""
    duelling: bool = False
    masked: bool = False
    image: tuple[int, ...] = ()
    """Shape of an observation with images."""
    network: str = ""
    """Network that reads observations with images."""
    allow_nan: bool = False


def rebuild_champion(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> TrainedPolicy:
    """Return the champion of a .safetensors file, from the file's header and its tensors by name."""
    header_fields = convert_to_type(dict(header), _ChampionHeader)
    native = (
        None
        if header_fields.env is None
        else read_native(header_fields.env, header_fields.image or (header_fields.obs,))
    )
    # Actions that are numbers have no names in the file: each is named by its position.
    names = header_fields.actions or tuple(map(str, range(len(header_fields.bounds))))
    form: Literal["image", "vector"] = "image" if header_fields.image else "vector"
    parts = native.reader.parts if header_fields.image and native is not None else ()
    spaces = Spaces(
        envs=1,
        agents=1,
        form=form,
        obs=header_fields.image or (header_fields.obs,),
        actions=names,
        steps=1,
        bounds=header_fields.bounds or None,
        masked=header_fields.masked,
        parts=parts,
    )
    switches = {"duelling": header_fields.duelling, "drawn": header_fields.drawn, "masked": header_fields.masked}
    actor: MLPActor | MLPValues
    if header_fields.image:
        actor = image_values(spaces.parts, header_fields.network, len(names), header_fields.hidden, **switches)
    elif header_fields.actions:
        actor = MLPValues(header_fields.obs, len(names), header_fields.hidden, **switches)
    else:  # an action has as many numbers as there are bounds
        actor = MLPActor(header_fields.obs, len(header_fields.bounds), header_fields.hidden, drawn=header_fields.drawn)
    critic = matching_critic(actor)
    weights = dict(actor.layout.weights)
    for number in range(min(header_fields.critics, len(tensors))):  # a file may claim any number
        weights |= {f"{CRITIC}{number}.{name}": weight for name, weight in critic.layout.weights.items()}
    layout = Layout(weights)
    row = join_weights(tensors, layout)  # all weights of the file in one row, after a check of their shapes
    all_weights = _member_weights(row, layout, prefix="")
    return build_champion(actor, spaces, native, all_weights, allow_nan=header_fields.allow_nan)
