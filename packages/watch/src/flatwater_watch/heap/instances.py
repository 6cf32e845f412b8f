"""Attributes of instances, read by the descriptors of their classes: no property and no `__getattr__` runs.

All of it runs in somebody's heap: no code of the program is called, and no object of it is kept.
"""

import gc
import io
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from flatwater_watch.heap.raw import (
    class_name,
    count_values,
    full_name,
    made_in_c,
    mro,
    named_entries,
    names_of,
    plain_text,
    referents,
    size_reader,
)
from flatwater_watch.heap.view import Named, OpenedObject, Opener, Walk, claim_bytes, evenly_spaced_slice

INSTANCES_READ_WITHOUT_DICT = 16
"""Number of instances of each class whose attributes a census reads without making their dicts."""
MAXIMUM_LISTED, DRAWS_OF_CHILDREN = 200, 4
"""Children of an object of C from which on a sample stands for all, and the size of the sample in items that a census
draws of a list: they are of several classes. A pickler has a million."""
BUFFER_BYTES_PER_CHILD = 4096
"""Own bytes per child, above which an object of C is a buffer rather than a container."""
_StringIO = names_of(io.StringIO)
_DICT_IS_PERMANENT = sys.version_info < (3, 13)
"""Whether an instance keeps a dict that was made once, and has slower attributes from then on."""
_TOOL_PREFIX = "flatwater_watch."
_OPAQUE_TYPES = frozenset(map(id, (
    types.ModuleType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.GenericAlias,
)))  # fmt: skip
_OPAQUE_NAMES = frozenset({
    ("weakref", "ProxyType"),
    ("weakref", "CallableProxyType"),
    ("typing", "_BaseGenericAlias"),
    ("typing", "_SpecialForm"),
    ("typing", "TypeVar"),
    ("re", "Pattern"),
    ("enum", "Enum"),
    ("numpy", "dtype"),
    ("numpy", "ufunc"),
    ("numpy", "generic"),
    ("torch", "dtype"),
    ("torch", "device"),
    ("torch", "layout"),
})  # fmt: skip
"""Classes that do not lead to the user's data, or hold it weakly."""

_KIND_BY_CLASS = {("threading", "Thread"): "thread"}


def is_opaque_class(kind: type) -> bool:
    """Whether instances of a class are not entered: modules, weak containers, descriptors, all objects of this tool."""
    for owner in mro(kind):
        name = full_name(owner)
        if name in _OPAQUE_NAMES or id(owner) in _OPAQUE_TYPES or f"{name[0]}.".startswith(_TOOL_PREFIX):
            return True
    return False


def attribute_reader(kind: type) -> Callable[[Any], list[Named]]:
    """A function that reads the attributes of a class's instances: of their `__dict__` and of their slots.

    Making an instance's `__dict__` slows its attribute access from then on (before 3.13). The first
    `INSTANCES_READ_WITHOUT_DICT` instances are therefore read without it: an environment, a policy or a generator has
    few instances. Each walk makes its own function, which counts them down.
    """
    # Runs no method and no property of the class.
    own_dict, slots = None, []
    for owner in mro(kind):
        space = names_of(owner)
        if own_dict is None and type(space.get("__dict__")) is types.GetSetDescriptorType:
            own_dict = space["__dict__"].__get__
        if "__slots__" in space:
            descriptors = [entry for entry in named_entries(space) if type(entry[1]) is types.MemberDescriptorType]
            slots += [(f".{name}", descriptor.__get__) for name, descriptor in descriptors]

    # Names with a dot, as in paths, made once: there may be a million instances.
    dotted_names = {"[*]": "[*]"}
    instances_left = (
        INSTANCES_READ_WITHOUT_DICT
        if _DICT_IS_PERMANENT and own_dict is not None and not _may_hide_referents(kind)
        else 0
    )
    attribute_names: list[str] | None = None  # found at the first instance that is read without its dict

    def read(obj: Any) -> list[Named]:
        """The attributes of an instance, as `.name` and value; those of the first few without making their dict."""
        nonlocal instances_left, attribute_names
        pairs: list[tuple[str, Any]] | None = None
        if instances_left:
            instances_left -= 1
            if attribute_names is None:
                attribute_names = _used_attributes(kind)
            pairs = _read_without_dict(obj, kind, attribute_names)
        if pairs is None:
            pairs = [] if own_dict is None else list(dict.items(own_dict(obj)))
        text_keyed = ((key if type(key) is str else plain_text(key, "[*]"), value) for key, value in pairs)
        parts = [
            (dotted_names.get(name) or dotted_names.setdefault(name, f".{name}"), value) for name, value in text_keyed
        ]
        for name, get in slots:
            try:
                parts.append((name, get(obj)))
            except AttributeError:  # a slot that was never set
                continue
        return parts

    return read


