"""Checks of an environment's results before they are written: shapes, flags, and numbers that are not finite."""

from typing import Any

import numpy as np

from flatwater.envs.world import Array
from flatwater.user_code import dotted_name, find_source_line
from flatwater_watch.errors import UserCodeError

MAXIMUM_FLOAT32 = float(np.finfo(np.float32).max)
"""Largest number of the type of rewards and observations."""
RESET_PARTS = 2
"""Results of a reset: observation, info."""
ALLOW_NAN_ADVICE = "--allow-nan trains all the same"
"""End of messages about a number that is NaN or infinite."""
CONVERSION_ERRORS = (TypeError, ValueError, KeyError, IndexError, OverflowError, RuntimeError)
"""Errors that are raised when a value that is not of its space is written into an array; torch's is a RuntimeError."""


def find_not_finite(numbers: Array) -> tuple[int, ...] | None:
    """Return the position of the first number that is NaN or infinite, on each axis; None if all are finite."""
    is_finite = np.isfinite(numbers)
    return None if is_finite.all() else tuple(int(position) for position in np.argwhere(~is_finite)[0])


def not_finite_error(part: str, number: float) -> ValueError:
    """Return the error for an observation whose `part`, such as `observation[2]`, is NaN or infinite."""
    return ValueError(f"{part} is {number}: expected a finite number. {ALLOW_NAN_ADVICE}")


def check_flag(name: str, value: Any) -> bool:  # noqa: ANN401  (whatever an environment gives)
    """Return `terminated` or `truncated` as a bool; NumPy's bools, 0 and 1 are accepted.

    Raises:
        TypeError: the flag is something else, such as a text.
    """
    if value is True or value is False:
        return value
    array = np.asarray(value)
    # Bools and whole numbers, signed or not.
    if array.size != 1 or array.dtype.kind not in "biu" or array.ravel()[0] not in {0, 1}:
        raise TypeError(f"{name} is {_short_value(value)}: expected True or False")
    return bool(array.ravel()[0])


def check_reward(value: Any, *, allow_nan: bool) -> float:  # noqa: ANN401  (whatever an environment gives)
    """Return the reward as a float, checked to be finite and within float32's range.

    If `allow_nan` is set, NaN and infinities are returned as well, and numbers beyond the range as infinities.

    Raises:
        TypeError: `value` is not a number.
        ValueError: `value` is NaN, infinite or beyond a float32, and `allow_nan` is off.
    """
    # The shortest way, for the rewards of nearly all environments; np.float64 is a float as well.
    if isinstance(value, float) and -MAXIMUM_FLOAT32 <= value <= MAXIMUM_FLOAT32:
        return value
    array = np.asarray(value)
    if array.size != 1 or (array.dtype.kind not in "biuf" and not isinstance(value, int)):
        several = ". gymnasium.wrappers.TransformReward makes one of several" if array.size > 1 else ""
        raise TypeError(f"the reward is {_short_value(value)}: expected a number{several}")
    # Not every int can become a float: Python's ints have no largest number.
    reward = value if isinstance(value, int) else float(array.ravel()[0])
    if -MAXIMUM_FLOAT32 <= reward <= MAXIMUM_FLOAT32:
        return reward
    if not allow_nan:
        raise ValueError(
            f"the reward is {_short_value(value)}: expected a finite number below 3.4e38. {ALLOW_NAN_ADVICE}"
        )
    # A float32 holds an infinity in place of a number that is too large.
    if reward > 0:
        return np.inf
    return -np.inf if reward < 0 else np.nan


def check_observation(value: Any, shape: tuple[int, ...]) -> Array:  # noqa: ANN401  (whatever an environment gives)
    """Return the observation of a Box as an array of its space's shape.

    Raises:
        TypeError: `value` holds no numbers.
        ValueError: `value` has another shape; NumPy would broadcast it, or read it in another order.
    """
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"the observation has the shape {array.shape}: expected {shape}, the shape of its space")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"the observation is of {array.dtype}: expected numbers")
    return array


def check_reset(value: Any) -> tuple[Any, Any]:  # noqa: ANN401  (whatever an environment gives)
    """Return the observation and the info that a reset returned, unchanged.

    Raises:
        TypeError: `value` is not a pair, as in Gym before 0.26, whose resets returned the observation alone.
    """
    if not isinstance(value, tuple | list) or len(value) != RESET_PARTS:
        raise TypeError(f"it gives {_short_value(value)}: expected a pair")
    observation, info = value
    return observation, info


def check_info(value: Any) -> dict[str, Any]:  # noqa: ANN401  (whatever an environment gives)
    """Return the info of a reset or a step unchanged.

    Raises:
        TypeError: `value` is not a dict.
    """
    if not isinstance(value, dict):
        raise TypeError(f"the info is {_short_value(value)}: expected a dict")
    return value


def interface_error(env: object, method: str, cause: Exception, time_phrase: str = "") -> UserCodeError:
    """Return the error for a result of an environment's method that is not as Gymnasium's interface says.

    Args:
        env: object of the user's class, whose source line is named.
        method: `reset`, `step`, or `last` of a game in turns, whose result is like that of `step`.
        cause: the fault; a KeyError stands for an entry that the observation lacks.
        time_phrase: episode and step for the message, such as `with seed 5`; empty to leave them out.
    """
    expected_result = (
        "(observation, info)" if method == "reset" else "(observation, reward, terminated, truncated, info)"
    )
    fault = f"no entry {cause} in the observation" if isinstance(cause, KeyError) else str(cause)
    return UserCodeError(
        f"environment {dotted_name(env)}: {type(env).__name__}.{method}() does not give {expected_result}, "
        f"with an observation of its observation_space{f', {time_phrase}' if time_phrase else ''}: {fault}"
        f"{source_location(env, method)}. Check an environment before a run with flatwater.check_env_conformance"
    )


def source_location(env: object, method: str = "") -> str:
    """Return the place of a method or a class, ` (boat.py, line 12, in Boat.step)`; empty without source text."""
    source_line = find_source_line(env, method)
    return f" ({source_line})" if source_line else ""


def _short_value(value: object) -> str:
    """Return a value's text, of which 60 characters at most, and its class: `nan (float)`."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print an integer of thousands of digits
        text = "a number of thousands of digits"
    return f"{text if len(text) <= 60 else f'{text[:60]} ...'} ({type(value).__name__})"  # noqa: PLR2004  (longer values are cut in messages)
