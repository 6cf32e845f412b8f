"""Bytes that full collections free, from a reading before and after each, taken in a callback of the collector.

Python's garbage collector frees objects in cycles. A full collection looks at the objects of all generations; most
collections look at young objects only, and are left out here. The collector calls the functions of `gc.callbacks` when
a collection starts and stops. The callback here is a C function, so that collections of young objects run no frame that
a tracer could see.

The collector loses exceptions that are raised in a callback. A signal handler of the program may raise one there, for
example to enforce a time limit: it is kept, and raised as soon as no callback is on the stack.
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
from types import FrameType
from typing import NamedTuple

from flatwater_watch.medians import median
from flatwater_watch.meters.allocator import last_seconds, used_bytes
from flatwater_watch.meters.program_faults import function_code
from flatwater_watch.meters.suspended_tracing import untraced_callable
from flatwater_watch.meters.system_calls import monotonic

MAXIMUM_COLLECTIONS = 16
"""Number of the newest collections that are kept: earlier phases of the program say nothing about the present one."""
READING_SHARE = 0.005
"""Share of the time that readings may take: few collections are read in a program that collects all the time."""
COSTLY_CPU_SECONDS = 0.05
"""CPU seconds of a reading from which on none is taken: the program stands still for it."""
OLDEST_GENERATION = 2

_YOUNG_PHASES = {f"{phase}{generation:c}": "" for phase in ("start", "stop") for generation in range(OLDEST_GENERATION)}
"""The texts by which `_full_collection_callback` knows the begin and end of a young collection: for these it does
nothing, and returns an empty text."""


class Collection(NamedTuple):
    """One full collection."""

    number: int
    """Number of the collection among all full collections of the process, whether they were read or not."""
    seconds: float
    """Monotonic time at which it began."""
    before: int
    """Bytes in use when it began: anonymous resident bytes, without those that the allocator has freed and kept."""
    after: int


class GcSawtooth(NamedTuple):
    """Figures of memory that rises between full collections and falls at each; the first three are medians."""

    freed: float
    rise: float
    """Bytes gained between two collections; infinite if no two in a row were read."""
    bytes_before: float
    """Bytes in use when a collection begins."""
    bytes_since: float
    """Bytes gained since the last collection."""
    seconds: float
    """Mean seconds from one collection to the next."""


class CollectionListener:
    """A listener that reads memory around the full collections of this process, in whichever thread they run."""

    def __init__(self, run_guarded: Callable[[Callable[[], None]], None], read: Callable[[], int] = used_bytes) -> None:
        """Prepare without listening; `run_guarded` lets only exceptions of signal handlers of the program pass."""
        self._run_guarded, self._read = run_guarded, read
        self._collections: deque[Collection] = deque(maxlen=MAXIMUM_COLLECTIONS)
        self._under_way: Collection | None = None
        """The full collection that has begun; until it ends, it has the number of the last one that ended."""
        self._baseline: tuple[Collection, ...] = ()
        """The bytes in use at the first reading, as one collection that freed nothing; empty if they were not read."""
        self._next_reading_time = 0.0  # monotonic time from which on a collection may be read
        # The list that the collector reads: a program may assign another list to `gc.callbacks`, without any effect.
        self._callbacks = gc.callbacks
        # A generator, as a function would run the program's signal handlers at its first instruction, and the collector
        # loses what they raise. What calls it is made of C functions alone, so no tracer sees a frame.
        self._turn_generator = signal_safe_turns(self._on_full_collection, _raise_later)
        next(self._turn_generator)  # begins it, so that the next `next` is a turn
        take_turn = partial(next, self._turn_generator)
        self._callback = _full_collection_callback(untraced_callable(take_turn, _raise_waiting_exceptions))
        self.has_ended = False

    def start_listening(self) -> None:
        """Append the callback to the collector's callbacks, after those of the program."""
        self._callbacks.append(self._callback)

    def reset_baseline(self) -> None:
        """Read the bytes in use now as the baseline of the next collection, and forget earlier collections."""
        self._run_guarded(self._set_baseline)

    def _set_baseline(self) -> None:
        """Forget earlier collections, and read the baseline unless readings take too long."""
        # In the thread of the readings; a collection in another thread may come in between.
        self._collections.clear()
        if not _is_costly():  # else no reading is taken any more
            self._baseline = (self._read_collection(monotonic()),)

    def _read_collection(self, now: float) -> Collection:
        """Read the bytes in use, and return them as those before and after a collection that frees nothing."""
        bytes_in_use = self._read()
        return Collection(_ended_count(), seconds=now, before=bytes_in_use, after=bytes_in_use)

    def close(self) -> None:
        """Stop listening."""
        self.has_ended = True
        # By identity, not `list.remove`: callbacks of the program may compare as they like.
        for index, callback in enumerate(self._callbacks):
            if callback is self._callback:
                del self._callbacks[index]
                break
        with suppress(ValueError):  # the generator runs: the watch has failed in its turn, and is closed from there
            self._turn_generator.close()

    def _on_full_collection(self) -> None:
        """Record that a full collection begins or ends, unless listening has ended."""
        # Within the collector, in any thread: no exception may be left behind.
        if not self.has_ended:
            self._run_guarded(self._record_begin_or_end)

    def _record_begin_or_end(self) -> None:
        """Read the bytes in use as a full collection begins or ends, unless readings take too long or are too many."""
        # Within the collector, in any thread.
        now = monotonic()
        under_way, self._under_way = self._under_way, None  # a collection has one begin and one end
        if _is_costly():
            return
        ended_count = 0 if under_way is None else _ended_count()
        if under_way is not None and ended_count > under_way.number:  # the collection under way ends
            self._collections.append(under_way._replace(number=ended_count, after=self._read()))
        elif now >= self._next_reading_time:  # a collection begins
            self._under_way = self._read_collection(now)
        else:
            return
        # Rest long enough that readings take at most `READING_SHARE` of the time.
        self._next_reading_time = max(self._next_reading_time, now + (monotonic() - now) / READING_SHARE)

    def measure_sawtooth(self, fewest: int) -> GcSawtooth | None:
        """Read the bytes in use, and return figures of the collections that were read.

        They are None if fewer than `fewest` collections were read, if there is one alone and no baseline, or if
        readings take too long.
        """
        read_collections = list(self._collections)
        if len(read_collections) < fewest or _is_costly():
            return None
        # The baseline freed nothing, so it counts only where two collections are compared: rises and seconds between.
        collections = [*self._baseline, *read_collections]
        interval_count = collections[-1].number - collections[0].number  # with collections that were not read
        if interval_count == 0:  # one collection alone
            return None
        rises = [
            later.before - earlier.after
            for earlier, later in pairwise(collections)
            if later.number == earlier.number + 1  # no collection between the two was left out
        ]
        return GcSawtooth(
            freed=median(collection.before - collection.after for collection in read_collections),
            rise=median(rises) if rises else inf,
            bytes_before=median(collection.before for collection in read_collections),
            bytes_since=self._read() - read_collections[-1].after,
            seconds=(collections[-1].seconds - collections[0].seconds) / interval_count,
        )


