"""A run of PPO on blocks, composed from its configuration: the worlds, the policy, the phases."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import Teacher, World, describe_spaces
from flatwater.envs.worlds import build_teacher
from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan, refuse
from flatwater.metrics.alarms import Alarm, learner_alarms
from flatwater.recipes.ppo.config import BlocksRunConfig, PpoRunConfig
from flatwater.recipes.ppo.plan import BlocksWorlds, build_run_world, build_worlds, plan_blocks
from flatwater.recipes.ppo.score import as_json, score_policy
from flatwater.runs.config import in_one_process
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned
from flatwater.runs.run import part_efforts
from flatwater.runs.world_run import WorldRun
from flatwater.trainers.blocks.collect import Collector
from flatwater.trainers.blocks.held_out import HeldOutEvaluator
from flatwater.trainers.blocks.round import PARTS, BlocksTrainer, build_trainer, keep_worlds_, rebuild_
from flatwater.trainers.blocks.state import RANDOM, BlocksSetup, BlocksState, build_blocks, build_setup
from flatwater.trainers.profile import Profile


@dataclass(frozen=True)
class BlocksRun(WorldRun):
    """A world and a policy, with a teacher or without, ready to train or to be restored."""

    config: BlocksRunConfig
    plan: Plan
    trainer: BlocksTrainer

    def describe(self) -> str:
        """Return the world and its agents in one line."""
        return f"{self.config.env_name}: {describe_spaces(self.trainer.setup.spaces)}"

    def data(self) -> dict[str, Any]:
        """Return the agents' observations and actions: a world of another version may differ."""
        spaces = self.trainer.setup.spaces
        facts = {"agents": spaces.agents, "obs": list(spaces.obs), "actions": list(spaces.actions)}
        if spaces.choices is not None:
            facts["choices"] = list(spaces.choices)
        if spaces.masked:
            facts["masked"] = True
        return facts if spaces.bounds is None else facts | {"bounds": [list(bound) for bound in spaces.bounds]}

    @property
    def collector(self) -> Collector:
        """What takes the steps of training."""
        return self.trainer.collector

    @property
    def world_name(self) -> str:
        """Name of the environment, from the settings."""
        return self.config.env_name

    def build_world(self, envs: int) -> World:
        """Return a world of so many environments, with the run's settings."""
        return build_run_world(in_one_process(self.config), envs)

    def weights(self) -> Collection[Tensor]:
        """Return policy and critic, and the statistics of observations."""
        return self.trainer.run.learner.weights

    def keep_worlds_(self) -> str:
        """Write the states of both worlds before a checkpoint; return why that cannot be, or nothing."""
        return keep_worlds_(self.trainer)

    def come_back_(self, *, exact: bool) -> str:
        """Bring both worlds and their teachers back; return why the run does not go on bit for bit, or nothing."""
        return rebuild_(self.trainer, exact=exact)

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about numbers and weights that are not finite, and about updates that were left out."""
        config, largest = self.config.learner, float(self.trainer.run.learner.block.abs().max())
        numbers = {name: value for name, value in metrics.items() if not name.startswith("evaluation/")}
        return learner_alarms(
            round_, self.trainer.setup.players[0], largest, numbers, config.epochs * config.minibatches
        )

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of each part of a step of this round."""
        return part_efforts(self.trainer.profile)

    def pace(self, efforts: Mapping[str, Effort]) -> Mapping[str, float]:  # noqa: ARG002  (the trainer has its own)
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

    def live_envs(self) -> int:
        """Return the number of environments of both worlds."""
        setup = self.trainer.setup
        return setup.spaces.envs + setup.held_out.envs

    def too_early(self) -> str:
        """Return why a score would say nothing yet; empty once the policy has learned."""
        player = self.trainer.setup.players[0]
        return "" if self.trainer.progress.round else f"no block has ended yet, so the {player} has learned nothing"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the trained policy's score against random actions, and a teacher, on held-out or holdout episodes."""
        split = "holdout" if holdout else "held-out"
        score = score_policy(self.trainer, FIRST_SEEDS[split])
        return as_json(self.config, self.trainer, score, split)


def allocate(
    config: BlocksRunConfig, worlds: BlocksWorlds, device: torch.device, *, taught: bool
) -> tuple[Plan, BlocksSetup, BlocksState]:
    """Return the plan of a run that fits, its constants, and its state, allocated whole.

    Args:
        config: settings of the run.
        worlds: the training world and that of held-out episodes.
        device: device of the network.
        taught: whether there is a teacher.

    Raises:
        MemoryLimitError: the plan does not fit the budget, and the settings do not ask to start anyway.
    """
    plan = plan_blocks(config, worlds, device, taught=taught)
    # Refused by the plan, before anything of the run is allocated.
    if not config.start_over_budget:
        refuse(plan)
    spaces, reported = (worlds.training.spaces, worlds.held_out.spaces), config.reports_episodes
    setup = build_setup(config, *spaces, device, taught=taught, reported=reported)
    return plan, setup, allocate_planned(lambda: build_blocks(setup), plan)


def bind(
    setup: BlocksSetup, run: BlocksState, worlds: BlocksWorlds, teacher: Teacher | None, others: dict[str, Teacher]
) -> BlocksTrainer:
    """Return the trainer of a state.

    Args:
        setup: constants of the run.
        run: its state tree.
        worlds: the training world and that of held-out episodes.
        teacher: the teacher of each training step; None without one.
        others: players of held-out episodes by name, besides the policy.
    """
    profile = Profile([part for part in PARTS if part != "teacher" or setup.taught])
    collector = Collector(setup, run, worlds.training, teacher, profile)
    return build_trainer(setup, run, collector, HeldOutEvaluator(setup, run, worlds.held_out, others), profile)


def compose(config: PpoRunConfig) -> BlocksRun:
    """Build the worlds and allocate the run whole."""
    device, worlds = find_device(config.device), build_worlds(config)
    plan, setup, run = allocate(config, worlds, device, taught=False)
    random = build_teacher(RANDOM, worlds.held_out, run.generators["random"])
    return BlocksRun(config, plan, bind(setup, run, worlds, None, {RANDOM: random}))


def plan(config: PpoRunConfig) -> Plan:
    """Return the plan of a run."""
    return plan_blocks(config, build_worlds(in_one_process(config)), find_device(config.device), taught=False)
