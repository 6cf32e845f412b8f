"""Which features a champion's decisions follow from."""

from collections.abc import Callable

import torch

from flatwater.panel.splits import Days
from flatwater.recipes.erl.occlusion import feature_effects
from flatwater.recipes.erl.run import ErlRun


def effects(run: ErlRun, days: Days) -> dict[str, float]:
    setup, state = run.setup, run.trainer.run
    return feature_effects(setup, state.market, state.learner.actor[:1], days, run.config.observation_features)


def test_a_feature_that_never_varies_has_no_effect(composed: Callable[..., ErlRun]) -> None:
    run = composed({})
    observations = run.trainer.run.market.observations.clone()  # the run's own are those of a file
    run.trainer.run.market.observations = observations
    known = (observations != 0).any(-1)
    observations[..., 0] = 1e-6 * known
    found = effects(run, run.setup.splits.validation)
    names = run.config.observation_features
    assert tuple(found) == names
    assert found[names[0]] == 0
    assert all(found[name] > 0 for name in names[1:])


def test_nothing_is_written(composed: Callable[..., ErlRun]) -> None:
    run = composed({})
    before = run.trainer.run.market.observations.clone()
    effects(run, run.setup.splits.validation)
    assert torch.equal(run.trainer.run.market.observations, before)
