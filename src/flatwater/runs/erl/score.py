"""The champion against the baselines, on one stretch of days that it plays once, without noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.trading import account
from flatwater.envs.trading.baselines import buy_and_hold, equal_weight, play_random_
from flatwater.envs.trading.results import episode_summary, trades
from flatwater.envs.trading.simulator import Simulator, build_simulator, reset_
from flatwater.panel.panel import Panel
from flatwater.panel.splits import Days
from flatwater.state.random import generator
from flatwater.trainers.erl.play import play_
from flatwater.trainers.erl.round import ErlTrainer

RANDOM_TRADERS = 100
"""Random traders that are played; their median is reported."""


@dataclass(frozen=True)
class Score:
    """What a stretch of days came to."""

    days: Days
    rows: dict[str, dict[str, float]]
    """Trader -> named numbers."""
    equity: dict[str, Float[Tensor, "D1"]]
    """Trader -> equity at the start and at each close. Random: the median trader's."""
    trades: dict[str, np.ndarray[Any, Any]]
    """The champion's trade log, as columns."""
    importance: dict[str, float]
    """Column -> its mean weight in the champion's attention over these days."""


def score_champion(panel: Panel, trainer: ErlTrainer, days: Days) -> Score:
    """Play the champion and the baselines over `days`; the last settlement days only close."""
    recipe, run = trainer.recipe, trainer.run
    env_config = recipe.config.env
    first = torch.tensor([days.first], device=recipe.device)
    champion, chance = _env(trainer, days, batch=1), _env(trainer, days, batch=RANDOM_TRADERS)
    actor = run.learner.actor[-1:]
    outlook = play_(recipe, run.market, champion, actors=actor, starts=first, days=len(days))
    trading_end = first + len(days) - env_config.episode.settlement_days
    every = first.expand(RANDOM_TRADERS)
    reset_(chance, start=every, trading_end=trading_end.expand(RANDOM_TRADERS), end=every + len(days))
    rng = generator(recipe.config.seed, "random traders", recipe.device)
    play_random_(chance, run.market, env_config, days=len(days), rng=rng)
    random = episode_summary(chance, env_config)
    median = int(random["total_return"].argsort()[(RANDOM_TRADERS - 1) // 2])  # what torch calls the median of so many
    curves = {
        "champion": champion.logs.equity[0],
        "buy and hold": buy_and_hold(run.market, days.first, days.stop, env_config.account),
        "equal weight": equal_weight(run.market, days.first, days.stop, env_config.account),
        "random": chance.logs.equity[median],
    }
    return Score(
        days=days,
        rows={
            "champion": {name: float(value[0]) for name, value in episode_summary(champion, env_config).items()},
            "buy and hold": _of_curve(curves["buy and hold"]),
            "equal weight": _of_curve(curves["equal weight"]),
            "random": {name: float(value.median()) for name, value in random.items()},
        },
        equity=curves,
        trades=trades(
            champion,
            run.market,
            env_config,
            instruments=panel.instruments,
            dates=panel.dates,
        ),
        importance=dict(zip(panel.instruments, outlook.attention[0].tolist(), strict=True)),
    )


def _env(trainer: ErlTrainer, days: Days, *, batch: int) -> Simulator:
    recipe, run = trainer.recipe, trainer.run
    return build_simulator(
        recipe.config.env,
        batch=batch,
        max_days=len(days),
        instruments=len(run.market.investable),
        device=recipe.device,
    )


def _of_curve(curve: Float[Tensor, "D1"]) -> dict[str, float]:
    return {
        "total_return": float(account.total_return(curve)),
        "sharpe": float(account.sharpe(curve)),
        "drawdown": float(account.drawdown(curve)),
        "exposure": 1.0,
    }
