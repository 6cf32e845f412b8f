"""What the replay gives back is what a Gymnasium env shows and pays for the same days and actions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from watchers import phase_

from flatwater_trading.market.gym_env import TradingEnv
from flatwater_trading.recipe.run import ErlRun
from flatwater_trading.training.learn import ReplaySource, bind_micro_batch, observe
from flatwater_trading.training.play import to_orders

Composed = Callable[..., ErlRun]
DDPG = {"learner.algorithm": "ddpg", "learner.micro_batches": 2}


def source_of(composition: ErlRun) -> ReplaySource:
    run = composition.trainer.run
    assert run.replay is not None
    assert run.windows is not None
    return ReplaySource(run.replay, run.windows, run.market.observations, composition.config.env.episode.context)


@pytest.mark.long
@pytest.mark.parametrize("account", [False, True])
@pytest.mark.parametrize("credit", ["exit", "entry"])
def test_an_episode_in_the_replay_is_the_one_that_the_env_plays(
    account: object, credit: str, compose_run: Composed
) -> None:
    composition = compose_run(DDPG | {"env.account_observation": account, "env.reward.credit": credit})
    run, setup = composition.trainer.run, composition.setup
    env = TradingEnv(run.market, setup.config.env, setup.splits.train)
    phase_(composition.trainer, "evaluate")
    traded = 0
    for episode in range(8):  # 4 members x 2 slices: the first day of each is the first rows of the ring
        at, start = episode, int(run.replay.row[episode])
        seen, _ = env.reset(start_idx=start)
        assert int(run.replay.member[at]) == episode // 2
        for day in range(20):
            assert int(run.replay.row[at]) == start + day
            same_observation(stored_observation(composition, at), seen)
            orders = to_orders(setup.config.env.trade, run.replay.action[at][None])[0]
            seen, reward, terminated, _, info = env.step(orders.numpy())
            assert float(run.replay.reward[at]) == reward
            assert float(run.replay.discount[at]) == (0 if terminated else 1)
            following = int(run.replay.following[at])
            assert following == (at if terminated else at + 8)
            assert terminated == (day == 19)
            at = following
        traded += info["trades"]
    assert traded > 0


def stored_observation(composition: ErlRun, at: int) -> Any:
    """What the learner gets for one transition."""
    got = observe(source_of(composition), torch.tensor([[at]]))
    window = got.windows[0, 0].transpose(0, 1).numpy()  # [N, C, F] -> [C, N, F], as the env shows it
    return window if got.account is None else {"panel": window, "account": got.account[0, 0].numpy()}


def same_observation(first: Any, second: Any) -> None:
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name, part in first.items():
            same_observation(part, second[name])
    else:
        assert np.array_equal(first, second)


def test_a_batch_holds_each_transition_with_its_successor(compose_run: Composed) -> None:
    composition = compose_run(DDPG)
    run = composition.trainer.run
    phase_(composition.trainer, "evaluate")
    index = torch.randint(160, (4, 2, 8), generator=torch.Generator().manual_seed(1))
    batch = bind_micro_batch(source_of(composition), index, None, 1)(1, 3)
    for p in range(2):
        for b in range(8):
            at = int(index[1 + p, 1, b])
            row, last = int(run.replay.row[at]), float(run.replay.discount[at]) == 0
            assert torch.equal(batch.obs.windows[p, b], run.market.observations[:, row - 19 : row + 1])
            after = row if last else row + 1
            assert torch.equal(batch.next_obs.windows[p, b], run.market.observations[:, after - 19 : after + 1])
            assert torch.equal(batch.action[p, b], run.replay.action[at])
            assert batch.reward[p, b] == run.replay.reward[at]
            assert batch.discount[p, b] == (0 if last else 1)


@pytest.mark.long
def test_nothing_is_learned_before_the_replay_holds_its_minimum(train_run: Callable[..., Any]) -> None:
    composition, rounds = train_run(4, DDPG | {"replay.warmup": 321})
    assert [numbers["updates"] for numbers in rounds] == [0, 0, 0, 2]
    assert [numbers["buffer/fill"] for numbers in rounds] == pytest.approx([160 / 480, 320 / 480, 1, 1])
    assert composition.trainer.run.learner.tally.updates == 2
