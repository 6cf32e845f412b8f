"""The foraging game as a world: E of mettagrid's simulators, which write observations and rewards into arrays."""

from typing import TYPE_CHECKING

import numpy as np

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.world import Array, Spaces
from flatwater_watch.errors import ConfigError

if TYPE_CHECKING:
    from mettagrid.mettagrid_c import MettaGrid

    from flatwater.envs.foraging.game import Game


class ForagingWorld:
    """A `World`. A simulator plays one episode, so each episode has its own, bound to its environment's slices.

    They write into one block of the world's, which is copied to the caller's row: a simulator that is bound to another
    row renders its observation once more, which takes longer than its step.
    """

    def __init__(self, config: ForagingConfig, envs: int) -> None:
        """Allocate the simulators' buffers; an environment has no simulator until its first `begin_`."""
        game = _game(config)
        self.features, self.tags = game.features, game.tags
        """Numbers in tokens, by name: of features, and of the contents of a cell."""
        self.window = config.window
        """Cells of the side of an agent's view."""
        self._config, self._game = config, game
        agents, tokens = config.agents, config.tokens
        self._spaces = Spaces(envs, agents, "tokens", (tokens, 3), game.actions, config.steps)
        self._simulators: list[MettaGrid | None] = [None] * envs
        self._actions = np.zeros((envs, agents), np.int32)
        self._obs = np.zeros((envs, agents, game.tokens, 3), np.uint8)
        self._reward = np.zeros((envs, agents), np.float32)
        self._over = np.zeros((2, envs, agents), np.bool_)
        """Agents that have terminated, and agents that were truncated."""

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None:
        """Draw maps, and build simulators on them; the arguments are those of `World`."""
        for env in np.flatnonzero(which).tolist():
            simulator = self._game.begin(int(seeds[env]))
            terminated, truncated = self._over[:, env]
            simulator.set_buffers(self._obs[env], terminated, truncated, self._reward[env], self._actions[env])
            self._simulators[env] = simulator
        # Simulators have space for all tokens; agents are shown the configured number, the nearest.
        obs[which] = self._obs[which, :, : self._config.tokens]

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every simulator; the arguments are those of `World`.

        Raises:
            RuntimeError: an environment has had no `begin_` yet.
        """
        # int64 to the simulators' int32: they hold this very array.
        np.copyto(self._actions, actions, casting="same_kind")
        for env, simulator in enumerate(self._simulators):
            if simulator is None:
                raise RuntimeError(f"environment {env} was stepped before its first episode: call begin_ first")
            simulator.step()
        np.copyto(obs, self._obs[:, :, : self._config.tokens])
        np.copyto(reward, self._reward)
        np.copyto(terminated, self._over[0])
        np.copyto(truncated, self._over[1])

    def close(self) -> None:
        """Drop the simulators."""
        self._simulators[:] = [None] * len(self._simulators)


def _game(config: ForagingConfig) -> "Game":
    """Return the compiled game.

    Raises:
        ConfigError: the game's package is not installed.
    """
    try:
        from flatwater.envs.foraging.game import Game  # noqa: PLC0415  (imports mettagrid: an extra, and a second)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the world `forage` needs {error.name}, which is not installed: pip install 'flatwater[teach]' "
            "(with Python 3.11 or 3.12: mettagrid has no wheels for other versions)"
        ) from error
    return Game(config)
