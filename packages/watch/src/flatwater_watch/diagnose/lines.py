"""The search for the line that made an object. Tracing slows the program down, so it runs for one or two steps only.

Two tracers run side by side: tracemalloc for allocations of Python, and a torch mode for storages, which tracemalloc
does not see. Both give a stack, and the line of the user's own program that is nearest to the allocation is reported.
"""

import ast
import functools
import gc
import linecache
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import dropwhile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from flatwater_watch.diagnose.evidence import UNKNOWN_USE, Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.item_growth import container_lengths
from flatwater_watch.diagnose.line_calls import LineObjects
from flatwater_watch.heap.arrays import array_figures, owning_array, saved_tensors
from flatwater_watch.heap.modules import is_runtime_file
from flatwater_watch.heap.raw import is_a, is_class, own_size
from flatwater_watch.heap.roots import is_installed_command, is_user_file, running_frames
from flatwater_watch.meters.allocations import AllocationTrace, allocation_frames
from flatwater_watch.meters.rises import LinePlace, RiseRecorder
from flatwater_watch.paths import parent_folder
from flatwater_watch.series.readings import Reading
from flatwater_watch.series.slope import Slope
from flatwater_watch.thresholds import OWNING, RISING

if TYPE_CHECKING:
    from flatwater_watch.meters.torch_ops import NewStorages

FRAMES, DEEP_FRAMES = 16, 128
"""Frames that tracemalloc keeps of each allocation: 16 leave most libraries; 128 are kept once all 16 were a library's,
as boto3 and Django call each other 30 to 60 deep. Python that only allocates is 75 times as slow with 16 frames of 60,
and 270 times with all 60 (`tracemalloc.start(16)` around a list of texts)."""

MAXIMUM_CONTENTS = 200
"""Maximum number of objects that are opened below an object whose line is looked up."""
_TOOL = parent_folder(parent_folder(__file__))
"""Folder of the watch: objects that a census makes, such as the `__dict__` of an object without one, are its own."""
_SHARED_TYPES = (type, ModuleType, CodeType)
"""Types whose objects are shared by many others, so that they are no contents of an object that refers to them."""

_REUSED_TYPES = (tuple, list, dict)
"""Types whose freed objects Python keeps and uses again: a new object may have no line."""
CodeOwner = Literal["user", "package", "library", "tool"]
_CUT_OFF = ("", 0)
"""Stands for the lines of a stack that was not kept to its end."""
_Call = tuple[int, int, str, int]
Line = tuple[str, int, str | None]
"""File, line, and qualified name of the function; None if the name must be read from the file."""


