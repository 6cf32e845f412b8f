"""What a champion's decisions follow from: each part as if the day were decided again without it; memory is bounded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from flatwater.nets.stack import views
from flatwater_trading.panel.splits import Days
from flatwater_trading.policy.trader import ACCOUNT_PARTS, MarketObs
from flatwater_trading.recipe.occlusion import (
    BLANK_VALUE,
    MAXIMUM_TOKEN_BYTES,
    OcclusionDay,
    find_effects,
)
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.play import to_orders
from flatwater_watch.meters.torch_ops import peak_bytes

CONTEXT = "synthetic:6x260:context_instruments=1"
ACCOUNT = {"learner.algorithm": "ddpg", "env.account_observation": True}


def effects(run: ErlRun, days: Days) -> tuple[Tensor, Tensor]:
    setup, state = run.setup, run.trainer.run
    return find_effects(setup, state.market, state.learner.actor[:1], days)


def look_of(run: ErlRun, *, holes: bool) -> OcclusionDay:
    setup, state = run.setup, run.trainer.run
    window = state.market.observations[:, -setup.config.env.episode.context :].clone()
    if holes:
        window[1, :5] = 0
        window[2] = 0
    account = None
    if setup.config.env.account_observation:
        shape = (1, 1, len(state.market.investable), ACCOUNT_PARTS)
        account = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    params = views(state.learner.actor[:1], setup.actor.layout)
    return OcclusionDay(setup.actor, params, setup.config.env.trade, window, account)


def decide_coefficients(look: OcclusionDay, window: Tensor) -> Tensor:
    """The coefficients of a whole window, as the trader itself decides."""
    with torch.no_grad():
        action = look.actor(look.params, MarketObs(window[None, None], look.account))
    return to_orders(look.trade, action[0])[0, :, 0]


@pytest.mark.long
@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize("changes", [{}, {"panel": CONTEXT}, {"net.encoder": "lstm"}, ACCOUNT], ids=str)
def test_each_part_is_what_the_whole_window_without_it_gives(
    compose_run: Callable[..., ErlRun], changes: dict[str, Any], *, holes: bool
) -> None:
    look = look_of(compose_run(changes), holes=holes)
    window, known = look.window, (look.window != 0).any(-1)
    columns, _, features = window.shape

    def without(column: int | slice, feature: int | slice) -> Tensor:
        hidden = window.clone()
        mean = (BLANK_VALUE * known)[:, :, None].expand_as(window)
        hidden[column, :, feature] = mean[column, :, feature]
        return decide_coefficients(look, hidden)

    every = slice(None)
    close = {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(look.all_coefficients(), decide_coefficients(look, window), **close)
    of_columns = torch.cat([*look.without_columns(range(columns))])
    torch.testing.assert_close(of_columns, torch.stack([without(n, every) for n in range(columns)]), **close)
    of_all = torch.stack([*look.without_features()])
    torch.testing.assert_close(of_all, torch.stack([without(every, f) for f in range(features)]), **close)
    of_one = look.without_own_features(3)
    torch.testing.assert_close(of_one, torch.stack([without(3, f) for f in range(features)]), **close)


@pytest.mark.long
def test_what_is_held_does_not_grow_with_what_is_hidden(compose_run: Callable[..., ErlRun]) -> None:
    look = look_of(compose_run({"panel": "synthetic:60x260"}), holes=False)

    def peak(times: int) -> int:
        columns = [*range(60)] * times
        return peak_bytes(lambda: [None for _ in OcclusionDay(**vars_of(look)).without_columns(columns)])

    few, many = peak(1), peak(50)
    assert many - few <= 4 * MAXIMUM_TOKEN_BYTES, "tokens of one call, and what is made of them"
    assert peak(400) - many <= 400 * 60 * look.window[0, 0].nbytes * 8, "a token for each part, not a window"


def vars_of(look: OcclusionDay) -> dict[str, Any]:
    return {name: vars(look)[name] for name in ("actor", "params", "trade", "window", "account")}


def test_a_column_that_cannot_be_bought_comes_first_where_all_follow_it(compose_run: Callable[..., ErlRun]) -> None:
    run = compose_run({"panel": CONTEXT})
    state, layout = run.trainer.run, run.setup.actor.layout
    params = views(state.learner.actor[:1], layout)
    for name in ("gate", "market"):  # the attention over all columns is ignored: what is left is the switch
        weight = params[f"{name}.weight"]
        weight[:, : weight.shape[1] // 2] = 0
    _, columns = effects(run, run.setup.splits.validation)
    (switch,) = set(range(6)) - set(state.market.investable.tolist())
    assert int(columns.argmax()) == switch


def test_a_feature_that_never_varies_has_no_effect(compose_run: Callable[..., ErlRun]) -> None:
    run = compose_run({})
    observations = run.trainer.run.market.observations.clone()  # the run's own are those of a file
    run.trainer.run.market.observations = observations
    known = (observations != 0).any(-1)
    observations[..., 0] = 1e-6 * known
    features, _ = effects(run, run.setup.splits.validation)
    assert len(features) == len(run.config.observation_features)
    assert features[0] == 0
    assert (features[1:] > 0).all()


def test_a_column_without_data_has_no_effect(compose_run: Callable[..., ErlRun]) -> None:
    run = compose_run({})
    observations = run.trainer.run.market.observations.clone()
    run.trainer.run.market.observations = observations
    observations[4] = 0
    _, columns = effects(run, run.setup.splits.validation)
    assert columns[4] < 1e-5 * columns[:4].min()
    assert (columns[:4] > 0).all()


def test_nothing_is_written(compose_run: Callable[..., ErlRun]) -> None:
    run = compose_run({})
    before = run.trainer.run.market.observations.clone()
    effects(run, run.setup.splits.validation)
    assert torch.equal(run.trainer.run.market.observations, before)
