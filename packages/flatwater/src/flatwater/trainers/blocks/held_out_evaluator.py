"""The evaluator of held-out episodes: the trained policy and teachers play them, all on the same seeds."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.learner import weight_views
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.envs.world import Array, Teacher, World
from flatwater.trainers.blocks.state import CPU, HELD_OUT_WORLD, BlocksSetup, BlocksState, PolicyPart, policy_parts
from flatwater.trainers.evaluator import EpisodeEvaluator, Player


def _bind_player(part: PolicyPart) -> Callable[..., Array]:
    """Return the function that gives a policy's actions on held-out observations.

    They are the policy's likeliest actions; a teacher's student draws its actions. A teacher's action is one of several
    good ones, so its student has learned to draw among them.
    """
    setup, memory = part.setup, part.held_out_memory
    network, device, agents = setup.network, setup.device, setup.held_out_agents
    weights = weight_views(network, part.learner)
    noise = torch.zeros(agents, network.actions.noise, device=device)
    # No step clears memory but the first of an evaluation: episodes after each environment's first are not counted.
    starts = torch.zeros(agents, dtype=torch.bool, device=device)

    def act(obs: Tensor, legal: Tensor | None, *, first: bool) -> Array:
        """Return an action for each observation, [B, *action]."""
        if first:  # the first step of the episodes
            memory.zero_()
        with torch.no_grad():
            output = network.run_step(weights, obs.to(device), memory, starts)
        memory.copy_(output.memory)
        device_legal = None if legal is None else legal.to(device)
        policy = network.actions.distribution(output.logits, device_legal)
        if setup.has_teacher:
            return policy.sample(network.actions.noise_(noise, part.held_out_rng)).to(CPU).numpy()
        return policy.mode().to(CPU).numpy()

    return act


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
    held_out, masks = run.held_out, run.legal.get(HELD_OUT_WORLD)
    spaces = setup.held_out
    grid = (spaces.envs, spaces.agents)
    obs: Array = held_out.obs.view(*grid, *spaces.obs).numpy()
    legal: Array | None = None if masks is None else masks.view(*grid, -1).numpy()
    players_of_kinds = [(part, _bind_player(part)) for part in policy_parts(setup, run)]
    actions = np.zeros((*grid, *spaces.action_shape), spaces.action_type)

    def act(first: bool) -> Array:  # noqa: FBT001  (as `Player.act` is called)
        """Return the actions [E, A, *action]; each policy chooses those of its kind of agents."""
        for part, act_own in players_of_kinds:
            own_legal = None if legal is None else part.own_legal(legal)
            own_actions = act_own(part.own_obs(obs), own_legal, first=first)
            part.write_actions_(own_actions, actions)
        return actions

    players = {}
    for name in setup.players:
        if name in teachers:
            players[name] = Player(held_out.scores[name], teacher=teachers[name])
        else:  # the run's policy
            players[name] = Player(held_out.scores[name], act=act)
    # The same seeds each time: all players and all evaluations play the same episodes.
    seeds = HELD_OUT + np.arange(spaces.envs, dtype=np.int64)
    return EpisodeEvaluator(world, held_out, players, lambda: seeds, legal=masks)
