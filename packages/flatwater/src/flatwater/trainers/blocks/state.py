"""The state that PPO on blocks keeps between steps, with a teacher or without, and how it is built."""

import inspect
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.learner import build_learner, step_columns
from flatwater.algorithms.on_policy_config import TeachingConfig
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
AFTER_BLOCK, HELD_OUT_WORLD = "coming", "held out"
"""Keys of `BlocksState.legal`: masks of the step after a block's last, and of the held-out world."""
EPISODES, RETURNS, STEPS = range(3)
"""Indices of `BlocksState.ended`."""
CONSUMERS = ("world seeds", "lead", "teacher", "held out teacher", "random")
"""Consumers of random numbers on the CPU, where worlds and teachers are."""
DRAWERS = ("actions", "held out actions")
"""Consumers of random numbers on the network's device."""


@state
class HeldOutEpisodes:
    """Episodes for evaluation, in a world of their own, on the same seeds for every player."""

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
    """The root of the state tree. Worlds write observations, masks and outcomes into its tensors directly."""

    coming: Tensor
    """Observations after the block's last step, which begin the next block, [B, *obs]."""
    legal: dict[str, Bool[Tensor, "B R"]]
    """Masks of legal actions, by `AFTER_BLOCK` and `HELD_OUT_WORLD`; empty in worlds without masks."""
    starts: Bool[Tensor, "B"]
    """Whether the next step is the first of an episode."""
    led: Bool[Tensor, "B"]
    """Agents that the teacher leads in this block: its actions are executed for them. All False without a teacher."""
    episodes: Episodes
    held_out: HeldOutEpisodes
    ended: Float[Tensor, "3"]
    """Sums since the last reading, float64: `EPISODES` of agents that ended, their `RETURNS`, and `STEPS`: those that
    the teacher led, or without a teacher those of the ended episodes."""
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
            ConfigError: the network would be compiled, and would then not be resumed bit for bit.
        """
        learner = self.config.learner
        # Autocast is set in the network, because a policy must act in the precision that it learns in.
        network = build_actor_critic(self.spaces, self.config.policy, self.device)
        network = replace(network, autocast_bfloat16=learner.autocast == "bf16")
        # Measured: a compiled run of a module, resumed, had other last bits than an uninterrupted run.
        may_compile = network.encoder is None
        expected = "off with a network of images or of your own, whose compiled run would not be resumed bit for bit"
        require(may_compile or not learner.compile, "learner.compile", learner.compile, expected)
        return network


def build_actor_critic(spaces: Spaces, config: ActorCriticConfig, device: torch.device) -> ActorCritic:
    """Return the network for a world's observations and actions."""
    measures, scaling = _observation_scaling(spaces, config)
    network = ActorCritic(spaces.obs, policy_actions(spaces, device), PADDING, config, device, measures, scaling)
    if ":" in config.network:
        network = replace(network, encoder=own_encoder(config.network, spaces))
        # The user's module reads numbers as they are, unless they are normalised.
        return network if scaling == "deviations" else replace(network, scaling="none", measures=())
    require(
        config.network in NETWORKS, "policy.network", config.network, f"{', '.join(NETWORKS)} or package.module:Class"
    )
    encoder = shipped_encoder(spaces.parts, config.network) if spaces.form == "image" else None
    return replace(network, encoder=encoder)


def _observation_scaling(spaces: Spaces, config: ActorCriticConfig) -> tuple[tuple[int, ...], Scaling]:
    """Return the positions of the numbers that need running statistics, and the scale on which numbers are read."""
    if config.observations == "plain":
        return (), "none"
    if config.observations == "stretched":
        return spaces.measures, "logarithms"
    if config.observations == "normalised" and spaces.form != "tokens":
        measures = tuple(range(count_numbers(spaces.parts)))
        return measures, "deviations" if measures else "logarithms"
    return (), "logarithms"


