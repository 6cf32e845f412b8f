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
    class_dict,
    class_name,
    full_name,
    instance_dict,
    named_entries,
    plain_text,
    read_stable,
    referents,
)
from flatwater_watch.heap.view import OPAQUE, Named, OpenedObject, Walk, claim_bytes, evenly_spaced_slice


def open_function(function: types.FunctionType, walk: Walk) -> OpenedObject:
    """Open a function: the variables that it closes over, its defaults and its attributes, but not its globals."""
    # Runs no code of the watched program.
    name, code = callable_name(function), function.__code__
    parts: list[Named] = []
    size = function_size(function, walk)
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        size += claim_bytes(walk, id(cell), object.__sizeof__(cell) + GC_BYTES)  # functions made together share a cell
        parts += [(f".<closure of {name}>.{variable}", value) for value in gc.get_referents(cell)]
    parts += [(f".<default of {name}>", value) for value in tuple.__iter__(function.__defaults__ or ())]
    # The collector shows the dict of its attributes only if there is one: `function.__dict__` would make it.
    for referent in gc.get_referents(function):
        if type(referent) is tuple:  # cells, defaults, annotations
            size += claim_bytes(walk, id(referent), tuple.__sizeof__(referent) + GC_BYTES)
        elif type(referent) is dict:
            # The other dicts are the globals and the builtins, which have `__build_class__`.
            is_shared = referent is function.__globals__ or "__build_class__" in referent
            if not is_shared:
                size += dict.__sizeof__(referent) + GC_BYTES
                parts += [(f".<attribute of {name}>.{key}", value) for key, value in named_entries(referent)]
    return OpenedObject("closure", size, len(parts), parts=parts)


def function_size(function: object, walk: Walk) -> int:
    """Return the bytes of a function and of its code, which counts once in a walk; 0 for other objects."""
    if type(function) is not types.FunctionType:
        return 0
    # `object.__sizeof__` here and below: the size in C, whatever a class of the program's answers.
    return object.__sizeof__(function) + GC_BYTES + _code_size(function.__code__, walk)


def _code_size(code: types.CodeType, walk: Walk) -> int:
    """Return the bytes of a code object with its tables; 0 if the walk has seen it before."""
    tables = (code.co_consts, code.co_names)
    # The collector tracks tuples, such as these tables, and neither code objects nor bytes.
    size = code.__sizeof__() + code.co_linetable.__sizeof__() + sum(table.__sizeof__() + GC_BYTES for table in tables)
    return claim_bytes(walk, id(code), size)


def open_code(code: types.CodeType, walk: Walk) -> OpenedObject:
    """Open a code object, with the code of the functions defined in it."""
    nested_code = [(".<code>", constant) for constant in code.co_consts if type(constant) is types.CodeType]
    return OpenedObject("object", _code_size(code, walk), len(nested_code), nested_code)


def open_traceback(trace: types.TracebackType, _walk: Walk) -> OpenedObject:
    """Open a traceback: its frame, and the next traceback further in."""
    parts: list[Named] = [(".<traceback>", trace.tb_frame)]
    inner = trace.tb_next
    if inner is not None:
        parts.append((".<next>", inner))
    return OpenedObject("object", object.__sizeof__(trace) + GC_BYTES, len(parts), parts)


def open_builtin_method(method: Any, _walk: Walk) -> OpenedObject:
    """Open a built-in method: its only child is the object to which it is bound, such as the list of `rows.append`."""
    # Runs no code of the watched program: `__self__` is a field in C, and `isinstance` could run `__class__`.
    bound_object = method.__self__
    # A built-in function is bound to its module, and a class method to its class: neither is entered.
    if bound_object is None or issubclass(type(bound_object), (types.ModuleType, type)):
        return OPAQUE
    parts = [(f".<self of {plain_text(method.__name__)}>", bound_object)]
    # Reported like a closure, which also keeps an object by a function.
    return OpenedObject("closure", object.__sizeof__(method) + GC_BYTES, length=1, parts=parts)


