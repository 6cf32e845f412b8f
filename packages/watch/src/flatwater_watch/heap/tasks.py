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
from flatwater_watch.heap.raw import c_attribute, full_name, instance_dict, module_namespace, plain_text, read_stable

MAXIMUM_TASKS, MAXIMUM_DEPTH = 2000, 100
"""Maximum number of tasks, and of coroutines in a task that wait for each other."""
_TASK_SETS = ("_all_tasks", "_scheduled_tasks")
"""Names in `asyncio.tasks` of the set of weak references to all tasks: up to Python 3.11, and from 3.12 on."""
_WRAPPER_TYPES = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper"})
"""Builtin types between a coroutine and the generator that it waits for, which no attribute names."""


def suspended_frames() -> Iterator[FrameType]:
    """Frames of the coroutines of all tasks, running coroutines included, and of the greenlets that wait.

    Of each task and each greenlet, the outermost frame comes first.
    """
    # Runs no code of the watched program.
    for task in _all_tasks():
        yield from _awaited_frames(_coroutine(task))
    for greenlet in _waiting_greenlets():
        yield from reversed([*_called_frames(c_attribute(greenlet, "gr_frame"))])


def _waiting_greenlets() -> list[Any]:
    """Greenlets, the youngest last and at most `MAXIMUM_TASKS`; empty if the library is not loaded."""
    # Each waits in the loop of a C library, to which no object leads: the collector alone knows them all.
    builtin = (module_namespace("greenlet._greenlet") or {}).get("greenlet")
    if builtin is None:
        return []
    kinds: list[type] = [builtin]
    for kind in kinds:
        kinds += type.__subclasses__(kind)
    kind_ids = set(map(id, kinds))
    objects = [obj for generation in (2, 1, 0) for obj in gc.get_objects(generation)]
    return list(compress(objects, map(kind_ids.__contains__, map(id, map(type, objects)))))[-MAXIMUM_TASKS:]


def _called_frames(innermost: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of a stack, innermost first."""
    while innermost is not None:
        yield innermost
        innermost = innermost.f_back


def context_variables() -> Iterator[tuple[ContextVar[Any], Any]]:
    """Context variables with their values, of the code that runs now and of each task."""
    # Runs no code of the watched program.
    contexts = (referent for task in _all_tasks() for referent in gc.get_referents(task) if type(referent) is Context)
    for context in (copy_context(), *contexts):
        yield from context.items()


def _all_tasks() -> list[Any]:
    """The living tasks of asyncio and trio; tasks of running loops come first."""
    space = module_namespace("asyncio.tasks") or {}
    task_sets = [instance_dict(space[name]).get("data", ()) for name in _TASK_SETS if name in space]
    weak_tasks = [reference() for tasks in task_sets for reference in read_stable(_first_tasks, tasks)]
    tasks = {id(task): task for task in (*_main_tasks(), *weak_tasks, *_trio_tasks()) if task is not None}
    return list(tasks.values())


def _first_tasks(tasks: Iterable[Any]) -> list[Any]:
    """The first tasks of a set, at most `MAXIMUM_TASKS`; called by `read_stable`."""
    return list(islice(tasks, MAXIMUM_TASKS))


def _main_tasks() -> list[Any]:
    """The main task of each loop, which is a local variable of asyncio's functions."""
    # First, as a set of tasks has no order, and as a rule the main task's coroutine keeps the others.
    builtin: Any = (module_namespace("_asyncio") or {}).get("Task")
    tasks: list[Any] = []
    frames = {} if builtin is None else sys._current_frames()  # noqa: SLF001  the documented way to see other threads
    while frames:  # no variable has one of them: this very frame is among them, and would keep itself and its callers
        tasks += _tasks_in_stack(frames.popitem()[1], builtin)
    return tasks


def _tasks_in_stack(innermost: FrameType, builtin: type) -> list[Any]:
    """Tasks among the local variables of asyncio's functions, in a stack."""
    tasks: list[Any] = []
    frame: FrameType | None = innermost
    while frame is not None:
        if plain_text(dict.get(frame.f_globals, "__package__")) == "asyncio":
            tasks += [value for value in frame_locals(frame).values() if issubclass(type(value), builtin)]
        frame = frame.f_back
    return tasks


def _trio_tasks() -> list[Any]:
    """Tasks of trio's run in this thread, oldest first."""
    context: Any = (module_namespace("trio._core._run") or {}).get("GLOBAL_RUN_CONTEXT")
    if not issubclass(type(context), threading.local):
        return []
    try:
        runner = threading.local.__getattribute__(context, "runner")  # C code, and its `__dict__` is another one
    except AttributeError:  # no run is under way
        return []
    tasks = c_attribute(runner, "tasks")
    # Which task of several is the owner must not depend on the order of a set: the task that began first comes first.
    return (
        sorted(tasks, key=lambda task: c_attribute(task, "_counter") or 0)[:MAXIMUM_TASKS] if type(tasks) is set else []
    )


def _coroutine(task: Any) -> Any:
    """The coroutine of a task of asyncio or trio; None if it has none."""
    builtin = (module_namespace("_asyncio") or {}).get("Task")
    if builtin is not None and issubclass(type(task), builtin):
        return builtin.get_coro(task)
    return instance_dict(task).get("_coro") or c_attribute(task, "coro")  # a task that is written in Python


def _awaited_frames(waiting: Any) -> Iterator[FrameType]:
    """Frames of a coroutine, and of the coroutines that it waits for."""
    for _ in range(MAXIMUM_DEPTH):
        frame: FrameType | None = None
        if type(waiting) is CoroutineType:
            frame, waiting = waiting.cr_frame, waiting.cr_await
        elif type(waiting) is GeneratorType:
            frame, waiting = waiting.gi_frame, waiting.gi_yieldfrom
        elif type(waiting) is AsyncGeneratorType:
            frame, waiting = waiting.ag_frame, waiting.ag_await
        elif full_name(type(waiting))[1] in _WRAPPER_TYPES:
            kinds = (AsyncGeneratorType, CoroutineType, GeneratorType)
            waiting = next((referent for referent in gc.get_referents(waiting) if type(referent) in kinds), None)
        else:
            return
        if frame is not None:
            yield frame
