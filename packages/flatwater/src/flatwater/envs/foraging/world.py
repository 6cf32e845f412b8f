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
    """A `World` of foraging games. Each episode of an environment has a new simulator, which can play just one.

    Simulators write into arrays of this world, which are copied to the caller's: a simulator that is bound to another
    array renders its observation once more, which takes longer than a step.
    """

    def __init__(self, config: ForagingConfig, envs: int) -> None:
        """Allocate the simulators' buffers; an environment has no simulator until its first `begin_`."""
        game = _compile_game(config)
        self.features, self.tags = game.features, game.tags
        """Numbers in tokens by name, of features and of the objects in cells; see `Game`."""
        self.window = config.window
        """Side of an agent's view, in cells."""
        self._config, self._game = config, game
        agents, tokens = config.agents, config.tokens
        self._spaces = Spaces(
            envs=envs, agents=agents, form="tokens", obs=(tokens, 3), actions=game.actions, steps=config.steps
        )
        self._simulators: list[MettaGrid | None] = [None] * envs
        self._actions = np.zeros((envs, agents), np.int32)
        self._obs = np.zeros((envs, agents, game.tokens, 3), np.uint8)
        self._reward = np.zeros((envs, agents), np.float32)
        self._is_over = np.zeros((2, envs, agents), np.bool_)
        """Whether each agent has terminated, and whether it was truncated."""

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, env_mask: Array, seeds: Array, obs: Array) -> None:
        """Draw a map and build a simulator for the episode of each environment of `env_mask`, bool [E].

        The episode follows from its seed; the environment's rows of `obs` are written.
        """
        for env in np.flatnonzero(env_mask).tolist():
            simulator = self._game.begin(int(seeds[env]))
            terminated, truncated = self._is_over[:, env]
            # Views, into which the simulator writes from now on; from the last it reads actions.
            simulator.set_buffers(self._obs[env], terminated, truncated, self._reward[env], self._actions[env])
            self._simulators[env] = simulator
        # Simulators write all tokens, the nearest first; an observation has the configured number.
        obs[env_mask] = self._obs[env_mask, :, : self._config.tokens]

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every simulator; all arrays after `actions` are written.

        Raises:
            RuntimeError: an environment has had no `begin_` yet.
        """
        # From int64 into the int32 array that the simulators read.
        np.copyto(self._actions, actions, casting="same_kind")
        for env, simulator in enumerate(self._simulators):
            if simulator is None:
                raise RuntimeError(f"environment {env} was stepped before its first episode: call begin_ first")
            simulator.step()
        np.copyto(obs, self._obs[:, :, : self._config.tokens])
        np.copyto(reward, self._reward)
        has_terminated, was_truncated = self._is_over
        np.copyto(terminated, has_terminated)
        np.copyto(truncated, was_truncated)

    def close(self) -> None:
        """Release the simulators."""
        self._simulators[:] = [None] * len(self._simulators)


def _compile_game(config: ForagingConfig) -> "Game":
    """Return the compiled game of these settings.

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
