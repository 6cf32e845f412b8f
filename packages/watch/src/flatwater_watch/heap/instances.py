"""Attributes of instances, read by the descriptors of their classes: no property and no `__getattr__` runs.

A descriptor is the object in a class by which its instances' `__dict__` or a slot is read. Classes written in C may
hold objects that no attribute shows; the garbage collector shows them, as referents, without names.

All of it runs in somebody's heap: no code of the program is called, and no object of it is kept.
"""

import gc
import io
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from flatwater_watch.heap.raw import (
    class_dict,
    class_name,
    count_values,
    full_name,
    instance_dict,
    is_a,
    made_in_c,
    mro,
    named_entries,
    plain_text,
    referents,
    size_reader,
)
from flatwater_watch.heap.view import Named, OpenedObject, Opener, Walk, claim_bytes, evenly_spaced_slice

INSTANCES_READ_WITHOUT_DICT = 16
"""Number of instances of each class whose attributes a census reads without making their dicts: environments, policies
and generators are few."""
MAXIMUM_LISTED = 200
"""Children of an object of C above which a sample stands for all: a pickler has a million."""
CHILD_SAMPLE_RATIO = 4
"""Size of that sample, in samples of a list: the children are of several classes."""
BUFFER_BYTES_PER_CHILD = 4096
"""Own bytes per child, above which an object of C is a buffer rather than a container."""
_STRING_IO_METHODS = class_dict(io.StringIO)
_DICT_IS_PERMANENT = sys.version_info < (3, 13)
"""Whether an instance keeps a dict that was made once, and has slower attributes from then on."""
_TOOL_PREFIX = "flatwater_watch."
_OPAQUE_TYPES = frozenset(map(id, (
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


THREAD_BYTES = 16 << 10
"""Bytes of a thread that waits, besides its objects: 400 threads and timers took 17 to 21 KiB each, with them."""


def is_running(obj: Any) -> bool:
    """Return whether an object is a thread that has begun and has not ended."""
    # Runs no code of the watched program.
    ident = dict.get(instance_dict(obj), "_ident") if is_a(obj, threading.Thread) else None
    # `_active`: Python's table of the running threads by `ident`.
    return type(ident) is int and vars(threading)["_active"].get(ident) is obj


def is_opaque_class(kind: type) -> bool:
    """Return whether a walk skips instances of a class: weak proxies, descriptors, this tool's objects."""
    for owner in mro(kind):
        module, name = full_name(owner)
        is_own_class = f"{module}.".startswith(_TOOL_PREFIX)
        if is_own_class or (module, name) in _OPAQUE_NAMES or id(owner) in _OPAQUE_TYPES:
            return True
    return False


def attribute_reader(kind: type) -> Callable[[Any], list[Named]]:
    """Make a function that reads the attributes of a class's instances: those of their `__dict__` and their slots.

    Making an instance's `__dict__` slows its attribute access from then on (before 3.13). So the function reads the
    first `INSTANCES_READ_WITHOUT_DICT` instances without it, and counts them down; each walk makes its own function.
    """
    # Runs no method and no property of the class.
    get_dict, slot_getters = _dict_getter(kind), _slot_getters(kind)
    # Names with a dot, as in paths, made once: there may be a million instances. A key that is no text becomes an item.
    dotted_names = {"[*]": "[*]"}
    avoids_dict = _DICT_IS_PERMANENT and get_dict is not None and not _may_hide_referents(kind)
    instances_left = INSTANCES_READ_WITHOUT_DICT if avoids_dict else 0
    attribute_names: list[str] | None = None  # found at the first instance that is read without its dict

    def read(obj: Any) -> list[Named]:
        """Return the attributes of an instance, as `.name` and value; the first few are read without their dicts."""
        nonlocal instances_left, attribute_names
        pairs: list[tuple[str, Any]] | None = None
        if instances_left:
            instances_left -= 1
            if attribute_names is None:
                attribute_names = _used_attributes(kind)
            pairs = _read_without_making_dict(obj, kind, attribute_names)
        if pairs is None:
            # By `dict` itself: an instance's dict may be of a subclass.
            pairs = [] if get_dict is None else list(dict.items(get_dict(obj)))
        named_pairs = ((key if type(key) is str else plain_text(key, "[*]"), value) for key, value in pairs)
        parts = [
            (dotted_names.get(name) or dotted_names.setdefault(name, f".{name}"), value) for name, value in named_pairs
        ]
        for name, get in slot_getters:
            try:
                parts.append((name, get(obj)))
            except AttributeError:  # a slot that was never set
                continue
        return parts

    return read


def _dict_getter(kind: type) -> Callable[[Any], dict[Any, Any]] | None:
    """Return the function that gets the `__dict__` of a class's instances; None if they have none."""
    for owner in mro(kind):
        descriptor: Any = class_dict(owner).get("__dict__")
        if _is_dict_descriptor(descriptor):
            return descriptor.__get__  # type: ignore[no-any-return]
    return None


def _slot_getters(kind: type) -> list[tuple[str, Callable[[Any], Any]]]:
    """Return the functions that get the slots of a class's instances, each with the slot's name after a dot."""
    getters: list[tuple[str, Callable[[Any], Any]]] = []
    for owner in mro(kind):  # slots of all base classes add up
        space = class_dict(owner)
        if "__slots__" in space:
            getters += [
                (f".{name}", value.__get__)
                for name, value in named_entries(space)
                if type(value) is types.MemberDescriptorType
            ]
    return getters


def _used_attributes(kind: type) -> list[str]:
    """Return names that the attributes of a class's instances may have: those in the code of its functions.

    Those in `__init__` come first. Names of descriptors, such as methods and properties, are left out.
    """
    spaces = [class_dict(owner) for owner in mro(kind)]
    functions = [value for space in spaces for value in space.values() if type(value) is types.FunctionType]
    functions.sort(key=lambda function: plain_text(function.__name__) != "__init__")  # False sorts before True
    # The nearest class is the last in reverse, so its values win.
    class_values = {name: value for space in reversed(spaces) for name, value in named_entries(space)}
    # `co_names`: names of attributes, and of globals, in the function's code.
    names = dict.fromkeys(name for function in functions for name in function.__code__.co_names)
    return [name for name in names if name not in class_values or not _is_descriptor(type(class_values[name]))]


def _is_descriptor(kind: type) -> bool:
    """Return whether objects of a class are descriptors, such as methods and properties."""
    return any("__get__" in class_dict(owner) or "__set__" in class_dict(owner) for owner in mro(kind))


def _read_without_making_dict(obj: Any, kind: type, names: list[str]) -> list[tuple[str, Any]] | None:
    """Return the attributes of an instance that has no dict yet, as pairs of name and value.

    Reading its `__dict__` would make a dict, which the instance then keeps. None is returned if it may have one by now,
    or if it has attributes that are not among `names`.
    """
    # The collector sees the values without their names: each name is tried until all values have one.
    values = [value for value in gc.get_referents(obj) if value is not kind]
    # A single dict may be the `__dict__`: the caller opens it.
    if len(values) == 1 and type(values[0]) is dict:
        return None
    unnamed_counts = count_values(map(id, values))
    attributes: list[tuple[str, Any]] = []
    for name in names:
        if len(attributes) == len(values):
            break
        try:
            # By `object`, as the class may replace this method; no descriptor runs, as none is among the names.
            value = object.__getattribute__(obj, name)
        except AttributeError:
            continue
        if unnamed_counts[id(value)] > 0:  # else the value is an attribute of the class
            unnamed_counts[id(value)] -= 1
            attributes.append((name, value))
    return attributes if len(attributes) == len(values) else None


def _may_hide_referents(kind: type) -> bool:
    """Return whether instances may hold objects that their attributes do not show: C fields, or hidden attributes."""
    owners = [owner for owner in mro(kind) if owner is not object]
    return any(made_in_c(owner) or _hides_attributes(class_dict(owner)) for owner in owners)


def _is_dict_descriptor(value: object) -> bool:
    """Return whether the `__dict__` in a class gives the dict of an instance, and is no object of the program's."""
    # That of `types.SimpleNamespace` is a member, unlike that of other classes.
    return type(value) is types.GetSetDescriptorType or type(value) is types.MemberDescriptorType


def _hides_attributes(class_namespace: Mapping[str, Any]) -> bool:
    """Return whether a class may hide its instances' dict or slots: its body gave their names to other values.

    By its name an attribute would then be found as another value, or not at all.
    """
    if "__dict__" in class_namespace and not _is_dict_descriptor(class_namespace["__dict__"]):
        return True
    slots = class_namespace.get("__slots__", ())
    names = (slots,) if type(slots) is str else slots  # a text is the name of one slot
    # `__slots__` may be any iterable, such as an iterator that is used up by now: its names are not known.
    if type(names) is not tuple and type(names) is not list:
        return True
    # Each slot has a member descriptor, unless another value has its name.
    descriptor_count = sum(type(value) is types.MemberDescriptorType for value in class_namespace.values())
    slot_count = sum(type(name) is not str or name not in {"__dict__", "__weakref__"} for name in names)
    return descriptor_count < slot_count


def instance_opener(kind: type) -> Opener | None:
    """Make an opener for instances of a class written in Python; None for other classes.

    Instances of a class that extends a class of C may hold objects that no attribute shows: the collector shows them.
    """
    # Runs no code of the watched program.
    owners = [owner for owner in mro(kind) if owner is not object]  # the class itself, and its base classes
    has_dict = any("__dict__" in class_dict(owner) for owner in owners)
    has_slots = any("__slots__" in class_dict(owner) for owner in owners)
    if not has_dict and not has_slots:  # there are no attributes to read by name
        return None
    read_attributes, read_size = attribute_reader(kind), size_reader(kind)
    kind_name = next((_KIND_BY_CLASS[name] for name in map(full_name, owners) if name in _KIND_BY_CLASS), "object")
    may_hide_referents = _may_hide_referents(kind)

    def open_instance(obj: Any, walk: Walk) -> OpenedObject:
        """Open an instance: its attributes, hidden referents, and once a walk its class, if that is the user's."""
        parts = read_attributes(obj)
        attribute_count = len(parts)
        if may_hide_referents:
            parts += _referents(obj)
        if id(kind) not in walk.seen_ids and walk.is_user_class(kind):
            # Claimed here with 0 bytes: a sampled instance stands for others, which share the class.
            claim_bytes(walk, id(kind), 0)
            parts.append((".<class>", kind))
        size = read_size(obj) + (_DICT_BYTES + _ENTRY_BYTES * attribute_count if has_dict else 0)
        if kind_name == "thread" and is_running(obj):
            size += THREAD_BYTES
        if walk.child_bytes:
            size += _claim_child_bytes_(parts, walk)
        if may_hide_referents and _is_buffer(size, attribute_count):
            return OpenedObject("bytes", size, size, parts)
        return OpenedObject(kind_name, size, attribute_count, parts)

    return open_instance


def _claim_child_bytes_(attributes: Iterable[Named], walk: Walk) -> int:
    """Return the private bytes of the child process whose id is among the attributes; 0 if they count already.

    An object that stands for a child process, such as a `Popen`, holds its memory.
    """
    pids = (value for name, value in attributes if name in _PID_NAMES and type(value) is int)
    return sum(walk.child_bytes.pop(pid, 0) for pid in pids)


_PID_NAMES = frozenset({".pid", "._pid"})
"""Attributes for the id of a process: of `subprocess.Popen`, of `multiprocessing`'s, of `asyncio`'s."""
_DICT_BYTES, _ENTRY_BYTES = 64, 8
"""Bytes of an instance's dict, which shares its keys with the class: a header, and a pointer for each value."""


def _is_buffer(size: int, child_count: int) -> bool:
    """Return whether an object of C with so many bytes and children is a buffer rather than a container."""
    return size > BUFFER_BYTES_PER_CHILD * max(1, child_count)


def foreign_opener(kind: type) -> Opener:
    """Make an opener for objects of a class written in C: the children that the collector sees, and the buffer's bytes.

    A buffer is memory that an object such as a `bytearray` exports to other objects.
    """
    # Runs no code of the watched program.
    read_size = size_reader(kind)
    may_export = _may_export_buffer(kind)

    def open_foreign(obj: Any, walk: Walk) -> OpenedObject:
        """Open an object of C with its children, or a sample of many; as bytes if they are few for so much memory."""
        size = max(read_size(obj), _buffer_bytes(obj) if may_export else 0)
        children = gc.get_referents(obj) if gc.is_tracked(obj) else []
        if len(children) > MAXIMUM_LISTED:
            sample = children[evenly_spaced_slice(len(children), CHILD_SAMPLE_RATIO * walk.sampled_items)]
            return OpenedObject("object", size, len(children), sampled=_named_by_class(sample))
        # Classes, such as its own, are no parts.
        parts = _named_by_class(child for child in children if not issubclass(type(child), type))
        if not parts or _is_buffer(size, len(parts)):
            return OpenedObject("bytes", size, size, parts)
        return OpenedObject("object", size, len(parts), parts)

    return open_foreign


def open_string_io(out: io.StringIO, _walk: Walk) -> OpenedObject:
    """Open a text file in memory, with the larger of its size and its position as its bytes."""
    # Runs no code of the watched program.
    # Its `__sizeof__` leaves out lines that are not joined yet; the position counts them.
    size = io.StringIO.__sizeof__(out)
    with suppress(ValueError):  # a closed file keeps nothing
        size = max(size, _STRING_IO_METHODS["tell"](out))
    return OpenedObject("bytes", size=size, length=size, parts=_referents(out))


def open_bytes_io(out: io.BytesIO, _walk: Walk) -> OpenedObject:
    """Open a binary file in memory: its bytes, and its attributes without the buffer, which is in its size already."""
    # Runs no code of the watched program.
    # The size is read first: as soon as `parts` refers to the buffer as well, `__sizeof__` leaves the buffer out.
    size = io.BytesIO.__sizeof__(out)
    size_includes_buffer = size > io.BytesIO.__basicsize__
    # From Python 3.13 on the collector sees the buffer.
    parts = [
        (name, referent) for name, referent in _referents(out) if not (size_includes_buffer and type(referent) is bytes)
    ]
    return OpenedObject("bytes", size=size, length=size, parts=parts)


def _referents(obj: Any) -> list[Named]:
    """Return the children that the collector sees, each named by its class, such as `.<dict>`."""
    return _named_by_class(referents(obj))


def _named_by_class(children: Iterable[Any]) -> list[Named]:
    """Return the children, each with a name made of its class, such as `.<dict>`."""
    # The names are kept, as a pickler may have 100,000 tuples: by the class's id, as its metaclass may have a hash.
    names = dict[int, str]()
    named_children = []
    for child in children:
        kind = type(child)
        name = names.get(id(kind)) or names.setdefault(id(kind), f".<{class_name(kind)}>")
        named_children.append((name, child))
    return named_children


def _may_export_buffer(kind: type) -> bool:
    """Return whether instances may export a buffer, and do so by C code alone."""
    if kind is memoryview:  # its buffer is another object's, which counts the bytes
        return False
    # The methods of the class and of its bases by which a buffer is asked for; None where a class defines none.
    methods = (class_dict(owner).get(name) for owner in mro(kind) for name in ("__buffer__", "__release_buffer__"))
    # A method that C code defines is a slot wrapper (WrapperDescriptorType).
    return all(method is None or type(method) is types.WrapperDescriptorType for method in methods)


def _buffer_bytes(obj: Any) -> int:
    """Return the bytes of the buffer that an object exports; 0 if it exports none."""
    try:
        with memoryview(obj) as view:
            return view.nbytes
    except (TypeError, BufferError, ValueError):
        return 0
