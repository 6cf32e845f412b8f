"""Primitives that read any object without calling the program's code.

A namespace, or space, is the dict of a module's globals, or the mapping of a class's attributes.

A class of the program may replace `__len__`, `__iter__`, `__class__`, `__getattribute__` and the rest, and a metaclass
those of the class. So fields of C are read by the descriptors of the builtin types: an object's type, a class's
namespace and method resolution order. Classes are compared by identity, as a metaclass may have an `__eq__` and a
`__hash__`: none is looked up in a set or a tuple. `isinstance` would ask for `__class__`.
"""

import gc
import sys
import types
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from threading import Thread
from typing import Any, TypeVar

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")

MAXIMUM_TRIES = 16
"""Maximum tries at reading a container that another thread changes meanwhile."""

GC_BYTES = 16
"""Bytes of the collector's header, which each object that it tracks has."""

_name: Callable[[type], str] = type.__dict__["__name__"].__get__
_qualname: Callable[[type], str] = type.__dict__["__qualname__"].__get__
_module: Callable[[type], Any] = type.__dict__["__module__"].__get__
_flags: Callable[[type], int] = type.__dict__["__flags__"].__get__
class_dict: Callable[[type], types.MappingProxyType[str, Any]] = type.__dict__["__dict__"].__get__
"""The namespace of a class: its `__dict__`."""
mro: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
namespace: Callable[[types.ModuleType], dict[str, Any]] = vars(types.ModuleType)["__dict__"].__get__
"""The namespace of a module, read without waking a lazy one."""

_base: Callable[[type], type | None] = type.__dict__["__base__"].__get__
basic_size: Callable[[type], int] = type.__dict__["__basicsize__"].__get__
POINTER_BYTES = 8
_HEAP_TYPE_FLAG = 1 << 9
"""Flag of a class that was made at run time, as all classes of Python code are (`Py_TPFLAGS_HEAPTYPE`)."""


def plain_text(text: object, default: str = "") -> str:
    """Return a text as a plain `str`, and `default` for other objects."""
    # Names of functions and classes, and keys of namespaces, may be of a class of the program's that extends `str`.
    kind = type(text)
    if kind is str:
        return text  # type: ignore[return-value]  # mypy does not narrow by the name
    return str.__str__(text) if issubclass(kind, str) else default


def class_name(kind: type) -> str:
    """Return the name of a class, without asking its metaclass."""
    return plain_text(_name(kind))


def full_name(kind: type) -> tuple[str, str]:
    """Return module and qualified name of a class, without asking its metaclass; a module that is no `str` is empty."""
    # A class that was made at run time has its module in its namespace, from where the program may have deleted it.
    module = class_dict(kind).get("__module__") if _flags(kind) & _HEAP_TYPE_FLAG else _module(kind)
    return module if type(module) is str else "", plain_text(_qualname(kind))


def count_values(values: Iterable[H]) -> Counter[H]:
    """Count how often each value comes."""
    # `Counter(values)` would ask whether the values are a Mapping, and with that all registered classes, the program's
    # and their metaclasses among them, as `isinstance` with any abstract class does.
    counts = Counter[H]()
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def is_class(obj: object) -> bool:
    """Return whether an object is a class."""
    return issubclass(type(obj), type)


def is_a(obj: object, *kinds: type) -> bool:
    """Return whether an object is an instance of one of the classes, whatever its `__class__` says."""
    return any(owner is kind for owner in mro(type(obj)) for kind in kinds)


def made_in_c(kind: type) -> bool:
    """Return whether C code made a class, and not a class statement or a call of `type`."""
    class_namespace = class_dict(kind)
    # A class statement sets both the flag and the name of the module.
    if not _flags(kind) & _HEAP_TYPE_FLAG or "__module__" not in class_namespace:
        return True
    # C code may set both as well. Then its fields tell: an instance has more bytes than a class statement adds, which
    # are a pointer for each slot, one for the dict and one for weak references.
    base = _base(kind)
    if base is None:
        return False
    slot_count = sum(type(value) is types.MemberDescriptorType for value in class_namespace.values())
    added_bytes = basic_size(kind) - basic_size(base)
    return added_bytes > POINTER_BYTES * (slot_count + 2)


