"""The line that made an object. Tracing slows the program down, so it runs for one or two steps only.

Two tracers run side by side: tracemalloc for allocations of Python, and a torch mode for storages, which tracemalloc
does not see. Both give a stack; the line reported is the nearest one of the user's own program.
"""

import ast
import functools
import gc
import linecache
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.heap.arrays import array_figures, last_base, saved_tensors
from flatwater_watch.heap.raw import is_a, own_size
from flatwater_watch.heap.roots import is_installed_command, is_user_file
from flatwater_watch.meters.allocations import allocation_frames
from flatwater_watch.meters.rises import RiseRecorder
from flatwater_watch.paths import folder_of
from flatwater_watch.thresholds import SHIPPED

if TYPE_CHECKING:
    from flatwater_watch.meters.torch_ops import NewStorages

RISING, OWNING = SHIPPED.rising, SHIPPED.owning
FRAMES, DEEP_FRAMES = 16, 128
"""Frames that tracemalloc keeps of each allocation: enough to leave most libraries; and more, if all of those were a
library's. boto3 and Django call each other 30 to 60 deep. Python that only allocates is 75 times as slow with 16 frames
of 60, and 270 times with all of them (`tracemalloc.start(16)` around a list of texts)."""

MAXIMUM_CONTENTS = 200
"""Maximum number of objects that are opened below one."""
_TOOL = folder_of(folder_of(__file__))
"""Folder of the watch: objects that a census makes, such as the `__dict__` of an object without one, are its own."""
_SHARED_TYPES = (type, ModuleType, CodeType)
"""Types to which many objects refer that did not make them."""

_REUSED_TYPES = (tuple, list, dict)
"""Types that Python makes out of freed objects: a new one may have no line."""
CodeOwner = Literal["user", "package", "library", "tool"]
Line = tuple[str, int, str | None]
"""File, line, and qualified name of the function; None if the name must be read from the file."""


