"""What hindsight learns from: gains as the env pays them, of training days alone."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from flatwater_trading.market.config import EpisodeConfig, TradingConfig
from flatwater_trading.market.equity_measures import total_return
from flatwater_trading.market.exits import trade_gains
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.panel.config import DEFAULT_OBSERVATION_FEATURES
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.batch_sizes import stretch_count
from flatwater_trading.training.config import ErlConfig
from flatwater_trading.training.lessons import build_outcomes, draw_lessons, lesson_days
from flatwater_trading.training.setup import build_setup
from flatwater_watch.errors import ConfigError

Composed = Callable[..., ErlRun]
Trained = Callable[..., tuple[ErlRun, list[dict[str, float]]]]


def test_a_gain_is_what_the_env_gives_for_the_same_purchase(compose_run: Composed) -> None:
    """All the money in one trade, bought and sold in the simulator, gains what was resolved for its day and target."""
    composition = compose_run({"panel": "synthetic:6x260:halts=0.02", "env.account.position_share": 1.0})
    run, config, days = composition.trainer.run, composition.config.env, range(30, 60)
    targets = torch.tensor([10.0, 12.5, 50.0])
    gains = trade_gains(run.market, rows=days, targets=targets, trade=config.trade, account=config.account)
    sim = build_simulator(config, batch=len(targets), max_days=20, instruments=6, device=torch.device("cpu"))
    traded = 0
    for at, day in enumerate(days):
        for k in range(6):
            first = torch.full((len(targets),), day)
            reset_(sim, start=first, trading_end=first + 1, end=first + 8)
            order = torch.zeros(len(targets), 6, 2)
            order[:, k, 0] = 1.5
            order[:, k, 1] = targets
            for _ in range(8):
                step_(sim, run.market, config, order)
            if bool((run.market.close[day, k] > 0).item()):
                torch.testing.assert_close(total_return(sim.logs.equity), gains[at, k], rtol=0, atol=2e-5)
                traded += 1
            else:
                assert gains[at, k].isnan().all()
    assert traded > 100


def test_no_lesson_knows_a_day_after_training(compose_run: Composed) -> None:
    """The embargo: other prices from the first validation day on change no gain that is learnt from."""
    composition = compose_run()
    setup, run = composition.setup, composition.trainer.run
    market = run.market
    mapped = (market.close, market.high, market.last_close)
    market.close, market.high, market.last_close = (x.clone() for x in mapped)  # of a file
    before = build_outcomes(setup, run.market).gain
    stop = setup.splits.train.stop
    assert lesson_days(setup).stop == stop - setup.config.env.trade.hold_days
    for prices in (run.market.close, run.market.high, run.market.last_close):
        prices[stop:] *= 3
    assert torch.equal(build_outcomes(setup, run.market).gain, before)
    run.market.high[stop - 1] *= 3
    assert not torch.equal(build_outcomes(setup, run.market).gain, before)


@pytest.mark.parametrize(("context", "stretches"), [(1, 32), (20, 32), (60, 8), (252, 2), (504, 1), (4095, 1)])
def test_a_batch_of_short_contexts_is_many_stretches(context: int, stretches: int) -> None:
    """Left to itself a batch reads at most 20 rows for each day, or is one stretch."""
    config = ErlConfig(env=TradingConfig(episode=EpisodeConfig(context=context)))
    assert stretch_count(config) == stretches
    rows = stretches * (context - 1) + config.learner.hindsight.batch_size
    assert stretches == 1 or rows <= 20 * config.learner.hindsight.batch_size
    given = replace(config, learner=config.learner.with_algorithm_settings(stretches=4))
    assert stretch_count(given) == 4


def test_a_lesson_shows_the_days_that_its_gains_belong_to(compose_run: Composed) -> None:
    composition = compose_run(
        {"learner.hindsight.batch_size": 6, "learner.hindsight.stretches": 2, "learner.micro_batches": 3}
    )
    setup, run = composition.setup, composition.trainer.run
    assert run.outcomes is not None
    days, seen = lesson_days(setup), set()
    rng = torch.Generator().manual_seed(0)
    for _ in range(200):
        draws = draw_lessons(setup, run.market, run.outcomes, rng)
        assert len(draws) == 3
        lesson = draws[0](1, 3)
        assert lesson.observations.shape == (2, 2, 6, 19 + 3, len(DEFAULT_OBSERVATION_FEATURES))
        assert lesson.gain.shape == (2, 6, 6, 5)
        for p in range(2):
            for s in range(2):
                at = [
                    a
                    for a in range(len(days))
                    if torch.equal(run.outcomes.gain[a : a + 3], lesson.gain[p, 3 * s : 3 * s + 3])
                ]
                assert len(at) == 1
                row = days[at[0]]
                seen.add(row)
                assert torch.equal(lesson.observations[p, s], run.market.observations[:, row - 19 : row + 3])
    assert min(seen) == days.start
    assert max(seen) == days.stop - 3


def test_members_draw_days_of_their_own(compose_run: Composed) -> None:
    composition = compose_run()
    run = composition.trainer.run
    assert run.outcomes is not None
    lesson = draw_lessons(composition.setup, run.market, run.outcomes, torch.Generator().manual_seed(0))[0](0, 4)
    assert len({lesson.gain[p].numpy().tobytes() for p in range(4)}) > 1


def test_too_few_days_are_told_with_what_to_change(compose_run: Composed) -> None:
    composition = compose_run()
    config = composition.setup.config
    config = replace(config, learner=config.learner.with_algorithm_settings(batch_size=400, stretches=1))
    setup = build_setup(config, composition.trainer.run.market, composition.setup.splits, torch.device("cpu"))
    with pytest.raises(ConfigError, match=r"hindsight .*405 or more.*learner\.hindsight\.batch_size"):
        build_outcomes(setup, composition.trainer.run.market)


def test_a_run_in_hindsight_holds_no_replay_and_no_critic(train_run: Trained) -> None:
    composition, rounds = train_run(2)
    run = composition.trainer.run
    assert run.replay is None
    assert run.windows is None
    assert list(run.learner.trained) == ["actor"]
    assert all(np.isfinite(list(numbers.values())).all() for numbers in rounds)
    assert "buffer/fill" not in rounds[0]
    assert rounds[0]["updates"] == 2


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["hindsight", "ddpg", "td3"])
def test_every_algorithm_is_validated_after_it_has_learnt(algorithm: str, compose_run: Composed) -> None:
    names = [phase.name for phase in compose_run({"learner.algorithm": algorithm}).trainer.phases]
    assert names == ["learn", "evaluate", "validate", "evolve"]
