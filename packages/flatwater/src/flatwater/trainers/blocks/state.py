"""The state that PPO on blocks keeps between steps, with a teacher or without, and how it is built."""

import inspect
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from flatwater.algorithms.learner import Learner, build_learner, step_columns
from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.envs.kinds import KindRows
from flatwater.envs.world import PADDING, Array, Spaces
from flatwater.envs.wrapped.spaces import network_input_space
from flatwater.named_imports import find_object
from flatwater.nets.actions import Actions, ContinuousActions, DiscreteActions, MultiDiscreteActions
from flatwater.nets.actor_critic import ActorCritic, Scaling
from flatwater.nets.config import ActorCriticConfig
from flatwater.nets.images import NETWORKS
from flatwater.nets.module_encoder import ModuleEncoder, shipped_encoder, try_module
from flatwater.nets.observation import count_numbers
from flatwater.rollouts.block import ColumnSpec, Rollout, build_rollout
from flatwater.state.allocation import filled_tensor
from flatwater.state.random import generator
from flatwater.state.tree import state
from flatwater.trainers.blocks.config import BlocksConfig, OpponentsConfig
from flatwater.trainers.blocks.opponents import EARLIER, EarlierPolicies, build_earlier
from flatwater.trainers.blocks.rewards import build_reward_scale
from flatwater.trainers.episodes import Episodes, build_episodes
from flatwater.trainers.evaluator import EvaluationEpisodes
from flatwater.trainers.logged_numbers import OWN, LoggedNumbers, build_logged_numbers
from flatwater.trainers.loop import Progress
from flatwater.trainers.on_policy import OnPolicySetup
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
class HeldOutEpisodes(EvaluationEpisodes):
    """Episodes for evaluation, in a world of their own, on the same seeds for every player."""

    memory: Float[Tensor, "2 B M"]
    scores: dict[str, Float[Tensor, "B"]]
    """Return of each agent in the last evaluation, by player; NaN before it."""


@state
class BlocksState:
    """The root of the state tree, but for the policies. Worlds write observations, masks and outcomes into it."""

    progress: Progress
    coming: Tensor
    """Observations after the block's last step, which begin the next block, [B, *obs]; with several kinds of agents
    those after each step."""
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
    opponents: dict[str, EarlierPolicies]
    """Opponents in a game in turns; empty in other environments."""
    generators: dict[str, torch.Generator]
    agent_steps: int = 0
    """Steps of single agents since the run began."""


@state
class OnePolicyState(BlocksState):
    """The root of the state tree where one policy acts for all agents."""

    learner: Learner
    rollout: Rollout
    """The block that is learned from."""
    memory: Float[Tensor, "2 B M"]
    """Memory of the policy, on its device."""
    begun: Float[Tensor, "C 2 B M"]
    """Memory before the first step of each of the block's sequences."""
    reward_scale: dict[str, Tensor]
    """Statistics by which rewards are divided; empty if they are read as they are."""


@state
class KindState:
    """The policy of a kind of agents, and the block that it learns from.

    Its fields are those of `OnePolicyState`, which cannot inherit them: classes with slots have a single base.
    """

    learner: Learner
    rollout: Rollout
    memory: Float[Tensor, "2 B M"]
    begun: Float[Tensor, "C 2 B M"]
    reward_scale: dict[str, Tensor]
    held_out_memory: Float[Tensor, "2 B M"]
    """Memory in the held-out episodes."""