def _used_attributes(kind: type) -> list[str]:
    """Names of attributes that the class's functions use and no descriptor computes; `__init__`'s come first."""
    spaces = [names_of(owner) for owner in mro(kind)]
    functions = [value for space in spaces for value in space.values() if type(value) is types.FunctionType]
    functions.sort(key=lambda function: plain_text(function.__name__) != "__init__")
    class_values = {name: value for space in reversed(spaces) for name, value in named_entries(space)}
    names = dict.fromkeys(name for function in functions for name in function.__code__.co_names)
    return [name for name in names if name not in class_values or not _is_descriptor(type(class_values[name]))]


def _is_descriptor(kind: type) -> bool:
    """Whether objects of a class are descriptors: methods, properties and their like."""
    return any("__get__" in names_of(owner) or "__set__" in names_of(owner) for owner in mro(kind))


def _read_without_dict(obj: Any, kind: type, names: list[str]) -> list[tuple[str, Any]] | None:
    """The attributes of an instance that has no dict; None if it has one, or has attributes of other names."""
    # The collector sees the values without their names: each name is tried until all values have one.
    values = [value for value in gc.get_referents(obj) if value is not kind]
    if len(values) == 1 and type(values[0]) is dict:
        return None
    unnamed_counts = count_values(map(id, values))
    attributes: list[tuple[str, Any]] = []
    for name in names:
        if len(attributes) == len(values):
            break
        try:
            value = object.__getattribute__(obj, name)
        except AttributeError:
            continue
        if unnamed_counts[id(value)] > 0:  # else the value is the class's
            unnamed_counts[id(value)] -= 1
            attributes.append((name, value))
    return attributes if len(attributes) == len(values) else None


def _may_hide_referents(kind: type) -> bool:
    """Whether an instance may hold objects that its attributes do not show: fields of C, or hidden attributes."""
    # A class hides its instances' dict, or a slot, if another descriptor has the same name.
    return any(made_in_c(owner) or _hides_attributes(names_of(owner)) for owner in mro(kind) if owner is not object)


def _hides_attributes(space: Mapping[str, Any]) -> bool:
    """Whether a class, by its namespace, may have attributes that neither `__dict__` nor descriptors of slots show."""
    if "__dict__" in space and type(space["__dict__"]) is not types.GetSetDescriptorType:
        return True
    slots = space.get("__slots__", ())
    names = (slots,) if type(slots) is str else slots
    if type(names) is not tuple and type(names) is not list:
        return True
    members = sum(type(value) is types.MemberDescriptorType for value in space.values())
    return members < sum(type(name) is not str or name not in {"__dict__", "__weakref__"} for name in names)


def instance_opener(kind: type) -> Opener | None:
    """An opener for instances of a class written in Python; None for other classes.

    A class that extends one of C may hold objects that its attributes do not show, so the collector is asked as well.
    """
    # Runs no code of the watched program.
    bases = [owner for owner in mro(kind) if owner is not object]
    if not any("__dict__" in names_of(owner) or "__slots__" in names_of(owner) for owner in bases):
        return None
    read_attributes, size_of = attribute_reader(kind), size_reader(kind)
    name = next((_KIND_BY_CLASS[full] for full in map(full_name, bases) if full in _KIND_BY_CLASS), "object")
    hidden = _may_hide_referents(kind)
    has_dict = any("__dict__" in names_of(owner) for owner in bases)

    def open_instance(obj: Any, walk: Walk) -> OpenedObject:
        """Open an instance: its attributes, hidden referents, and its class once a walk if it is the user's."""
        parts = read_attributes(obj)
        count = len(parts)
        if hidden:
            parts += _referents(obj)
        if id(kind) not in walk.seen_ids and walk.is_user_class(kind):
            claim_bytes(walk, id(kind), 0)  # sampled instances stand for others, which share the class
            parts.append((".<class>", kind))
        size = size_of(obj) + (_DICT_BYTES + _ENTRY_BYTES * count if has_dict else 0)
        return (
            OpenedObject("bytes", size, size, parts)
            if hidden and _is_buffer(size, count)
            else OpenedObject(name, size, count, parts)
        )

    return open_instance


