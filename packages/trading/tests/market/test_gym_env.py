"""The Gymnasium faces: Gymnasium's own checker, windows that move, observations that are the panel itself."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from markets import flat_market, market_of, panel_of, rough_panel

from flatwater.envs.conformance import check_env_conformance
from flatwater_trading.market.config import EpisodeConfig, TradeConfig, TradingConfig
from flatwater_trading.market.gym_env import TradingEnv, make_trading_env
from flatwater_trading.market.market import Market
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.market.vector_env import TradingVectorEnv
from flatwater_trading.panel.config import SplitConfig
from flatwater_trading.panel.splits import Days
from flatwater_watch.errors import ConfigError

torch.set_num_threads(1)
SMALL = TradingConfig(
    episode=EpisodeConfig(context=8, trading_days=12, settlement_days=4), trade=TradeConfig(hold_days=5, target_low=5.0)
)
WITH_ACCOUNT = TradingConfig(episode=SMALL.episode, trade=SMALL.trade, account_observation=True)
TRADABLE = Days(7, 50)


@pytest.fixture
def market() -> Market:
    return market_of(rough_panel(3, days=60, columns=6, context_columns=2))


@pytest.mark.parametrize("config", [SMALL, WITH_ACCOUNT])
def test_passes_gymnasiums_checker(market: Market, config: TradingConfig) -> None:
    """With copies: no error, and no warning but the one on the unbounded gain."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        check_env(TradingEnv(market, config, TRADABLE, copy=True), skip_render_check=True)
    assert [str(w.message) for w in told if "maximum value is infinity" not in str(w.message)] == []
    assert bool(told) == config.account_observation


def test_views_pass_it_up_to_the_check_that_forbids_views(market: Market) -> None:
    """Gymnasium 1.4 refuses observations that overlap in memory, which is what windows of one panel are."""
    with pytest.raises(AssertionError, match="share an object, therefore, modifying one will modify the other"):
        check_env(TradingEnv(market, SMALL, TRADABLE), skip_render_check=True)


@pytest.mark.parametrize("config", [SMALL, WITH_ACCOUNT])
def test_passes_our_conformance_suite(market: Market, config: TradingConfig) -> None:
    assert check_env_conformance(lambda: TradingEnv(market, config, TRADABLE)) == []


def test_an_observation_is_a_window_of_the_panel(market: Market) -> None:
    """The same memory, the right rows, and no way to write into the shared market."""
    env = TradingEnv(market, SMALL, TRADABLE)
    seen, info = env.reset(start_idx=20)
    assert info["day"] == 20
    panel = market.observations.numpy()
    for day in range(21, 21 + SMALL.episode.days):
        assert np.shares_memory(seen, panel)
        assert not seen.flags.writeable
        np.testing.assert_array_equal(seen, panel[:, day - 8 : day].transpose(1, 0, 2))
        seen, _, terminated, _, info = env.step(env.action_space.sample())
        assert info["day"] == day
    assert terminated
    # Nothing after the episode is shown, not even with its end.
    np.testing.assert_array_equal(seen, panel[:, day - 8 : day].transpose(1, 0, 2))


def test_copies_share_nothing(market: Market) -> None:
    env = TradingEnv(market, SMALL, TRADABLE, copy=True)
    seen, _ = env.reset(seed=0)
    assert not np.shares_memory(seen, market.observations.numpy())