@state
class KindsState(BlocksState):
    """The root of the state tree where agents have different spaces: each kind has a policy of its own."""

    kinds: dict[str, KindState]
    """Policies by the name of the kind."""
    agent_returns: Float[Tensor, "A"]
    """Sums of the returns of ended episodes since the last reading, float64, by agent."""


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

    @property
    def held_out_agents(self) -> int:
        """Agents of all held-out environments together."""
        return self.held_out.envs * self.held_out.agents

    @property
    def kind_names(self) -> tuple[str, ...]:
        """Names of the kinds of agents; an empty one where all agents have the same spaces."""
        return tuple(kind.name for kind in self.spaces.kinds) or ("",)

    @cached_property
    def kinds(self) -> "tuple[BlocksSetup, ...]":
        """Setup of each kind of agents, with its own spaces; where all agents have the same, this one alone."""
        if not self.spaces.kinds:
            return (self,)
        return tuple(
            replace(
                self,
                spaces=replace(kind.spaces, envs=self.spaces.envs),
                held_out=replace(kind.spaces, envs=self.held_out.envs),
            )
            for kind in self.spaces.kinds
        )

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
        may_compile = network.encoder is None  # no module, which reads images or is the user's
        expected = "off with a network of images or of your own, whose compiled run would not be resumed bit for bit"
        require(may_compile or not learner.compile, "learner.compile", learner.compile, expected)
        return network


def build_actor_critic(spaces: Spaces, config: ActorCriticConfig, device: torch.device) -> ActorCritic:
    """Return the network for a world's observations and actions: with a shipped or the user's encoder, or with none.

    Raises:
        ConfigError: `policy.network` is unknown, or names no network that can read the observations.
    """
    scaled_positions, scaling = _observation_scaling(spaces, config)
    actions = policy_actions(spaces, device)
    network = ActorCritic(spaces.obs, actions, PADDING, config, device, measures=scaled_positions, scaling=scaling)
    if ":" in config.network:  # package.module:Class of the user's
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
    if config.observations == "stretched":  # only what the environment measures, such as a speed
        return spaces.measures, "logarithms"
    if config.observations == "normalised" and spaces.form != "tokens":
        # All numbers; none in observations of images alone.
        scaled_positions = tuple(range(count_numbers(spaces.parts)))
        return scaled_positions, "deviations" if scaled_positions else "logarithms"
    return (), "logarithms"  # `logs`, and tokens, which have no numbers to normalise


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
    space = network_input_space(spaces.parts)  # Gymnasium's space of what the module reads
    if isinstance(network_class, torch.nn.Module) or not callable(network_class):  # a module can be called as well
        raise ConfigError(
            f"{subject}: expected a class of torch.nn.Module, or a function that makes one for an observation space, "
            f"got a {type(network_class).__name__}"
        )
    try:
        inspect.signature(network_class).bind(space)
    except TypeError as error:
        raise ConfigError(f"{subject}: cannot be called with the observation space alone: {error}") from error
    # Makes the module, and tries it on observations of zeros.
    return try_module(lambda: network_class(space), f"network {name}", spaces.parts)


def policy_actions(spaces: Spaces, device: torch.device) -> Actions:
    """Return the kind of actions of a world: continuous, a single choice, or several choices."""
    if spaces.bounds is not None:
        return ContinuousActions(spaces.bounds, device)
    if spaces.choices is None:  # one list of choices
        return DiscreteActions(len(spaces.actions))
    return MultiDiscreteActions(spaces.choices)


