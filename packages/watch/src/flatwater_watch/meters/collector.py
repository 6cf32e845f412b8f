"""Bytes that full collections free, from a reading before and after each, taken in a callback of the collector.

The callback is a C function: most collections are of young objects and end there, without a frame for a tracer to see.
"""

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from itertools import pairwise, repeat
from math import inf
from types import CodeType, FrameType, FunctionType, MethodType
from typing import NamedTuple

from flatwater_watch.medians import median
from flatwater_watch.meters.allocator import last_seconds, used_bytes
from flatwater_watch.meters.suspended_tracing import untraced_callable
from flatwater_watch.meters.system_calls import monotonic

MAXIMUM_COLLECTIONS = 16
"""Number of newest collections that are remembered: a phase of the program that is over says nothing of the next."""
READING_SHARE = 0.005
"""Share of the time that readings may take: few collections are read in a program that collects all the time."""
COSTLY_CPU_SECONDS = 0.05
"""CPU seconds of a reading from which on none is taken: the program stands still for it."""
OLDEST_GENERATION = 2
"""The oldest generation."""

_YOUNG_PHASES = {f"{phase}{generation:c}": "" for phase in ("start", "stop") for generation in range(OLDEST_GENERATION)}


class Collection(NamedTuple):
    """One full collection."""

    number: int
    """Number of the collection among all full collections since the beginning, whether they were read or not."""
    seconds: float
    """Monotonic time at which it began."""
    before: int
    """Anonymous resident bytes then, without those that the allocator has freed and kept."""
    after: int
    """Such bytes at its end."""


class GcSawtooth(NamedTuple):
    """Memory that rises between full collections and falls at each: medians, but for `bytes_since` and `seconds`."""

    freed: float
    """Bytes that a collection frees."""
    rise: float
    """Bytes that come between two collections; infinite if no two in a row were read."""
    bytes_before: float
    """Bytes in use when a collection begins."""
    bytes_since: float
    """Bytes that have come since the last collection."""
    seconds: float
    """Mean seconds from one collection to the next."""


class CollectionListener:
    """Reads memory around the full collections of this process, in whichever thread they run."""

    def __init__(self, run: Callable[[Callable[[], None]], None], read: Callable[[], int] = used_bytes) -> None:
        """Prepare without listening.

        Args:
            run: calls a function, and lets only exceptions of the program's signal handlers pass.
            read: returns the bytes in use.
        """
        self._run, self._read = run, read
        self._collections: deque[Collection] = deque(maxlen=MAXIMUM_COLLECTIONS)
        self._under_way: tuple[int, float, int] | None = None
        """The collection under way: number of full collections before it, time of its begin, and bytes in use then."""
        self._count_at_start = self._full_collections()
        self._baseline: tuple[Collection, ...] = ()
        """The baseline: a collection that freed nothing; empty if there is none."""
        self._due = 0.0
        self._callbacks = gc.callbacks  # a program may put another list in its place, which nobody reads
        self._turn_generator = signal_safe_turns(self._on_full_collection, _raise_later)
        next(self._turn_generator)
        self._callback = _full_collection_callback(untraced_callable(partial(next, self._turn_generator), _request_all))
        self.has_ended = False
        """Whether listening has ended."""

    def start_listening(self) -> None:
        """Begin, behind all callbacks that the program has."""
        self._callbacks.append(self._callback)

    def reset_baseline(self) -> None:
        """Read the bytes in use now as the baseline of the next collection; earlier collections are forgotten."""
        self._run(self._set_baseline)

    def _set_baseline(self) -> None:
        """Record the bytes in use now as a collection that freed nothing."""
        # In the thread of the readings; a collection in another thread may come in between.
        self._collections.clear()
        if _is_costly():
            return
        used = self._read()
        self._baseline = (Collection(self._full_collections() - self._count_at_start, monotonic(), used, used),)

    def close(self) -> None:
        """Stop listening."""
        self.has_ended = True
        # By identity, not `list.remove`: callbacks of the program may compare as they like.
        for index, callback in enumerate(self._callbacks):
            if callback is self._callback:
                del self._callbacks[index]
                break
        with suppress(ValueError):  # in a turn, where the watch has failed
            self._turn_generator.close()

    @staticmethod
    def _full_collections() -> int:
        """Number of full collections of the process that have ended; a callback at the end of one counts it."""
        return int(gc.get_stats()[OLDEST_GENERATION]["collections"])

    def _on_full_collection(self) -> None:
        """Take note that a full collection begins or ends."""
        # Within the collector, in any thread: no exception may be left behind.
        if not self.has_ended:
            self._run(self._record_begin_or_end)

    def _record_begin_or_end(self) -> None:
        """Read the bytes in use as a full collection begins and ends, unless that costs more than its share."""
        # Within the collector, in any thread.
        now, ended_count, open_collection = monotonic(), self._full_collections(), self._under_way
        self._under_way = None
        if _is_costly():
            return
        if open_collection is not None and ended_count > open_collection[0]:
            self._collections.append(
                Collection(ended_count - self._count_at_start, open_collection[1], open_collection[2], self._read())
            )
        elif now >= self._due:
            self._under_way = ended_count, now, self._read()
        else:
            return
        self._due = max(self._due, now + (monotonic() - now) / READING_SHARE)

    def measure_sawtooth(self, fewest: int) -> GcSawtooth | None:
        """Read the bytes in use, and return medians over the collections that were read.

        None if fewer were read, if only one was and there is no baseline, or if readings take too long.

        Args:
            fewest: minimum number of collections, at least 1.

        Raises:
            OSError: there is no /proc.
        """
        read_collections = list(self._collections)
        if len(read_collections) < fewest or _is_costly():
            return None
        # The baseline freed nothing, so it counts only where two collections are compared: rises and seconds between.
        collections = [*self._baseline, *read_collections]
        turns = collections[-1].number - collections[0].number
        if turns == 0:  # one collection alone: no time between two
            return None
        pairs = [(earlier, later) for earlier, later in pairwise(collections) if later.number == earlier.number + 1]
        rises = [later.before - earlier.after for earlier, later in pairs]
        return GcSawtooth(
            freed=median(collection.before - collection.after for collection in read_collections),
            rise=median(rises) if rises else inf,
            bytes_before=median(collection.before for collection in read_collections),
            bytes_since=self._read() - read_collections[-1].after,
            seconds=(collections[-1].seconds - collections[0].seconds) / turns,
        )


