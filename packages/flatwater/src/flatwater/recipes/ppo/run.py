"""A run of PPO on blocks, with a teacher or without: its worlds, its plan, how it is composed and scored.

Both worlds, for training and for held-out episodes, are built first, as the network depends on their spaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from flatwater.algorithms.compilation import COMPILER_BYTES
from flatwater.algorithms.learner import Learner, forward_step, weight_views
from flatwater.algorithms.on_policy import advance_state_
from flatwater.envs.kinds import agent_rows
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import World, describe_agent, describe_spaces
from flatwater.envs.worlds import build_teacher
from flatwater.envs.wrapped.turns_world import TurnsWorld, replace_opponents
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm
from flatwater.recipes.ppo.config import BlocksRunConfig, PpoRunConfig
from flatwater.recipes.ppo.setting_decisions import decide_settings, decision_notes
from flatwater.runs.config import settings_without_env_workers
from flatwater.runs.machine import find_device
from flatwater.runs.planning import META, Knob, allocate_planned_state, plan_one_process, refuse_unfit, smaller_settings
from flatwater.runs.run import OnPolicyRun
from flatwater.runs.scores import return_rows, score_players
from flatwater.runs.world_run import WorldRun, build_run_world
from flatwater.trainers.blocks.opponents import EARLIER, FIRST
from flatwater.trainers.blocks.round import BlocksTrainer, bind_earlier_, build_trainer, make_policy_update
from flatwater.trainers.blocks.state import (
    RANDOM,
    TEACHER,
    BlocksSetup,
    BlocksState,
    PolicyPart,
    build_blocks,
    policy_parts,
)
from flatwater.trainers.world_trainer import Worlds
from flatwater_watch.errors import require
from flatwater_watch.meters.torch_ops import peak_bytes

AGAINST_FIRST = "against_first"
"""Row of a result with the policy's return against the first of its earlier policies."""
KNOBS = (
    # A multiple of the minibatches, so that the sequences are still dealt evenly.
    Knob("envs", "rollout", unit=lambda config: config.learner.own.minibatches),
    Knob("block", "rollout"),
    Knob("policy.rows", "learner", least=lambda _: 2),
)


