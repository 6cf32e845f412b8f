"""Episodes that nothing is learned from: those of hosts left alone, and held-out ones.

Held-out episodes have the same env seeds for the policy, whenever it is evaluated, and for each baseline, once. All are
played in the pool of the training episodes, in turns of as many as it has environments, between two rounds: nothing of
a round's episodes is left in it that the next one needs.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.algorithms.ppo import bound_weights
from flatwater.envs.growing.baselines import Baseline, wait
from flatwater.envs.growing.simulator import masks, note_left_alone_, observe, step_
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.trainers.grow.collect import begin_, legality
from flatwater.trainers.grow.state import Grow, Setup

Player = Callable[[Setup, Grow], Int[Tensor, "E A"]]
"""Acts in every environment of the pool; may write the run's memory and generators."""


def by_policy_(setup: Setup, run: Grow) -> Int[Tensor, "E A"]:
    """What the policy takes for best: its likeliest action, without the draws and the floor that it learns with."""
    student, none = setup.student, torch.zeros(setup.config.envs, dtype=torch.bool, device=setup.device)
    with torch.no_grad():
        choice = student.choose(bound_weights(student, run.learner), observe(run.envs), run.memory, none)
    run.memory.copy_(choice.memory)
    return student.actions.given(choice.logits, legality(masks(run.envs))).likeliest()


def by_baseline(baseline: Baseline) -> Player:
    """A baseline as a player; where it draws, it draws from the held-out episodes' generator."""
    return lambda _, run: baseline(run.envs, masks(run.envs), run.generators["held out"])


def steps_of_all(setup: Setup) -> int:
    """Steps of the pool for one player's held-out episodes."""
    return setup.config.held_out_turns * setup.config.env.steps


def play_(setup: Setup, run: Grow, player: Player, returns: Float[Tensor, "K"], number: int) -> None:
    """Step `number` of a player's held-out episodes; its rewards are added to their `returns`."""
    turn, t = divmod(number, setup.config.env.steps)
    first, envs = turn * setup.config.envs, setup.config.envs
    mine = returns[first : first + envs]
    if t == 0:
        begin_(run, torch.arange(HELD_OUT + first, HELD_OUT + first + envs, device=setup.device))
        mine.zero_()
    mine.add_(step_(run.envs, player(setup, run)))


def leave_alone_(setup: Setup, run: Grow, number: int) -> None:
    """Step `number` of as many episodes, on the first seeds of those trained on, in which nothing is grown."""
    turn, t = divmod(number, setup.config.env.steps)
    first, envs = turn * setup.config.envs, setup.config.envs
    if t == 0:
        begin_(run, torch.arange(first, first + envs, device=setup.device))
    step_(run.envs, wait(run.envs, masks(run.envs), run.generators["held out"]))
    note_left_alone_(run.envs)