def test_windows_are_drawn_from_all_tradable_days(market: Market) -> None:
    """Every possible start is drawn, the first and the last included, and no other."""
    env = TradingEnv(market, SMALL, Days(10, 30))
    env.reset(seed=1)
    starts = {env.reset()[1]["day"] for _ in range(200)}
    assert starts == set(range(10, 30 - SMALL.episode.days + 1))


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({"start_idx": 10}, (10, 22, 26)),
        ({"end_idx": 40}, (24, 36, 40)),
        ({"trading_end_idx": 30}, (18, 30, 34)),
        ({"start_idx": 10, "end_idx": 40}, (10, 36, 40)),
        ({"start_idx": 10, "trading_end_idx": 12}, (10, 12, 16)),
        ({"start_idx": 7, "trading_end_idx": 20, "end_idx": 50}, (7, 20, 50)),
    ],
)
def test_a_reset_moves_the_window_of_a_live_env(market: Market, given: dict[str, int], window: tuple[int, ...]) -> None:
    env = TradingEnv(market, SMALL, TRADABLE)
    for how in ({"options": given}, given):
        env.reset(**how)
        assert (env.window.start, env.window.trading_end, env.window.end) == window
        steps = 0
        while not env.step(env.action_space.low)[2]:
            steps += 1
        assert steps + 1 == window[2] - window[0]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"start_idx": 6}, r"reset start_idx = 6: .*7 \.\. 50"),
        ({"start_idx": 50}, r"reset start_idx = 50"),
        ({"start_idx": 40}, r"reset end_idx = 56: .*7 \.\. 50 .*start_idx \(40\)"),
        ({"start_idx": 10, "end_idx": 10}, r"reset end_idx = 10"),
        (
            {"start_idx": 10, "end_idx": 20, "trading_end_idx": 20},
            r"reset trading_end_idx = 20: .*end_idx \(20\)",
        ),
        ({"start_idx": 10, "end_idx": 14}, r"reset trading_end_idx = 10"),
        ({"options": {"start": 10}}, r"'start': .*start_idx, end_idx, trading_end_idx"),
    ],
)
def test_a_window_that_cannot_be_is_refused(market: Market, given: dict[str, int], told: str) -> None:
    env = TradingEnv(market, SMALL, TRADABLE)
    with pytest.raises(ConfigError, match=told):
        env.reset(**given)


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (Days(6, 50), r"days.first = 6: .*\b7: .*env.episode.context \(8\)"),
        (Days(7, 61), r"days = .*60 rows"),
        (Days(7, 22), r"15 tradable days .*16: "),
    ],
)
def test_days_that_hold_no_episode_are_refused(market: Market, days: Days, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TradingEnv(market, SMALL, days)


def test_a_panel_that_is_not_normalised_is_refused(market: Market) -> None:
    market.observations[2, 30, 1] = 55.0
    with pytest.raises(ConfigError, match=r"\b0 to 55\b"):
        TradingEnv(market, SMALL, TRADABLE)


def test_a_step_needs_a_reset(market: Market) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        TradingEnv(market, SMALL, TRADABLE).step(np.zeros((4, 2), np.float32))


def test_the_last_info_has_the_fitness() -> None:
    env = TradingEnv(flat_market(60, 3), SMALL, TRADABLE)
    env.reset(seed=0)
    infos = [env.step(env.action_space.low)[4] for _ in range(SMALL.episode.days)]
    assert [("fitness" in info) for info in infos] == [False] * (SMALL.episode.days - 1) + [True]
    assert infos[-1]["fitness"] == -10_000 - 12 * 5
    assert infos[-1]["equity"] == infos[-1]["cash"] == 100_000


def test_make_normalises_by_the_training_days_and_trades_only_them() -> None:
    """Statistics of the rows before the validation; the days after are never seen."""
    rng = np.random.default_rng(0)
    close = 50 + 10 * rng.random((80, 2))
    close[60:] *= 7
    env = make_trading_env(
        panel_of(close), SMALL, features=("close",), splits=SplitConfig(validation_days=10, holdout_days=10)
    )
    assert env.days == Days(7, 60)
    training = env.market.observations[:, :60, 0]
    torch.testing.assert_close(training.mean(1), torch.zeros(2), rtol=0, atol=1e-5)
    torch.testing.assert_close(training.std(1, correction=0), torch.ones(2), rtol=0, atol=1e-5)
    assert env.reset(seed=0)[0].shape == (8, 2, 1)


@pytest.mark.parametrize("config", [SMALL, WITH_ACCOUNT])
def test_the_vector_env_is_a_row_of_single_ones(market: Market, config: TradingConfig) -> None:
    """Same windows and actions, same everything, with NEXT_STEP autoreset at different lengths."""
    vector = TradingVectorEnv(market, config, TRADABLE, num_envs=3)
    ends = np.array([20, 24, 30])
    seen, info = vector.reset(seed=4, options={"start_idx": 10, "end_idx": ends, "trading_end_idx": 15})
    singles = [TradingEnv(market, config, TRADABLE) for _ in range(3)]
    single_seen = [
        env.reset(start_idx=10, end_idx=int(end), trading_end_idx=15)[0] for env, end in zip(singles, ends, strict=True)
    ]
    over, resets = [False] * 3, 0
    vector.action_space.seed(0)
    for _ in range(45):
        assert seen in vector.observation_space
        for b in range(3):
            equal(row_of(seen, b), single_seen[b])
        action = vector.action_space.sample()
        seen, reward, terminated, truncated, info = vector.step(action)
        assert info["_equity"].all()
        for b, env in enumerate(singles):
            if over[b]:
                single_seen[b], single_info = env.reset(start_idx=int(info["day"][b]))
                single_reward, over[b], resets = 0.0, False, resets + 1
            else:
                single_seen[b], single_reward, over[b], _, single_info = env.step(action[b])
            assert (reward[b], terminated[b], truncated[b]) == (single_reward, over[b], False)
            assert (info["day"][b], info["equity"][b]) == (single_info["day"], single_info["equity"])
    assert resets >= 5


def row_of(seen: np.ndarray | dict, b: int) -> np.ndarray | dict:
    return {name: part[b] for name, part in seen.items()} if isinstance(seen, dict) else seen[b]


def equal(a: np.ndarray | dict, b: np.ndarray | dict) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    else:
        np.testing.assert_array_equal(a, b)


def test_the_vector_env_is_determined_by_its_seed(market: Market) -> None:
    runs = []
    for _ in range(2):
        vector = TradingVectorEnv(market, SMALL, TRADABLE, num_envs=2)
        vector.action_space.seed(1)
        vector.reset(seed=9)
        runs.append([vector.step(vector.action_space.sample()) for _ in range(40)])
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_without_copies_the_vector_env_writes_one_block(market: Market) -> None:
    vector = TradingVectorEnv(market, SMALL, TRADABLE, num_envs=2, copy=False)
    first, _ = vector.reset(seed=0)
    second, *_ = vector.step(vector.action_space.sample())
    assert first is second
    kept = TradingVectorEnv(market, SMALL, TRADABLE, num_envs=2)
    first, _ = kept.reset(seed=0)
    before = first.copy()
    kept.step(kept.action_space.sample())
    np.testing.assert_array_equal(first, before)


def test_the_face_and_the_simulator_agree(market: Market) -> None:
    env = TradingEnv(market, SMALL, TRADABLE)
    sim = build_simulator(SMALL, batch=1, max_days=16, instruments=4, device=torch.device("cpu"))
    env.reset(start_idx=12)
    reset_(sim, start=torch.tensor([12]), trading_end=torch.tensor([24]), end=torch.tensor([28]))
    env.action_space.seed(2)
    for _ in range(16):
        action = env.action_space.sample()
        _, reward, terminated, truncated, info = env.step(action)
        step = step_(sim, market, SMALL, torch.from_numpy(action)[None])
        assert (reward, terminated, truncated) == (step.reward.item(), step.terminated.item(), False)
        assert info["cash"] == sim.cash.item()
