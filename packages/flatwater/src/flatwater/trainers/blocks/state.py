"""The state that PPO on blocks keeps between steps, with a teacher or without, and how it is built."""

import inspect
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.config import TeachingConfig
from flatwater.algorithms.ppo import build, step_columns
from flatwater.envs.world import PADDING, Spaces
from flatwater.envs.wrapped.spaces import read_space
from flatwater.named_imports import find_object
from flatwater.nets.actions import Actions, ContinuousActions, DiscreteActions, MultiDiscreteActions
from flatwater.nets.actor_critic import ActorCritic, Scaling
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.images import NETWORKS
from flatwater.nets.module_encoder import ModuleEncoder, shipped_encoder, try_module
from flatwater.nets.observation import count_numbers
from flatwater.rollouts.block import ColumnSpec, build_rollout
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import generator
from flatwater.state.tree import state
from flatwater.trainers.blocks.config import BlocksConfig, OpponentsConfig
from flatwater.trainers.blocks.opponents import EARLIER, EarlierPolicies, build_earlier
from flatwater.trainers.blocks.rewards import build_reward_scale
from flatwater.trainers.episodes import Episodes, build_episodes
from flatwater.trainers.logged import OWN, LoggedNumbers, build_logged
from flatwater.trainers.loop import Progress
from flatwater.trainers.on_policy import OnPolicySetup, OnPolicyState
from flatwater_watch.errors import ConfigError, require

CPU = torch.device("cpu")
POLICY, STUDENT, TEACHER, RANDOM = ("policy", "student", "teacher", "random")
"""Players of the held-out episodes: the trained player (a policy, or the student of a teacher), and others."""
COMING, HELD = "coming", "held out"
"""Masks of legal actions: of the row after a block's last, and of the held-out world."""
CONSUMERS = ("world seeds", "lead", "teacher", "held out teacher", "random")
"""Consumers of random numbers on the CPU, where worlds and teachers are."""
DRAWERS = ("actions", "held out actions")
"""Consumers of random numbers on the network's device."""


@state
class HeldOutEpisodes:
    """Episodes that nobody learns from, in a world of their own: the same seeds for every player."""

    episodes: Episodes
    obs: Tensor
    """Present observations, [B, *obs]."""
    memory: Float[Tensor, "2 B M"]
    done: Bool[Tensor, "E"]
    """Environments whose one episode has ended; later steps do not count."""
    scores: dict[str, Float[Tensor, "B"]]
    """Return of each agent in the last evaluation, by player; NaN before it."""


@state
class BlocksState(OnPolicyState):
    """The root of the state tree; the world writes `obs`, `reward`, `terminated` and `truncated` of the rollout."""

    coming: Tensor
    """Observations after the block's last step, and in the next block's first, [B, *obs]."""
    legal: dict[str, Bool[Tensor, "B R"]]
    """Masks of legal actions, where there are masks: after the block (`coming`), and in the held-out episodes."""
    starts: Bool[Tensor, "B"]
    """Whether the next step is the first of an episode."""
    led: Bool[Tensor, "B"]
    """Agents whose teacher's actions are executed in this block; all False without a teacher."""
    episodes: Episodes
    held_out: HeldOutEpisodes
    ended: Float[Tensor, "3"]
    """Sums since the last reading, float64: agents' episodes that ended, their returns, and, with a teacher, steps that
    were led, or without one the steps of those episodes."""
    logged: dict[str, LoggedNumbers]
    """Numbers of the user's own; no entry where none are wanted."""
    reward_scale: dict[str, Tensor]
    """Statistics by which rewards are divided; empty if they are read as they are."""
    opponents: dict[str, EarlierPolicies]
    """Opponents in a game in turns; empty in other environments."""
    agent_steps: int = 0
    """Steps of single agents since the run began."""


@dataclass(frozen=True)
class BlocksSetup(OnPolicySetup):
    """Constants of a run in worlds."""

    config: BlocksConfig
    spaces: Spaces
    held_out: Spaces
    """Spaces of the world of held-out episodes."""
    reported: bool = False
    """Whether numbers of finished episodes are wanted."""
    opponents: OpponentsConfig | None = None
    """Settings of opponents in a game in turns; None in other environments."""

    @property
    def has_teacher(self) -> bool:
        """Whether there is a teacher."""
        return isinstance(self.config.learner, TeachingConfig)

    @property
    def players(self) -> tuple[str, ...]:
        """Players of the held-out episodes, the trained player first."""
        return (STUDENT, TEACHER, RANDOM) if self.has_teacher else (POLICY, RANDOM)

    @property
    def agents(self) -> int:
        """Agents of all environments together, B."""
        return self.spaces.envs * self.spaces.agents

    @cached_property
    def network(self) -> ActorCritic:
        """The network for the world's spaces.

        Raises:
            ConfigError: the network is to be compiled, and would not be resumed bit for bit.
        """
        learner = self.config.learner
        # Set for acting as well: a policy must act in the precision that it learns in.
        network = build_actor_critic(self.spaces, self.config.policy, self.device)
        network = replace(network, autocast_bfloat16=learner.autocast == "bf16")
        # Measured: compiled, a resumed run of a module ended with other last bits than an uninterrupted run.
        refused = learner.compile and network.encoder is not None
        expected = "off with a network of images or of your own, whose compiled run would not be resumed bit for bit"
        require(not refused, "learner.compile", learner.compile, expected)
        return network


