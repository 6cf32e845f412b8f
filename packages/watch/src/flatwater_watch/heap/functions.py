"""The objects that functions hold: closures, bound methods, partials, caches, generators, frames of exceptions."""

import gc
import inspect
import types
from functools import lru_cache, partial
from itertools import islice
from typing import Any

from flatwater_watch.heap.locals import frame_locals, function_name
from flatwater_watch.heap.raw import (
    GC_BYTES,
    POINTER_BYTES,
    basic_size,
    callable_name,
    class_name,
    full_name,
    instance_dict,
    named_entries,
    names_of,
    plain_text,
    read_stable,
    referents,
)
from flatwater_watch.heap.view import OPAQUE, Named, OpenedObject, Walk, claim_bytes, evenly_spaced_slice


def open_function(function: types.FunctionType, walk: Walk) -> OpenedObject:
    """Open a function: the variables that it closes over, its defaults and attributes, but not its globals."""
    # Runs no code of the watched program.
    name, code = callable_name(function), function.__code__
    parts: list[Named] = []
    size = function_size(function, walk)
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        size += claim_bytes(walk, id(cell), object.__sizeof__(cell) + GC_BYTES)  # functions made together share a cell
        parts += [(f".<closure of {name}>.{variable}", value) for value in gc.get_referents(cell)]
    parts += [(f".<default of {name}>", value) for value in tuple.__iter__(function.__defaults__ or ())]
    globals_ = function.__globals__
    for referent in gc.get_referents(function):  # the dict of its attributes, which reading it would create
        if type(referent) is tuple:  # cells, defaults, annotations
            size += claim_bytes(walk, id(referent), tuple.__sizeof__(referent) + GC_BYTES)
        elif type(referent) is dict and referent is not globals_ and "__build_class__" not in referent:
            size += dict.__sizeof__(referent) + GC_BYTES
            parts += [(f".<attribute of {name}>.{key}", value) for key, value in named_entries(referent)]
    return OpenedObject("closure", size, len(parts), parts=parts)


def function_size(function: object, walk: Walk) -> int:
    """Bytes of a function and of its code, which counts once; 0 for other objects."""
    if type(function) is not types.FunctionType:
        return 0
    return object.__sizeof__(function) + GC_BYTES + _code_size(function.__code__, walk)


def _code_size(code: types.CodeType, walk: Walk) -> int:
    """Bytes of a code object with its tables; 0 if the walk has seen it before."""
    tables = (code.co_consts, code.co_names, code.co_linetable)
    size = code.__sizeof__() + sum(table.__sizeof__() for table in tables) + GC_BYTES * len(tables)
    return claim_bytes(walk, id(code), size)


def open_code(code: types.CodeType, walk: Walk) -> OpenedObject:
    """Open code that is kept without a function, with the code of the functions in it."""
    nested = [(".<code>", constant) for constant in code.co_consts if type(constant) is types.CodeType]
    return OpenedObject("object", _code_size(code, walk), len(nested), nested)


def open_traceback(trace: types.TracebackType, _walk: Walk) -> OpenedObject:
    """Open a traceback: it holds the locals of its frame and of the frames further in."""
    inner = trace.tb_next
    parts: list[Named] = [(".<traceback>", trace.tb_frame), *([] if inner is None else [(".<next>", inner)])]
    return OpenedObject("object", object.__sizeof__(trace) + GC_BYTES, len(parts), parts)


def open_bound(method: Any, _walk: Walk) -> OpenedObject:
    """Open a method of C: the object to which it is bound, such as the list of `rows.append`."""
    # Runs no code of the watched program.
    bound_object = method.__self__
    # A module's function is bound to the module.
    if bound_object is None or issubclass(type(bound_object), (types.ModuleType, type)):
        return OPAQUE
    parts = [(f".<self of {plain_text(method.__name__)}>", bound_object)]
    return OpenedObject("closure", object.__sizeof__(method) + GC_BYTES, 1, parts)


