"""The batched simulator is the reference, episode by episode and day by day; and it never moves its buffers."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import CPU, flat_market, market_of, panel_of, rough_panel
from reference_simulator import Episode, play

from flatwater.state.tree import leaves, nbytes
from flatwater_trading.market.config import AccountConfig, EpisodeConfig, RewardConfig, TradeConfig, TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.observation import account_block
from flatwater_trading.market.results import episode_summary, fitness, trade_columns
from flatwater_trading.market.simulator import Simulator, TimeStep, build_simulator, reset_, step_
from flatwater_trading.panel.panel import Panel
from flatwater_watch.errors import ConfigError

torch.set_num_threads(1)
DAYS = 50

configs = st.builds(
    TradingConfig,
    episode=st.just(EpisodeConfig(context=1, trading_days=10, settlement_days=5)),
    trade=st.builds(
        TradeConfig,
        hold_days=st.integers(1, 8),
        purchases_a_day=st.sampled_from([1, 1, 2, 3]),
        coefficient_max=st.sampled_from([1.5, 2.0]),
        target_low=st.just(5.0),
        target_high=st.sampled_from([5.0, 30.0]),
    ),
    reward=st.builds(
        RewardConfig,
        loss_factor=st.sampled_from([0.0, 1.0, 10.0]),
        inaction_penalty=st.sampled_from([0.0, 5.0]),
    ),
    account=st.builds(
        AccountConfig, position_share=st.sampled_from([None, 0.05, 0.9, 1.0]), cost_bps=st.sampled_from([0.0, 25.0])
    ),
)


def windows(rng: np.random.Generator, batch: int, days: int) -> dict[str, torch.Tensor]:
    """Episodes of different lengths, anywhere in the panel, up to its last row."""
    start = rng.integers(0, days - 2, batch)
    trading_end = rng.integers(start + 1, days - 1)
    end = rng.integers(trading_end + 1, days + 1)
    return {"start": torch.tensor(start), "trading_end": torch.tensor(trading_end), "end": torch.tensor(end)}


def wild_actions(rng: np.random.Generator, days: int, batch: int, instruments: int) -> torch.Tensor:
    """Eager, reluctant, tied, out of range and NaN."""
    action = rng.uniform((0, 0), (1.7, 40), (days, batch, instruments, 2)).astype(np.float32)
    action[rng.random(action.shape[:3]) < 0.1, 0] = 1.0
    action[rng.random(action.shape[:3]) < 0.02, 0] = np.nan
    action[rng.random(action.shape[:3]) < 0.02, 1] = np.nan
    action[rng.random(action.shape[:3]) < 0.02, 0] = np.inf
    return torch.from_numpy(action)


def play_steps(sim: Simulator, market: Market, config: TradingConfig, actions: torch.Tensor) -> list[TimeStep]:
    return [step_(sim, market, config, action) for action in actions]


def reference_episodes(
    config: TradingConfig, market: Market, window: dict[str, torch.Tensor], actions: torch.Tensor
) -> list[Episode]:
    close, high = market.close.numpy(), market.high.numpy()
    return [
        play(config, close, high, **{name: int(at[b]) for name, at in window.items()}, actions=actions[:, b].numpy())
        for b in range(actions.shape[1])
    ]


@settings(max_examples=25, deadline=None)
@given(config=configs, seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 5), columns=st.integers(1, 6))
def test_equals_the_reference_day_by_day(config: TradingConfig, seed: int, batch: int, columns: int) -> None:
    """Rewards, equity, invested money, the account block and every trade, twice over in one simulator."""
    rng = np.random.default_rng(seed)
    panel = rough_panel(seed, days=DAYS, columns=columns + 2, context_columns=2)
    market = market_of(panel)
    sim = build_simulator(config, batch=batch, max_days=DAYS, instruments=columns, device=CPU)

    for _ in range(2):
        window, actions = windows(rng, batch, DAYS), wild_actions(rng, DAYS, batch, columns)
        expected = reference_episodes(config, market, window, actions)
        reset_(sim, **window)
        rewards = []
        for day, action in enumerate(actions):
            check_account_block(account_block(sim, market), expected, day, config.trade.hold_days)
            step = step_(sim, market, config, action)
            rewards.append(step.reward)
            over = torch.tensor([day + 1 >= len(e.rewards) for e in expected])
            assert torch.equal(step.terminated, over)
            assert torch.equal(sim.day >= sim.end, over)

        check_curves(sim, torch.stack(rewards, 1), expected)
        check_trades(sim, market, config, panel, expected)


def check_account_block(block: torch.Tensor, expected: list[Episode], day: int, hold_days: int) -> None:
    for b, episode in enumerate(expected):
        today = episode.account[day] if day < len(episode.account) else {}
        wanted = torch.zeros_like(block[b])
        for instrument, (held, gain) in today.items():
            wanted[instrument] = torch.tensor([1, held / hold_days, gain])
        torch.testing.assert_close(block[b], wanted, rtol=1e-5, atol=1e-6)


def check_curves(sim: Simulator, rewards: torch.Tensor, expected: list[Episode]) -> None:
    for b, episode in enumerate(expected):
        days = len(episode.rewards)
        assert rewards[b, :days].tolist() == pytest.approx(episode.rewards, rel=1e-4, abs=1e-3)
        assert not rewards[b, days:].any()
        assert sim.total[b].item() == pytest.approx(sum(episode.rewards), rel=1e-4, abs=1e-2)
        for log, wanted in ((sim.logs.equity, episode.equity), (sim.logs.invested, episode.invested)):
            assert log[b, : days + 1].tolist() == pytest.approx(wanted, rel=2e-5, abs=0.1)
            assert log[b, days + 1 :].isnan().all()


def check_trades(sim: Simulator, market: Market, config: TradingConfig, panel: Panel, expected: list[Episode]) -> None:
    found = trade_columns(sim, market, config, instruments=panel.instruments, dates=panel.dates)
    wanted = [(b, p) for b, e in enumerate(expected) for p in sorted(e.closed, key=lambda p: (p.entry_day, p.number))]
    names = [panel.instruments[panel.investable[p.instrument]] for _, p in wanted]
    assert found["instrument"].tolist() == names
    assert (found["entry_date"] == panel.dates[found["entry_day"]]).all()
    assert (found["exit_date"] == panel.dates[found["exit_day"]]).all()
    for column in ("episode", "entry_day", "exit_day", "reason"):
        assert found[column].tolist() == [b if column == "episode" else getattr(p, column) for b, p in wanted], column
    for column in ("entry_price", "exit_price", "coefficient", "target", "shares", "reward"):
        exact = [getattr(p, column) for _, p in wanted]
        assert found[column].tolist() == pytest.approx(exact, rel=2e-4, abs=1e-3), column


@pytest.mark.parametrize("account_share", [0.05, 1.0])
def test_credit_on_entry_moves_rewards_and_changes_nothing_else(account_share: float) -> None:
    """The same total, each trade paid on the day of its purchase; equity, trades and fitness do not notice."""
    rng = np.random.default_rng(5)
    account = AccountConfig(position_share=account_share)
    late = TradingConfig(reward=RewardConfig(credit="exit", loss_factor=3.0), account=account)
    early = TradingConfig(reward=RewardConfig(credit="entry", loss_factor=3.0), account=account)
    panel = rough_panel(5, days=DAYS, columns=5)
    market, window = market_of(panel), windows(rng, 6, DAYS)
    actions = wild_actions(rng, DAYS, 6, 5)
    sims = [build_simulator(c, batch=6, max_days=DAYS, instruments=5, device=CPU) for c in (late, early)]
    for sim in sims:
        reset_(sim, **window)
    steps = [play_steps(sim, market, c, actions) for sim, c in zip(sims, (late, early), strict=True)]

    torch.testing.assert_close(sims[0].logs.equity, sims[1].logs.equity, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(fitness(sims[0], late), fitness(sims[1], early), rtol=1e-5, atol=1e-2)
    paid = trade_columns(sims[1], market, early, instruments=panel.instruments, dates=panel.dates)
    penalty_free = torch.stack([s.reward for s in steps[1]], 1)
    for episode, day, reward in zip(paid["episode"], paid["entry_day"], paid["reward"], strict=True):
        slot = int(day - window["start"][episode])
        assert penalty_free[episode, slot].item() == pytest.approx(float(reward), rel=1e-5, abs=1e-3)
    assert len(paid["reward"]) > 10


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(1, DAYS - 10))
def test_nothing_after_today_is_seen(seed: int, cut: int) -> None:
    """Two markets that agree up to a day give the same rewards, equity, account block and closed trades up to it."""
    rng = np.random.default_rng(seed)
    config = TradingConfig(trade=TradeConfig(hold_days=6, target_low=5.0))
    one = rough_panel(seed, days=DAYS, columns=4)
    close, high = np.array(one.feature("close")), np.array(one.feature("high"))
    # The other future: all listed, at prices of their own. What is listed on the last common day must go on in both,
    # because a delisting is announced on the day after.
    other_close, other_high = close.copy(), high.copy()
    close[cut + 1] = np.where(close[cut] > 0, 90.0, close[cut + 1])
    other_close[cut + 1 :] = rng.uniform(50, 200, other_close[cut + 1 :].shape)
    other_high[cut + 1 :] = other_close[cut + 1 :] * 1.1
    has_ended = (close[: cut + 1] > 0).any(0) & ~(close[cut + 1 :] > 0).any(0)
    other_close[cut + 1 :, has_ended] = np.nan
    actions = wild_actions(rng, cut + 1, 3, 4)
    seen = []
    for prices in ((close, high), (other_close, other_high)):
        market = market_of(panel_of(*prices))
        sim = build_simulator(config, batch=3, max_days=DAYS, instruments=4, device=CPU)
        reset_(sim, start=torch.zeros(3).long(), trading_end=torch.full((3,), DAYS - 8), end=torch.full((3,), DAYS - 1))
        steps = []
        for action in actions:
            steps += [account_block(sim, market), step_(sim, market, config, action).reward]
        log = trade_columns(sim, market, config, instruments=["A", "B", "C", "D"], dates=np.arange(DAYS))
        seen.append([*steps, sim.logs.equity, sim.cash, *(torch.tensor(log[c]) for c in ("exit_day", "exit_price"))])
    for a, b in zip(*seen, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def one_trade(close: list[float], high: list[float] | None = None, *, target: float = 25.0, hold_days: int = 3) -> dict:
    """The trade of a purchase on day 0 of an episode over these prices of one instrument."""
    panel = panel_of(np.array(close)[:, None], np.array(close if high is None else high)[:, None])
    market = market_of(panel)
    config = TradingConfig(trade=TradeConfig(hold_days=hold_days, target_low=1.0))
    sim = build_simulator(config, batch=1, max_days=len(close), instruments=1, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([1]), end=torch.tensor([len(close)]))
    for _ in close:
        step_(sim, market, config, torch.tensor([[[1.0, target]]]))
    columns = trade_columns(sim, market, config, instruments=panel.instruments, dates=panel.dates)
    assert len(columns["reason"]) == 1
    return {name: column[0] for name, column in columns.items()}


NONE = float("nan")


@pytest.mark.parametrize(
    ("close", "high", "day", "price", "reason"),
    [
        # The day of the purchase cannot meet the target; a high equal to it does (64 and 25 % are exact in binary).
        ([64, 64, 64, 64, 64], [99, 79, 80, 64, 64], 2, 80, "target"),
        # The target comes before the other rules of its day.
        ([64, 64, 64, 64, 64], [64, 64, 64, 80, 64], 3, 80, "target"),
        ([64, 60, 61, 62, 63], None, 3, 62, "held"),
        # Missing on the day of the exit: the last close before it.
        ([64, 60, 61, NONE, 63], None, 3, 61, "held"),
        # A halt is no delisting.
        ([64, NONE, NONE, 62, 63], None, 3, 62, "held"),
        ([64, 60, NONE, NONE, NONE], None, 2, 60, "data_ended"),
        ([64, NONE, NONE, NONE, NONE], None, 1, 64, "data_ended"),
        ([64, 60, 61], None, 2, 61, "episode_end"),
        ([64, 60, 61, 62], None, 3, 62, "held"),
    ],
)
def test_exit_by_hand(close: list[float], high: list[float] | None, day: int, price: float, reason: str) -> None:
    trade = one_trade(close, high)
    assert (trade["exit_day"], trade["exit_price"], trade["reason"]) == (day, price, reason)
    assert trade["gain"] == pytest.approx((price / 64 - 1) * 100)
    each = 1 + 5 / 10_000  # commission, and slippage, on each side
    kept = price * (2 - each) ** 2
    assert trade["reward"] == pytest.approx(100 * (kept / (64 * each**2) - 1), abs=1e-4)


def test_money_by_hand() -> None:
    """The only instrument takes all of the 100,000, whatever its coefficient; costs and slippage on both sides."""
    trade = one_trade([64, 64, 64, 96, 96], target=50.0)
    spent, each = 100_000.0, 1 + 5 / 10_000
    shares = spent / (64 * each * each)
    assert trade["shares"] == pytest.approx(shares, rel=1e-6)
    assert trade["profit"] == pytest.approx(shares * 96 * (1 - 5 / 10_000) ** 2 - spent, rel=1e-5)


@pytest.mark.parametrize("coefficient", [1.0, 1.3, 2.0, 7.0])
def test_a_trade_pays_what_the_account_makes_of_its_money(coefficient: float) -> None:
    """Whatever the coefficient: two trades of equal gain are worth the same to account and fitness."""
    config = TradingConfig(trade=TradeConfig(hold_days=2), reward=RewardConfig(inaction_penalty=0.0))
    prices = np.array([[64.0], [64.0], [80.0], [80.0]])
    market = market_of(panel_of(prices, prices))
    sim = build_simulator(config, batch=1, max_days=4, instruments=1, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([1]), end=torch.tensor([4]))
    for _ in range(4):
        step_(sim, market, config, torch.tensor([[[coefficient, 50.0]]]))
    summary = episode_summary(sim, config)
    assert summary["reward"].item() == pytest.approx(100 * summary["total_return"].item(), abs=1e-3)
    assert summary["reward"].item() > 20


def test_the_best_of_what_is_not_held_is_bought() -> None:
    """A held favourite does not cost the day: the runner-up is bought. To ask for what is held already is no order."""
    config = TradingConfig()
    market = flat_market(10, 2)
    sim = build_simulator(config, batch=1, max_days=10, instruments=2, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([9]), end=torch.tensor([10]))
    for asked in ([1.2, 1.3], [1.2, 1.3], [1.2, 1.3], [0.9, 0.9]):
        step_(sim, market, config, torch.tensor([[[asked[0], 20.0], [asked[1], 20.0]]]))
    assert (sim.logs.exit_day[0, :4] >= 0).tolist() == [True, True, False, False]
    assert sim.logs.instrument[0, :2].tolist() == [1, 0]
    assert sim.refused.item() == 0


def test_what_has_no_price_is_not_in_the_choice() -> None:
    """The favourite has no close on the first day, so the other is bought instead of nothing."""
    config, market = TradingConfig(), flat_market(10, 2)
    market.close[0, 1] = torch.nan
    sim = build_simulator(config, batch=1, max_days=10, instruments=2, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([9]), end=torch.tensor([10]))
    step_(sim, market, config, torch.tensor([[[1.2, 20.0], [2.0, 20.0]]]))
    assert sim.logs.instrument[0, 0].item() == 0
    assert sim.positions.exit_day.max().item() > 0
    assert sim.refused.item() == 0


def test_an_order_for_what_has_no_price_is_refused_and_counted() -> None:
    config, market = TradingConfig(), flat_market(10, 2)
    market.close[:2, 1] = torch.nan
    sim = build_simulator(config, batch=1, max_days=10, instruments=2, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([4]), end=torch.tensor([10]))
    for _ in range(4):
        step_(sim, market, config, torch.tensor([[[0.2, 20.0], [2.0, 20.0]]]))
    assert sim.refused.item() == 2
    assert episode_summary(sim, config)["refused"].item() == pytest.approx(0.5)


def test_penalties_are_those_of_the_trading_period() -> None:
    """Idle for 6 trading days costs 6 x 5, and 10,000 of fitness; settlement costs nothing."""
    config, market = TradingConfig(), flat_market(10, 3)
    sim = build_simulator(config, batch=1, max_days=10, instruments=3, device=CPU)
    reset_(sim, start=torch.tensor([0]), trading_end=torch.tensor([6]), end=torch.tensor([10]))
    steps = play_steps(sim, market, config, torch.zeros(10, 1, 3, 2))
    assert [s.reward.item() for s in steps] == [-5.0] * 6 + [0.0] * 4
    assert fitness(sim, config).item() == -10_030.0


def test_an_episode_can_be_reset_beside_running_ones() -> None:
    """The chosen place begins again; the other goes on as if nothing had happened."""
    rng = np.random.default_rng(1)
    config = TradingConfig(trade=TradeConfig(hold_days=5))
    market = market_of(rough_panel(1, days=DAYS, columns=3))
    window = {"start": torch.tensor([3, 3]), "trading_end": torch.tensor([40, 40]), "end": torch.tensor([50, 50])}
    actions = wild_actions(rng, 47, 2, 3)
    alone, mixed = (build_simulator(config, batch=2, max_days=47, instruments=3, device=CPU) for _ in range(2))
    reset_(alone, **window)
    reset_(mixed, **window)
    whole = torch.stack([s.reward for s in play_steps(alone, market, config, actions)])
    first = play_steps(mixed, market, config, actions[:13])
    reset_(mixed, **window, chosen_envs=torch.tensor([False, True]))
    again = actions[13:].clone()
    again[:, 1] = actions[:34, 1]
    rest = play_steps(mixed, market, config, again)
    rewards = torch.stack([s.reward for s in first + rest])
    assert torch.equal(rewards[:, 0], whole[:, 0])
    assert torch.equal(rewards[13:, 1], whole[:34, 1])
    assert torch.equal(mixed.logs.equity[1, :35], alone.logs.equity[1, :35])


def tensors(sim: Simulator) -> dict[str, int]:
    return {leaf.path: leaf.value.data_ptr() for leaf in leaves(sim) if isinstance(leaf.value, torch.Tensor)}


def test_buffers_never_move() -> None:
    """Over resets and steps every tensor keeps its storage."""
    config, market = TradingConfig(), flat_market(200, 3)
    sim = build_simulator(config, batch=4, max_days=20, instruments=3, device=CPU)
    home = tensors(sim)
    assert len(home) > 20
    for start in (0, 50, 100):
        at = torch.full((4,), start)
        reset_(sim, start=at, trading_end=at + 10, end=at + 20)
        play_steps(sim, market, config, wild_actions(np.random.default_rng(start), 25, 4, 3))
        assert tensors(sim) == home


def test_the_plan_is_what_is_held() -> None:
    config = TradingConfig()
    plan, held = (
        nbytes(build_simulator(config, batch=80, max_days=145, instruments=108, device=torch.device(name)))
        for name in ("meta", "cpu")
    )
    assert plan == held
    assert sum(held.values()) < 2_000_000


def test_before_the_first_reset_everything_has_ended() -> None:
    config, market = TradingConfig(), flat_market(5, 2)
    sim = build_simulator(config, batch=3, max_days=4, instruments=2, device=CPU)
    step = step_(sim, market, config, torch.full((3, 2, 2), 30.0))
    assert step.terminated.all()
    assert not step.reward.any()
    assert torch.equal(sim.day, sim.end)


def test_an_action_of_another_shape_is_refused() -> None:
    config, market = TradingConfig(), flat_market(5, 2)
    sim = build_simulator(config, batch=3, max_days=4, instruments=2, device=CPU)
    with pytest.raises(ConfigError, match=r"action: .*\[3, 2, 2\].*\[3, 5, 2\]"):
        step_(sim, market, config, torch.zeros(3, 5, 2))
