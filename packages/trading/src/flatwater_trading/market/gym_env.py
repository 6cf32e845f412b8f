"""The trading simulator as a `gymnasium.Env`: one episode at a time, on a window that every reset can move."""

from typing import Any

import gymnasium
import numpy as np
import torch

from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.market import Market, normalised_market
from flatwater_trading.market.observation import account_block
from flatwater_trading.market.results import closed_mask, fitness
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.market.spaces import action_space, observation_space, shown_panel
from flatwater_trading.market.windows import WINDOW_OPTIONS, Window, check_days, complete_window
from flatwater_trading.panel.config import DEFAULT_OBSERVATION_FEATURES, SplitConfig
from flatwater_trading.panel.panel import Panel
from flatwater_trading.panel.splits import Days, split_days
from flatwater_watch.errors import ConfigError

Observation = np.ndarray | dict[str, np.ndarray]


class TradingEnv(gymnasium.Env[Observation, np.ndarray]):
    """Trading on the tradable days of a market.

    An observation [context, N, F'] is a read-only view of the normalised panel, so a thousand observations take no
    memory. Episodes end by termination only; the last step returns the observation of the last day again.

    `info` has: `day` (row that the next action trades on), `equity`, `cash`, `trades` (closed so far) and, after the
    last step, `fitness`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium declares it so)

    def __init__(self, market: Market, config: TradingConfig, days: Days, *, copy: bool = False) -> None:
        """Build an environment over a market, which others may share.

        Args:
            market: market on the CPU.
            config: lengths, rules, costs.
            days: rows on which episodes may trade and settle; observations also show the context before them.
            copy: whether observations are copies instead of views. Gymnasium's `check_env` (1.4) needs copies, because
                it mistakes two overlapping windows of a panel for a buffer that is used again.
        """
        check_days(config.episode, days, market.close.shape[0])
        self.market, self.config, self.days = market, config, days
        self.action_space = action_space(config.trade, len(market.investable))
        self.observation_space = observation_space(market, config)
        self._shown_panel = shown_panel(market)
        self._returns_copies = copy
        self.simulator = build_simulator(
            config, batch=1, max_days=len(days), instruments=len(market.investable), device=torch.device("cpu")
        )
        self.window: Window | None = None

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
        start_idx: int | None = None,
        end_idx: int | None = None,
        trading_end_idx: int | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode on a window of rows of the panel: that of the given rows, or a random one without any.

        Args:
            seed: seed of the generator that draws windows.
            options: `start_idx`, `end_idx`, `trading_end_idx` for callers behind a wrapper that passes no keywords.
            start_idx: first trading row of the panel.
            end_idx: row after the last day of settlement.
            trading_end_idx: row after the last trading day. Missing rows are computed from the configured lengths.

        Raises:
            ConfigError: an option is unknown, or the window is not within the tradable days.
        """
        # This seeds `np_random`, from which the window may be drawn below.
        super().reset(seed=seed)
        # Rows by keyword; options take their place.
        window_rows = {"start_idx": start_idx, "end_idx": end_idx, "trading_end_idx": trading_end_idx}
        for name, value in (options or {}).items():
            if name not in window_rows:
                raise ConfigError(f"no reset option {name!r}: expected {', '.join(WINDOW_OPTIONS)}.")
            window_rows[name] = value
        window = complete_window(self.config.episode, self.days, self.np_random, **window_rows)
        self.window = window
        reset_(
            self.simulator,
            start=torch.full((1,), window.start),
            trading_end=torch.full((1,), window.trading_end),
            end=torch.full((1,), window.end),
        )
        return self._observe(window.start), self._info()

    def step(self, action: np.ndarray) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Trade one day; return observation, reward, terminated, truncated (always False) and `info`.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.window is None:
            raise gymnasium.error.ResetNeeded("step() before reset(): there is no episode to trade in.")
        # A batch of one episode.
        action_batch = torch.from_numpy(np.array(action, dtype=np.float32))[None]
        step = step_(self.simulator, self.market, self.config, action_batch)
        terminated = bool(step.terminated)
        info = self._info()
        if terminated:
            info["fitness"] = float(fitness(self.simulator, self.config))
        # After the last day there is no observation, so the last day is shown again.
        day = min(info["day"], self.window.end - 1)
        return self._observe(day), float(step.reward), terminated, False, info

    def _observe(self, day: int) -> Observation:
        """Return the observation before the action on row `day`: a view of the panel, or a copy if so configured."""
        # The rows up to and with `day`, at whose close the next action trades.
        window = self._shown_panel[day - self.config.episode.context + 1 : day + 1]
        panel = window.copy() if self._returns_copies else window
        if not self.config.account_observation:
            return panel
        return {"panel": panel, "account": account_block(self.simulator, self.market)[0].numpy()}

    def _info(self) -> dict[str, Any]:
        """Return the numbers of `info`; after the end of the episode `day` is the row after its last day."""
        simulator = self.simulator
        day = int(simulator.day)
        return {
            "day": day,
            # Column 0 of the log is the opening, column d the equity after d days.
            "equity": float(simulator.logs.equity[0, day - int(simulator.start)]),
            "cash": float(simulator.cash),
            "trades": int(closed_mask(simulator).sum()),
        }


def make_trading_env(
    panel: Panel,
    config: TradingConfig,
    *,
    features: tuple[str, ...] = DEFAULT_OBSERVATION_FEATURES,
    splits: SplitConfig | None = None,
    copy: bool = False,
) -> TradingEnv:
    """Make an environment on the training days of a panel, normalised by the statistics of these days.

    Args:
        panel: panel of prices.
        config: lengths, rules, costs.
        features: names of the observed features.
        splits: days at the end that are kept for validation and holdout; None for the default lengths.
        copy: see `TradingEnv`.
    """
    days = split_days(len(panel.dates), context=config.episode.context, config=splits or SplitConfig()).train
    market = normalised_market(panel, features, days.stop, torch.device("cpu"), config.account)
    return TradingEnv(market, config, days, copy=copy)
