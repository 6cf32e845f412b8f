"""A run of members in an environment: its worlds, its plan, how it is composed and scored.

Both worlds, for training and for episodes without noise, are built first, as networks depend on their spaces.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from flatwater.algorithms.api import Algorithm, choose_algorithm
from flatwater.algorithms.compilation import COMPILER_BYTES
from flatwater.envs.world import Spaces, World, describe_spaces
from flatwater.memory.planner import Plan
from flatwater.metrics.alarms import Alarm, array_alarms, metric_alarms, skipped_step_alarms
from flatwater.nets.mlp import add_mask
from flatwater.nets.stack import views
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.recipes.evolve.setting_decisions import decide_settings, decision_notes
from flatwater.runs.config import settings_without_env_workers
from flatwater.runs.machine import find_device
from flatwater.runs.planning import META, Knob, allocate_planned_state, plan_one_process, refuse_unfit, smaller_settings
from flatwater.runs.world_run import WorldRun, build_run_world
from flatwater.trainers.evolve.learning import bind_learning
from flatwater.trainers.evolve.population_evaluator import CHAMPION, RANDOM
from flatwater.trainers.evolve.round import EvolveTrainer, build_trainer, lineage_record
from flatwater.trainers.evolve.setup import EvolveSetup
from flatwater.trainers.evolve.state import TRIAL, Population, build_population
from flatwater.trainers.world_trainer import Worlds
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.torch_ops import peak_bytes
from flatwater_watch.phrases import count_phrase

KNOBS = (
    Knob(
        "replay.capacity",
        "ring",
        least=lambda config: max(config.replay.warmup, config.population.size * config.population.envs),
    ),
    Knob("population.size", "learner"),
    Knob("net.hidden", "learner"),
)


@dataclass(frozen=True)
class EvolveRun(WorldRun):
    """Members in their environment, ready to train or to be restored."""

    config: MembersRunConfig
    trainer: EvolveTrainer

    def describe(self) -> str:
        """Return members, algorithm and world in one line."""
        config = self.config
        members = count_phrase(config.population.size, "member" if config.population.evolves else "agent")
        return f"{members} ({config.learner.algorithm}) in {config.env}: {describe_spaces(self.trainer.setup.spaces)}"

    def data(self) -> dict[str, Any]:
        """Return the shape of observations and the actions or their bounds, by which a resume knows the same world."""
        spaces = self.trainer.setup.spaces
        actions = {"actions": list(spaces.actions)} if spaces.bounds is None else {}
        masked = {"masked": True} if spaces.masked else {}
        return {"obs": list(spaces.obs), "bounds": [list(bound) for bound in spaces.bounds or ()], **actions, **masked}

    def build_world(self, envs: int) -> World:
        """Return a new world of this run's kind."""
        return build_members_world(settings_without_env_workers(self.config), envs)

    def weights(self) -> Collection[Tensor]:
        """Return all networks of all members."""
        return self.trainer.run.learner.inherited

    def alarms(self, round_: int, metrics: Mapping[str, float]) -> Sequence[Alarm]:
        """Return alarms about weights and metrics that are not finite, and about optimiser steps that were skipped."""
        learner, config = self.trainer.run.learner, self.config
        # The largest weight of each member stands for all: it is not finite if one of them is not.
        largest = {f"weights/{name}": rows.abs().amax(1).tolist() for name, (rows, _) in learner.trained.items()}
        skipped_counts = {
            f"member {n}": int(count) for n, count in enumerate(learner.tally.skipped_total.tolist()) if count
        }
        # Of each member in the round, at most, over all its networks.
        optimiser_steps = (
            -(-config.steps // config.learner.train_every) * config.learner.own.updates * len(learner.trained)
        )
        return [
            *array_alarms(round_, largest),
            *metric_alarms(round_, dict(metrics)),
            *skipped_step_alarms(round_, skipped_counts, optimiser_steps),
        ]

    def record(self) -> Mapping[str, Any]:
        """Return the generation's line of the journal `lineage`: which member is in each slot."""
        return lineage_record(self.trainer.run)

    def reason_against_scoring(self) -> str:
        """Return why there is no champion yet; empty once a generation has been evaluated."""
        # The last slot is the champion's, whose id is below 0 until then. A single agent is its own champion.
        is_trained = not self.config.population.evolves or int(self.trainer.run.lineage.ids[-1]) >= 0
        return "" if is_trained else "no generation has been evaluated yet, so there is no champion"

    @property
    def rows(self) -> Mapping[str, str]:
        """Player by the name of its row in a result: the champion or single agent, and random actions."""
        return {self.config.player: CHAMPION, RANDOM: RANDOM}

    def facts(self, split: str) -> dict[str, Any]:  # noqa: ARG002  (the same for both)
        """Return the facts of a result: the algorithm, the population, and how long its members have learned."""
        run, config = self.trainer.run, self.config
        return {
            "algorithm": config.learner.algorithm,
            **({"champion_born": int(run.lineage.born[-1])} if config.population.evolves else {}),
            "generations": self.trainer.progress.round,
            "population": config.population.size,
            "transitions": run.transitions,
            "updates": run.learner.tally.updates,
        }


def build_worlds(config: MembersRunConfig) -> Worlds:
    """Return a world for training and one for evaluation; no episode is begun in them."""
    population = config.population
    training = build_members_world(config, population.size * population.envs)
    return Worlds(training, build_members_world(config, population.players * config.evaluation.episodes))


def build_members_world(config: MembersRunConfig, envs: int) -> World:
    """Return a world of `envs` environments, with observations that the algorithm has networks for.

    Tokens, and images where the algorithm has no network for them, are flattened into vectors.

    Raises:
        ConfigError: `config.env` names no world, or a world that cannot be used here.
    """
    world = build_run_world(config, envs)
    algorithm = choose_algorithm(config.learner, chooses=world.spaces.bounds is None)  # without bounds: choices
    if world.spaces.form == "tokens" or (world.spaces.form == "image" and not algorithm.chooses):
        world.close()
        world = build_run_world(replace(config, wrapped=replace(config.wrapped, form="vector")), envs)
    if refusal := _refusal_reason(world.spaces, algorithm):
        raise ConfigError(f"env = {config.env!r}: {refusal}")
    return world


def _refusal_reason(spaces: Spaces, algorithm: Algorithm) -> str:
    """Return why an algorithm cannot learn in a world with these spaces; empty if it can."""
    if spaces.bounds is None and not algorithm.chooses:
        return (
            f"expected continuous actions with bounds, got choices ({describe_spaces(spaces)}). Use "
            "`flatwater train dqn`, `flatwater train sac` or `flatwater train ppo` for this environment"
        )
    if algorithm.chooses and (spaces.bounds is not None or spaces.choices is not None):
        other = "ppo" if spaces.bounds is None else "sac"  # for choices from several lists, or for numbers
        return (
            f"expected actions that are a choice from one list, got {describe_spaces(spaces)}. Use "
            f"`flatwater train {other}` for this environment"
        )
    if spaces.agents != 1:
        return (
            f"expected 1 agent in an environment, got {spaces.agents} agents. Use `flatwater train ppo` for this "
            "environment"
        )
    is_vector = spaces.form == "vector" and len(spaces.obs) == 1
    if not is_vector and not (spaces.form == "image" and algorithm.chooses):
        return (
            f"expected vector observations [N], got {spaces.form} {list(spaces.obs)}. Use `flatwater train ppo`, which "
            "has networks for them"
        )
    return ""


def setup_population(config: MembersRunConfig, worlds: Worlds, device: torch.device) -> EvolveSetup:
    """Return the constants of a run in these worlds."""
    training, held_out = worlds.training.spaces, worlds.held_out.spaces
    return EvolveSetup(config, device, spaces=training, trial=held_out, reported=config.reports_episodes)


def plan_population(config: MembersRunConfig, worlds: Worlds, device: torch.device) -> Plan:
    """Return the plan of a run; it does not count simulators, whose libraries allocate their memory.

    Args:
        config: configuration of the run; `budget` is taken from it.
        worlds: worlds that were built for it.
        device: device of the run, whose memory counts.
    """

    def build(config_to_plan: MembersRunConfig) -> tuple[EvolveSetup, Population]:
        """Return setup and population on the meta device, in the worlds of the run if the settings are its own."""
        own_worlds = worlds if config_to_plan is config else build_worlds(config_to_plan)
        # Not compiled: compiling for the plan alone would take seconds.
        setup = setup_population(
            replace(config_to_plan, learner=replace(config_to_plan.learner, compile=False)), own_worlds, META
        )
        return setup, build_population(setup)

    plan = plan_one_process(
        config, device, build, measure_phase_peaks_, smaller_settings(settings_without_env_workers(config), KNOBS)
    )
    compiler_bytes = COMPILER_BYTES if config.learner.compile and device.type == "cpu" else 0
    notes = (*plan.notes, *decision_notes(config))
    return replace(plan, base_bytes=plan.base_bytes + compiler_bytes, notes=notes)


def measure_phase_peaks_(setup: EvolveSetup, run: Population) -> dict[str, int]:
    """Return the peak temporary bytes of each phase, counted on the meta device.

    Overwrites `tally.updates`: pass a population that is thrown away.
    """
    learn_ = bind_learning(setup, run)
    settings = setup.config.learner.own
    # The next update is then the last of a cycle, which runs all parts, such as TD3's delayed actor.
    run.learner.tally.updates = settings.updates_per_cycle - 1
    actors = views(run.learner.actor, setup.nets.actor.layout)
    rows = len(run.learner.actor)  # all members, and the champion
    trial_obs = add_mask(run.trial.obs, run.legal.get(TRIAL))
    # `cross_` gathers both parents and their blend, one block at a time: 3 copies at most.
    evolve_peak = {"evolve": 3 * max(block.nbytes for block in run.learner.inherited)}
    return {
        "train": peak_bytes(learn_),
        "evaluate": peak_bytes(lambda: setup.nets.actor(actors, trial_obs.view(rows, -1, *trial_obs.shape[1:]))),
        **(evolve_peak if setup.config.population.evolves else {}),
    }


def compose(config: MembersRunConfig) -> EvolveRun:
    """Build the worlds and allocate the run whole."""
    device = find_device(config.device)
    worlds = build_worlds(config)
    config = decide_settings(config, worlds.training.spaces)  # such as `learner.compile`, if it was left out
    plan = plan_population(config, worlds, device)
    refuse_unfit(plan, config)
    setup = setup_population(config, worlds, device)
    run = allocate_planned_state(lambda: build_population(setup), plan)
    return EvolveRun(config, plan, build_trainer(setup, run, worlds))


def plan(config: MembersRunConfig) -> Plan:
    """Return the plan of a run."""
    worlds = build_worlds(settings_without_env_workers(config))
    return plan_population(decide_settings(config, worlds.training.spaces), worlds, find_device(config.device))