def _ended_count() -> int:
    """Return the number of full collections that have ended, including one whose end callback runs now."""
    return int(gc.get_stats()[OLDEST_GENERATION]["collections"])


def _is_costly() -> bool:
    """Return whether the last reading took so long that no other one is taken."""
    return (last_seconds() or 0.0) > COSTLY_CPU_SECONDS


def _full_collection_callback(act: Callable[[], bool]) -> Callable[[str, dict[str, int]], object]:
    r"""Return a callback of the collector, made of C functions alone, that calls `act` around each full collection.

    The collector calls `callback("start", {"generation": 2})`, and the callback is a `str.format`: it joins both to the
    text `start\x02`, and hands this to the `__format__` of an object, which looks it up in a dict. The dict has the
    texts of young collections, such as `start\x00`, and its `__missing__` calls `act` for the others.
    """
    # `__format__` must return a text, and `act` returns False. `iter(act, None)` calls `act` for each item, and never
    # ends, as `act` does not return None.
    empty_texts = map({False: ""}.__getitem__, iter(act, None))
    text_by_phase = type("Phases", (dict,), {"__missing__": staticmethod(partial(next, empty_texts))})(_YOUNG_PHASES)
    formatted = type("Formatted", (), {"__format__": staticmethod(text_by_phase.__getitem__)})()
    # `:c`, a character: to write digits Python runs signal handlers, whose exceptions would be lost.
    return partial("{0:{1}{2[generation]:c}}".format, formatted)


