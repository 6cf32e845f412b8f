"""Frames of coroutines in which tasks of asyncio and trio wait, of greenlets that wait, and context variables.

These frames are on no thread's stack, and hold the objects that the coroutines work on. No variable of the program
holds a context. No code of the program runs: tasks and coroutines are read by the methods of their builtin types.
"""

import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import Context, ContextVar, copy_context
from itertools import compress, islice
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from flatwater_watch.heap.locals import frame_locals
from flatwater_watch.heap.raw import (
    c_attribute,
    full_name,
    instance_dict,
    module_namespace,
    namespace_value,
    plain_text,
    read_stable,
)

MAXIMUM_TASKS, MAXIMUM_DEPTH = 2000, 100
"""Maximum number of tasks, and of coroutines in a task that wait for each other."""
_TASK_SETS = ("_all_tasks", "_scheduled_tasks")
"""Names in `asyncio.tasks` of the set of weak references to all tasks: up to Python 3.11, and from 3.12 on."""
_WRAPPER_TYPES = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper"})
"""Builtin types between a coroutine and the generator that it waits for, which no attribute names."""


def suspended_frames() -> Iterator[FrameType]:
    """Yield the frames of the coroutines of all tasks, running coroutines included, and of waiting greenlets.

    The frames of a task or greenlet come together, the outermost first.
    """
    # Runs no code of the watched program.
    for task in _all_tasks():
        yield from _awaited_frames(_task_coroutine(task))
    for greenlet in _known_greenlets():
        innermost = c_attribute(greenlet, "gr_frame")  # None while the greenlet runs
        yield from reversed([*caller_frames(innermost)])


def _known_greenlets() -> list[Any]:
    """Return the youngest `MAXIMUM_TASKS` greenlets, oldest first; none if the library is not loaded."""
    # A greenlet waits in the loop of a C library, to which no object leads: the collector alone knows all of them.
    greenlet_class = (module_namespace("greenlet._greenlet") or {}).get("greenlet")
    if greenlet_class is None:
        return []
    kinds: list[type] = [greenlet_class]
    for kind in kinds:  # derived classes of all depths: the list grows inside the loop
        kinds += type.__subclasses__(kind)
    kind_ids = set(map(id, kinds))
    # Generation 2 first: it has the oldest objects.
    objects = [obj for generation in (2, 1, 0) for obj in gc.get_objects(generation)]
    # By C code alone, as this runs for each object of the heap.
    are_greenlets = map(kind_ids.__contains__, map(id, map(type, objects)))
    return list(compress(objects, are_greenlets))[-MAXIMUM_TASKS:]


def caller_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and the frames of its callers, innermost first; nothing for None."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def context_variables() -> Iterator[tuple[ContextVar[Any], Any]]:
    """Yield the context variables with their values, of the code that runs now and of each task."""
    for context in known_contexts():
        yield from context.items()


def known_contexts() -> list[Context]:
    """Return the contexts of the code that runs now and of each task."""
    # Runs no code of the watched program: up to Python 3.11 only the collector leads from a task to its context.
    referents = (referent for task in _all_tasks() for referent in gc.get_referents(task))
    return [copy_context(), *(referent for referent in referents if type(referent) is Context)]


def _all_tasks() -> list[Any]:
    """Return the living tasks of asyncio and trio; the main tasks of asyncio's loops come first."""
    space = module_namespace("asyncio.tasks") or {}
    # A `WeakSet` keeps weak references in its attribute `data`.
    task_sets = [instance_dict(space[name]).get("data", ()) for name in _TASK_SETS if name in space]
    weak_tasks = [reference() for tasks in task_sets for reference in read_stable(_first_tasks, tasks)]
    # Main tasks first, as a set of tasks has no order, and as a rule the main task's coroutine keeps the other tasks.
    tasks = {id(task): task for task in (*_main_tasks(), *weak_tasks, *_trio_tasks()) if task is not None}
    return list(tasks.values())


def _first_tasks(tasks: Iterable[Any]) -> list[Any]:
    """Return the first tasks of a set, at most `MAXIMUM_TASKS`; called by `read_stable`."""
    return list(islice(tasks, MAXIMUM_TASKS))


def _main_tasks() -> list[Any]:
    """Return the main task of each running loop: a local variable of asyncio's functions on some thread's stack."""
    c_task_class: Any = (module_namespace("_asyncio") or {}).get("Task")
    tasks: list[Any] = []
    # The documented way to see the frames of other threads.
    frames = {} if c_task_class is None else sys._current_frames()  # noqa: SLF001
    # No variable holds one of the frames: this very frame is among them, and would keep itself and its callers.
    while frames:
        tasks += _tasks_in_stack(frames.popitem()[1], c_task_class)
    return tasks


def _tasks_in_stack(innermost: FrameType, c_task_class: type) -> list[Any]:
    """Return the tasks among the local variables of asyncio's functions on a stack."""
    frames = caller_frames(innermost)
    loops = (frame for frame in frames if plain_text(namespace_value(frame.f_globals, "__package__")) == "asyncio")
    return [value for loop in loops for value in frame_locals(loop).values() if issubclass(type(value), c_task_class)]


def _trio_tasks() -> list[Any]:
    """Return the tasks of trio's run in this thread, oldest first; none if no run is under way."""
    context: Any = (module_namespace("trio._core._run") or {}).get("GLOBAL_RUN_CONTEXT")
    if not issubclass(type(context), threading.local):
        return []
    try:
        # By C code: a `threading.local` keeps its values in a dict for each thread, not in an instance's usual dict.
        runner = threading.local.__getattribute__(context, "runner")
    except AttributeError:  # no run is under way
        return []
    tasks = c_attribute(runner, "tasks")
    if type(tasks) is not set:
        return []
    # Sorted by trio's number of each task, as the owner among several tasks must not depend on the order of a set.
    return sorted(tasks, key=lambda task: c_attribute(task, "_counter") or 0)[:MAXIMUM_TASKS]


def _task_coroutine(task: Any) -> Any:
    """Return the coroutine of a task of asyncio or trio; None if it has none."""
    c_task_class = (module_namespace("_asyncio") or {}).get("Task")
    if c_task_class is not None and issubclass(type(task), c_task_class):
        return c_task_class.get_coro(task)
    # Tasks that are written in Python: asyncio's own with `_coro`, and trio's with a slot `coro`.
    return instance_dict(task).get("_coro") or c_attribute(task, "coro")


def _awaited_frames(awaitable: Any) -> Iterator[FrameType]:
    """Yield the frame of a coroutine, that of the coroutine or generator which it awaits, and so on: outermost first.

    The chain ends at an object without a frame of Python, or after `MAXIMUM_DEPTH` links.
    """
    for _ in range(MAXIMUM_DEPTH):
        frame: FrameType | None = None
        _, type_name = full_name(type(awaitable))
        if type(awaitable) is CoroutineType:
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif type(awaitable) is GeneratorType:
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        elif type(awaitable) is AsyncGeneratorType:
            frame, awaitable = awaitable.ag_frame, awaitable.ag_await
        elif type_name in _WRAPPER_TYPES:  # it has no frame, and leads to the next generator
            kinds = (AsyncGeneratorType, CoroutineType, GeneratorType)
            awaitable = next((referent for referent in gc.get_referents(awaitable) if type(referent) in kinds), None)
        else:
            return
        if frame is not None:
            yield frame