def open_method(method: types.MethodType, _walk: Walk) -> OpenedObject:
    """Open a method: the object to which it is bound, and its function."""
    name = callable_name(method.__func__)
    parts = [(f".<self of {name}>", method.__self__), (f".<function of {name}>", method.__func__)]
    return OpenedObject("closure", object.__sizeof__(method) + GC_BYTES, len(parts), parts=parts)


_kept_function, _kept_arguments, _kept_keywords = (vars(partial)[name].__get__ for name in ("func", "args", "keywords"))


def open_partial(bound_call: partial[Any], _walk: Walk) -> OpenedObject:
    """Open a partial: its function and its arguments."""
    # Runs no code of the watched program.
    function = _kept_function(bound_call)
    name = callable_name(function)
    parts = [(f".<partial of {name}>", function)]
    parts += [(f".<argument of {name}>", value) for value in tuple.__iter__(_kept_arguments(bound_call))]
    parts += [(f".<argument of {name}>.{key}", value) for key, value in named_entries(_kept_keywords(bound_call))]
    return OpenedObject("closure", object.__sizeof__(bound_call) + GC_BYTES, len(parts), parts=parts)


Cache: Any = type(lru_cache(lambda: None))
"""The class of caches, which functools does not export."""


def open_cache(wrapper: Any, walk: Walk) -> OpenedObject:
    """Open an `lru_cache`: its keys and results."""
    # Runs no code of the watched program.
    # Python code cannot reach them: they are among the objects that the collector sees.
    count = result_count(wrapper)
    capacity = names_of(Cache)["cache_info"](wrapper).maxsize
    table = _result_table(wrapper)
    size = object.__sizeof__(wrapper) + GC_BYTES + (0 if table is None else dict.__sizeof__(table) + GC_BYTES)
    size += 0 if capacity is None else count * _LINK_BYTES
    function = [(f".<function of {cache_name(wrapper)}>", instance_dict(wrapper).get("__wrapped__"))]
    results = read_stable(_slice_results, wrapper, table, evenly_spaced_slice(count, walk.sampled_items))
    parts = [part for key, value in results for part in (("[*]", value), ("[key]", key))]
    if count <= walk.sampled_items:
        return OpenedObject("cache", size, count, parts=parts + function, capacity=capacity)
    return OpenedObject(
        "cache", size, count, parts=function, sampled=parts, sampled_of=count, children_per_item=2, capacity=capacity
    )


def cache_name(wrapper: object) -> str:
    """The name of the function with cached results; for a callable without a name, its class."""
    attributes = instance_dict(wrapper)
    return plain_text(attributes.get("__name__")) or callable_name(attributes.get("__wrapped__"))


_LINK_BYTES = 56
"""Bytes of a link of a bounded cache: a C object with a header, four pointers and a hash."""


def _result_table(wrapper: object) -> dict[Any, Any] | None:
    """The dict of results of a cache; its other dict has the attributes of a function."""
    attributes = instance_dict(wrapper)
    return next(
        (referent for referent in gc.get_referents(wrapper) if type(referent) is dict and referent is not attributes),
        None,
    )


def result_count(wrapper: object) -> int:
    """Number of results in an `lru_cache`."""
    count: int = names_of(Cache)["cache_info"](wrapper).currsize
    return count


def newest_results(wrapper: object, count: int) -> list[tuple[Any, Any]]:
    """The newest keys and results of an `lru_cache`, oldest first."""
    # Runs no code of the watched program.
    return read_stable(_last_results, wrapper, _result_table(wrapper), count)


def _slice_results(wrapper: object, table: dict[Any, Any] | None, places: slice) -> list[tuple[Any, Any]]:
    """Some keys and results of a cache, as a slice of them, oldest first; called by `read_stable`."""
    if not table:
        return []
    if _is_linked(table):
        return _linked_results(wrapper, table)[places]
    return list(islice(table.items(), places.start, None, places.step))


