"""Evolution over members with a temperature: it is inherited as weights are, and its optimiser starts anew."""

from collections.abc import Callable

import pytest
import torch

from flatwater.algorithms.sac import SacMembers
from flatwater_trading.recipe.run import ErlRun

Trained = Callable[..., tuple[ErlRun, list[dict[str, float]]]]


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("account", [False, True])
def test_children_blend_their_parents_temperatures(account: object, train_run: Trained) -> None:
    composition, rounds = train_run(2, {"learner.algorithm": "sac", "env.account_observation": account})
    run = composition.trainer.run
    learner = run.learner
    assert isinstance(learner, SacMembers)
    assert learner.tally.updates > 0
    assert rounds[-1]["temperature"] > 0
    learner.log_temperature[:4, 0] = torch.tensor([0.0, 1.0, 2.0, 3.0])
    learner.temperature_adam.exp_avg.fill_(5)
    run.scores.fitness.copy_(torch.tensor([4.0, 3.0, 2.0, 1.0]))
    elites, actor = learner.log_temperature[:2].clone(), learner.actor.clone()

    composition.trainer.phases[-1].step_(0)

    replaced = (learner.actor[:4] != actor[:4]).any(1)
    assert replaced.any()
    assert (learner.temperature_adam.exp_avg[replaced] == 0).all()
    assert (learner.temperature_adam.exp_avg[~replaced] == 5).all()
    kept = ~replaced[:2]
    assert torch.equal(learner.log_temperature[:2][kept], elites[kept])
    assert ((learner.log_temperature[:4] >= 0) & (learner.log_temperature[:4] <= 3)).all()
