"""The plan of a population in an environment: its build and phases on the meta device, and how to make it smaller.

The worlds, one to learn in and one for episodes without noise, are built before: they tell observations and actions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from flatwater.algorithms.api import Algorithm, algorithm_for
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import Spaces, World, describe_spaces
from flatwater.envs.worlds import build_world
from flatwater.memory.planner import Plan
from flatwater.nets.stack import views
from flatwater.recipes.evolve.config import MembersRunConfig
from flatwater.runs.config import in_one_process
from flatwater.runs.planning import META, Alternative, make_plan, with_advice
from flatwater.state.tree import nbytes
from flatwater.trainers.evolve.play import bind_learning
from flatwater.trainers.evolve.state import EvolveSetup, Population, build_population, build_setup
from flatwater_watch.errors import ConfigError
from flatwater_watch.meters.torch_ops import peak_bytes


@dataclass(frozen=True)
class EvolveWorlds:
    """Both worlds of a run."""

    training: World
    trial: World


def build_worlds(config: MembersRunConfig) -> EvolveWorlds:
    """Return both worlds, of the same kind; nothing is begun in them."""
    population = config.population
    training = build_run_world(config, population.size * population.envs)
    return EvolveWorlds(training, build_run_world(config, population.players * config.evaluation.episodes))


def build_run_world(config: MembersRunConfig, envs: int) -> World:
    """Return a world of this kind: of images where the algorithm has networks for them, of vectors elsewhere.

    Raises:
        ConfigError: `config.env` names no world, or one that cannot be used here.
    """
    try:
        world = _build(config, envs)
        algorithm = algorithm_for(config.learner, chooses=world.spaces.bounds is None)
        if world.spaces.form == "tokens" or (world.spaces.form == "image" and not algorithm.chooses):
            world.close()
            world = _build(replace(config, wrapped=replace(config.wrapped, form="vector")), envs)
        _check(world.spaces, algorithm)
    except ConfigError as error:
        raise ConfigError(f"env = {config.env!r}: {error}") from error
    return world


def _build(config: MembersRunConfig, envs: int) -> World:
    """Return a world in the form of `config.wrapped`."""
    return build_world(
        config.env,
        envs=envs,
        foraging=ForagingConfig(),
        wrapped=config.wrapped,
        allow_nan=config.allow_nan,
        arguments=config.env_args,
        workers=config.env_workers,
    )


def _check(spaces: Spaces, algorithm: Algorithm) -> None:
    """Refuse worlds that the algorithm cannot learn in: one agent, its kinds of observations and of actions.

    Raises:
        ConfigError: a world has other actions, or several agents, or another form of observations.
    """
    if spaces.bounds is None and not algorithm.chooses:
        raise ConfigError(
            f"expected continuous actions with bounds, got choices ({describe_spaces(spaces)}). Use "
            "`flatwater train dqn`, `flatwater train sac` or `flatwater train ppo` for this environment"
        )
    if algorithm.chooses and (spaces.bounds is not None or spaces.choices is not None or spaces.masked):
        other = "ppo" if spaces.bounds is None else "sac"
        raise ConfigError(
            f"expected actions that are a choice from one list, without masks, got {describe_spaces(spaces)}. Use "
            f"`flatwater train {other}` for this environment"
        )
    if spaces.agents != 1:
        raise ConfigError(
            f"expected 1 agent in an environment, got {spaces.agents} agents. Use `flatwater train ppo` for this "
            "environment"
        )
    is_vector = spaces.form == "vector" and len(spaces.obs) == 1
    if not is_vector and not (spaces.form == "image" and algorithm.chooses):
        raise ConfigError(
            f"expected vector observations [N], got {spaces.form} {list(spaces.obs)}. Use `flatwater train ppo`, which "
            "has networks for them"
        )


def plan_population(config: MembersRunConfig, worlds: EvolveWorlds, device: torch.device) -> Plan:
    """Return the plan of a run with this configuration, without its simulators, which are not ours to allocate.

    Args:
        config: configuration of the run; `budget` is taken from it.
        worlds: worlds that were built for it; they tell observations and actions.
        device: device of the run, whose memory counts.
    """
    setup, run = build_on_meta(config, worlds)
    owners = nbytes(run)
    # The phases run on the meta device: what they would make is counted, and nothing is computed.
    plan = make_plan(owners, lambda: phase_transients(setup, run), config=config, device=device)
    return with_advice(
        plan,
        _alternatives(config),
        owners,
        lambda other: nbytes(build_on_meta(other, build_worlds(in_one_process(other)))[1]),
    )


def build_on_meta(config: MembersRunConfig, worlds: EvolveWorlds) -> tuple[EvolveSetup, Population]:
    """Return the run on the meta device."""
    # A compiled update would be compiled for the plan as well.
    config = replace(config, learner=replace(config.learner, compile=False))
    spaces, reported = (worlds.training.spaces, worlds.trial.spaces), config.reports_episodes
    setup = build_setup(config, *spaces, META, reported=reported)
    return setup, build_population(setup)


def phase_transients(setup: EvolveSetup, run: Population) -> dict[str, int]:
    """Return the most bytes of tensors that each phase holds at a time and frees again, counted on the meta device."""
    learn_, settings = bind_learning(setup, run), setup.config.learner.own
    # The last update of a cycle runs all its parts, such as TD3's delayed actor.
    run.learner.tally.updates = settings.updates_per_cycle - 1
    actors = views(run.learner.actor, setup.nets.actor.layout)
    rows = len(run.learner.actor)
    return {
        "train": peak_bytes(learn_),
        "evaluate": peak_bytes(lambda: setup.nets.actor(actors, run.trial.obs.view(rows, -1, *setup.trial.obs))),
        # Parents are gathered block by block.
        **(
            {"evolve": 3 * max(block.nbytes for block in run.learner.inherited)}
            if setup.config.population.evolves
            else {}
        ),
    }


def _alternatives(config: MembersRunConfig) -> Iterator[Alternative[MembersRunConfig]]:
    """Yield changes that may make the largest owners smaller."""
    replay, population, hidden = config.replay, config.population, config.net.hidden
    capacity = max(replay.warmup, replay.capacity // 2, population.size * population.envs)
    if capacity < replay.capacity:
        yield f"replay.capacity = {capacity}", "ring", replace(config, replay=replace(replay, capacity=capacity))
    if population.size > 1:
        fewer = replace(config, population=replace(population, size=population.size // 2))
        yield f"population.size = {population.size // 2}", "learner", fewer
    if hidden > 1:
        slimmer = replace(config, net=replace(config.net, hidden=hidden // 2))
        yield f"net.hidden = {hidden // 2}", "learner", slimmer