def build_blocks(setup: BlocksSetup) -> BlocksState:
    """Return the state of a new run. On the meta device it has shapes alone, for a memory plan.

    Tensors that worlds write lie on the CPU; the network, its moments and its memory on the network's device.
    """
    config, spaces, device = setup.config, setup.spaces, setup.device
    host = _host(device)
    zeros = partial(filled_tensor, 0, device=host)
    mask_rows = {AFTER_BLOCK: setup.agents, HELD_OUT_WORLD: setup.held_out_agents} if spaces.masked else {}
    # Generators of actions, such as `actions of adversary`.
    drawers = [f"{drawer}{_name_ending(kind)}" for kind in setup.kind_names for drawer in DRAWERS]
    shared_fields: dict[str, Any] = {
        "progress": Progress(),
        "coming": zeros(setup.agents, *spaces.obs, dtype=_obs_dtype(spaces)),
        "legal": {name: zeros(rows, spaces.legal, dtype=torch.bool) for name, rows in mask_rows.items()},
        "starts": zeros(setup.agents, dtype=torch.bool),
        "led": zeros(setup.agents, dtype=torch.bool),
        "episodes": build_episodes(spaces, host),
        "held_out": _build_held_out_episodes(setup),
        "ended": zeros(3, dtype=torch.float64),  # EPISODES, RETURNS, STEPS
        "generators": {name: generator(config.seed, name, host) for name in CONSUMERS}
        | {name: generator(config.seed, name, device) for name in drawers},
        "logged": {OWN: build_logged_numbers(host)} if setup.reported else {},
    }
    if not spaces.kinds:
        policy = _build_policy(setup)
        opponents = {} if setup.opponents is None else {EARLIER: build_earlier(setup.opponents, policy["learner"])}
        return OnePolicyState(**shared_fields, **policy, opponents=opponents)
    kinds = {
        name: KindState(**_build_policy(kind_setup, name), held_out_memory=_build_memory(kind_setup))
        for name, kind_setup in zip(setup.kind_names, setup.kinds, strict=True)
    }
    sums = zeros(spaces.agents, dtype=torch.float64)
    return KindsState(**shared_fields, kinds=kinds, opponents={}, agent_returns=sums)


def _build_held_out_episodes(setup: BlocksSetup) -> HeldOutEpisodes:
    """Return the state of held-out episodes, before the first."""
    host, agents, spaces = _host(setup.device), setup.held_out_agents, setup.held_out
    memory = _build_memory(setup)
    return HeldOutEpisodes(
        episodes=build_episodes(spaces, host),
        obs=filled_tensor(0, agents, *spaces.obs, dtype=_obs_dtype(spaces), device=host),
        # Empty with several policies, as each has its own (`KindState.held_out_memory`).
        memory=memory[..., :0].clone() if spaces.kinds else memory,
        done=filled_tensor(0, spaces.envs, dtype=torch.bool, device=host),
        scores={name: filled_tensor(torch.nan, agents, device=host) for name in setup.players},  # NaN: not measured
    )


def _build_memory(setup: BlocksSetup) -> Tensor:
    """Return the memory of a policy in held-out episodes, zeros [2, B, M]."""
    return filled_tensor(0, 2, setup.held_out_agents, setup.config.policy.memory, device=setup.device)


def _build_policy(setup: BlocksSetup, kind: str = "") -> dict[str, Any]:
    """Return the fields that the state of a policy has, by name: learner, rollout, memory and scale of rewards.

    `kind` is the name of the kind of agents that it acts for; empty if it acts for all agents.
    """
    config, device, agents = setup.config, setup.device, setup.agents
    sequences = config.block // config.learner.unroll  # of each agent, in a block
    zeros = partial(filled_tensor, 0, device=device)
    return {
        "learner": build_learner(
            setup.network,
            sequences=agents * sequences,
            rng=generator(config.seed, f"initial weights{_name_ending(kind)}", device),
            device=device,
            metrics=setup.algorithm.metrics,
            target_kl=config.learner.target_kl,
            algorithm_state=setup.algorithm.initial_state(config.learner.own),
        ),
        "rollout": build_rollout(rollout_columns(setup), steps=config.block, batch=agents, device=_host(device)),
        "memory": zeros(2, agents, config.policy.memory),
        "begun": zeros(sequences, 2, agents, config.policy.memory),
        "reward_scale": build_reward_scale(agents, _host(device)) if config.rewards == "normalised" else {},
    }


def _name_ending(kind: str) -> str:
    """Return the end of a generator's name, such as ` of adversary` for that kind; empty for the empty name."""
    return f" of {kind}" if kind else ""


def _host(device: torch.device) -> torch.device:
    """Return the device of tensors that worlds write: the CPU, or the meta device for a plan."""
    return device if device.type == "meta" else CPU


def _obs_dtype(spaces: Spaces) -> torch.dtype:
    """Return torch's type of an observation's numbers."""
    return torch.float32 if spaces.obs_type is np.float32 else torch.uint8