class Tracer:
    """A record of the lines that made objects since `start`, which keeps none of the objects alive."""

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        """Prepare without tracing; `packages` are libraries whose lines may be reported, as the user's are."""
        self._user_packages = packages
        self.allocations = AllocationTrace()
        """The trace of Python's and NumPy's allocations; it stays without one if the program traces itself."""
        self._frames = FRAMES
        self._frames_were_cut = False
        """Whether a stack was longer than its kept frames, with no line of the user's in them."""
        self._bytes_at_start = 0
        """Bytes that tracemalloc knew when this trace began, if the program traces itself."""
        self._storage_mode: NewStorages[AllocationSite | None] | None = None
        self._owner_by_file: dict[str, CodeOwner] = {}
        self._calls_at_start = frozenset[_Call]()
        """Calls that were under way when this trace began."""
        self._callers_by_site: dict[AllocationSite, set[tuple[str, int]]] = {}
        """Lines of the stacks of the allocations at each site of the last look-up."""

    @property
    def running(self) -> bool:
        """Whether this tracer traces anything, which makes the program slower and larger."""
        return self._storage_mode is not None or self.allocations.running

    @property
    def traces_torch(self) -> bool:
        """Whether torch operations are traced, which happens only in the thread that called `start`."""
        return self._storage_mode is not None

    def start(self, *, tensors: bool = True, objects: bool = True) -> None:
        """Begin to trace allocations; a trace that runs already goes on.

        Args:
            tensors: whether to trace this thread's torch operations.
            objects: whether to trace all allocations of Python and NumPy. Both kinds together cost several times as
                much as each alone, because the torch mode is Python code.
        """
        if tensors and self._storage_mode is None and "torch" in sys.modules:
            from flatwater_watch.meters.torch_ops import NewStorages, enter_mode_  # noqa: PLC0415  (torch may be absent)

            mode = NewStorages(self._current_line, _ignore_free)
            self._storage_mode = mode if enter_mode_(mode) else None
        # If the program has a torch mode of its own, tracemalloc still gives the line of a tensor's Python object.
        if (objects or self._storage_mode is None) and not tracemalloc.is_tracing():
            self.allocations.start(self._frames)
        self._bytes_at_start = tracemalloc.get_traced_memory()[0]
        self._calls_at_start = self._calls_under_way()

    @property
    def live_bytes(self) -> int:
        """Bytes of Python and NumPy that were allocated since `start` and are in use."""
        return tracemalloc.get_traced_memory()[0] - self._bytes_at_start

    def stop(self) -> None:
        """End the trace, forget all lines, and leave tracemalloc as it was before `start`."""
        # In the thread that called `start`: each thread has a stack of torch modes.
        if self._storage_mode is not None:
            from flatwater_watch.meters.torch_ops import leave_mode_  # noqa: PLC0415  (torch may be absent)

            leave_mode_(self._storage_mode)
            self._storage_mode = None
        self.allocations.stop()

    def find_line(self, objects: Sequence[Any]) -> AllocationSite | None:
        """Return the line that made most bytes of the objects and their contents; None if no trace knows it.

        Call it before `stop`. A view of an array counts with the array, and a tensor with the tensors that its autograd
        graph saves. If no line is found as all frames that were kept are a library's, the trace begins again with more
        frames for each allocation, for later objects.
        """
        bytes_by_site: Counter[AllocationSite] = Counter()
        self._frames_were_cut = False
        self._callers_by_site.clear()
        for item in objects:
            for size, site in self._content_origins(item):
                if site is not None:
                    bytes_by_site[site] += max(1, size)  # an object without known bytes counts as well
        if bytes_by_site:
            largest_site, _ = bytes_by_site.most_common(1)[0]
            if len(bytes_by_site) == 1 or not self.is_waiting_line(largest_site):
                return largest_site
            # A line that runs within that call, as a callback, says more than the call.
            outer_lines = {(largest_site.file, largest_site.line), _CUT_OFF}
            callers = self._callers_by_site
            inner = [site for site in bytes_by_site if not outer_lines.isdisjoint(callers.get(site, ()))]
            return max(inner, key=lambda site: (site != largest_site, bytes_by_site[site]), default=largest_site)
        if self._frames_were_cut and self.allocations.running and self._frames < DEEP_FRAMES:
            # A trace that runs cannot get more frames, so it begins again.
            self._frames = DEEP_FRAMES
            self.allocations.stop()
            self.allocations.start(self._frames)
            self._bytes_at_start = 0  # a trace that has just begun knows no block
        return None

    def is_waiting_line(self, site: AllocationSite) -> bool:
        """Return whether the program is at the same call as when the trace began, such as that of an event loop.

        It may be within that very call, or within a later one from the same line of a loop.
        """
        return any(call[2:] == (site.file, site.line) for call in self._calls_at_start & self._calls_under_way())

    def _calls_under_way(self) -> frozenset[_Call]:
        """Return the id, the instruction, the file and the line of each frame of the user's or a package's code."""
        frames = running_frames(lambda file: self._owner_of_file(file) in {"user", "package"})
        return frozenset((id(frame), frame.f_lasti, frame.f_code.co_filename, frame.f_lineno) for frame in frames)

    def _content_origins(self, item: Any) -> Iterator[tuple[int, AllocationSite | None]]:
        """Yield (bytes, line) for an object and its contents, breadth first; the line is None if it is not known.

        At most `MAXIMUM_CONTENTS` objects are opened.
        """
        # Contents count, as an object for which Python used the memory of a freed one has no line. But contents of an
        # object that is older than the trace, such as the event loop of a timer, were made by others.
        queue, seen_ids = deque([item]), set[int]()
        while queue and len(seen_ids) < MAXIMUM_CONTENTS:
            obj = queue.popleft()
            if id(obj) not in seen_ids and (obj is item or not is_a(obj, *_SHARED_TYPES)):
                seen_ids.add(id(obj))
                yield from self._own_origins(obj)
                contents = [] if is_class(obj) else _held_objects(obj)  # its library made what a class holds
                if contents and (obj is item or not _is_older(obj)):
                    queue += contents[:MAXIMUM_CONTENTS]

    def _own_origins(self, item: Any) -> Iterator[tuple[int, AllocationSite | None]]:
        """Yield (bytes, line) for one object without its contents; the line is None if no trace knows it.

        A view of a NumPy array gives those of the array, and a tensor one pair for itself and for each tensor that its
        autograd graph saves.
        """
        figures = array_figures(item)
        if figures is None:
            yield own_size(item), self._allocation_site(item, "python")
        elif figures.has_graph is None:  # a numpy array
            yield figures.base_bytes, self._allocation_site(owning_array(item), "numpy")
        else:  # a tensor: its line is that of its storage, from the torch mode, or else of its Python object
            for tensor in (item, *saved_tensors(item)):
                site = None if self._storage_mode is None else self._storage_mode.find_record(tensor)
                tensor_figures = array_figures(tensor)
                size = 0 if tensor_figures is None else tensor_figures.base_bytes
                yield size, site or self._allocation_site(tensor, "python")

    def _current_line(self, operation: str, _size: int) -> AllocationSite | None:
        """Return the line of the program that runs now and makes a tensor's storage; None if none is responsible.

        Called by the torch mode, in the thread of the program, within its torch operation.
        """
        lines = _running_lines(sys._getframe())  # noqa: SLF001  (the only way up the stack)
        # The innermost frames are of the watch, which torch calls within the operation.
        lines_of_program = dropwhile(lambda line: self._owner_of_file(line[0]) == "tool", lines)
        line = self._responsible_line(lines_of_program)
        if line is None:
            return None
        file, number, function = line
        return AllocationSite(file, number, _short_name(function or ""), operation)

    def _allocation_site(self, item: object, operation: str) -> AllocationSite | None:
        """Return the line at which tracemalloc saw an object made; None if it is older, or no frame is the user's.

        `operation` is the name of the operation to report, such as "numpy".
        """
        frames = allocation_frames(item)
        line = self._responsible_line((file, number, None) for file, number in frames)
        if line is None:
            # A stack of as many frames as are kept may be longer, with the user's line further out.
            self._frames_were_cut = self._frames_were_cut or len(frames) == self._frames
            return None
        file, number, _ = line
        site = AllocationSite(file, number, _enclosing_function(file, number), operation)
        callers = self._callers_by_site.setdefault(site, set())
        callers.update(frames if len(frames) < self._frames else (*frames, _CUT_OFF))
        return site

    def _responsible_line(self, lines: Iterable[Line]) -> Line | None:
        """Return the line of a stack to report for an allocation: the user's innermost line, or one of a package.

        Packages are those given to the tracer. If the user's line calls a package, the package's innermost line is
        returned; but if a package calls the user's line (a hook), the user's. None if none of these lines is on the
        stack, or if a line of the watch itself lies further in than all of them.

        Args:
            lines: lines of the stack, from the innermost frame outwards.
        """
        user_line: Line | None = None
        package_line: Line | None = None
        for line in lines:
            owner = self._owner_of_file(line[0])
            if owner == "tool" and user_line is None and package_line is None:
                return None
            if owner == "user":
                user_line = user_line or line
            elif owner == "package":
                if user_line is not None:
                    return user_line
                package_line = package_line or line
        return package_line or user_line

    def _owner_of_file(self, file: str) -> CodeOwner:
        """Return the owner of a file's code, which is remembered, as a trace asks for each frame."""
        owner = self._owner_by_file.get(file)
        if owner is None:
            owner = self._owner_by_file[file] = _code_owner(file, self._user_packages)
        return owner