def own_encoder(name: str, spaces: Spaces) -> ModuleEncoder:
    """Return an encoder whose module is made by the user's class.

    Args:
        name: `package.module:Class`.
        spaces: spaces of the world whose observations the network reads.

    Raises:
        ConfigError: `name` names no such class, or its modules cannot read observations.
        UserCodeError: the class raised.
    """
    subject = f"policy.network = {name!r}"
    if spaces.form == "tokens":
        raise ConfigError(f"{subject}: expected observations of numbers or images, got tokens. Leave out wrapped.form")
    network_class = find_object(name, setting=f"{subject}: it", expected="package.module:Class of a torch.nn.Module")
    space = read_space(spaces.parts)
    if not callable(network_class):
        raise ConfigError(f"{subject}: expected a class of torch.nn.Module, got a {type(network_class).__name__}")
    try:
        inspect.signature(network_class).bind(space)
    except TypeError as error:
        raise ConfigError(f"{subject}: cannot be called with the observation space alone: {error}") from error
    return try_module(lambda: network_class(space), f"network {name}", spaces.parts)


def policy_actions(spaces: Spaces, device: torch.device) -> Actions:
    """Return the kind of actions of a world: continuous, a single choice, or several choices."""
    if spaces.bounds is not None:
        return ContinuousActions(spaces.bounds, device)
    return DiscreteActions(len(spaces.actions)) if spaces.choices is None else MultiDiscreteActions(spaces.choices)


def build_blocks(setup: BlocksSetup) -> BlocksState:
    """Return the state of a new run. On the meta device it is a plan.

    Tensors that worlds write lie on the CPU; the network, its moments and its memory on the network's device.
    """
    config, spaces, device = setup.config, setup.spaces, setup.device
    host = device if device.type == "meta" else CPU
    agents, held_out_agents = setup.agents, setup.held_out.envs * setup.held_out.agents
    columns = rollout_columns(setup)
    obs_type = columns["obs"].dtype
    zeros, network_zeros = (partial(filled_tensor, 0, device=place) for place in (host, device))
    cells = config.policy.memory
    learner = build_learner(
        setup.network,
        sequences=agents * config.block // config.learner.unroll,
        rng=generator(config.seed, "initial weights", device),
        device=device,
        metrics=setup.algorithm.metrics,
        target_kl=config.learner.target_kl,
        algorithm_state=setup.algorithm.initial_state(config.learner.own),
    )
    return BlocksState(
        progress=Progress(),
        learner=learner,
        rollout=build_rollout(columns, steps=config.block, batch=agents, device=host),
        coming=zeros(agents, *spaces.obs, dtype=obs_type),
        legal={
            name: zeros(count, spaces.legal, dtype=torch.bool)
            for name, count in ((AFTER_BLOCK, agents), (HELD_OUT_WORLD, held_out_agents))
            if spaces.masked
        },
        starts=zeros(agents, dtype=torch.bool),
        led=zeros(agents, dtype=torch.bool),
        memory=network_zeros(2, agents, cells),
        begun=network_zeros(config.block // config.learner.unroll, 2, agents, cells),
        episodes=build_episodes(spaces, host),
        held_out=HeldOutEpisodes(
            episodes=build_episodes(setup.held_out, host),
            obs=zeros(held_out_agents, *spaces.obs, dtype=obs_type),
            memory=network_zeros(2, held_out_agents, cells),
            done=zeros(setup.held_out.envs, dtype=torch.bool),
            scores={name: zeros(held_out_agents).fill_(torch.nan) for name in setup.players},  # NaN: not measured
        ),
        ended=zeros(3, dtype=torch.float64),
        reward_scale=build_reward_scale(agents, host) if config.rewards == "normalised" else {},
        opponents={} if setup.opponents is None else {EARLIER: build_earlier(setup.opponents, learner)},
        generators={name: generator(config.seed, name, host) for name in CONSUMERS}
        | {name: generator(config.seed, name, device) for name in DRAWERS},
        logged={OWN: build_logged(host)} if setup.reported else {},
    )


def rollout_columns(setup: BlocksSetup) -> dict[str, ColumnSpec]:
    """Return the rollout's columns: those that the world writes, and those that the learner adds."""
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
