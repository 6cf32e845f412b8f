"""Copies of a user's environment: the base of the worlds that step one of Gymnasium's or PettingZoo's."""

from collections.abc import Sequence
from typing import Any

from flatwater.envs.open_envs import bind_closing
from flatwater.envs.world import Array, Spaces
from flatwater.envs.wrapped.checks import find_not_finite, interface_error, not_finite_error
from flatwater.envs.wrapped.native_spaces import frame_rate
from flatwater.envs.wrapped.spaces import ObservationReader
from flatwater.envs.wrapped.step_limit import StepLimit
from flatwater.user_code import CallGuard


class EnvCopies:
    """Copies of one environment, whose calls are guarded: it renders and closes them, and checks what they observe."""

    _spaces: Spaces
    _limit: StepLimit

    def __init__(self, copies: list[Any], user_layer: object, title: str, *, reset_signature: str = "") -> None:
        """Guard the calls of the copies.

        Args:
            copies: the environments, with their wrappers; a copy may be replaced in this list.
            user_layer: the object of the user's class, which errors blame.
            title: name of the environment, for messages.
            reset_signature: signature that `reset` needs, for the message about one that cannot be called.
        """
        self.copies, self._user_layer, self._name = copies, user_layer, title
        self._subject = f"environment {title}"  # for messages of the guards
        self._step_guard = CallGuard(self._subject, user_layer, "step")
        self._reset_guard = CallGuard(self._subject, user_layer, "reset", expected=reset_signature)
        self._render_guard = CallGuard(self._subject, user_layer, "render")
        self._close_envs = bind_closing(copies, CallGuard(self._subject, user_layer, "close"))

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    @property
    def frames_per_second(self) -> float:
        """Number of frames of `render` that make a second."""
        return frame_rate(self.copies[0])

    def render(self) -> object:
        """Return the first copy's frame."""
        with self._render_guard:
            return self.copies[0].render()

    def close(self) -> None:
        """Close the copies."""
        self._close_envs()

    def _check_finite(self, reader: ObservationReader, obs: Array, method: str, agents: Sequence[str] = ()) -> None:
        """Refuse NaN and infinities in the observations [E, A, *obs] of all copies, which `method` has written.

        Args:
            reader: the reader that wrote them.
            obs: the observations.
            method: `reset` or `step`.
            agents: names of the A agents, for the message; empty where there is one.

        Raises:
            UserCodeError: a number is NaN or infinite; the message names its environment and place.
        """
        numbers = reader.numbers(obs)
        index = find_not_finite(numbers)
        if index is None:  # all are finite
            return
        env, agent, number = index
        owner = f"{agents[agent]}'s " if agents else ""
        error = not_finite_error(f"{owner}{reader.part_name(number)}", numbers[index])
        raise interface_error(self._user_layer, method, error, self._limit.place(env, method))
