"""A filter of warnings, so that a program that forks while a thread of the watch runs is not warned of that thread.

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

from flatwater_watch.meters.proc import thread_count
from flatwater_watch.meters.suspended_tracing import frameless_callable
from flatwater_watch.meters.system_calls import monotonic, process_id

_FORK_WARNING = re.compile(r"This process \(pid=\d+\) is multi-threaded, use of fork")
_IGNORED_WARNING: Any = ("ignore", _FORK_WARNING, DeprecationWarning, None, 0)  # a filter as `warnings` keeps it
FILTER_SECONDS = 1.0
"""Seconds after a fork within which its warning comes, if it comes."""
_watch_thread_pids = list[int]()
"""The id of the process of each thread of the watch, as a fork inherits the list, and none of the threads."""
_filtered_since: float | None = None
"""Monotonic time at which the filter was set; None while it is not set."""
_hook_registered = False


def register_thread_work(work: Callable[[], object]) -> Callable[[], None]:
    """Count a thread that is about to start as the watch's; return the function that it must run.

    The function calls `work`, and then the thread counts no more.
    """
    pid = process_id()
    _watch_thread_pids.append(pid)  # now and not in the thread: the program may fork before the thread runs

    def run() -> None:
        try:
            work()
        finally:
            _watch_thread_pids.remove(pid)

    return run


def filter_fork_warnings(run: Callable[[Callable[[], object]], object]) -> None:
    """Suppress the warning of each later fork at which all other threads are the watch's.

    `run` calls the hooks that this sets at forks, and must raise nothing.
    """
    global _hook_registered  # noqa: PLW0603  (hooks at forks stay for the life of the process)
    version = tuple(sys.version_info)  # a tuple, as mypy takes `sys.version_info` for one version
    if _hook_registered or version < (3, 12):
        return
    _hook_registered = True
    # Without frames, in which a debugger of the program could stop.
    remove_hook = frameless_callable(lambda: run(remove_filter))
    os.register_at_fork(before=frameless_callable(lambda: run(_set_filter_before_fork)), after_in_child=remove_hook)
    if version < (3, 13):  # later versions warn after these hooks: then `remove_filter_if_old` removes the filter
        os.register_at_fork(after_in_parent=remove_hook)


def remove_filter_if_old() -> None:
    """Remove the filter if it was set so long ago that the warning must have come."""
    if _filtered_since is not None and monotonic() - _filtered_since > FILTER_SECONDS:
        remove_filter()


def remove_filter() -> None:
    """Remove the filter."""
    # Only the list of filters is changed: `warnings.filterwarnings` would have each module forget its earlier warnings.
    global _filtered_since  # noqa: PLW0603  (of this process, as the list of filters is)
    if _filtered_since is not None:
        _filtered_since = None
        with suppress(ValueError):  # the program has other filters now
            cast("list[Any]", warnings.filters).remove(_IGNORED_WARNING)


def _set_filter_before_fork() -> None:
    """Set the filter if all other threads are the watch's; runs before each fork, in the thread that makes it."""
    global _filtered_since  # noqa: PLW0603  (of this process, as the list of filters is)
    remove_filter()  # the one of an earlier fork
    watch_thread_count = _watch_thread_pids.count(process_id())
    # Only this thread and the watch's: with others the warning is of the program's own threads.
    if watch_thread_count and thread_count() == 1 + watch_thread_count:
        cast("list[Any]", warnings.filters).insert(0, _IGNORED_WARNING)
        _filtered_since = monotonic()
