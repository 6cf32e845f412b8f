"""The players of the held-out episodes: the trained policy, and teachers. All play the same seeds."""

from collections.abc import Mapping

import numpy as np
import torch

from flatwater.algorithms.ppo import bound_weights
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.blocks.state import CPU, HELD, BlocksSetup, BlocksState
from flatwater.trainers.evaluator import EpisodeEvaluator, Player


def build_evaluator(
    setup: BlocksSetup, run: BlocksState, world: World, teachers: Mapping[str, Teacher]
) -> EpisodeEvaluator:
    """Return the evaluator of a run.

    Args:
        setup: constants of the run.
        run: state tree; held-out observations and scores are written by later steps.
        world: the world of held-out episodes.
        teachers: players by name, besides the policy.
    """
    held_out, network = run.held_out, setup.network
    weights, masks = bound_weights(network, run.learner), run.legal.get(HELD)
    envs, agents = setup.held_out.envs, setup.held_out.agents
    noise = torch.zeros(envs * agents, network.actions.noise, device=setup.device)
    # Memory is cleared at the first step alone: what comes after an episode's end is not counted.
    starts = torch.zeros(envs * agents, dtype=torch.bool, device=setup.device)

    def act(first: bool) -> Array:  # noqa: FBT001  (as `Player.act` is called)
        """Return the policy's actions: drawn, as its teacher's is one of several; the likeliest without a teacher."""
        if first:
            held_out.memory.zero_()
        with torch.no_grad():
            choice = network.run_step(weights, held_out.obs.to(setup.device), held_out.memory, starts)
        held_out.memory.copy_(choice.memory)
        policy = network.actions.distribution(choice.logits, None if masks is None else masks.to(setup.device))
        rng = run.generators["held out actions"]
        action = (policy.sample(network.actions.noise_(noise, rng)) if setup.has_teacher else policy.mode()).to(CPU)
        return action.view(envs, agents, *action.shape[1:]).numpy()

    players = {
        name: Player(held_out.scores[name], teacher=teachers[name])
        if name in teachers
        else Player(held_out.scores[name], act)
        for name in setup.players
    }
    # The same seeds each time: all players and all evaluations play the same episodes.
    seeds = HELD_OUT + np.arange(envs, dtype=np.int64)
    # A game in turns has no limit that is known, and is over long before the steps that are allowed.
    ends_early = setup.opponents is not None
    return EpisodeEvaluator(world, held_out, players, lambda: seeds, legal=masks, ends_early=ends_early)
