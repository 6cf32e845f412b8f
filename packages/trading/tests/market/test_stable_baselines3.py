"""Stable-Baselines3 trains on the Gymnasium face as it is. Optional: needs the extra `compare`."""

import numpy as np
import pytest
import torch
from markets import market_of, rough_panel

from flatwater_trading.market.config import EpisodeConfig, TradeConfig, TradingConfig
from flatwater_trading.market.gym_env import TradingEnv
from flatwater_trading.panel.splits import Days

sb3 = pytest.importorskip("stable_baselines3", reason="pip install stable-baselines3")
torch.set_num_threads(1)
CONFIG = TradingConfig(
    episode=EpisodeConfig(context=5, trading_days=12, settlement_days=4), trade=TradeConfig(hold_days=5, target_low=5.0)
)


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:DeprecationWarning")
def test_ppo_trains_and_its_parameters_move() -> None:
    """Some hundred steps over many episodes; every episode reported is one of the simulator's."""
    market = market_of(rough_panel(3, days=60, columns=4))
    env = TradingEnv(market, CONFIG, Days(4, 60))
    model = sb3.PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(256)
    assert any(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())
    ended = list(model.ep_info_buffer)
    assert len(ended) == 256 // CONFIG.episode.days
    assert all(e["l"] == CONFIG.episode.days and np.isfinite(e["r"]) for e in ended)
