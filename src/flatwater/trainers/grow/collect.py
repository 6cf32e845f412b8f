"""The collecting phase: one episode of every environment, step by step, into the rollout.

Episodes that nothing is learned from are played here too: those of hosts left alone, and held-out ones. The latter have
the same env seeds for the policy, whenever it is evaluated, and for each baseline, once. All are played in the pool of
the training episodes, in turns of as many as it has environments, between two rounds: nothing of a round's episodes is
left in it that the next one needs.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.algorithms.ppo import Acted, bound_weights
from flatwater.envs.growing.baselines import Baseline, wait
from flatwater.envs.growing.lifecycle import Masks
from flatwater.envs.growing.measures import accuracy_of
from flatwater.envs.growing.simulator import masks, note_left_alone_, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.rollouts.block import write_
from flatwater.trainers.grow.state import Grow, Setup


def begin_(run: Grow, seeds: Int[Tensor, "E"]) -> None:
    """Start an episode in every environment, with nothing to remember."""
    reset_(run.envs, seeds)
    run.memory.zero_()


def legality(found: Masks) -> Bool[Tensor, "E R"]:
    """What is legal, in the form of the policy's rows of logits (`nets.actions`)."""
    return torch.cat([found.operation, *(found.given[head].flatten(1) for head in HEADS[1:])], dim=1)


def collect_(setup: Setup, run: Grow, act: Callable[..., Acted], t: int) -> None:
    """Step `t` of this round's episodes: the policy acts, with its floor, and the step goes to row `t`.

    An episode ends with step T - 1 because its time is over. The observation shows the time, so the critic knows that
    nothing follows: the last step terminates, and is not truncated.
    """
    config, actions = setup.config, setup.student.actions
    if t == 0:
        rng = run.generators["env seeds"]
        torch.randint(HELD_OUT, (config.envs,), generator=rng, out=run.seeds)
        begin_(run, run.seeds)
    rollout, last = run.rollout, t == config.env.steps - 1
    rollout["obs"][t].copy_(observe(run.envs))
    rollout["legal"][t].copy_(legality(masks(run.envs)))
    rollout["starts"][t].fill_(t == 0)
    rollout["alive"][t].fill_(1)
    acted = act(
        obs=rollout["obs"][t],
        memory=run.memory,
        starts=rollout["starts"][t],
        noise=actions.noise_(run.memory.new_empty(config.envs, actions.noise), run.generators["actions"]),
        legal=rollout["legal"][t],
    )
    run.memory.copy_(acted.memory)
    write_(
        rollout,
        t,
        action=acted.action,
        reward=step_(run.envs, acted.action),
        stage=run.envs.slots.stage,
        accuracy=accuracy_of(run.envs.measures),
        rolled_back=run.envs.measures.rolled_back,
    )
    rollout["terminated"][t].fill_(last)
    if acted.log_prob is not None and acted.value is not None:
        write_(rollout, t, log_prob=acted.log_prob, value=acted.value)
    if t > 0:
        rollout["next_value"][t - 1].copy_(rollout["value"][t])
    if last:
        rollout["next_value"][t].fill_(0)


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