@dataclass(frozen=True)
class PolicyPart:
    """The policy of a kind of agents in the state tree: what it acts by, and what it learns from."""

    setup: BlocksSetup
    """Constants, with the spaces of these agents."""
    rows: KindRows | None
    """Rows of these agents in the world's arrays; None where all agents are of one kind."""
    progress: Progress
    learner: Learner
    rollout: Rollout
    memory: Tensor
    begun: Tensor
    reward_scale: dict[str, Tensor]
    held_out_memory: Tensor
    action_rng: torch.Generator
    held_out_rng: torch.Generator

    @property
    def name(self) -> str:
        """Name of the kind; empty where it is the only one."""
        return "" if self.rows is None else self.rows.kind.name

    def own_rows(self, rows: Array) -> Array:
        """Return the rows of the policy's agents, [B, ...], from those of all agents, [E, A, ...]."""
        picked_rows = rows if self.rows is None else self.rows.pick(rows)
        return picked_rows.reshape(-1, *picked_rows.shape[2:])

    def own_obs(self, obs: Array) -> Tensor:
        """Return the observations of the policy's agents, [B, *obs], from those of all agents, [E, A, *obs]."""
        return torch.from_numpy(obs if self.rows is None else self.rows.read_obs(obs)).flatten(0, 1)

    def own_legal(self, legal: Array) -> Tensor:
        """Return the masks of the policy's agents, [B, R], from those of all agents, [E, A, R]."""
        return torch.from_numpy(legal if self.rows is None else self.rows.read_legal(legal)).flatten(0, 1)

    def write_actions_(self, own_actions: Array, all_actions: Array) -> None:
        """Write the actions of the policy's agents, [B, *action], into those of all agents, [E, A, *action]."""
        if self.rows is None:  # the policy's agents are all agents
            all_actions[...] = own_actions.reshape(all_actions.shape)
        else:
            by_env = own_actions.reshape(len(all_actions), -1, *own_actions.shape[1:])
            self.rows.write_actions_(all_actions, by_env)


def policy_parts(setup: BlocksSetup, run: BlocksState) -> list[PolicyPart]:
    """Return the policies of a run, one for each kind of agents."""
    parts = []
    training_drawer, held_out_drawer = DRAWERS
    # Where all agents are of one kind, `kinds` is empty, and their only policy is in the root of the state tree.
    kinds = setup.spaces.kinds or (None,)
    for name, kind, kind_setup in zip(setup.kind_names, kinds, setup.kinds, strict=True):
        if isinstance(run, KindsState):
            policy: Any = run.kinds[name]
            held_out_memory = policy.held_out_memory
        else:
            policy, held_out_memory = run, run.held_out.memory
        ending = _name_ending(name)
        parts.append(
            PolicyPart(
                setup=kind_setup,
                rows=None if kind is None else KindRows(kind, setup.spaces),
                progress=run.progress,
                learner=policy.learner,
                rollout=policy.rollout,
                memory=policy.memory,
                begun=policy.begun,
                reward_scale=policy.reward_scale,
                held_out_memory=held_out_memory,
                action_rng=run.generators[f"{training_drawer}{ending}"],
                held_out_rng=run.generators[f"{held_out_drawer}{ending}"],
            )
        )
    return parts


def rollout_columns(setup: BlocksSetup) -> dict[str, ColumnSpec]:
    """Return the form of each column of the rollout: of those that the world writes, and of the learner's."""
    spaces = setup.spaces
    world_columns = {
        "obs": ColumnSpec(spaces.obs, _obs_dtype(spaces)),
        "reward": ColumnSpec(),
        "terminated": ColumnSpec((), torch.bool),
        "truncated": ColumnSpec((), torch.bool),
    }
    return world_columns | step_columns(
        ColumnSpec(spaces.action_shape, spaces.action_dtype), legal=spaces.legal, has_teacher=setup.has_teacher
    )
