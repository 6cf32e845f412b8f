"""The trading simulator as a `gymnasium.vector.VectorEnv`: B episodes in one batched step, no sub-environments.

Autoreset is Gymnasium's default, NEXT_STEP: the step after an episode's last step ignores its action and gives the
first observation of a new episode on a random window, reward 0, and terminated False.
"""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from flatwater_trading.market.config import TradingConfig
from flatwater_trading.market.market import Market
from flatwater_trading.market.observation import account_block, observed_rows
from flatwater_trading.market.simulator import build_simulator, reset_, step_
from flatwater_trading.market.spaces import action_space, observation_space, shown_panel
from flatwater_trading.market.windows import WINDOW_OPTIONS, Window, check_days, complete_window
from flatwater_trading.panel.splits import Days
from flatwater_watch.errors import ConfigError, require

Observation = np.ndarray | dict[str, np.ndarray]


class TradingVectorEnv(gymnasium.vector.VectorEnv[Observation, np.ndarray, np.ndarray]):
    """B episodes, each on a window of its own.

    Windows that begin on different days cannot be one view of the panel, so a batch of observations
    [B, context, N, F'] is gathered into a block that is allocated once: B x context x N x F' x 4 bytes.

    `info` has arrays `day`, `equity` and `cash` [B], each with Gymnasium's mask `_day`, `_equity`, `_cash`.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  (Gymnasium's declaration)

    def __init__(self, market: Market, config: TradingConfig, days: Days, *, num_envs: int, copy: bool = True) -> None:
        """Build B environments over a market, which others may share.

        Args:
            market: market on the CPU.
            config: lengths, rules, costs.
            days: rows on which episodes may trade and settle; observations also show the context before them.
            num_envs: number B of environments.
            copy: whether observations are copies; if not, each step writes over the observations of the step before.
        """
        require(num_envs >= 1, "num_envs", num_envs, "at least 1")
        check_days(config.episode, days, market.close.shape[0])
        self.num_envs, self.market, self.config, self.days = num_envs, market, config, days
        self.single_action_space = action_space(config.trade, len(market.investable))
        self.single_observation_space = observation_space(market, config)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.simulator = build_simulator(
            config, batch=num_envs, max_days=len(days), instruments=len(market.investable), device=torch.device("cpu")
        )
        self._shown_panel = shown_panel(market)
        shape = (num_envs, config.episode.context, *self._shown_panel.shape[1:])
        self._observation_block = np.full(shape, 0, dtype=np.float32)
        self._returns_copies = copy
        self._has_ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin all episodes; return their first observations and `info`.

        Args:
            seed: seed of the generator that draws all windows.
            options: `start_idx`, `end_idx`, `trading_end_idx`, each a row for all episodes or an array [B].
        """
        super().reset(seed=seed)
        self._begin_episodes_(np.ones(self.num_envs, dtype=bool), options or {})
        return self._observe(), self._info()

    def step(self, actions: np.ndarray) -> tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Trade one day in each episode; episodes that had ended are reset instead."""
        # An ended episode stays as it is under step_, with reward 0.
        action_batch = torch.from_numpy(np.array(actions, dtype=np.float32))
        step = step_(self.simulator, self.market, self.config, action_batch)
        terminated = step.terminated.numpy().copy()
        if self._has_ended.any():
            # NEXT_STEP: for episodes that had ended before, this step is a reset, and its action was ignored.
            terminated[self._has_ended] = False
            self._begin_episodes_(self._has_ended, {})
        # A copy, as the caller owns the array that is returned.
        self._has_ended = terminated.copy()
        truncated = np.zeros(self.num_envs, dtype=bool)
        return self._observe(), step.reward.numpy().astype(np.float64), terminated, truncated, self._info()

    def _begin_episodes_(self, chosen_envs: np.ndarray, options: dict[str, Any]) -> None:
        """Begin new episodes where `chosen_envs` [B] is true, on windows of `options` or random ones; the others go on.

        Raises:
            ConfigError: an option is not in `WINDOW_OPTIONS`, or a window is not within the tradable days.
        """
        # Option -> its row of the panel for each episode [B]; None where no row is given.
        rows_given = dict.fromkeys(WINDOW_OPTIONS, np.full(self.num_envs, None))
        for name, value in options.items():
            if name not in rows_given:
                raise ConfigError(f"no reset option {name!r}: expected {', '.join(WINDOW_OPTIONS)}.")
            rows_given[name] = np.broadcast_to(np.asarray(value), self.num_envs)
        # Placeholders: the window of an episode that goes on is not read.
        windows = [Window(0, 0, 0)] * self.num_envs
        # In the order of the episodes, which is part of the seed, as one generator draws all windows.
        for env_index in np.flatnonzero(chosen_envs).tolist():
            rows = {name: _optional_row(values[env_index]) for name, values in rows_given.items()}
            windows[env_index] = complete_window(self.config.episode, self.days, self.np_random, **rows)
        reset_(
            self.simulator,
            start=torch.from_numpy(np.array([window.start for window in windows])),
            trading_end=torch.from_numpy(np.array([window.trading_end for window in windows])),
            end=torch.from_numpy(np.array([window.end for window in windows])),
            chosen_envs=torch.from_numpy(chosen_envs),
        )
        self._has_ended &= ~chosen_envs

    def _observe(self) -> Observation:
        """Return the observations of all episodes before they act: copies, or the same block on every call."""
        context = self.config.episode.context
        sim = self.simulator
        for env_index, day in enumerate(observed_rows(sim).tolist()):
            # The rows up to and with `day`, at whose close the next action trades.
            self._observation_block[env_index] = self._shown_panel[day - context + 1 : day + 1]
        panel = self._observation_block.copy() if self._returns_copies else self._observation_block
        if not self.config.account_observation:
            return panel
        return {"panel": panel, "account": account_block(sim, self.market).numpy()}

    def _info(self) -> dict[str, Any]:
        """Return the arrays of `info`, each with its mask `_name`, copied because the simulator changes its own."""
        sim = self.simulator
        # Column 0 of the log is the opening, column d the equity after d days.
        column = (sim.day - sim.start)[:, None]
        values = {
            "day": sim.day.numpy().copy(),
            "equity": sim.logs.equity.gather(1, column)[:, 0].numpy(),
            "cash": sim.cash.numpy().copy(),
        }
        # For each array Gymnasium expects a mask `_name` of the episodes that have a value. Here all have.
        return values | {f"_{name}": np.ones(self.num_envs, dtype=bool) for name in values}


def _optional_row(value: int | np.integer | None) -> int | None:
    return None if value is None else int(value)
