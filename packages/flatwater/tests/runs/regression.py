"""An algorithm of one's own, whole: actors learn the actions that were rewarded (reward-weighted regression)."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from flatwater.algorithms.adam import bind_step
from flatwater.algorithms.api import (
    Algorithm,
    Draw,
    Explorer,
    Members,
    Networks,
    Setting,
    Span,
    Spread,
    Update,
    accumulate_,
    add_to_tally_,
    as_leaves,
    count_step_,
    gradients,
)
from flatwater.algorithms.config import AlgorithmConfig, Settings
from flatwater.nets.stack import views
from flatwater_watch.options.bounds import Count, Rate
from flatwater_watch.options.declare import config


@config(table="learner.own")
class RegressionConfig(Settings):
    """Actions that were rewarded, learnt by heart."""

    noisy: ClassVar[bool] = True

    lr: Rate = 1e-3
    """Learning rate."""
    updates: Count = 2
    batch_size: Count = 8


def build(_config: AlgorithmConfig, nets: Networks, setting: Setting) -> Members:
    return Members(
        actor=setting.rows("actor", nets.actor.layout),
        actor_adam=setting.adam(nets.actor.layout.size),
        tally=setting.tally("actor_loss", "actor_grad_norm"),
        seed=setting.seed,
        first=setting.first,
    )


def make_update(config: AlgorithmConfig, nets: Networks, members: Members, groups: Sequence[Span]) -> Update:
    count, adam, layout = len(members.tally.skipped), members.actor_adam, nets.actor.layout
    step_ = bind_step(members.actor[:count], adam, lr=config.own.lr, weight_decay=0.0, clip=1.0, groups=groups)

    def update_(draws: Sequence[Draw]) -> None:
        for span in groups:
            rows = slice(*span)
            for n, draw in enumerate(draws):
                batch, own = draw(*span), as_leaves(views(members.actor[rows], layout))
                missed: Tensor = (nets.actor(own, batch.obs) - batch.action).square().flatten(2).mean(2)
                loss = (batch.reward.clamp(min=0) * missed).mean(1)
                accumulate_(views(adam.grad[rows], layout), gradients(loss / len(draws), own), first=n == 0)
                add_to_tally_(members.tally, "actor_loss", loss.detach(), span)
        count_step_(members.tally, "actor_grad_norm", *step_())
        members.tally.updates += 1

    return update_


def explorer(_config: AlgorithmConfig, _members: Members, spread: Spread) -> Explorer:
    return lambda actor, params, obs, rng: spread(actor(params, obs), 0.2, rng)


REGRESSION = Algorithm(build, make_update, explorer, settings=RegressionConfig)