class NativeLineSearch:
    """The search for the line that runs while native memory rises, or items are added: a few tries of some readings."""

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        """Prepare a search that has begun no try yet; `packages` are libraries whose lines count as the user's."""
        self.adding_lines: dict[str, AllocationSite] = {}
        """Lines that add items, by owner."""
        self.growing: tuple[str, list[Any]] | None = None
        """Owner whose adding line is sought in the next try, and its containers; None without one."""
        self._objects = LineObjects()
        """The objects of the lines at which memory has risen in this try."""
        self._is_user_file: Callable[[str], bool] = lambda file: is_user_file(file, packages)
        self.recorder = RiseRecorder(
            self._is_user_file,
            self._note_objects,
            maximum_seconds=RISING.maximum_cpu_seconds,
            maximum_query_seconds=RISING.maximum_query_seconds,
        )
        self.line: AllocationSite | None = None
        self.use = UNKNOWN_USE
        """What is known of the objects of the line."""
        self._item_line: AllocationSite | None = None
        """The line that made the Python objects that own the bytes, if it is known. Only a line that runs before that
        line is better: bytes that an object takes later belong to the line that made the object."""
        self.waits = self._line_waits = self._in_other_threads = False
        """Whether a try waits for the next reading; whether the line that was found waits while other threads work, so
        that these are to be recorded; and whether the next try is for other threads than that which begins it."""
        self._tries_made = 0
        self._readings_in_try = 0
        self._first_step, self._bytes_per_step = 0, 0.0
        """Step at which the try began, and the growth until then."""

    def prepare_try(
        self, causes: Iterable[Evidence], *, must_wait: bool = False, in_other_threads: bool = False
    ) -> bool:
        """Return whether a try may begin now, and record the line that made the objects of the causes.

        A try begins only if a cause wants a native line, none is found yet, and a try is left.

        Args:
            causes: evidence so far.
            must_wait: whether no try may begin now, as it cannot be paid for.
            in_other_threads: whether the caller is a thread of the watch, as the main thread sleeps.
        """
        self.waits = False
        item_lines = [
            cause.made_at
            for cause in causes
            if cause.wants_native_line and cause.share >= OWNING.minimum_reported_share
        ]
        if self.growing is None and (
            not item_lines
            or (self.line is not None and not self._line_waits)
            or self._tries_made >= RISING.maximum_tries
        ):
            return False
        self._in_other_threads = in_other_threads or (self._line_waits and self.growing is None)
        # If a cause has no line, any line that runs may be its line, and the search is not bound to one.
        self._item_line = None if None in item_lines or not item_lines else item_lines[0]
        self.waits = must_wait
        return not must_wait

    def begin(self, reading: Reading, growth: Slope) -> bool:
        """Begin a try to find the line; return whether it has begun: it does not if the program is traced already.

        Args:
            reading: latest reading.
            growth: slope of the memory that grows.
        """
        self._readings_in_try, others = 0, self._in_other_threads
        if others and any(frame.f_trace is not None for frame in running_frames(self._is_user_file)):
            return False  # a debugger follows it
        if self.growing is not None:
            containers = self.growing[1]
            measure = lambda: (sum(container_lengths(containers)),) * 2  # noqa: E731
            self.growing = self.growing if self.recorder.begin(None, measure, in_other_threads=others) else None
            return self.growing is not None
        self._tries_made, self._objects, self._line_waits = self._tries_made + 1, LineObjects(), False
        self._first_step, self._bytes_per_step = reading.step, growth.per_step
        end = None if self._item_line is None else (self._item_line.file, self._item_line.line)
        return self.recorder.begin(end, in_other_threads=others)

    def _note_objects(self, frame: FrameType, line: LinePlace, calls: int) -> None:
        """Note the objects of a line at which memory has risen; called by the recorder of rises.

        Args:
            frame: frame of the function, past the line.
            line: the line.
            calls: number of calls of the function so far.
        """
        if self._objects.note_objects_(frame, line, calls):
            self.recorder.skip_current_gain()  # the notes take memory, which is not the program's

    def count_reading_(self, reading: Reading) -> bool:
        """Count a reading of this try; return whether it has recorded enough rises, or taken long enough."""
        self._readings_in_try += 1
        # If the reading comes amid a round, rises so far may not stay: their bytes must be a part of the growth.
        expected_bytes = self._bytes_per_step * (reading.step - self._first_step)
        rises, size = RISING.sufficient_rises, min(reading.material_bytes, RISING.minimum_growth_share * expected_bytes)
        if self.growing is not None:
            rises = size = RISING.minimum_rises
        is_sufficient = self.recorder.has_enough(rises=rises, size=size)
        return is_sufficient or self.recorder.is_over_budget or self._readings_in_try >= RISING.maximum_readings

    def end(self) -> None:
        """End the try; keep the line at which most of the rises came, if there is one, and what its objects are."""
        self.recorder.end()
        line = self.recorder.main_line(minimum_share=RISING.minimum_main_share, minimum_rises=RISING.minimum_rises)
        growing, self.growing = self.growing, None
        if line is not None and growing is not None:
            self.adding_lines[growing[0]] = AllocationSite(line[0], line[1], _short_name(line[2]), "python")
        elif line is not None:
            self.use = self._objects.describe_use(line)
            self.waits = self._line_waits = not self.recorder.is_in_other_threads and self.recorder.waits(line)
            self.line = AllocationSite(line[0], line[1], _short_name(line[2]), "native")

    def add_line(self, cause: Evidence) -> Evidence:
        """Return the evidence on a cause with the native line that was found, and what is known of the line's objects.

        The line is left out if the cause wants none, or if its objects were made at another line than the sought ones.
        """
        is_sought = cause.wants_native_line and cause.made_at in {None, self._item_line}
        made_at = self.adding_lines.get(cause.owner, cause.made_at)
        return replace(cause, made_at=made_at, native_line=self.line if is_sought else None, native_use=self.use)


