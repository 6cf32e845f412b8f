"""A world and a teacher of the user's own classes: errors of their methods are reported as the user's (`user_code`)."""

from collections.abc import Callable
from typing import Any, cast

from flatwater.envs.kept_state import require_keeper
from flatwater.envs.open_envs import bind_closing
from flatwater.envs.world import Array, Spaces, Teacher, World
from flatwater.envs.wrapped.checks import ALLOW_NAN_ADVICE, find_not_finite, source_location
from flatwater.user_code import CallGuard, dotted_name
from flatwater_watch.errors import ConfigError, UserCodeError


class OwnWorld:
    """A `World`, or a `MaskedWorld`, that calls a world of the user's class and checks its numbers."""

    def __init__(self, inner: World, title: str, envs: int, *, allow_nan: bool = False) -> None:
        """Wrap the world that the user's class or function has made.

        Args:
            inner: the world.
            title: name of the world for messages, `package.module:Name`.
            envs: number of environments, E, with which it was made.
            allow_nan: whether NaN and infinities are passed on; else they end the run.

        Raises:
            ConfigError: the world's `spaces` are missing, or have another number of environments.
        """
        self._subject, self.inner = f"environment {title}", inner
        with CallGuard(self._subject, inner, "spaces", call="its spaces"):
            self._spaces = inner.spaces
        # `object` for the type checker: the user's class may return anything.
        spaces: object = self._spaces
        if not isinstance(spaces, Spaces) or spaces.envs != envs:
            raise ConfigError(f"`spaces`: expected flatwater.envs.world.Spaces of {envs} copies, got {spaces!r}")
        # Guards report errors within the user's calls as the user's.
        self._begin_guard = CallGuard(self._subject, inner, "begin_")
        self._step_guard = CallGuard(self._subject, inner, "step_")
        self._close_envs = bind_closing([self.inner], CallGuard(self._subject, self.inner, "close"))
        self._checks_rewards = not allow_nan
        """Whether NaN in rewards ends the run."""
        self._checks_observations = not allow_nan and self._spaces.form == "vector"
        """Whether NaN in observations ends the run."""

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, *legal: Array) -> None:
        """Begin episodes with these seeds in the environments of `env_mask`, bool [E].

        The user's world writes their rows of `obs`, and of the masks `legal`, if it has masks.
        """
        with self._begin_guard:
            self.inner.begin_(env_mask, seeds, obs, *legal)
        if self._checks_observations:
            self._check_finite("begin_", "observation", obs)

    def step_(
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, *legal: Array
    ) -> None:
        """Step every environment of the user's world, which writes all arrays after `actions`.

        Raises:
            UserCodeError: the user's method failed, or wrote a number that is not finite, and `allow_nan` is off.
        """
        with self._step_guard:
            self.inner.step_(actions, obs, reward, terminated, truncated, *legal)
        # Outside of the guard, as this is not the user's code; the message names agent and number.
        if self._checks_rewards:
            self._check_finite("step_", "reward", reward)
        if self._checks_observations:
            self._check_finite("step_", "observation", obs)

    def state_dict(self) -> Any:  # noqa: ANN401  (of the class)
        """Return the state that the world keeps over episodes."""
        with CallGuard(self._subject, self.inner, "state_dict"):
            return require_keeper(self.inner, self._spaces.kept).state_dict()

    def load_state_dict(self, state: Any) -> None:  # noqa: ANN401  (of the class)
        """Give the world back a state that it has returned."""
        with CallGuard(self._subject, self.inner, "load_state_dict"):
            require_keeper(self.inner, self._spaces.kept).load_state_dict(state)

    def close(self) -> None:
        """Close the user's world."""
        self._close_envs()

    def _check_finite(self, method: str, name: str, written_values: Array) -> None:
        """Refuse NaN and infinities in an array that `method` has written, called `name` in messages.

        Raises:
            UserCodeError: a number is NaN or infinite.
        """
        index = find_not_finite(written_values)
        if index is None:  # all are finite
            return
        env, agent, *number = index  # `number` is the place within an agent's observation; a reward has none
        raise UserCodeError(
            f"{self._subject}: {method} wrote the {name} {written_values[index]} for agent {agent} of environment "
            f"{env}{f', in number {number[0]}' if number else ''}{source_location(self.inner, method)}: expected a "
            f"finite number. {ALLOW_NAN_ADVICE}"
        )


class OwnTeacher:
    """A `Teacher` that calls a teacher of the user's class."""

    def __init__(self, build: Callable[[World], Teacher], world: World) -> None:
        """Make the user's teacher from the world; of an `OwnWorld` it gets the user's world within."""
        subject = f"teacher {dotted_name(build)}"
        inner_world = world.inner if isinstance(world, OwnWorld) else world
        with CallGuard(subject, build, "__init__", call=f"{cast('Any', build).__name__}(world)"):
            self.inner = build(inner_world)
            """Object of the user's class."""
        self._begin_guard = CallGuard(subject, self.inner, "begin_")
        self._step_guard = CallGuard(subject, self.inner, "step_batch")

    def begin_(self, env_mask: Array) -> None:
        """Let the user's teacher forget the environments of `env_mask`, bool [E], in which episodes begin."""
        with self._begin_guard:
            self.inner.begin_(env_mask)

    def step_batch(self, obs: Array, actions_out: Array, *legal: Array) -> None:
        """Let the user's teacher write an action for every agent into `actions_out`; `legal` are masks, if any."""
        with self._step_guard:
            self.inner.step_batch(obs, actions_out, *legal)