def open_method(method: types.MethodType, _walk: Walk) -> OpenedObject:
    """Open a method: the object to which it is bound, and its function."""
    name = callable_name(method.__func__)
    parts = [(f".<self of {name}>", method.__self__), (f".<function of {name}>", method.__func__)]
    return OpenedObject("closure", object.__sizeof__(method) + GC_BYTES, len(parts), parts=parts)


_partial_function = vars(partial)["func"].__get__
_partial_arguments = vars(partial)["args"].__get__
_partial_keywords = vars(partial)["keywords"].__get__


def open_partial(bound_call: partial[Any], _walk: Walk) -> OpenedObject:
    """Open a partial: its function and its arguments."""
    # Runs no code of the watched program: by `partial`'s own descriptors, as a subclass may define these names itself.
    function = _partial_function(bound_call)
    name = callable_name(function)
    parts = [(f".<partial of {name}>", function)]
    parts += [(f".<argument of {name}>", value) for value in tuple.__iter__(_partial_arguments(bound_call))]
    parts += [(f".<argument of {name}>.{key}", value) for key, value in named_entries(_partial_keywords(bound_call))]
    return OpenedObject("closure", object.__sizeof__(bound_call) + GC_BYTES, len(parts), parts=parts)


Cache: Any = type(lru_cache(lambda: None))
"""The class of the functions that `lru_cache` makes, which functools does not export."""


def open_cache(wrapper: Any, walk: Walk) -> OpenedObject:
    """Open an `lru_cache`: its function, its keys and its results, or a sample of them if they are many.

    The wrapper is the object that `lru_cache` puts in place of the function.
    """
    # Runs no code of the watched program.
    # No attribute leads to the keys and results: they are among the objects that the collector sees.
    count = result_count(wrapper)
    capacity = class_dict(Cache)["cache_info"](wrapper).maxsize
    table = _result_table(wrapper)
    size = object.__sizeof__(wrapper) + GC_BYTES
    if table is not None:
        size += dict.__sizeof__(table) + GC_BYTES
    if capacity is not None:  # only a bounded cache has links
        size += count * _LINK_BYTES
    wrapped_part = [(f".<function of {cache_name(wrapper)}>", instance_dict(wrapper).get("__wrapped__"))]
    results = read_stable(_slice_results, wrapper, table, evenly_spaced_slice(count, walk.sampled_items))
    result_parts = [part for key, value in results for part in (("[*]", value), ("[key]", key))]  # two for each result
    opened_cache = OpenedObject("cache", size, count, parts=wrapped_part, capacity=capacity)
    if count <= walk.sampled_items:  # all results were read
        return opened_cache._replace(parts=result_parts + wrapped_part)
    return opened_cache._replace(sampled=result_parts, children_per_item=2)


def cache_name(wrapper: object) -> str:
    """Return the name of the function whose results are cached, or of its class if it has no name."""
    attributes = instance_dict(wrapper)
    return plain_text(attributes.get("__name__")) or callable_name(attributes.get("__wrapped__"))


_LINK_BYTES = 56
"""Bytes of the link that a bounded cache has for each result: a C object with a header, four pointers and a hash."""


def _result_table(wrapper: object) -> dict[Any, Any] | None:
    """Return the dict in which a cache keeps its results; None for a cache that keeps none."""
    attributes = instance_dict(wrapper)  # the cache's other dict, of attributes such as `__wrapped__`
    return next(
        (referent for referent in gc.get_referents(wrapper) if type(referent) is dict and referent is not attributes),
        None,
    )


def result_count(wrapper: object) -> int:
    """Return the number of results in an `lru_cache`."""
    count: int = class_dict(Cache)["cache_info"](wrapper).currsize
    return count


def newest_results(wrapper: object, count: int) -> list[tuple[Any, Any]]:
    """Return the newest `count` results of an `lru_cache`, oldest first, as pairs of key and result."""
    # Runs no code of the watched program.
    return read_stable(_last_results, wrapper, _result_table(wrapper), count)


