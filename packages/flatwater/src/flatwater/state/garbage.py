"""Objects that stay as long as a run, hidden from the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_FREEZES: list[str] = []
"""One entry for each `freeze_gc` that is open. Python counts frozen objects one by one, in a twentieth of a second."""


@contextmanager
def freeze_gc() -> Iterator[None]:
    """Hide all present objects (modules, the run itself) from the garbage collector while a run trains.

    That makes a collection after each round cheap. At the end all objects are visible again, even those that the
    program itself had frozen, as Python does not tell which these are.
    """
    gc.collect()  # before the freeze, as frozen garbage would stay for the whole run
    gc.freeze()
    _FREEZES.append("run")
    try:
        yield
    finally:
        _FREEZES.pop()
        gc.unfreeze()


def freeze_new_objects_() -> None:
    """Collect garbage, and hide the objects that stay as well, inside of `freeze_gc`; elsewhere do nothing."""
    if _FREEZES:
        gc.collect()
        gc.freeze()