def build_actor_critic(spaces: Spaces, config: ActorCriticConfig, device: torch.device) -> ActorCritic:
    """Return the network for a world's observations and actions."""
    measures = spaces.measures if config.observations == "stretched" else ()
    if config.observations == "normalised" and spaces.form != "tokens":
        measures = tuple(range(count_numbers(spaces.parts)))
    scaling: Scaling = "deviations" if config.observations == "normalised" and measures else "logarithms"
    network = ActorCritic(spaces.obs, policy_actions(spaces, device), PADDING, config, device, measures, scaling)
    if ":" in config.network:
        network = replace(network, encoder=own_encoder(config.network, spaces))
        return network if scaling == "deviations" else replace(network, scaling="none", measures=())
    require(
        config.network in NETWORKS, "policy.network", config.network, f"{', '.join(NETWORKS)} or package.module:Class"
    )
    encoder = shipped_encoder(spaces.parts, config.network) if spaces.form == "image" else None
    return replace(network, encoder=encoder)


def own_encoder(name: str, spaces: Spaces) -> ModuleEncoder:
    """Return the encoder by a module of the user's.

    Args:
        name: `package.module:Class`.
        spaces: spaces of the world whose observations the network reads.

    Raises:
        ConfigError: `name` names no such class, or its modules cannot read observations.
        UserCodeError: the class raised.
    """
    what = f"policy.network = {name!r}"
    if spaces.form == "tokens":
        raise ConfigError(f"{what}: expected observations of numbers or images, got tokens. Leave out wrapped.form")
    build = find_object(name, setting=f"{what}: it", expected="package.module:Class of a torch.nn.Module")
    space = read_space(spaces.parts)
    if not callable(build):
        raise ConfigError(f"{what}: expected a class of torch.nn.Module, got a {type(build).__name__}")
    try:
        inspect.signature(build).bind(space)
    except TypeError as error:
        raise ConfigError(f"{what}: cannot be called with the observation space alone: {error}") from error
    return try_module(lambda: build(space), f"network {name}", spaces.parts)


def policy_actions(spaces: Spaces, device: torch.device) -> Actions:
    """Return the kind of actions that the policy's outputs describe."""
    if spaces.bounds is not None:
        return ContinuousActions(spaces.bounds, device)
    return DiscreteActions(len(spaces.actions)) if spaces.choices is None else MultiDiscreteActions(spaces.choices)


def build_blocks(setup: BlocksSetup) -> BlocksState:
    """Allocate a run whole. On the meta device this is its plan.

    Columns lie where the world is, on the CPU; the network, its moments and its memory on the network's device.
    """
    config, spaces, device = setup.config, setup.spaces, setup.device
    host = device if device.type == "meta" else CPU  # worlds and teachers compute on the CPU
    agents, columns = setup.agents, rollout_columns(setup)
    kind = columns["obs"].dtype
    zeros, network_zeros = (partial(filled_tensor, 0, device=place) for place in (host, device))
    cells = config.policy.memory

    others = setup.held_out.envs * setup.held_out.agents
    learner = build(
        setup.network,
        sequences=agents * config.block // config.learner.unroll,
        rng=generator(config.seed, "initial weights", device),
        device=device,
        has_teacher=setup.has_teacher,
        target_kl=config.learner.target_kl,
    )
    return BlocksState(
        progress=Progress(),
        learner=learner,
        rollout=build_rollout(columns, steps=config.block, batch=agents, device=host),
        coming=zeros(agents, *spaces.obs, dtype=kind),
        legal={
            name: zeros(count, spaces.legal, dtype=torch.bool)
            for name, count in ((COMING, agents), (HELD, others))
            if spaces.masked
        },
        starts=zeros(agents, dtype=torch.bool),
        led=zeros(agents, dtype=torch.bool),
        memory=network_zeros(2, agents, cells),
        begun=network_zeros(config.block // config.learner.unroll, 2, agents, cells),
        episodes=build_episodes(spaces, host),
        held_out=HeldOutEpisodes(
            episodes=build_episodes(setup.held_out, host),
            obs=zeros(others, *spaces.obs, dtype=kind),
            memory=network_zeros(2, others, cells),
            done=zeros(setup.held_out.envs, dtype=torch.bool),
            scores={name: zeros(others).fill_(torch.nan) for name in setup.players},  # NaN: not measured
        ),
        ended=zeros(3, dtype=torch.float64),
        reward_scale=build_reward_scale(agents, host) if config.rewards == "normalised" else {},
        opponents={} if setup.opponents is None else {EARLIER: build_earlier(setup.opponents, learner)},
        generators={name: generator(config.seed, name, host) for name in CONSUMERS}
        | {name: generator(config.seed, name, device) for name in DRAWERS},
        logged={OWN: build_logged(host)} if setup.reported else {},
    )


def rollout_columns(setup: BlocksSetup) -> dict[str, ColumnSpec]:
    """Return the columns of a step: those that the world writes, the policy's, and those made of both."""
    spaces = setup.spaces
    world_columns = {
        "obs": ColumnSpec(spaces.obs, torch.float32 if spaces.obs_type is np.float32 else torch.uint8),
        "reward": ColumnSpec(),
        "terminated": ColumnSpec((), torch.bool),
        "truncated": ColumnSpec((), torch.bool),
    }
    return world_columns | step_columns(
        ColumnSpec(spaces.action_shape, spaces.action_dtype), legal=spaces.legal, has_teacher=setup.has_teacher
    )