def _slice_results(wrapper: object, table: dict[Any, Any] | None, item_slice: slice) -> list[tuple[Any, Any]]:
    """Return a slice of the pairs of key and result of a cache, the oldest being pair 0; none without a table."""
    # Called by `read_stable`: C code alone, as another thread may change the cache.
    if not table:
        return []
    if _is_linked(table):
        return _linked_results(wrapper, table)[item_slice]
    return list(islice(table.items(), item_slice.start, None, item_slice.step))


def _last_results(wrapper: object, table: dict[Any, Any] | None, count: int) -> list[tuple[Any, Any]]:
    """Return the newest `count` pairs of key and result of a cache, oldest first; none without a table."""
    # Called by `read_stable`: C code alone, as another thread may change the cache.
    if not table:
        return []
    if _is_linked(table):
        return _linked_results(wrapper, table)[-count:]
    return list(islice(reversed(table.items()), count))[::-1]


def _is_linked(table: dict[Any, Any]) -> bool:
    """Return whether a cache's dict is that of a bounded cache, whose values are links with a key and a result each."""
    first_value = next(iter(table.values()), None)
    _, class_of_value = full_name(type(first_value))
    return class_of_value == "_lru_list_elem"


def _linked_results(wrapper: object, table: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the pairs of key and result of a bounded cache, oldest first."""
    # `_functools.c` reports to the collector, in this order: key, result and class of each link of the ring, and then
    # the table. Without the classes the keys and results alternate.
    link_class = type(next(iter(table.values())))
    referents_of_cache = gc.get_referents(wrapper)
    table_index = next(i for i, referent in enumerate(referents_of_cache) if referent is table)
    before_table = referents_of_cache[:table_index]
    alternating = [each for each in before_table if each is not link_class and each is not type(wrapper)]
    keys, results = alternating[::2], alternating[1::2]
    return list(zip(keys, results, strict=False))


def open_exception(error: BaseException, _walk: Walk) -> OpenedObject:
    """Open an exception: its arguments, cause and context, and every frame that it has passed."""
    # Runs no code of the watched program: by the base class's own descriptors, as a subclass may define these names.
    getters = BaseException.__dict__
    parts: list[Named] = [(".args[*]", value) for value in getters["args"].__get__(error)]
    parts += [(f".<{name}>", getters[f"__{name}__"].__get__(error)) for name in ("cause", "context")]
    trace = getters["__traceback__"].__get__(error)
    while trace is not None:
        parts.append((".<traceback>", trace.tb_frame))
        trace = trace.tb_next
    return OpenedObject("object", object.__sizeof__(error) + GC_BYTES, len(parts), parts=parts)


def open_frame(frame: types.FrameType, _walk: Walk) -> OpenedObject:
    """Open the frame of a function by its local variables; frames of modules and classes are not entered."""
    # Runs no code of the watched program.
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # the flag of functions
        return OPAQUE
    name = function_name(frame.f_code)
    parts = [(f".<locals of {name}>.{key}", value) for key, value in frame_locals(frame).items()]
    return OpenedObject("frame", frame.__sizeof__() + GC_BYTES, len(parts), parts=parts)


_FRAME_OBJECT_TYPES = frozenset(map(id, (types.FunctionType, types.CodeType, types.FrameType, types.CellType, dict)))
"""Ids of classes of the objects that a frame refers to besides values: function, code, frame, cells, globals."""


def open_generator(generator: Any, _walk: Walk) -> OpenedObject:
    """Open a generator or coroutine: its locals, and values on its stack, such as the iterator of a loop."""
    # Runs no code of the watched program.
    if type(generator) is types.GeneratorType:
        frame, code = generator.gi_frame, generator.gi_code
    elif type(generator) is types.CoroutineType:
        frame, code = generator.cr_frame, generator.cr_code
    else:  # an asynchronous generator
        frame, code = generator.ag_frame, generator.ag_code
    local_values = {} if frame is None else frame_locals(frame)  # None: it has ended
    name = plain_text(generator.__name__)
    parts = [(f".<locals of {name}>.{key}", value) for key, value in local_values.items()]
    known_ids = {id(value) for value in local_values.values()}
    # Values that a running expression keeps: the collector sees them, and no variable has them.
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