def c_attribute(obj: object, name: str) -> Any:
    """Return an attribute that C code keeps, such as a slot; None if the object has none of that name."""
    for owner in mro(type(obj)):
        descriptor = class_dict(owner).get(name)
        # Descriptors of C code alone: one of Python code would run.
        if type(descriptor) is types.GetSetDescriptorType or type(descriptor) is types.MemberDescriptorType:
            return descriptor.__get__(obj)
    return None


def instance_dict(obj: object) -> dict[Any, Any]:
    """Return the `__dict__` of an instance; empty if it has none."""
    attributes = c_attribute(obj, "__dict__")
    return attributes if issubclass(type(attributes), dict) else {}


def namespace_value(space: dict[str, Any], name: str) -> Any:
    """Return what a name stands for in a namespace; None if it has no such name."""
    # By `dict` itself: the namespace may be of a subclass of the program's.
    return dict.get(space, name)


def read_stable(read_items: Callable[..., list[T]], *arguments: Any) -> list[T]:
    """Call `read_items` on a container that other threads may change, and again if one did; return the result.

    Args:
        read_items: takes items from a container by C code alone, such as `list`.
        arguments: arguments of `read_items`.

    Raises:
        RuntimeError: the container was changed each time.
        IndexError: a deque was made shorter each time.
    """
    # No other thread runs while C code iterates, but one may run between the call and the first item.
    for _ in range(MAXIMUM_TRIES - 1):
        try:
            return read_items(*arguments)
        except (RuntimeError, IndexError):
            continue
    return read_items(*arguments)


def named_entries(space: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """Return the entries of a namespace that have text keys."""
    is_class_space = type(space) is types.MappingProxyType  # any other is a dict, maybe of a subclass
    items: Iterable[tuple[Any, Any]] = space.items() if is_class_space else dict.items(space)  # type: ignore[arg-type]
    pairs: list[tuple[Any, Any]] = read_stable(list, items)  # again if another thread changes the namespace
    return [(plain_text(key), value) for key, value in pairs if issubclass(type(key), str)]


def size_reader(kind: type) -> Callable[[Any], int]:
    """Return a function for the bytes of a class's objects: the `__sizeof__` of the nearest base class written in C."""
    for owner in mro(kind):
        method = class_dict(owner).get("__sizeof__")
        if type(method) is types.MethodDescriptorType:
            measure: Callable[[Any], int] = method
            return lambda obj: measure(obj) + (GC_BYTES if gc.is_tracked(obj) else 0)
    raise AssertionError  # `object` has such a method


def own_size(obj: object) -> int:
    """Return the bytes of one object, without its children."""
    return size_reader(type(obj))(obj)


def referents(obj: object) -> list[Any]:
    """Return the objects to which an object refers, as the collector sees them, without classes; none if untracked."""
    if not gc.is_tracked(obj):  # a number or a text, for example, which refers to nothing
        return []
    return [referent for referent in gc.get_referents(obj) if not issubclass(type(referent), type)]


def callable_name(function: object) -> str:
    """Return the name of a function, or the name of another callable's class."""
    if type(function) is types.FunctionType or type(function) is types.BuiltinFunctionType:
        return plain_text(function.__name__)
    return class_name(type(function))


def loaded_modules() -> dict[str, types.ModuleType]:
    """Return the loaded modules by their names in `sys.modules`, where a few libraries put other objects."""
    modules = list(sys.modules.items())  # a copy: other threads may import meanwhile
    return {
        name: module for name, module in modules if type(name) is str and issubclass(type(module), types.ModuleType)
    }


def module_namespace(name: str) -> dict[str, Any] | None:
    """Return the namespace of a loaded module; None if another object, or nothing, is in its place."""
    module = sys.modules.get(name)
    return namespace(module) if issubclass(type(module), types.ModuleType) else None  # type: ignore[arg-type]


def _measure_refcount() -> int:
    """Return the count that `getrefcount`, called by `map` over a list, gives for an item that nothing else holds."""
    (count,) = map(sys.getrefcount, [object()])
    return count


LIST_REFCOUNT = _measure_refcount()
"""The count of an object that only a list holds: `map`, which goes over the list, holds it too."""


def thread_name(thread: Thread) -> str:
    """Return the name of a thread, without a property of the program that may have replaced it."""
    return plain_text(namespace_value(instance_dict(thread), "_name"), class_name(type(thread)))