def _last_results(wrapper: object, table: dict[Any, Any] | None, count: int) -> list[tuple[Any, Any]]:
    """The newest `count` keys and results of a cache, oldest first; called by `read_stable`."""
    if not table:
        return []
    return (
        _linked_results(wrapper, table)[-count:]
        if _is_linked(table)
        else list(islice(reversed(table.items()), count))[::-1]
    )


def _is_linked(table: dict[Any, Any]) -> bool:
    """Whether the table is that of a bounded cache: its values are links, each with a key and a result."""
    return full_name(type(next(iter(table.values()), None)))[1] == "_lru_list_elem"


def _linked_results(wrapper: object, table: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Keys and results of a bounded cache, oldest first."""
    # `_functools.c` reports to the collector, in this order: key, result and class of each link of the ring, and then
    # the table. Without the classes the keys and results alternate.
    link = type(next(iter(table.values())))
    members = gc.get_referents(wrapper)
    table_index = next(i for i, member in enumerate(members) if member is table)
    flat = [member for member in members[:table_index] if member is not link and member is not type(wrapper)]
    return list(zip(flat[::2], flat[1::2], strict=False))


def open_exception(error: BaseException, _walk: Walk) -> OpenedObject:
    """Open an exception: it holds the locals of every frame that it passed."""
    # Runs no code of the watched program.
    getters = BaseException.__dict__
    parts: list[Named] = [(".args[*]", value) for value in getters["args"].__get__(error)]
    parts += [(f".<{name}>", getters[f"__{name}__"].__get__(error)) for name in ("cause", "context")]
    trace = getters["__traceback__"].__get__(error)
    while trace is not None:
        parts.append((".<traceback>", trace.tb_frame))
        trace = trace.tb_next
    return OpenedObject("object", object.__sizeof__(error) + GC_BYTES, len(parts), parts=parts)


def open_frame(frame: types.FrameType, _walk: Walk) -> OpenedObject:
    """Open the frame of a function: its locals; the namespace of a module is not its frame's."""
    # Runs no code of the watched program.
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return OPAQUE
    name = function_name(frame.f_code)
    parts = [(f".<locals of {name}>.{key}", value) for key, value in frame_locals(frame).items()]
    return OpenedObject("frame", frame.__sizeof__() + GC_BYTES, len(parts), parts=parts)


_FRAME_OBJECT_TYPES = frozenset(map(id, (types.FunctionType, types.CodeType, types.FrameType, types.CellType, dict)))
"""Ids of classes of the objects that a frame refers to besides values: function, code, frame, cells, globals."""


def open_generator(generator: Any, _walk: Walk) -> OpenedObject:
    """Open a generator or coroutine that waits: its locals, and values on its stack, such as the iterator of a loop."""
    # Runs no code of the watched program.
    if type(generator) is types.GeneratorType:
        frame, code = generator.gi_frame, generator.gi_code
    elif type(generator) is types.CoroutineType:
        frame, code = generator.cr_frame, generator.cr_code
    else:
        frame, code = generator.ag_frame, generator.ag_code
    local_values = {} if frame is None else frame_locals(frame)
    name = plain_text(generator.__name__)
    parts = [(f".<locals of {name}>.{key}", value) for key, value in local_values.items()]
    known_ids = {id(value) for value in local_values.values()}
    stack_values = [
        value
        for value in referents(generator)
        if id(type(value)) not in _FRAME_OBJECT_TYPES and id(value) not in known_ids
    ]
    parts += [(f".<locals of {name}>.<{class_name(type(value))}>", value) for value in stack_values]
    # Its own `__sizeof__` reads a number of items that Python 3.11 leaves unset: petabytes.
    pointers = code.co_nlocals + code.co_stacksize + len(code.co_cellvars) + len(code.co_freevars)
    size = basic_size(type(generator)) + POINTER_BYTES * pointers + GC_BYTES
    return OpenedObject("generator", size, len(parts), parts=parts)
