"""Environments are closed once: by their owner, or at the end of the call in which they were built.

A call such as `flatwater.train` builds worlds to plan, to test and to train in. Left to Python's garbage collector the
environments would outlive the call, with their processes, and those without a finalizer would never be closed.
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
    """A function that closes a world's environments, and does nothing when it is called again."""

    def __init__(self, close: Callable[[], object]) -> None:
        """Register with the present call, which closes the environments at its end; without a call the owner must."""
        self._close, self._registry = close, _open.get()
        self._is_closed = False
        if self._registry is not None:
            self._registry.add(self)

    def __call__(self) -> None:
        """Close the environments, unless they are closed already."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._registry is not None:
            self._registry.discard(self)
        self._close()


def bind_closing(envs: Sequence[Any], guard: AbstractContextManager[None]) -> Closing:
    """Return a function that closes all environments in their order, and only then raises an error of any of them.

    Args:
        envs: the environments; the sequence is read when they are closed.
        guard: context that guards each call of the environments.
    """

    def close_one(env: Any) -> None:  # noqa: ANN401  (of the user's class)
        with guard:
            env.close()

    def close_all() -> None:
        """Close all environments in their order, and then raise an error if there was one."""
        # A stack goes on after an error. It calls back in reverse: the last one pushed, the first environment, first.
        with ExitStack() as stack:
            for env in reversed(envs):
                stack.callback(close_one, env)

    return Closing(close_all)


@contextmanager
def close_open_envs() -> Iterator[None]:
    """Close the environments that were built within the block and are still open, however the block ends.

    An environment that fails to close is only logged: the work that it was built for is done.
    """
    open_envs = set[Closing]()
    token = _open.set(open_envs)
    try:
        yield
    finally:
        _open.reset(token)
        for closing in [*open_envs]:
            try:
                closing()
            except Exception as error:  # noqa: BLE001  (of the user's code, after which the others are still closed)
                _log.warning("%s", error)
