"""A filter so that a program which forks while a thread of the watch runs is not warned of that thread.

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

_FORK_WARNING = re.compile(r"This process \(pid=\d+\) is multi-threaded, use of fork")
_IGNORED_WARNING: Any = ("ignore", _FORK_WARNING, DeprecationWarning, None, 0)  # a filter as `warnings` keeps it
FILTER_SECONDS = 1.0
"""Seconds after a fork within which its warning comes, if it comes."""
_watch_threads = list[int]()
"""Process id for each thread of the watch: a fork inherits the list, and none of the threads."""
_filtered_since: float | None = None
"""Time at which the filter was set; None while it is not."""
_hook_registered = False


def warning_free_work(work: Callable[[], object]) -> Callable[[], None]:
    """Wrap the work of a thread that is about to start, so that forks do not warn of the thread until it is done."""
    owner = process_id()
    _watch_threads.append(owner)  # here: the program may fork before the thread has its turn

    def run() -> None:
        try:
            work()
        finally:
            _watch_threads.remove(owner)

    return run


def filter_fork_warnings(run: Callable[[Callable[[], object]], object]) -> None:
    """Filter the warnings of forks whose only other threads are the watch's; `run` calls a function without raising."""
    global _hook_registered  # noqa: PLW0603  (hooks at forks stay for the life of the process)
    version = tuple(sys.version_info)
    if _hook_registered or version < (3, 12):
        return
    _hook_registered = True
    end = frameless_callable(lambda: run(remove_filter))
    os.register_at_fork(before=frameless_callable(lambda: run(_set_filter_before_fork)), after_in_child=end)
    if version < (3, 13):  # later versions warn after their hooks
        os.register_at_fork(after_in_parent=end)


def remove_filter_later() -> None:
    """Take the filter out once the warning must have come."""
    if _filtered_since is not None and monotonic() - _filtered_since > FILTER_SECONDS:
        remove_filter()


def remove_filter() -> None:
    """Take the filter out."""
    # Only the list of filters is changed: `warnings.filterwarnings` would have each module forget its earlier warnings.
    global _filtered_since  # noqa: PLW0603  (of this process, as the list of filters is)
    if _filtered_since is not None:
        _filtered_since = None
        with suppress(ValueError):  # the program has other filters now
            cast("list[Any]", warnings.filters).remove(_IGNORED_WARNING)


def _set_filter_before_fork() -> None:
    """Set the filter if all other threads are the watch's; runs before each fork, in the thread that makes it."""
    global _filtered_since  # noqa: PLW0603  (of this process, as the list of filters is)
    remove_filter()
    own_threads = _watch_threads.count(process_id())
    if own_threads and threads_here() == 1 + own_threads:
        cast("list[Any]", warnings.filters).insert(0, _IGNORED_WARNING)
        _filtered_since = monotonic()
