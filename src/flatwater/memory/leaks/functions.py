"""What functions hold: closures, bound methods, partials, caches, generators, and the frames of kept exceptions."""

import gc
import inspect
import types
from functools import partial
from typing import Any

from flatwater.memory.leaks.inside import GC_BYTES, OPAQUE, Inside, Named, Walk
from flatwater.memory.leaks.instances import name_of
from flatwater.memory.leaks.roots import function_name, locals_of


def look_function(function: types.FunctionType, _walk: Walk) -> Inside:
    """The variables that it closes over, its defaults and attributes; not the module around it."""
    name, code = function.__name__, function.__code__
    parts: list[Named] = []
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        parts += [(f".<closure of {name}>.{variable}", value) for value in gc.get_referents(cell)]
    parts += [(f".<default of {name}>", value) for value in function.__defaults__ or ()]
    globals_ = function.__globals__
    for held in gc.get_referents(function):  # the dict of its attributes, which reading it would create
        if type(held) is dict and held is not globals_ and "__build_class__" not in held:
            parts += [(f".<attribute of {name}>.{key}", value) for key, value in held.items()]
    return Inside("closure", object.__sizeof__(function) + GC_BYTES, len(parts), parts=parts)


def look_method(method: types.MethodType, _walk: Walk) -> Inside:
    """The object that it is bound to."""
    name = _called(method.__func__)
    parts = [(f".<self of {name}>", method.__self__), (f".<function of {name}>", method.__func__)]
    return Inside("closure", object.__sizeof__(method) + GC_BYTES, len(parts), parts=parts)


def _called(function: Any) -> str:  # noqa: ANN401  any callable
    named = (types.FunctionType, types.BuiltinFunctionType)
    return function.__name__ if type(function) in named else name_of(type(function))


def look_partial(made: partial[Any], _walk: Walk) -> Inside:
    """The function and the arguments that it keeps."""
    name = _called(made.func)
    parts = [(f".<partial of {name}>", made.func), *((f".<argument of {name}>", value) for value in made.args)]
    parts += [(f".<argument of {name}>.{key}", value) for key, value in made.keywords.items()]
    return Inside("closure", object.__sizeof__(made) + GC_BYTES, len(parts), parts=parts)


def look_cache(wrapper: Any, walk: Walk) -> Inside:  # noqa: ANN401  functools does not export its type
    """An `lru_cache`: keys and results, which only the collector's view of it shows."""
    entries = cached(wrapper)
    count, bound = len(entries), wrapper.cache_parameters()["maxsize"]
    table = _table(gc.get_referents(wrapper))
    size = object.__sizeof__(wrapper) + GC_BYTES + (0 if table is None else dict.__sizeof__(table) + GC_BYTES)
    size += 0 if bound is None else count * _LINK_BYTES
    function = [(f".<function of {wrapper.__name__}>", wrapper.__wrapped__)]
    step = -(-count // walk.draw) if count > walk.draw else 1
    named = [named for key, value in entries[::step] for named in (("[*]", value), ("[key]", key))]
    if count <= walk.draw:
        return Inside("cache", size, count, parts=named + function, capacity=bound)
    return Inside("cache", size, count, parts=function, drawn=named, of=count, each=2, capacity=bound)


_LINK_BYTES = 56
"""One link of a bounded cache: a small C object with four pointers and a hash."""


def _table(held: list[Any]) -> dict[Any, Any] | None:
    """The dict of results among what a cache refers to; the other one has the attributes of a function."""
    return next((r for r in held if type(r) is dict and "cache_parameters" not in r), None)


def cached(wrapper: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401
    """Keys and results of an `lru_cache`, oldest first."""
    held = gc.get_referents(wrapper)
    table = _table(held)
    if not table:
        return []
    link = type(next(iter(table.values())))
    if link.__name__ != "_lru_list_elem":
        return list(table.items())
    at = next(i for i, r in enumerate(held) if r is table)
    flat = [r for r in held[:at] if r is not link and r is not type(wrapper)]
    return list(zip(flat[::2], flat[1::2], strict=False))


def look_exception(error: BaseException, _walk: Walk) -> Inside:
    """An exception that is kept holds the locals of every frame that it passed."""
    read = BaseException.__dict__
    parts: list[Named] = [(".args[*]", value) for value in read["args"].__get__(error)]
    parts += [(f".<{name}>", read[f"__{name}__"].__get__(error)) for name in ("cause", "context")]
    trace = read["__traceback__"].__get__(error)
    while trace is not None:
        parts.append((".<traceback>", trace.tb_frame))
        trace = trace.tb_next
    return Inside("object", object.__sizeof__(error) + GC_BYTES, len(parts), parts=parts)


def look_frame(frame: types.FrameType, _walk: Walk) -> Inside:
    """The locals of a function that has stopped; a module's namespace is not the frame's."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return OPAQUE
    name = function_name(frame.f_code)
    parts = [(f".<locals of {name}>.{key}", value) for key, value in locals_of(frame).items()]
    return Inside("frame", frame.__sizeof__() + GC_BYTES, len(parts), parts=parts)


def look_generator(generator: Any, _walk: Walk) -> Inside:  # noqa: ANN401  generators, coroutines, both at once
    """The locals of a function that waits in the middle."""
    if type(generator) is types.GeneratorType:
        frame = generator.gi_frame
    else:
        frame = generator.cr_frame if type(generator) is types.CoroutineType else generator.ag_frame
    held = {} if frame is None else locals_of(frame)
    parts = [(f".<locals of {generator.__name__}>.{key}", value) for key, value in held.items()]
    return Inside("generator", object.__sizeof__(generator) + GC_BYTES, len(parts), parts=parts)
