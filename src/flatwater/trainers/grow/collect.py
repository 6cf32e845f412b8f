"""The collecting phase: one episode of every environment, step by step, into the rollout."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from flatwater.envs.growing.lifecycle import Masks
from flatwater.envs.growing.measures import accuracy_of
from flatwater.envs.growing.simulator import masks, observe, reset_, step_
from flatwater.envs.growing.spaces import HEADS
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.learners.ppo import act
from flatwater.rollouts.block import write_
from flatwater.trainers.grow.state import Grow, Setup


def begin_(run: Grow, seeds: Int[Tensor, "E"]) -> None:
    """Start an episode in every environment, with nothing to remember."""
    reset_(run.envs, seeds)
    run.memory.zero_()


def legality(found: Masks) -> Bool[Tensor, "E R"]:
    """What is legal, in the form of the policy's rows of logits (`nets.actions`)."""
    return torch.cat([found.operation, *(found.given[head].flatten(1) for head in HEADS[1:])], dim=1)


def collect_(setup: Setup, run: Grow, t: int) -> None:
    """Step `t` of this round's episodes: the policy acts, with its floor, and the step goes to row `t`.

    An episode ends with step T - 1 because its time is over. The observation shows the time, so the critic knows that
    nothing follows: the last step terminates, and is not truncated.
    """
    config = setup.config
    if t == 0:
        rng = run.generators["env seeds"]
        torch.randint(HELD_OUT, (config.envs,), generator=rng, out=run.seeds)
        begin_(run, run.seeds)
    rollout, last = run.rollout, t == config.env.steps - 1
    rollout["obs"][t].copy_(observe(run.envs))
    rollout["legal"][t].copy_(legality(masks(run.envs)))
    acted = act(
        setup.policy,
        setup.actions,
        run.learner,
        obs=rollout["obs"][t],
        legal=rollout["legal"][t],
        memory=run.memory,
        rng=run.generators["actions"],
    )
    run.memory.copy_(acted.memory)
    write_(
        rollout,
        t,
        action=acted.action,
        log_prob=acted.log_prob,
        value=acted.value,
        reward=step_(run.envs, acted.action),
        stage=run.envs.slots.stage,
        accuracy=accuracy_of(run.envs.measures),
        rolled_back=run.envs.measures.rolled_back,
    )
    rollout["discount"][t].fill_(0 if last else config.learner.gamma)
    rollout["continues"][t].fill_(not last)
    if t > 0:
        rollout["next_value"][t - 1].copy_(acted.value)
    if last:
        rollout["next_value"][t].fill_(0)