class _DeferredRaise:
    """An object that raises an exception of the program's signal handler between two instructions of the main thread.

    The interpreter is requested to test its truth value, and does so as soon as it may. While a callback of the
    collector is on the stack, where the exception would be lost, it is false: the test is then requested again at the
    end of the watch's callback, or at once within a callback of the program.
    """

    def __init__(self, fault: BaseException) -> None:
        self.fault: BaseException | None = fault
        """The exception to raise; None once it was raised."""

    def __bool__(self) -> bool:
        """Raise the exception; return False where it would be lost, within a callback of the collector."""
        # Between two instructions of the main thread, perhaps within the collector: the stack says so.
        frame: FrameType | None = sys._getframe()  # noqa: SLF001  (the only way up the stack)
        callback_codes = {code for callback in gc.callbacks if (code := function_code(callback)) is not None}
        while frame is not None and self.fault is not None:
            if frame.f_code is _TURN_CODE:  # within the watch's callback, which requests the test again at its end
                return False
            if frame.f_code in callback_codes:
                # A request from within the call cannot loop for ever: the interpreter makes at most 32 calls in a row
                # (`make_pending_calls`), and the program's callback goes on in between, until it has ended.
                _request(_ASK_TRUTH, self)
                return False
            frame = frame.f_back
        fault, self.fault = self.fault, None
        if fault is None:  # raised already: it was requested twice
            return False
        _exceptions_waiting.remove(self)
        _exceptions_raised.append(self)
        raise fault


_ASK_TRUTH = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
_request = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(("Py_AddPendingCall", ctypes.pythonapi))
"""Function that has the interpreter ask an object for its truth later; the interpreter holds no reference to it."""
_exceptions_waiting = list[_DeferredRaise]()
_exceptions_raised = deque[_DeferredRaise](maxlen=300)
"""Objects that are done, and are kept alive: the interpreter's queue, of 32 requests (300 in 3.13), may have them."""
_raise_waiting_exceptions: Callable[[], None] = partial(
    next, map(deque[int](maxlen=0).extend, map(map, repeat(partial(_request, _ASK_TRUTH)), repeat(_exceptions_waiting)))
)
"""Function that has the interpreter raise all waiting exceptions soon, by asking their objects for their truth. It is
made of C functions alone, so that no signal handler runs in it: nothing after it would raise what a handler raises."""


def _raise_later(fault: BaseException) -> None:
    """Raise an exception as soon as no callback of the collector is on the stack."""
    _exceptions_waiting.append(_DeferredRaise(fault))


def signal_safe_turns(
    work: Callable[[], object], on_error: Callable[[BaseException], object]
) -> Generator[bool, None, None]:
    """Return a generator that calls `work` each time it is resumed, and raises nothing, whatever a signal handler does.

    The first `next` only begins it. Its owner must close it. `on_error` gets exceptions of the work, and of signal
    handlers that run meanwhile.
    """
    # Python runs signal handlers at the first instruction of a function, where no `try` has begun. It runs none where a
    # generator resumes from `yield from`: so this is a generator, and all of its body lies in a `try`.
    fault: BaseException | None = None
    while True:
        try:
            while True:
                try:
                    if fault is None:
                        # Wait for the next turn. The yielded value is False, as `untraced_callable` demands.
                        yield from repeat(False, 1)  # noqa: FBT003  (a value that is repeated once)
                        work()
                    else:
                        on_error(fault)
                        fault = None
                except GeneratorExit:
                    return
                except BaseException as error:  # noqa: BLE001  (of a signal handler of the program)
                    fault = error
        except BaseException as error:  # noqa: BLE001  (of a handler, from one turn to the next)
            fault = error


_TURN_CODE = signal_safe_turns.__code__