def _code_owner(file: str, packages: tuple[str, ...]) -> CodeOwner:
    """Return whose code a file is: the user's, one of the given packages', another library's, or this tool's."""
    if file.startswith(f"{_TOOL}/"):
        return "tool"
    # Generated code, such as a dataclass's methods, has the file "<string>"; so has a program run by `python -c`.
    is_generated = file == "<string>" and "__file__" in vars(sys.modules["__main__"])
    if is_generated or is_installed_command(file) or is_runtime_file(file):
        return "library"
    if is_user_file(file):
        return "user"
    return "package" if is_user_file(file, packages) else "library"


def _held_objects(obj: object) -> list[Any]:
    """Return the objects that an object refers to; for a function, only the variables of its closure."""
    if type(obj) is FunctionType:
        return [value for cell in obj.__closure__ or () for value in gc.get_referents(cell)]
    return gc.get_referents(obj)


def _is_older(obj: object) -> bool:
    """Return whether an object is known to be older than the trace; False also if its age cannot be told."""
    is_traceable = tracemalloc.is_tracing() and not is_a(obj, *_REUSED_TYPES) and array_figures(obj) is None
    return is_traceable and not allocation_frames(obj)


def _running_lines(frame: FrameType | None) -> Iterator[Line]:
    """Yield the file, line and function of each frame on a stack, from this frame outwards."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
        frame = frame.f_back


def _short_name(qualified_name: str) -> str:
    """Return a qualified name without inner scopes: `Trainer.learn.<locals>.<listcomp>` as `Trainer.learn`."""
    return ".".join(part for part in qualified_name.split(".") if not part.startswith("<")) or "<module>"


@functools.lru_cache(maxsize=64)
def _enclosing_function(file: str, line: int) -> str:
    """Return the qualified name of the innermost function around a line of a file; `<module>` if there is none."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # not Python, such as a template that was compiled to it
        return "<module>"
    return ".".join(_enclosing_names(tree, line)) or "<module>"


def _enclosing_names(node: ast.AST, line: int) -> list[str]:
    """Return the names of the classes and functions that contain a line, outermost first: ["Trainer", "learn"].

    Args:
        node: syntax tree, such as that of a module, in which to look.
        line: number of the line.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler) and child.lineno <= line <= (child.end_lineno or line):
            if isinstance(child, ast.ClassDef) and child.lineno == line:  # runs in the function around the class
                return []
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                return [child.name, *_enclosing_names(child, line)]
            return _enclosing_names(child, line)
    return []


def _ignore_free(_record: object) -> None:
    """Ignore the record of a storage that is freed."""
