"""The collecting phase: one episode of every environment, step by step, into the rollout."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from flatwater.algorithms.ppo import Acted
from flatwater.envs.growing.lifecycle import Masks
from flatwater.envs.growing.measures import accuracy_of
from flatwater.envs.growing.simulator import masks, observe, reset_, step_
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