@dataclass(frozen=True)
class BlocksRun(OnPolicyRun, WorldRun):
    """A world and a policy, with a teacher or without, ready to train or to be restored."""

    config: BlocksRunConfig
    trainer: BlocksTrainer

    def describe(self) -> str:
        """Return the world and its agents in one line."""
        opponents = self.trainer.setup.opponents
        opponents_text = f", against random play and {opponents.policies} earlier policies" if opponents else ""
        learner = self.config.learner
        algorithm = "" if learner.is_shipped else f", by {learner.place}"
        return f"{self.world_name}: {describe_spaces(self.trainer.setup.spaces)}{opponents_text}{algorithm}"

    def data(self) -> dict[str, Any]:
        """Return the agents' observations and actions as plain values, by which a resume knows the same world."""
        spaces = self.trainer.setup.spaces
        facts: dict[str, Any] = {"agents": spaces.agents, "obs": list(spaces.obs), "actions": list(spaces.actions)}
        if spaces.kinds:
            facts["kinds"] = {kind.name: describe_agent(kind.spaces) for kind in spaces.kinds}
        if spaces.choices is not None:
            facts["choices"] = list(spaces.choices)
        if spaces.masked:
            facts["masked"] = True
        return facts if spaces.bounds is None else facts | {"bounds": [list(bound) for bound in spaces.bounds]}

    def build_world(self, envs: int) -> World:
        """Return a new world of this run's kind."""
        world = build_run_world(settings_without_env_workers(self.config), envs, self.config.foraging)
        return bind_earlier_(world, self.trainer.setup, self.trainer.run)

    @cached_property
    def learners(self) -> Sequence[Learner]:
        """Learner of each policy."""
        return [part.learner for part in policy_parts(self.trainer.setup, self.trainer.run)]

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about all numbers but those of evaluations, as an environment may pay NaN there."""
        return super().alarms(round_, {name: x for name, x in metrics.items() if not name.startswith("evaluation/")})

    def pace(self, efforts: Mapping[str, Any]) -> Mapping[str, float]:  # noqa: ARG002  (the trainer has its own)
        """Return nothing: the trainer counts agents' steps itself, as `train/sps`."""
        return {}

    def record(self) -> Mapping[str, Any]:
        """Return each environment's episode: its seed, its steps, and its agents' mean return so far."""
        episodes = self.trainer.run.episodes
        return {
            "seed": episodes.seeds.tolist(),
            "steps": episodes.steps.tolist(),
            "return": episodes.returns.mean(1).tolist(),
        }

    @property
    def rows(self) -> Mapping[str, str]:
        """Player by the name of its row in a result: each under its own name."""
        return {name: name for name in self.trainer.setup.players}

    def facts(self, split: str) -> dict[str, Any]:
        """Return the facts of a result: seeds, agents, how long the policy has learned, and its opponents' number."""
        facts: dict[str, Any] = {
            "first_seed": FIRST_SEEDS[split],
            "agents": self.trainer.setup.held_out.agents,
            "blocks": self.trainer.progress.round,
            "agent_steps": self.trainer.run.agent_steps,
        }
        if not self.config.learner.is_shipped:
            facts["algorithm"] = self.config.learner.place
        earlier = self.trainer.run.opponents.get(EARLIER)
        return facts if earlier is None else facts | {"opponents": earlier.taken_count}

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return all players' returns, and the trained policy's as shares of the others'.

        In a game in turns all of them play against random actions; a further row has the policy's return against the
        first of its earlier policies.
        """
        result = super().score(holdout=holdout)
        trained_player, players = next(iter(self.rows)), result["players"]  # the trained policy is the first player
        # Each kind of agents, and each agent of a kind of several; none where all agents are of one kind.
        for part, _ in agent_rows(self.trainer.setup.held_out):
            players[f"{trained_player}/{part}"]["times_random"] = _share(
                players, f"{trained_player}/{part}", f"{RANDOM}/{part}"
            )
        earlier = self.trainer.run.opponents.get(EARLIER)
        if earlier is not None and earlier.count:  # a game in turns, and a policy was kept
            # A seed of a game in turns has the opponent's number too: the same episodes, against another opponent.
            first_seed = int(replace_opponents(np.array(result["first_seed"]), FIRST))
            players |= return_rows(
                score_players(self.trainer, rows={AGAINST_FIRST: trained_player}, first_seed=first_seed)
            )
        for key, name in (("of_teacher", TEACHER), ("times_random", RANDOM)):
            if name in players:
                players[trained_player][key] = _share(players, trained_player, name)
        return result


def _share(players: Mapping[str, Mapping[str, Any]], own: str, other: str) -> float | None:
    """Return a player's return as a share of another's; None if the other's is 0, or one of them is not finite."""
    own_return, other_return = players[own]["return"], players[other]["return"]  # None: not finite
    return own_return / other_return if other_return and own_return is not None else None


def build_worlds(config: BlocksRunConfig) -> Worlds:
    """Return a world for training and one for held-out episodes; no episode is begun in them."""
    training = build_run_world(config, config.envs, config.foraging)
    return Worlds(training, build_run_world(config, config.evaluation.envs, config.foraging))


def setup_blocks(config: BlocksRunConfig, worlds: Worlds, device: torch.device) -> BlocksSetup:
    """Return the constants of a run in these worlds.

    Raises:
        ConfigError: minibatches of the agents' sequences cannot have one size.
    """
    training, held_out = worlds.training.spaces, worlds.held_out.spaces
    # Checked here and not with the settings: only the world knows its number of agents.
    minibatches, per_agent = config.learner.own.minibatches, config.block // config.learner.unroll
    # The agents of each policy in all environments: a policy for each kind of agents, or one for all.
    kind_counts = [training.envs * len(kind.places) for kind in training.kinds]
    for agents in kind_counts or [training.envs * training.agents]:
        sequences = agents * per_agent
        # The largest number, up to the setting, that deals all sequences evenly, for the message.
        divisor = max(number for number in range(1, min(minibatches, sequences) + 1) if sequences % number == 0)
        expected = f"a divisor of {sequences}, such as {divisor}: {agents} agents have {per_agent} sequences each"
        require(sequences % minibatches == 0, f"{config.learner.table}.minibatches", minibatches, expected)
    is_turns_game = isinstance(worlds.training, TurnsWorld)
    # Checked by the settings and not by the world: a plan's worlds are built without processes.
    expected = "0 for a game in turns, whose opponents are earlier policies of the run"
    require(not (is_turns_game and config.env_workers), "env_workers", config.env_workers, expected)
    opponents = config.opponents if is_turns_game and isinstance(config, PpoRunConfig) else None
    return BlocksSetup(
        config, device, spaces=training, held_out=held_out, reported=config.reports_episodes, opponents=opponents
    )