class Tracer:
    """Remembers the lines that made objects since `start`, and keeps none of the objects alive."""

    def __init__(self, packages: tuple[str, ...] = ()) -> None:
        """Prepare without tracing.

        Args:
            packages: library packages whose lines count as the user's, if no line of the user is nearer.
        """
        self._user_packages = packages
        self._began_tracemalloc = False
        self._frames = FRAMES
        self._frames_were_cut = False
        """Whether a stack was longer than its kept frames, with no line of the user's in them."""
        self._bytes_at_start = 0
        """Bytes that tracemalloc knew when this trace began, if the program traces itself."""
        self._storage_mode: NewStorages[AllocationSite | None] | None = None
        self._owner_by_file: dict[str, CodeOwner] = {}

    @property
    def running(self) -> bool:
        """Whether this tracer traces anything, which makes the program slower and larger."""
        return self._storage_mode is not None or self._began_tracemalloc

    @property
    def traces_torch(self) -> bool:
        """Whether it traces torch operations, which it does in the thread that called `start` only."""
        return self._storage_mode is not None

    def start(self, *, tensors: bool = True, objects: bool = True) -> None:
        """Begin to trace; traces that run already go on.

        Args:
            tensors: whether to trace this thread's torch operations.
            objects: whether to trace all allocations of Python and NumPy. Both together cost several times as much as
                each alone, because the torch mode is Python code.
        """
        if tensors and self._storage_mode is None and "torch" in sys.modules:
            from flatwater_watch.meters.torch_ops import NewStorages, enter_  # noqa: PLC0415  (torch may be absent)

            mode = NewStorages(self._current_line, _ignore_free)
            self._storage_mode = mode if enter_(mode) else None
        # If the program has a torch mode of its own, tracemalloc still gives the line of a tensor's Python object.
        if (objects or self._storage_mode is None) and not tracemalloc.is_tracing():
            tracemalloc.start(self._frames)
            self._began_tracemalloc = True
        self._bytes_at_start = tracemalloc.get_traced_memory()[0]

    @property
    def live_bytes(self) -> int:
        """Bytes of Python and NumPy that were allocated since `start` and are in use."""
        return tracemalloc.get_traced_memory()[0] - self._bytes_at_start

    def stop(self) -> None:
        """End, forget all lines, and leave tracemalloc as it was."""
        # In the thread that called `start`: torch's modes are a stack of each thread.
        if self._storage_mode is not None:
            from flatwater_watch.meters.torch_ops import leave_  # noqa: PLC0415  (torch may be absent)

            leave_(self._storage_mode)
            self._storage_mode = None
        if self._began_tracemalloc:
            tracemalloc.stop()
            self._began_tracemalloc = False

    def find_line(self, objects: Sequence[Any]) -> AllocationSite | None:
        """The line that made most bytes of the objects and their contents; None if all are older than `start`.

        A view counts with its base, a tensor with the tensors that its autograd graph saves, and an object of the
        user's classes with its contents. It must be called before `stop`. If all known frames are a library's, the
        trace begins again with more frames, for objects that are made from now on.
        """
        votes: Counter[AllocationSite] = Counter()
        self._frames_were_cut = False
        for item in objects:
            for size, site in self._origins(item):
                if site is not None:
                    votes[site] += max(1, size)
        if not votes and self._frames_were_cut and self._began_tracemalloc and self._frames < DEEP_FRAMES:
            self._frames = DEEP_FRAMES  # a trace that runs cannot get more frames: it begins again
            tracemalloc.stop()
            tracemalloc.start(self._frames)
            self._bytes_at_start = 0
        return votes.most_common(1)[0][0] if votes else None

    def _origins(self, item: Any) -> Iterator[tuple[int, AllocationSite | None]]:
        """Bytes and line of an object and of its contents, of at most `MAXIMUM_CONTENTS` objects."""
        # Contents are followed, as an object from a free list has no line of its own. Not below an older object, such
        # as the event loop of a timer: it holds objects that others made.
        queue, seen_ids = deque([item]), set[int]()
        while queue and len(seen_ids) < MAXIMUM_CONTENTS:
            obj = queue.popleft()
            if id(obj) not in seen_ids and (obj is item or not is_a(obj, *_SHARED_TYPES)):
                seen_ids.add(id(obj))
                yield from self._own_origins(obj)
                contents = _contents(obj)
                if contents and (obj is item or not _is_older(obj)):
                    queue += contents[:MAXIMUM_CONTENTS]

    def _own_origins(self, item: Any) -> Iterator[tuple[int, AllocationSite | None]]:
        """Bytes and line of one object: an array's base, or a tensor and the tensors that its autograd graph saves."""
        figures = array_figures(item)
        if figures is None:
            yield own_size(item), self._allocation_site(item, "python")
        elif figures.graphed is None:
            yield figures.base_bytes, self._allocation_site(last_base(item), "numpy")
        else:
            for tensor in (item, *saved_tensors(item)):
                site = None if self._storage_mode is None else self._storage_mode.record_of(tensor)
                tensor_figures = array_figures(tensor)
                yield (
                    0 if tensor_figures is None else tensor_figures.base_bytes,
                    site or self._allocation_site(tensor, "python"),
                )

    def _current_line(self, operation: str, _size: int) -> AllocationSite | None:
        """The line that makes a storage now; runs in the program's thread, within its torch operation."""
        lines = _running_lines(sys._getframe())  # noqa: SLF001  (the only way up the stack)
        line = self._responsible_line(dropwhile(lambda line: self._owner_of_file(line[0]) == "tool", lines))
        if line is None:
            return None
        file, number, function = line
        return AllocationSite(file, number, _short_name(function or ""), operation)

    def _allocation_site(self, item: object, operation: str) -> AllocationSite | None:
        """The line at which tracemalloc saw an object made; None for an older one, or if no frame is the user's."""
        frames = allocation_frames(item)
        line = self._responsible_line((file, number, None) for file, number in frames)
        self._frames_were_cut = self._frames_were_cut or (line is None and len(frames) == self._frames)
        if line is None:
            return None
        file, number, _ = line
        return AllocationSite(file, number, _enclosing_function(file, number), operation)

    def _responsible_line(self, lines: Iterable[Line]) -> Line | None:
        """The user's line that is responsible for an allocation; `lines` go from the innermost outwards.

        If packages count too, they run the program, and code that is not theirs is a hook that they call: the hook is
        responsible if one of their lines lies further out. Otherwise it only started them, and their nearest line is.
        """
        user: Line | None = None
        package: Line | None = None
        for line in lines:
            side = self._owner_of_file(line[0])
            if side == "tool" and user is None and package is None:
                return None
            if side == "user":
                user = user or line
            elif side == "package":
                if user is not None:
                    return user
                package = package or line
        return package or user

    def _owner_of_file(self, file: str) -> CodeOwner:
        """The owner of a file's code, remembered by file: a trace asks for every frame."""
        return self._owner_by_file.get(file) or self._owner_by_file.setdefault(
            file, _code_owner(file, self._user_packages)
        )


