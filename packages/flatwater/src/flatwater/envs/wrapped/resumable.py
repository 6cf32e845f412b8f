"""A Gymnasium wrapper whose running episode can be saved: it keeps the seed and the actions, and plays them again."""

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

from flatwater.envs.kept_state import keeps_state, load_state_, read_env_state
from flatwater_watch.errors import CheckpointError


class Resumable(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of an environment whose episodes follow from their seeds and actions alone.

    A reset without a seed draws one, so that each episode has a seed. All actions of the running episode are kept, also
    if it never ends. Restoring plays them again, and compares the last observation. The state that inner wrappers keep
    over episodes, such as Gymnasium's running statistics, is saved as it was when the episode began.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> None:
        """Wrap `env`.

        Args:
            env: the environment, with every other wrapper already around it.
            seed: seed of the generator that draws episodes' seeds; several environments need different ones.
        """
        super().__init__(env)
        self._seed_rng = np.random.default_rng(seed)
        self._seed: int | None = None  # until the first episode begins
        self._actions: list[np.ndarray[Any, Any]] = []
        self._last_observation: np.ndarray[Any, Any] | None = None
        self._keeps_state = keeps_state(env)
        self._starting_state: list[Any] | None = None
        """State that the inner wrappers had when the episode began; None if they keep none."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode from `seed`, or from a drawn seed.

        Raises:
            ValueError: `options` are given, with which an episode cannot be replayed.
        """
        if options:
            raise ValueError(f"options = {options}: an episode that begins with options cannot be replayed")
        if seed is not None:
            self._seed_rng = np.random.default_rng(seed)
        self._seed = int(self._seed_rng.integers(1 << 31)) if seed is None else seed
        self._actions = []
        # Before the reset, which may change the state that the wrappers keep.
        self._copy_starting_state()
        observation, info = self.env.reset(seed=self._seed)
        self._copy_observation(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:  # noqa: ANN401  (of its spaces)
        """Step the environment, and keep the action."""
        # A copy: the caller may write the next action into the same array.
        self._actions.append(np.array(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._copy_observation(observation)
        return observation, reward, terminated, truncated, info

    def state_dict(self) -> dict[str, Any]:
        """Return the running episode's seed, actions, starting state and last observation, and the seed generator."""
        return {
            "draws": self._seed_rng.bit_generator.state,
            "seed": self._seed,
            "actions": np.array(self._actions),
            "seen": self._last_observation,
            "kept": self._starting_state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Play the saved episode again up to its last action, and restore the generator of seeds.

        Raises:
            CheckpointError: the episode's last observation is not the saved observation.
        """
        self._seed = state["seed"]
        self._actions, self._last_observation = [], None
        if self._seed is not None:  # else no episode had begun
            if state.get("kept") is not None:
                load_state_(self.env, state["kept"])
            self._copy_starting_state()
            observation, _ = self.env.reset(seed=self._seed)
            self._copy_observation(observation)
            for action in state["actions"]:
                self.step(action)  # keeps the action again
        self._seed_rng.bit_generator.state = state["draws"]
        if not _is_same_observation(self._last_observation, state["seen"]):
            raise CheckpointError(
                f"{self.env} does not come to the saved state with the same seed and actions. Its package has another "
                "version, or it draws numbers that do not follow from its seed"
            )

    def _copy_starting_state(self) -> None:
        """Keep a copy of the inner wrappers' state before an episode begins; None if they keep none."""
        self._starting_state = deepcopy(read_env_state(self.env)) if self._keeps_state else None

    def _copy_observation(self, observation: object) -> None:
        """Keep a copy of an observation that is an array or a number, else None."""
        # Other observations, such as dicts, are not compared after a resume.
        is_array = isinstance(observation, np.ndarray | int | float | np.generic)
        self._last_observation = np.array(observation) if is_array else None


def _is_same_observation(current: np.ndarray[Any, Any] | None, saved_obs: np.ndarray[Any, Any] | None) -> bool:
    """Return whether two observations are equal, where NaN equals NaN, and None equals None alone."""
    if current is None or saved_obs is None:
        return current is saved_obs
    return np.array_equal(current, saved_obs, equal_nan=current.dtype.kind in "fc")
