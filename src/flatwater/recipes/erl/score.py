"""The champion against the baselines, on one stretch of days that it plays once, without noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.envs.trading import account
from flatwater.envs.trading.baselines import buy_and_hold, equal_weight, play_random_
from flatwater.envs.trading.config import TradingConfig
from flatwater.envs.trading.results import episode_summary, trades
from flatwater.envs.trading.simulator import Simulator, build_simulator, reset_
from flatwater.envs.trading.yardsticks import oracle_scores, play_rule_, rules
from flatwater.panel.panel import Panel
from flatwater.panel.splits import Days
from flatwater.recipes.erl.comparison import (
    CHAMPION,
    ORACLE,
    Comparison,
    beside_oracle,
    compare,
    oracle_share,
    simple_rules,
)
from flatwater.recipes.erl.occlusion import feature_effects
from flatwater.state.random import generator
from flatwater.trainers.erl.lessons import lesson_days
from flatwater.trainers.erl.play import play_
from flatwater.trainers.erl.round import ErlTrainer

RANDOM_TRADERS = 100
"""Random traders that are played, with purchases on the days of the champion's; their median is reported."""


@dataclass(frozen=True)
class Score:
    """What a stretch of days came to."""

    days: Days
    comparison: Comparison
    rows: dict[str, dict[str, float]]
    """Trader -> named numbers."""
    equity: dict[str, Float[Tensor, "D1"]]
    """Trader -> equity at the start and at each close. Random: the median trader's."""
    chance: Float[Tensor, "R"]
    """Total return of each random trader."""
    trades: dict[str, np.ndarray[Any, Any]]
    """The champion's trade log, as columns."""
    importance: dict[str, float]
    """Column -> its mean weight in the champion's attention over these days."""
    effects: dict[str, float]
    """Feature -> how much coefficients change without it: see `occlusion.feature_effects`."""

    @property
    def oracle_share(self) -> float | None:
        """The champion's return over the oracle's; None where there is no oracle, or nothing for it to earn."""
        return oracle_share(self._returns)

    @property
    def verdict(self) -> str:
        """What follows from the numbers, in words."""
        return f"{self.comparison.sentence} {beside_oracle(self._returns)}".rstrip()

    @property
    def _returns(self) -> dict[str, float | None]:
        return {name: row["total_return"] for name, row in self.rows.items()}


def score_champion(panel: Panel, trainer: ErlTrainer, days: Days, truth: np.ndarray[Any, Any] | None) -> Score:
    """Play the champion and the baselines over `days`; the last settlement days only close.

    Args:
        panel: that the run trained on.
        trainer: whose champion is played.
        days: of the panel.
        truth: what an oracle knows of a synthetic market [T, K]; None where nobody knows.
    """
    setup, run = trainer.setup, trainer.run
    env_config = setup.config.env
    first = torch.tensor([days.first], device=setup.device)
    champion, chance = _env(trainer, days, batch=1), _env(trainer, days, batch=RANDOM_TRADERS)
    actor = run.learner.actor[-1:]
    outlook = play_(setup, run.market, champion, actors=actor, starts=first, days=len(days))
    _play_chance_(trainer, chance, days, bought=champion.logs.exit_day[0] >= 0)
    random = episode_summary(chance, env_config)
    median = int(random["total_return"].argsort()[(RANDOM_TRADERS - 1) // 2])  # what torch calls the median of so many
    played = _rules(trainer, days, truth)
    curves = {
        "champion": champion.logs.equity[0],
        "buy and hold": buy_and_hold(run.market, days.first, days.stop, env_config.account),
        "equal weight": equal_weight(run.market, days.first, days.stop, env_config.account),
        **{name: env.logs.equity[0] for name, env in played.items()},
        "random": chance.logs.equity[median],
    }
    return Score(
        days=days,
        comparison=compare(
            curves,
            random["total_return"],
            trained=CHAMPION,
            yardsticks=simple_rules(curves),
            seed=setup.config.seed,
        ),
        rows={
            "champion": _of_env(champion, env_config),
            "buy and hold": _of_curve(curves["buy and hold"]),
            "equal weight": _of_curve(curves["equal weight"]),
            **{name: _of_env(env, env_config) for name, env in played.items()},
            "random": {name: float(value.median()) for name, value in random.items()},
        },
        equity=curves,
        chance=random["total_return"],
        trades=trades(champion, run.market, env_config, instruments=panel.instruments, dates=panel.dates),
        importance=dict(zip(panel.instruments, outlook.attention[0].tolist(), strict=True)),
        effects=feature_effects(setup, run.market, actor, days, setup.config.observation_features),
    )


def _play_chance_(trainer: ErlTrainer, chance: Simulator, days: Days, *, bought: Tensor) -> None:
    """Play the random traders, with purchases on the days of the champion's."""
    setup = trainer.setup
    start = torch.full((RANDOM_TRADERS,), days.first, device=setup.device)
    end = start + len(days)
    reset_(chance, start=start, trading_end=end - setup.config.env.episode.settlement_days, end=end)
    rng = generator(setup.config.seed, "random traders", setup.device)
    play_random_(chance, trainer.run.market, setup.config.env, days=len(days), rng=rng, buys=bought)


def _rules(trainer: ErlTrainer, days: Days, truth: np.ndarray[Any, Any] | None) -> dict[str, Simulator]:
    """The simple rules, and the oracle, played by name."""
    setup, market, played = trainer.setup, trainer.run.market, {}
    first = torch.tensor([days.first], device=setup.device)
    trading_end = first + len(days) - setup.config.env.episode.settlement_days
    asked = rules(market, setup.config.env, lesson_days(setup))
    if truth is not None:
        asked[ORACLE] = lambda: oracle_scores(truth, setup.config.env)
    for name, scores in asked.items():
        env = _env(trainer, days, batch=1)
        reset_(env, start=first, trading_end=trading_end, end=first + len(days))
        known = torch.from_numpy(scores()).to(setup.device)
        play_rule_(env, market, setup.config.env, known, start=days.first, days=len(days))
        played[name] = env
    return played


def _env(trainer: ErlTrainer, days: Days, *, batch: int) -> Simulator:
    setup, run = trainer.setup, trainer.run
    return build_simulator(
        setup.config.env,
        batch=batch,
        max_days=len(days),
        instruments=len(run.market.investable),
        device=setup.device,
    )


def _of_env(env: Simulator, config: TradingConfig) -> dict[str, float]:
    return {name: float(value[0]) for name, value in episode_summary(env, config).items()}


def _of_curve(curve: Float[Tensor, "D1"]) -> dict[str, float]:
    return {
        "total_return": float(account.total_return(curve)),
        "sharpe": float(account.sharpe(curve)),
        "drawdown": float(account.drawdown(curve)),
        "exposure": 1.0,
    }
