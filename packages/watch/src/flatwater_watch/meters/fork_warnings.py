"""A program that forks beside a thread of the watch is not warned of it.

Python 3.12 and later warn at each fork of a process that has several threads (Modules/posixmodule.c,
`warn_about_fork_with_threads`). A program whose only other thread is the watch's would be warned of nothing of its own.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from flatwater_watch.meters.proc import threads_here
from flatwater_watch.meters.suspended_tracing import frameless_callable
from flatwater_watch.meters.system_calls import monotonic, process_id

_WARNED = re.compile(r"This process \(pid=\d+\) is multi-threaded, use of fork")
_UNHEARD: Any = ("ignore", _WARNED, DeprecationWarning, None, 0)  # a filter as `warnings` keeps it
LONGEST = 1.0
"""Seconds after which the warning of a fork has come, if it comes."""
_owners = list[int]()
"""The process of each thread of the watch; a fork has none of them."""
_since: float | None = None
_hooked = False


def warning_free_work(work: Callable[[], object]) -> Callable[[], None]:
    """Work for a thread that is about to start, of which forks of the program do not warn until it is done."""
    owner = process_id()
    _owners.append(owner)  # here: the program may fork before the thread has its turn

    def run() -> None:
        try:
            work()
        finally:
            _owners.remove(owner)

    return run


def filter_fork_warnings(run: Callable[[Callable[[], object]], object]) -> None:
    """From now on, let no fork warn of threads of the watch alone; `run` calls what may not raise."""
    global _hooked  # noqa: PLW0603  (hooks at forks stay for the life of the process)
    version = tuple(sys.version_info)
    if _hooked or version < (3, 12):
        return
    _hooked = True
    end = frameless_callable(lambda: run(remove_filter))
    os.register_at_fork(before=frameless_callable(lambda: run(_hear_nothing)), after_in_child=end)
    if version < (3, 13):  # later ones warn after their hooks
        os.register_at_fork(after_in_parent=end)


def remove_filter_later() -> None:
    """Take the filter out where its warning has come."""
    if _since is not None and monotonic() - _since > LONGEST:
        remove_filter()


def remove_filter() -> None:
    """Take the filter out.

    The list of filters is changed alone: `warnings.filterwarnings` would have each module forget what it warned of.
    """
    global _since  # noqa: PLW0603
    if _since is not None:
        _since = None
        with suppress(ValueError):  # the program has other filters now
            cast("list[Any]", warnings.filters).remove(_UNHEARD)


def _hear_nothing() -> None:
    global _since  # noqa: PLW0603
    remove_filter()
    own = _owners.count(process_id())
    if own and threads_here() == 1 + own:
        cast("list[Any]", warnings.filters).insert(0, _UNHEARD)
        _since = monotonic()