class NativeLineSearch:
    """The search for a line that runs while memory rises that no object holds, with a few tries."""

    def __init__(self, packages: tuple[str, ...] = (), *, allowed: bool = True) -> None:
        """Prepare without a try.

        Args:
            packages: library packages whose lines count as the user's.
            allowed: whether any try is allowed.
        """
        self._tries = RISING.maximum_tries if allowed else 0
        self.recorder = RiseRecorder(
            lambda file: is_user_file(file, packages),
            maximum_seconds=RISING.maximum_cpu_seconds,
            maximum_query_seconds=RISING.maximum_query_seconds,
        )
        self.line: AllocationSite | None = None
        self._item_line: AllocationSite | None = None
        """The line that made the objects in front of the bytes, if it is known. Only a line that runs before it is
        better: bytes that an object takes later belong to the line that made it."""
        self._tries_made = self._readings_in_try = 0
        """Tries so far, and readings of the try under way."""

    def is_wanted(self, causes: Iterable[Evidence]) -> bool:
        """Whether one of the causes wants a line, none is known, and tries are left; notes the line to improve on."""
        item_lines = [
            cause.made_at
            for cause in causes
            if cause.wants_native_line and cause.share >= OWNING.minimum_reported_share
        ]
        if not item_lines or self.line is not None or self._tries_made >= self._tries:
            return False
        self._item_line = None if None in item_lines else item_lines[0]
        return True

    def begin(self) -> bool:
        """Begin a try; return False if the program is traced already."""
        self._tries_made, self._readings_in_try = self._tries_made + 1, 0
        return self.recorder.begin(None if self._item_line is None else (self._item_line.file, self._item_line.line))

    def is_finished(self) -> bool:
        """Whether the try has recorded enough, or taken long enough; to be called once a reading."""
        self._readings_in_try += 1
        return (
            self.recorder.is_over_budget
            or self.recorder.kept_count >= RISING.sufficient_rises
            or self._readings_in_try >= RISING.maximum_readings
        )

    def end(self) -> None:
        """End the try, and keep its line if there is one."""
        self.recorder.end()
        line = self.recorder.main_line(minimum_share=RISING.minimum_main_share, minimum_rises=RISING.minimum_rises)
        if line is not None:
            file, number, function = line
            self.line = AllocationSite(file, number, _short_name(function), "native")

    def line_for(self, cause: Evidence) -> AllocationSite | None:
        """The line for a cause, if the cause wanted one and it is known."""
        is_sought = cause.wants_native_line and cause.made_at in {None, self._item_line}
        return self.line if is_sought else None


def _code_owner(file: str, packages: tuple[str, ...]) -> CodeOwner:
    """The owner of a file's code: the user, a package that counts too, another library, or this tool."""
    if file.startswith(f"{_TOOL}/"):
        return "tool"
    if file == "<string>" and "__file__" in vars(sys.modules["__main__"]):  # not `python -c`: a dataclass's methods
        return "library"
    if is_installed_command(file):
        return "library"
    return "user" if is_user_file(file) else "package" if is_user_file(file, packages) else "library"


def _contents(obj: object) -> list[Any]:
    """The objects that an object holds: of a function what it closes over, not the globals of its module."""
    if type(obj) is FunctionType:
        return [value for cell in obj.__closure__ or () for value in gc.get_referents(cell)]
    return gc.get_referents(obj)


def _is_older(obj: object) -> bool:
    """Whether an object is known to be older than the trace: False also if nothing can be said of it."""
    is_traceable = tracemalloc.is_tracing() and not is_a(obj, *_REUSED_TYPES) and array_figures(obj) is None
    return is_traceable and not allocation_frames(obj)


def _running_lines(frame: FrameType | None) -> Iterator[Line]:
    """The running lines of a stack, from its innermost frame outwards."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
        frame = frame.f_back


def _short_name(qualified: str) -> str:
    """A qualified name without inner scopes: `Trainer.learn.<locals>.<listcomp>` as `Trainer.learn`."""
    return ".".join(part for part in qualified.split(".") if not part.startswith("<")) or "<module>"


@functools.lru_cache(maxsize=64)
def _enclosing_function(file: str, line: int) -> str:
    """Qualified name of the innermost function around a line of a file; `<module>` if there is none."""
    try:
        parsed = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # not Python, such as a template that was compiled to it
        return "<module>"
    return ".".join(_enclosing_names(parsed, line)) or "<module>"


def _enclosing_names(node: ast.AST, line: int) -> list[str]:
    """Names of the classes and functions below a node that a line lies in, outermost first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler) and child.lineno <= line <= (child.end_lineno or line):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                return [child.name, *_enclosing_names(child, line)]
            return _enclosing_names(child, line)
    return []


def _ignore_free(_record: object) -> None:
    """Ignore the record of a storage that is freed."""
