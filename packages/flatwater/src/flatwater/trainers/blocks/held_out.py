"""The players of the held-out episodes: the trained policy, and teachers. All play the same seeds."""

from collections.abc import Mapping

import numpy as np
import torch

from flatwater.algorithms.learner import weight_views
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.blocks.state import CPU, HELD_OUT_WORLD, BlocksSetup, BlocksState
from flatwater.trainers.evaluator import EpisodeEvaluator, Player


def build_evaluator(
    setup: BlocksSetup, run: BlocksState, world: World, teachers: Mapping[str, Teacher]
) -> EpisodeEvaluator:
    """Return the evaluator that plays held-out episodes with the run's policy and with teachers.

    Args:
        setup: constants of the run.
        run: state tree; held-out observations and scores are written by later steps.
        world: the world of held-out episodes.
        teachers: players by name, besides the policy.
    """
    held_out, network = run.held_out, setup.network
    weights, masks = weight_views(network, run.learner), run.legal.get(HELD_OUT_WORLD)
    envs, agents = setup.held_out.envs, setup.held_out.agents
    noise = torch.zeros(envs * agents, network.actions.noise, device=setup.device)
    # No step clears memory but the first of an evaluation: episodes after each environment's first are not counted.
    starts = torch.zeros(envs * agents, dtype=torch.bool, device=setup.device)

    def act(first: bool) -> Array:  # noqa: FBT001  (as `Player.act` is called)
        """Return the policy's actions [E, A, *action]: drawn if a teacher trained it, else the likeliest.

        A teacher's action is one of several good ones, so its student must draw as well.
        """
        if first:
            held_out.memory.zero_()
        with torch.no_grad():
            output = network.run_step(weights, held_out.obs.to(setup.device), held_out.memory, starts)
        held_out.memory.copy_(output.memory)
        policy = network.actions.distribution(output.logits, None if masks is None else masks.to(setup.device))
        if setup.has_teacher:
            action = policy.sample(network.actions.noise_(noise, run.generators["held out actions"])).to(CPU)
        else:
            action = policy.mode().to(CPU)
        return action.view(envs, agents, *action.shape[1:]).numpy()

    players = {
        name: Player(held_out.scores[name], act=None if name in teachers else act, teacher=teachers.get(name))
        for name in setup.players
    }
    # The same seeds each time: all players and all evaluations play the same episodes.
    seeds = HELD_OUT + np.arange(envs, dtype=np.int64)
    # A game in turns ends long before the largest number of steps.
    ends_early = setup.opponents is not None
    return EpisodeEvaluator(world, held_out, players, lambda: seeds, legal=masks, ends_early=ends_early)
