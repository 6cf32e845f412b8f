"""A Gymnasium environment whose running episode can be saved: its seed and its actions are kept, and played again."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.kept_state import keeps_state, load_state_, read_env_state
from flatwater_watch.errors import CheckpointError


class Resumable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of an environment that does the same after the same seed and actions.

    A reset without a seed draws one, so that each episode has its own. The actions of the episode under way are kept:
    an episode that never ends would keep them all. Restoring plays them, and compares the observation. Wrappers within
    that keep something over episodes, such as Gymnasium's running statistics, are saved as they were when the episode
    began.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> None:
        """Wrap `env`.

        Args:
            env: the environment, with every other wrapper already around it.
            seed: seed of the draws that seed episodes; another for each of several environments.
        """
        super().__init__(env)
        self._draws = np.random.default_rng(seed)
        self._seed: int | None = None
        self._actions: list[np.ndarray[Any, Any]] = []
        self._seen: np.ndarray[Any, Any] | None = None
        self._keeps = keeps_state(env)
        self._kept: list[Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, from a seed that is drawn where none is given.

        Raises:
            ValueError: `options` are given, with which an episode cannot be replayed.
        """
        if options:
            raise ValueError(f"options = {options}: an episode that begins with options cannot be replayed")
        if seed is not None:
            self._draws = np.random.default_rng(seed)
        self._seed, self._actions = int(self._draws.integers(1 << 31)) if seed is None else seed, []
        # Before the reset, which may change what the wrappers keep.
        self._note_kept()
        observation, info = self.env.reset(seed=self._seed)
        self._note(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401  (of its spaces)
        """Act, and keep the action."""
        # A copy: the caller may write the next action into the same array.
        self._actions.append(np.array(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._note(observation)
        return observation, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return seed and actions of the current episode, the draws of later episodes, and the last observation."""
        return {
            "draws": self._draws.bit_generator.state,
            "seed": self._seed,
            "actions": np.array(self._actions),
            "seen": self._seen,
            "kept": self._kept,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Play the saved episode again.

        Raises:
            CheckpointError: the episode's last observation is not the saved observation.
        """
        self._seed, self._actions, self._seen = state["seed"], [], None
        if self._seed is not None:
            if state.get("kept") is not None:
                load_state_(self.env, state["kept"])
            self._note_kept()
            observation, _ = self.env.reset(seed=self._seed)
            self._note(observation)
            for action in state["actions"]:
                self.step(action)
        self._draws.bit_generator.state = state["draws"]
        if not _same(self._seen, state["seen"]):
            raise CheckpointError(
                f"{self.env} does not come to the saved state with the same seed and actions. Its package has another "
                "version, or it draws numbers that do not follow from its seed"
            )

    def _note_kept(self) -> None:
        self._kept = deepcopy(read_env_state(self.env)) if self._keeps else None

    def _note(self, observation: object) -> None:
        self._seen = np.array(observation) if isinstance(observation, np.ndarray | int | float | np.generic) else None


def _same(current: np.ndarray[Any, Any] | None, saved: np.ndarray[Any, Any] | None) -> bool:
    """Whether two observations are equal, NaN to NaN; None (no episode begun) equals None alone."""
    if current is None or saved is None:
        return current is saved
    return np.array_equal(current, saved, equal_nan=current.dtype.kind in "fc")
