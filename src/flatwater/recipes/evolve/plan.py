"""The plan of a population in an environment: its build and phases on the meta device, and how to make it smaller."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from flatwater.algorithms.config import TD3Config
from flatwater.memory.planner import Plan
from flatwater.memory.probes.torch_ops import peak_bytes
from flatwater.nets.stack import views
from flatwater.recipes.evolve.config import EvolveRunConfig
from flatwater.recipes.evolve.worlds import Worlds, build_worlds
from flatwater.runs.planning import META, Alternative, planned, suggested
from flatwater.state.tree import nbytes
from flatwater.trainers.evolve.play import bind_learning
from flatwater.trainers.evolve.state import Population, Setup, build_population, build_setup


def plan_population(config: EvolveRunConfig, worlds: Worlds, device: torch.device) -> Plan:
    """What a run with this configuration will hold, besides its simulators: these are not ours to allocate.

    Args:
        config: the run's; `budget` is taken from it.
        worlds: built for it; they say what is seen and done.
        device: where the run will compute: its memory is what counts.
    """
    setup, run = outline(config, worlds)
    owners = nbytes(run)
    plan = planned(owners, lambda: transients(setup, run), config=config, device=device)
    if plan.fits:
        return plan
    smaller = suggested(_alternatives(config), owners, lambda other: nbytes(outline(other, build_worlds(other))[1]))
    return replace(plan, suggestions=tuple(smaller))


def outline(config: EvolveRunConfig, worlds: Worlds) -> tuple[Setup, Population]:
    """The run on the meta device."""
    # A compiled update would be compiled for the plan as well.
    config = replace(config, learner=replace(config.learner, compile=False))
    setup = build_setup(config, worlds.training.spaces, worlds.trial.spaces, META)
    return setup, build_population(setup)


def transients(setup: Setup, run: Population) -> dict[str, int]:
    """Bytes of tensors that each phase makes and frees again, at its highest; works on a run of the meta device."""
    learn_, own = bind_learning(setup, run), setup.config.learner.own
    # The update that moves the actors as well holds the most.
    run.learner.tally.updates = own.policy_delay - 1 if isinstance(own, TD3Config) else 0
    actors = views(run.learner.actor, setup.nets.actor.layout)
    rows = len(run.learner.actor)
    return {
        "train": peak_bytes(learn_),
        "evaluate": peak_bytes(lambda: setup.nets.actor(actors, run.trial.obs.view(rows, -1, *setup.trial.obs))),
        # Parents are gathered block by block.
        "evolve": 3 * max(block.nbytes for block in run.learner.inherited),
    }


def _alternatives(config: EvolveRunConfig) -> Iterator[Alternative[EvolveRunConfig]]:
    """What may make the largest owners smaller."""
    replay, population, hidden = config.replay, config.population, config.net.hidden
    half = max(replay.warmup, replay.capacity // 2, population.size * population.envs)
    if half < replay.capacity:
        yield f"replay.capacity = {half}", "ring", replace(config, replay=replace(replay, capacity=half))
    if population.size >= 4:  # noqa: PLR2004  (two members are the least)
        fewer = replace(config, population=replace(population, size=population.size // 2))
        yield f"population.size = {population.size // 2}", "learner", fewer
    if hidden > 1:
        slimmer = replace(config, net=replace(config.net, hidden=hidden // 2))
        yield f"net.hidden = {hidden // 2}", "learner", slimmer