def plan_blocks(config: BlocksRunConfig, worlds: Worlds, device: torch.device) -> Plan:
    """Return the plan of a run; it does not count simulators, whose libraries allocate their memory.

    Args:
        config: configuration of the run; `budget` is taken from it.
        worlds: worlds that were built for it.
        device: device of the run, whose memory counts.
    """

    def build(config_to_plan: BlocksRunConfig) -> tuple[BlocksSetup, BlocksState]:
        """Return setup and state on the meta device, in the worlds of the run if the settings are its own."""
        own_worlds = worlds if config_to_plan is config else build_worlds(config_to_plan)
        setup = setup_blocks(config_to_plan, own_worlds, META)
        return setup, build_blocks(setup)

    # The policies of several kinds of agents are one owner.
    knobs = [replace(knob, owner="kinds") for knob in KNOBS] if worlds.training.spaces.kinds else KNOBS
    plan = plan_one_process(
        config, device, build, measure_phase_peaks_, smaller_settings(settings_without_env_workers(config), knobs)
    )
    compiler_bytes = COMPILER_BYTES if config.learner.compile and device.type == "cpu" else 0
    notes = (*plan.notes, *decision_notes(config, worlds.training.spaces))
    return replace(plan, base_bytes=plan.base_bytes + compiler_bytes, notes=notes)


def measure_phase_peaks_(setup: BlocksSetup, run: BlocksState) -> dict[str, int]:
    """Return the peak temporary bytes of each phase, counted on the meta device.

    Takes an update of `run`: pass a state that is thrown away.
    """

    def measure_step(part: PolicyPart, memory: torch.Tensor) -> int:
        """Return the peak bytes of a step of the policy, for as many agents as the memory has."""
        network, obs_column = part.setup.network, part.rollout["obs"]
        weights, agents = weight_views(network, part.learner), memory.shape[1]
        obs = obs_column.new_empty(agents, *obs_column.shape[2:])

        def step_policy() -> None:
            starts = torch.zeros(agents, dtype=torch.bool, device=META)
            forward_step(network, weights, obs=obs, memory=memory, starts=starts)

        return peak_bytes(step_policy)

    def learn_round_(part: PolicyPart) -> None:
        """Take a round's first update, and the change of the algorithm's state that follows its last update."""
        make_policy_update(part, run)(0)  # the first update, which also computes the advantages
        # The last update merges the observations' statistics besides, which takes no more than an update.
        advance_state_(part.setup.algorithm, part.setup.config.learner, part.learner, part.rollout)

    parts = policy_parts(setup, run)
    # The largest policy counts: of several, one acts or learns after the other.
    step_bytes = max(measure_step(part, part.held_out_memory) for part in parts)
    return {
        "baselines": step_bytes,
        "collect": max(measure_step(part, part.memory) for part in parts),
        "update": max(peak_bytes(partial(learn_round_, part)) for part in parts),
        "evaluate": step_bytes,
    }


def allocate(config: BlocksRunConfig, worlds: Worlds, device: torch.device) -> tuple[Plan, BlocksSetup, BlocksState]:
    """Return the plan of a run that fits, its constants, and its state, allocated whole.

    Raises:
        MemoryLimitError: the plan does not fit the budget, and the settings do not ask to start anyway.
    """
    plan = plan_blocks(config, worlds, device)
    refuse_unfit(plan, config)
    setup = setup_blocks(config, worlds, device)
    return plan, setup, allocate_planned_state(lambda: build_blocks(setup), plan)


def compose(config: PpoRunConfig) -> BlocksRun:
    """Build the worlds and allocate the run whole."""
    device, worlds = find_device(config.device), build_worlds(config)
    config = decide_settings(config, worlds.training.spaces)
    plan, setup, run = allocate(config, worlds, device)
    random = build_teacher(RANDOM, worlds.held_out, run.generators["random"])
    trainer = build_trainer(setup, run, worlds, teacher=None, other_players={RANDOM: random})
    return BlocksRun(config, plan, trainer)


def plan(config: PpoRunConfig) -> Plan:
    """Return the plan of a run."""
    worlds = build_worlds(settings_without_env_workers(config))
    return plan_blocks(decide_settings(config, worlds.training.spaces), worlds, find_device(config.device))
