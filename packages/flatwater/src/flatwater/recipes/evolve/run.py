"""A run of `evolve`, composed from its configuration: the worlds, the networks, the state, the phases."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.envs.world import World, describe_spaces
from flatwater.memory.ledger import Effort
from flatwater.memory.planner import Plan, refuse
from flatwater.metrics.alarms import Alarm, array_alarms, metric_alarms, skipped_steps
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.recipes.evolve.plan import build_run_world, build_worlds, plan_population
from flatwater.recipes.evolve.score import as_json, score_champion
from flatwater.runs.config import in_one_process
from flatwater.runs.machine import find_device
from flatwater.runs.planning import allocate_planned
from flatwater.runs.run import part_efforts
from flatwater.runs.world_run import WorldRun
from flatwater.trainers.evolve.play import PARTS, PopulationCollector
from flatwater.trainers.evolve.round import EvolveTrainer, build_trainer, keep_worlds_, lineage_record, rebuild_
from flatwater.trainers.evolve.state import build_population, build_setup
from flatwater.trainers.evolve.trial import MemberEvaluator
from flatwater.trainers.profile import Profile
from flatwater_watch.forms import count_phrase


@dataclass(frozen=True)
class EvolveRun(WorldRun):
    """A population in its environment, ready to train or to be restored."""

    config: MembersRunConfig
    plan: Plan
    trainer: EvolveTrainer

    def describe(self) -> str:
        """Return members, algorithm and world in one line."""
        config = self.config
        members = count_phrase(config.population.size, "member" if config.population.evolves else "agent")
        return f"{members} ({config.learner.algorithm}) in {config.env}: {describe_spaces(self.trainer.setup.spaces)}"

    def data(self) -> dict[str, Any]:
        """Return the world's observations and actions: a world of another version may differ."""
        spaces = self.trainer.setup.spaces
        actions = {"actions": list(spaces.actions)} if spaces.bounds is None else {}
        return {"obs": list(spaces.obs), "bounds": [list(bound) for bound in spaces.bounds or ()], **actions}

    @property
    def collector(self) -> PopulationCollector:
        """What takes the steps of training."""
        return self.trainer.player

    @property
    def world_name(self) -> str:
        """Name of the environment, from the settings."""
        return self.config.env

    def build_world(self, envs: int) -> World:
        """Return a world of so many environments, with the run's settings."""
        return build_run_world(in_one_process(self.config), envs)

    def weights(self) -> Collection[Tensor]:
        """Return all networks of all members."""
        return self.trainer.run.learner.inherited

    def keep_worlds_(self) -> str:
        """Write the states of both worlds before a checkpoint; return why that cannot be, or nothing."""
        return keep_worlds_(self.trainer)

    def come_back_(self, *, exact: bool) -> str:
        """Bring both worlds back; return why the run does not go on bit for bit, or nothing."""
        return rebuild_(self.trainer, exact=exact)

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about weights and numbers that are not finite, and about steps that were left out."""
        learner, config = self.trainer.run.learner, self.config
        weights = {f"weights/{name}": rows.abs().amax(1).tolist() for name, (rows, _) in learner.trained.items()}
        skipped = {f"member {n}": int(count) for n, count in enumerate(learner.tally.skipped_total.tolist()) if count}
        updates = -(-config.steps // config.learner.train_every) * config.learner.own.updates * len(learner.trained)
        return [
            *array_alarms(round_, weights),
            *metric_alarms(round_, dict(metrics)),
            *skipped_steps(round_, skipped, updates),
        ]

    def parts(self) -> Mapping[str, Effort]:
        """Return the effort of each part of a step of this round."""
        return part_efforts(self.trainer.profile)

    def record(self) -> Mapping[str, Any]:
        """Return the member in each slot."""
        return lineage_record(self.trainer.run)

    def live_envs(self) -> int:
        """Return the number of environments of both worlds."""
        setup = self.trainer.setup
        return setup.spaces.envs + setup.trial.envs

    def too_early(self) -> str:
        """Return why there is no champion yet; empty once a generation has been evaluated."""
        is_trained = not self.config.population.evolves or int(self.trainer.run.lineage.ids[-1]) >= 0
        return "" if is_trained else "no generation has been evaluated yet, so there is no champion"

    def score(self, *, holdout: bool) -> dict[str, Any]:
        """Return the champion's score against random actions, on held-out or holdout episodes."""
        split = "holdout" if holdout else "held-out"
        players = score_champion(self.trainer, self.config.player, FIRST_SEEDS[split])
        return as_json(self.config, self.trainer, players, split)


def compose(config: MembersRunConfig) -> EvolveRun:
    """Build the worlds and allocate the run whole."""
    device, worlds = find_device(config.device), build_worlds(config)
    plan = plan_population(config, worlds, device)
    # Refused by the plan, before anything of the run is allocated.
    if not config.start_over_budget:
        refuse(plan)
    spaces, reported = (worlds.training.spaces, worlds.trial.spaces), config.reports_episodes
    setup = build_setup(config, *spaces, device, reported=reported)
    run = allocate_planned(lambda: build_population(setup), plan)
    profile = Profile(PARTS)
    player, stage = PopulationCollector(setup, run, worlds.training, profile), MemberEvaluator(setup, run, worlds.trial)
    return EvolveRun(config, plan, build_trainer(setup, run, player, stage, profile))


def plan(config: MembersRunConfig) -> Plan:
    """Return the plan of a run."""
    return plan_population(config, build_worlds(in_one_process(config)), find_device(config.device))
