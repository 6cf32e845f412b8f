"""The learning phase: each update draws transitions by number and gathers their windows from the panel."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.learners.ddpg import make_update
from flatwater.nets.trader import MarketObs
from flatwater.replay.batch import Batch
from flatwater.replay.priority import set_priorities_
from flatwater.replay.rows import draw, held, windows
from flatwater.trainers.erl.state import Erl, Recipe, members_at_once

Update = Callable[[Sequence[Callable[[int, int], Batch]]], Tensor]


def member_groups(recipe: Recipe, run: Erl) -> list[tuple[int, int]]:
    """Consecutive members whose windows of one micro-batch stand in memory together."""
    size, members = members_at_once(recipe, run.market), recipe.config.population.size
    return [(low, min(low + size, members)) for low in range(0, members, size)]


def build_update(recipe: Recipe, run: Erl) -> Update:
    """The learner's update, bound to the run's state."""
    return make_update(
        recipe.config.learner, recipe.actor, recipe.critic, run.learner, groups=member_groups(recipe, run)
    )


def updates_due(recipe: Recipe, run: Erl) -> int:
    """Updates of this round: none until the replay holds its minimum."""
    return recipe.config.learner.updates if held(run.replay) >= recipe.config.replay.warmup else 0


def learn_(recipe: Recipe, run: Erl, update_: Update) -> None:
    """One update of every member, each on transitions of its own draw."""
    config = recipe.config
    shape = (config.population.size, config.learner.micro_batches, config.learner.batch_size)
    index, weight = draw(run.replay, shape, run.generators["replay"])
    td_error = update_([micro_batch(recipe, run, index, weight, g) for g in range(shape[1])])
    if run.replay.priorities is not None:
        set_priorities_(run.replay.priorities, index, td_error)


def micro_batch(
    recipe: Recipe, run: Erl, index: Int[Tensor, "P G B"], weight: Tensor | None, g: int
) -> Callable[[int, int], Batch]:
    """Gathers micro-batch `g` of members low ... high - 1 into the run's buffers: it is good until the next one."""

    def gather(low: int, high: int) -> Batch:
        at = index[low:high, g]
        return Batch(
            obs=observe(recipe, run, at),
            action=run.replay.action[at],
            reward=run.replay.reward[at],
            discount=run.replay.discount[at],
            next_obs=observe_next(recipe, run, at),
            weight=None if weight is None else weight[low:high, g],
        )

    return gather


def observe(recipe: Recipe, run: Erl, at: Int[Tensor, "P B"]) -> MarketObs:
    """What was seen at ring positions `at`, in the run's buffer."""
    copies = run.replay.windows
    return _observed(recipe, run, at, at, None if copies is None else copies.seen, run.windows.seen)


def observe_next(recipe: Recipe, run: Erl, at: Int[Tensor, "P B"]) -> MarketObs:
    """What followed on ring positions `at`, in the run's other buffer."""
    copies, day = run.replay.windows, run.replay.following[at].long()
    return _observed(recipe, run, at, day, None if copies is None else copies.following, run.windows.following)


def _observed(  # noqa: PLR0917  (two observations, each of two sources)
    recipe: Recipe,
    run: Erl,
    at: Int[Tensor, "P B"],
    day: Int[Tensor, "P B"],
    copies: Float[Tensor, "C N W F"] | None,
    buffer: Float[Tensor, "R N W F"],
) -> MarketObs:
    """The windows of the transitions that acted on `day`, rebuilt from the panel; or the copies kept with `at`."""
    if copies is None:
        context = recipe.config.env.episode.context
        seen = windows(run.market.observations, run.replay.row[day].long(), context, out=buffer)
    else:
        seen = torch.index_select(copies, 0, at.flatten(), out=buffer[: at.numel()]).view(*at.shape, *copies.shape[1:])
    return MarketObs(seen, None if run.replay.account is None else run.replay.account[day])