def _is_costly() -> bool:
    return (last_seconds() or 0.0) > COSTLY_CPU_SECONDS


def _full_collection_callback(act: Callable[[], bool]) -> Callable[[str, dict[str, int]], object]:
    """A callback of the collector, made of C functions alone, that calls `act` when a full collection begins or ends.

    It formats an object by the word `start` or `stop` and the generation; a dict knows those of young collections, and
    asks `act` for the others. The generation is a character, and no function is `str`: to write a number, or to ask an
    object for its text, Python runs signal handlers, and their exceptions would be lost here.
    """
    answers = map({False: ""}.__getitem__, iter(act, None))  # formatting must give a text
    texts = type("Known", (dict,), {"__missing__": staticmethod(partial(next, answers))})(_YOUNG_PHASES)
    formatter = type("Asked", (), {"__format__": staticmethod(texts.__getitem__)})()
    return partial("{0:{1}{2[generation]:c}}".format, formatter)


class _DeferredRaise:
    """Raises an exception of the program's signal handler in the main thread, between two instructions of the program.

    The interpreter asks this object for its truth as soon as it may. While a callback of the collector is on the stack,
    it is false: an exception below the collector is lost. It is requested again at the end of our callback, and at once
    below one of the program's.
    """

    def __init__(self, fault: BaseException) -> None:
        self.fault: BaseException | None = fault
        """None once it is raised."""

    def __bool__(self) -> bool:
        """Raise the exception, or return False if it would be lost: below a callback of the collector."""
        # Between two instructions of the main thread, perhaps within the collector.
        frame: FrameType | None = sys._getframe()  # noqa: SLF001  (the only way up the stack)
        callback_codes = {code for callback in gc.callbacks if (code := _function_code(callback)) is not None}
        while frame is not None and self.fault is not None:
            if frame.f_code is _TURN_CODE:
                return False
            if frame.f_code in callback_codes:
                # Safe from within the call: the interpreter makes at most 32 calls in a row (`make_pending_calls`), and
                # the program's callback goes on in between, until it has ended.
                _request(_ASK_TRUTH, self)
                return False
            frame = frame.f_back
        fault, self.fault = self.fault, None
        if fault is None:
            return False
        _exceptions_waiting.remove(self)
        _exceptions_raised.append(self)
        raise fault


_ASK_TRUTH = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
_request = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(("Py_AddPendingCall", ctypes.pythonapi))
"""The interpreter holds no reference to the object."""
_exceptions_waiting = list[_DeferredRaise]()
_exceptions_raised = deque[_DeferredRaise](maxlen=300)
"""Objects that are done, kept alive: the interpreter's queue, of 32 requests (300 in 3.13), may still have theirs."""
_request_all: Callable[[], None] = partial(
    next, map(deque[int](maxlen=0).extend, map(map, repeat(partial(_request, _ASK_TRUTH)), repeat(_exceptions_waiting)))
)
"""Function that requests all waiting objects, made of C functions alone, as no handler may run after the last turn."""


def _raise_later(fault: BaseException) -> None:
    """Raise an exception as soon as no callback of the collector is on the stack."""
    _exceptions_waiting.append(_DeferredRaise(fault))


def _function_code(callback: object) -> CodeType | None:
    """The code of a function or a method; None for other callables."""
    # No attribute of the program's own classes is asked for, which could run its code within the collector.
    function = callback.__func__ if type(callback) is MethodType else callback
    return function.__code__ if type(function) is FunctionType else None


def signal_safe_turns(
    work: Callable[[], object], on_error: Callable[[BaseException], object]
) -> Generator[bool, None, None]:
    """A generator that calls `work` at each turn and raises nothing, as the interpreter would only print an exception.

    The first turn does nothing. The owner must close the generator, as that runs its last lines.

    Args:
        work: function of one turn; it is never called within itself.
        on_error: gets exceptions of the work, and of a signal handler meanwhile.
    """
    # Python runs signal handlers at the first instruction of a function, where no `try` has begun. It runs none where a
    # generator resumes that waits in `yield from`: so this is one, and all of its body lies in a `try`.
    fault: BaseException | None = None
    while True:
        try:
            while True:
                try:
                    if fault is None:
                        yield from repeat(False, 1)  # noqa: FBT003  (its value)
                        work()
                    else:
                        on_error(fault)
                        fault = None
                except GeneratorExit:
                    return
                except BaseException as error:  # noqa: BLE001  (of a signal handler of the program)
                    fault = error
        except BaseException as error:  # noqa: BLE001  (the same, from one turn to the next)
            fault = error


_TURN_CODE = signal_safe_turns.__code__
