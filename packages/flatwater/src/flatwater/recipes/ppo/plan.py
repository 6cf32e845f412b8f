"""The plan of a run of PPO on blocks: its build and its phases on the meta device, and how to make it smaller.

The worlds, one to learn in and one for held-out episodes, are built before: they tell observations and actions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from flatwater.algorithms.ppo import bound_weights, forward_step
from flatwater.envs.world import World
from flatwater.envs.worlds import build_world
from flatwater.memory.planner import Plan
from flatwater.recipes.ppo.config import BlocksRunConfig
from flatwater.runs.config import in_one_process
from flatwater.runs.planning import META, Alternative, make_plan, with_advice
from flatwater.state.tree import nbytes
from flatwater.trainers.blocks.round import bind_learning
from flatwater.trainers.blocks.state import BlocksSetup, BlocksState, build_blocks, build_setup
from flatwater_watch.errors import ConfigError, require
from flatwater_watch.meters.torch_ops import peak_bytes


@dataclass(frozen=True)
class BlocksWorlds:
    """Both worlds of a run."""

    training: World
    held_out: World


def build_worlds(config: BlocksRunConfig) -> BlocksWorlds:
    """Return both worlds, of the same kind; nothing is begun in them."""
    training, held_out = (build_run_world(config, envs) for envs in (config.envs, config.evaluation.envs))
    # Here and not with the settings: the number of agents is known from the world alone.
    agents, parts = training.spaces.envs * training.spaces.agents, config.learner.minibatches
    sequences = agents * config.block // config.learner.unroll
    # The largest number up to the wanted one that deals all sequences evenly, for the message.
    nearest = max(part for part in range(1, min(parts, sequences) + 1) if sequences % part == 0)
    per_agent = config.block // config.learner.unroll
    expected = f"a divisor of {sequences}, such as {nearest}: {agents} agents have {per_agent} sequences each"
    require(sequences % parts == 0, "learner.minibatches", parts, expected)
    return BlocksWorlds(training, held_out)


def build_run_world(config: BlocksRunConfig, envs: int) -> World:
    """Return a world of this kind.

    Raises:
        ConfigError: `config.env_name` names no world, or one that cannot be used.
    """
    name = config.env_name
    try:
        return build_world(
            name,
            envs=envs,
            foraging=config.foraging,
            wrapped=config.wrapped,
            allow_nan=config.allow_nan,
            arguments=config.env_args,
            workers=config.env_workers,
        )
    except ConfigError as error:
        raise ConfigError(f"{config.place} = {name!r}: {error}") from error


def plan_blocks(config: BlocksRunConfig, worlds: BlocksWorlds, device: torch.device, *, taught: bool) -> Plan:
    """Return the plan of a run with this configuration, without its simulators, which are not ours to allocate.

    Args:
        config: configuration of the run; `budget` is taken from it.
        worlds: worlds that were built for it; they tell observations and actions.
        device: device of the run, whose memory counts.
        taught: whether there is a teacher.
    """
    setup, run = build_on_meta(config, worlds, taught=taught)
    owners = nbytes(run)
    plan = make_plan(owners, lambda: phase_transients(setup, run), config=config, device=device)
    return with_advice(
        plan,
        _alternatives(in_one_process(config)),
        owners,
        lambda other: nbytes(build_on_meta(other, build_worlds(other), taught=taught)[1]),
    )


def build_on_meta(config: BlocksRunConfig, worlds: BlocksWorlds, *, taught: bool) -> tuple[BlocksSetup, BlocksState]:
    """Return the run on the meta device."""
    spaces, reported = (worlds.training.spaces, worlds.held_out.spaces), config.reports_episodes
    setup = build_setup(config, *spaces, META, taught=taught, reported=reported)
    return setup, build_blocks(setup)


def phase_transients(setup: BlocksSetup, run: BlocksState) -> dict[str, int]:
    """Return the most bytes of tensors that each phase holds at a time and frees again, counted on the meta device."""

    def step_student(obs: torch.Tensor, memory: torch.Tensor) -> None:
        starts = torch.zeros(len(obs), dtype=torch.bool, device=META)
        forward_step(setup.student, bound_weights(setup.student, run.learner), obs=obs, memory=memory, starts=starts)

    learn_ = bind_learning(setup, run)
    step_bytes = peak_bytes(lambda: step_student(run.held_out.obs, run.held_out.memory))
    # The first update computes the advantages as well; what the last one merges takes no more room.
    return {
        "baselines": step_bytes,
        "collect": peak_bytes(lambda: step_student(run.coming, run.memory)),
        "update": peak_bytes(lambda: learn_(0)),
        "evaluate": step_bytes,
    }


def _alternatives(config: BlocksRunConfig) -> Iterator[Alternative[BlocksRunConfig]]:
    """Yield changes that may make the largest owners smaller."""
    # A multiple of the minibatches, so that the sequences are still dealt evenly.
    half_envs = config.envs // 2 // config.learner.minibatches * config.learner.minibatches
    if half_envs:
        yield f"envs = {half_envs}", "rollout", replace(config, envs=half_envs)
    if config.block > 1:
        yield f"block = {config.block // 2}", "rollout", replace(config, block=config.block // 2)
    if config.student.rows > 2:  # noqa: PLR2004
        smaller = replace(config.student, rows=config.student.rows // 2)
        yield f"student.rows = {smaller.rows}", "learner", replace(config, student=smaller)