_DICT_BYTES, _ENTRY_BYTES = 64, 8
"""Bytes of an instance's dict, which shares its keys with the class: a header, and a pointer for each value."""


def _is_buffer(size: int, parts: int) -> bool:
    """Whether an object of C with `size` bytes and `parts` children is a buffer rather than a container."""
    return size > BUFFER_BYTES_PER_CHILD * max(1, parts)


def foreign_opener(kind: type) -> Opener:
    """An opener for objects of a class written in C: the children that the collector sees, and an exported buffer."""
    # Runs no code of the watched program.
    size_of = size_reader(kind)
    exports = _may_export_buffer(kind)

    def open_foreign(obj: Any, walk: Walk) -> OpenedObject:
        """Open an object of a class in C by its children for the collector; without children it is a block of bytes."""
        size = max(size_of(obj), _buffer_bytes(obj) if exports else 0)
        children = gc.get_referents(obj) if gc.is_tracked(obj) else []
        if len(children) > MAXIMUM_LISTED:
            sample = children[evenly_spaced_slice(len(children), DRAWS_OF_CHILDREN * walk.sampled_items)]
            return OpenedObject("object", size, len(children), (), _named_by_class(sample), len(children))
        parts = _named_by_class(child for child in children if not issubclass(type(child), type))
        if not parts or _is_buffer(size, len(parts)):
            return OpenedObject("bytes", size, size, parts)
        return OpenedObject("object", size, len(parts), parts)

    return open_foreign


def open_written_text(out: io.StringIO, _walk: Walk) -> OpenedObject:
    """Open a text file in memory."""
    # Runs no code of the watched program.
    # Its `__sizeof__` leaves out lines that are not joined yet; the position counts them.
    size = io.StringIO.__sizeof__(out)
    with suppress(ValueError):  # a closed file keeps nothing
        size = max(size, _StringIO["tell"](out))
    return OpenedObject("bytes", size, size, parts=_referents(out))


def open_written_bytes(out: io.BytesIO, _walk: Walk) -> OpenedObject:
    """Open a binary file in memory; from Python 3.13 on the collector sees its buffer, which is in its size already."""
    # Runs no code of the watched program.
    # Before the parts: once they refer to the buffer as well, the size leaves it out.
    size = io.BytesIO.__sizeof__(out)
    counts_buffer = size > io.BytesIO.__basicsize__
    parts = [(name, referent) for name, referent in _referents(out) if not (counts_buffer and type(referent) is bytes)]
    return OpenedObject("bytes", size, size, parts)


def _referents(obj: Any) -> list[Named]:
    """The children that the collector sees, each named by its class: `.<dict>`."""
    return _named_by_class(referents(obj))


def _named_by_class(children: Iterable[Any]) -> list[Named]:
    # Each class is asked once, as a pickler may have a hundred thousand tuples; by its id, as a metaclass may hash.
    names = dict[int, str]()
    named = []
    for child in children:
        kind = type(child)
        name = names.get(id(kind)) or names.setdefault(id(kind), f".<{class_name(kind)}>")
        named.append((name, child))
    return named


def _may_export_buffer(kind: type) -> bool:
    """Whether instances may export a buffer without running Python code."""
    if kind is memoryview:
        return False
    methods = (names_of(owner).get(name) for owner in mro(kind) for name in ("__buffer__", "__release_buffer__"))
    return all(method is None or type(method) is types.WrapperDescriptorType for method in methods)


def _buffer_bytes(obj: Any) -> int:
    """Bytes of the buffer that an object exports; 0 if it has none, or refuses."""
    try:
        with memoryview(obj) as view:
            return view.nbytes
    except (TypeError, BufferError, ValueError):
        return 0
