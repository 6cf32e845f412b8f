"""Environments are closed once: by whoever has built them, or where the call ends in which they were built.

A call such as `flatwater.train` builds worlds to plan, to test and to train in. Left to Python's garbage collector they
would stay after it, with their processes, and those without a finalizer would never be closed.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

_log = logging.getLogger(__name__)
_open: ContextVar[set["Closing"] | None] = ContextVar("open_environments", default=None)
"""Environments that were built in the present call and are still open; None outside of a call."""


class Closing:
    """Closes a world's environments once, however often it is called."""

    def __init__(self, close: Callable[[], object]) -> None:
        """Have it closed at the end of the present call, at the latest; outside of one, only its owner closes it."""
        self._close, self._open = close, _open.get()
        self._is_closed = False
        if self._open is not None:
            self._open.add(self)

    def __call__(self) -> None:
        """Close it, unless it is closed already."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._open is not None:
            self._open.discard(self)
        self._close()


def bind_closing(envs: Sequence[Any], border: AbstractContextManager[None]) -> Closing:
    """Return a function that closes all environments of a world, and then raises an error that came up.

    Args:
        envs: the environments, as they are when they are closed.
        border: context that guards each call of the environments.
    """

    def close_one(env: Any) -> None:  # noqa: ANN401  (of the user's class)
        with border:
            env.close()

    def close_all() -> None:
        with ExitStack() as stack:
            for env in reversed(envs):
                stack.callback(close_one, env)

    return Closing(close_all)


@contextmanager
def close_open_envs() -> Iterator[None]:
    """Close at the end of a call, however it ends, the environments that were built in it and are still open.

    An environment that fails to close is logged and nothing more: what it was built for is done.
    """
    built = set[Closing]()
    token = _open.set(built)
    try:
        yield
    finally:
        _open.reset(token)
        for closing in [*built]:
            try:
                closing()
            except Exception as error:  # noqa: BLE001  (of the user's code)
                _log.warning("%s", error)
