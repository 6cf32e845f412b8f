"""Numbers that the user's code adds to those of a round: the names that are free, and the values that are numbers."""

from typing import Any, Protocol, runtime_checkable

from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

RESERVED_FAMILIES = frozenset({
    "account", "agent_steps", "benchmark", "buffer", "champion", "critic", "episode", "evaluation", "fitness",
    "gain", "host", "inputs", "lead", "memory", "mirror", "mutation", "noise", "objects", "operation", "policy",
    "profile", "return", "round", "seconds", "system", "temperature", "time", "trades", "train", "transitions",
    "updates", "validation", "weight", "weights",
})  # fmt: skip
"""First parts of the names that Flatwater's own numbers have: `return` of `return/mean`."""
MAXIMUM_NAME = 64
"""Most bytes of a name: each is allocated in the state of a run."""


@runtime_checkable
class _OneNumber(Protocol):
    """An array or a tensor, which may have one number."""

    def item(self) -> object:
        """Return the number, or raise if there are several."""


def is_own(name: str) -> bool:
    """Return whether a number of this name is logged by the user's code, as `mine/height`, and not by Flatwater."""
    return name.partition("/")[0] not in RESERVED_FAMILIES


def check_name(name: object) -> str:
    """Return a name that the user's code gives to a number, after checks.

    Raises:
        ConfigError: the name is not plain text, too long, or in a family of Flatwater's, such as `return/mean`.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"log({short_repr(name)}, ...): expected a name in plain text, such as 'mine/height'")
    if len(name.encode(errors="replace")) > MAXIMUM_NAME:
        raise ConfigError(f"log({short_repr(name)}, ...): expected a name of at most {MAXIMUM_NAME} bytes")
    if not is_own(name):
        raise ConfigError(
            f"log({short_repr(name)}, ...): names of {name.partition('/')[0]}/ are Flatwater's. Use another, such as "
            f"'mine/{name.partition('/')[2] or name}'"
        )
    return name


def as_number(value: object) -> float | None:
    """Return a number, a truth value, or an array or tensor of one number, as a float; None for anything else."""
    if isinstance(value, str | bytes):  # `float` would read them
        return None
    number: Any = value
    try:
        return float(number.item() if isinstance(value, _OneNumber) else number)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # no number, several, or one of too many digits
        return None


def logged_number(name: str, value: object) -> float:
    """Return the value that a callback logs as a number.

    Raises:
        ConfigError: the value is not a number.
    """
    if (number := as_number(value)) is None:
        raise ConfigError(
            f"log({short_repr(name)}, {short_repr(value)}): expected a number, got a {type(value).__name__}"
        )
    return number
