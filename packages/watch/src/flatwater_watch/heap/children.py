"""Openers: for each class, how the walk reads an object's size and named children; no code of the program is called.

An opener is a function that gets an object and the walk, and returns an `OpenedObject`. Children have the names that
paths get: `.name` for an attribute, `['name']` for an entry of a small dict, `[*]` for any item, `[key]` for any key,
and `.<word>` for an object that no attribute names.

Containers are read through the methods of their builtin type, instances through the descriptors of their `__dict__` and
slots, closures cell by cell. Classes of libraries are known by module and name, so none is imported.
"""

import gc
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from functools import partial
from itertools import islice, repeat
from typing import Any

from flatwater_watch.heap.arrays import Graph, open_array, open_graph, open_storage, open_tensor
from flatwater_watch.heap.containers import CONTAINERS, ContainerSpec, inner_container, is_genuine, queued_items
from flatwater_watch.heap.functions import (
    function_size,
    open_builtin_method,
    open_cache,
    open_code,
    open_exception,
    open_frame,
    open_function,
    open_generator,
    open_method,
    open_partial,
    open_traceback,
)
from flatwater_watch.heap.instances import (
    attribute_reader,
    foreign_opener,
    instance_opener,
    is_opaque_class,
    open_bytes_io,
    open_string_io,
)
from flatwater_watch.heap.modules import open_module, open_modules
from flatwater_watch.heap.raw import (
    GC_BYTES,
    c_attribute,
    class_dict,
    class_name,
    full_name,
    instance_dict,
    module_namespace,
    mro,
    named_entries,
    read_stable,
)
from flatwater_watch.heap.shared_memory import open_mapping
from flatwater_watch.heap.tasks import known_contexts
from flatwater_watch.heap.view import (
    OPAQUE,
    Named,
    OpenedObject,
    Opener,
    Walk,
    claim_bytes,
    evenly_spaced_slice,
    open_container,
)
from flatwater_watch.meters.program_faults import is_program_fault

_ATOM_TYPES = (int, float, complex, bool, type(None), str, bytes, range, slice, type(Ellipsis), type(NotImplemented))
ATOM_TYPE_IDS = frozenset(map(id, _ATOM_TYPES))
"""Ids of types without children. Only long texts among them are holdings of their own."""

LONG_TEXT_BYTES = 4096
"""Bytes from which on a text is a holding of its own: the program may be adding to it."""

MAXIMUM_NAMED_KEYS = 24
"""Maximum entries of a dict with text keys that is read as a record of fields, not as a container of like items."""

_MAXIMUM_NAME_LETTERS = 24
"""Maximum characters of a key that is read as the name of a field."""

MAXIMUM_SPREAD_DICT = 200_000
"""Entries above which the middle of a dict is not sampled: getting there takes as long as reading it."""


def is_short_atom(obj: Any) -> bool:
    """Return whether an object is a number, a short text or another small object without children."""
    return id(type(obj)) in ATOM_TYPE_IDS and obj.__sizeof__() < LONG_TEXT_BYTES


def open_object(obj: Any, walk: Walk) -> OpenedObject:
    """Return the size and children of one object, by the opener of its type, which is kept for the walk.

    An object that cannot be read is counted in `walk.unread_by_class`, and has no children.
    """
    # Runs no code of the watched program.
    kind = type(obj)
    try:
        # By id: hashing a class may call its metaclass, which is the program's code.
        opener = walk.openers.get(id(kind))
        if opener is None:
            opener = walk.openers[id(kind)] = _find_opener(kind)
        opened_object = opener(obj, walk)
        if walk.must_open_ids and opened_object.sampled:
            opened_object = _with_required_items(opened_object, obj, walk)
    except Exception as error:  # any error: the object is foreign
        if is_program_fault(error):  # not the object's: a signal's handler has raised it, for example
            raise
        walk.unread_by_class[f"{class_name(kind)} ({class_name(type(error))})"] += 1
        return OPAQUE
    else:
        return opened_object


def _with_required_items(opened_object: OpenedObject, container: Any, walk: Walk) -> OpenedObject:
    """Return an opened container, with each of its items that is in `walk.must_open_ids` as a child."""
    # A library's container, such as a queue, has its items in an inner list or dict.
    items = gc.get_referents(inner_container(container))
    if walk.must_open_ids.isdisjoint(map(id, items)):
        return opened_object
    required_items = [("[*]", item) for item in items if id(item) in walk.must_open_ids]
    return opened_object._replace(parts=[*opened_object.parts, *required_items])


def _find_opener(kind: type) -> Opener:
    """Return the opener of a class: that of the first class in its method resolution order which has one.

    Instances of a subclass may have attributes as well, which are read too. A class without any is opened as an
    instance of a class written in Python, or in C.
    """
    if issubclass(kind, types.ModuleType):
        return open_module
    if kind is not Graph and is_opaque_class(kind):  # `Graph` is the watch's own, and all its other classes are opaque
        return _open_opaque
    for owner in mro(kind):
        opener = _BUILTIN_OPENERS.get(id(owner)) or _library_opener(owner)
        if opener is not None:
            # The only openers that are partials are those of `_open_container`, which reads all attributes.
            reads_attributes = opener in _OPENERS_WITH_ATTRIBUTES or type(opener) is partial
            return opener if kind is owner or reads_attributes else _with_attributes(opener, kind)
    return instance_opener(kind) or foreign_opener(kind)


def _library_opener(kind: type) -> Opener | None:
    """Return the opener of a library's class; None for other classes, and for a class that only claims its name."""
    spec = CONTAINERS.get(full_name(kind))  # the attributes with its items, if it is a container
    opener = _LIBRARY_OPENERS.get(full_name(kind)) if spec is None else partial(_open_container, spec=spec)
    return opener if opener is not None and is_genuine(kind) else None


def _with_attributes(opener: Opener, kind: type) -> Opener:
    """Return an opener for a subclass: that of its known base class, and the attributes of the instance besides."""
    read_attributes = attribute_reader(kind)

    def open_with_attributes(obj: Any, walk: Walk) -> OpenedObject:
        opened_object = opener(obj, walk)
        return opened_object._replace(parts=[*opened_object.parts, *read_attributes(obj)])

    return open_with_attributes


def _open_opaque(_obj: object, _walk: Walk) -> OpenedObject:
    return OPAQUE


def _open_text(text: str | bytes | bytearray, _walk: Walk) -> OpenedObject:
    """Open a text or bytes, which may be of a subclass of the program's."""
    builtin = next(kind for kind in (str, bytes, bytearray) if issubclass(type(text), kind))
    return OpenedObject("text", builtin.__sizeof__(text), builtin.__len__(text))  # type: ignore[arg-type]


# Below, methods are called on the builtin type: a subclass of the program may override its own.


def _open_list(values: list[Any], walk: Walk) -> OpenedObject:
    count = list.__len__(values)
    sample = list.__getitem__(values, evenly_spaced_slice(count, walk.sampled_items))
    return open_container("list", list.__sizeof__(values) + GC_BYTES, count, sample, walk)


def _open_tuple(values: tuple[Any, ...], walk: Walk) -> OpenedObject:
    count = tuple.__len__(values)
    sample = tuple.__getitem__(values, evenly_spaced_slice(count, walk.sampled_items))
    return open_container("tuple", tuple.__sizeof__(values) + GC_BYTES, count, sample, walk)


_read_maxlen = deque.__dict__["maxlen"].__get__


def _open_deque(values: deque[Any], walk: Walk) -> OpenedObject:
    """Open a deque: its bytes, a sample of its items, and its maximum length as its capacity."""
    count = deque.__len__(values)
    sample = read_stable(_sample_deque, values, walk.sampled_items)  # another thread may change it meanwhile
    size = deque.__sizeof__(values) + GC_BYTES
    return open_container("deque", size, count, sample, walk, capacity=_read_maxlen(values))


def _sample_deque(values: deque[Any], maximum: int) -> list[Any]:
    """Return evenly spaced items of a deque, at most `maximum`; called by `read_stable`."""
    count = deque.__len__(values)
    return list(map(deque.__getitem__, repeat(values), range(count)[evenly_spaced_slice(count, maximum)]))


def _open_set(values: set[Any] | frozenset[Any], walk: Walk) -> OpenedObject:
    """Open a set or frozenset: its bytes, and a sample of its items."""
    builtin: Any = set if issubclass(type(values), set) else frozenset
    count = builtin.__len__(values)
    sample = read_stable(_sample_set, builtin, values, walk.sampled_items)
    return open_container("set", builtin.__sizeof__(values) + GC_BYTES, count, sample, walk)


def _sample_set(builtin: Any, values: set[Any] | frozenset[Any], maximum: int) -> list[Any]:
    """Return the first items of a set, at most `maximum`: in hash order any few are as good."""
    return list(islice(builtin.__iter__(values), maximum))


def _open_dict(mapping: dict[Any, Any], walk: Walk) -> OpenedObject:
    """Open a dict: its values and keys, or a sample of them if they are many.

    In a small dict with text keys, values whose key looks like the name of a field get it: `['best']`, not `[*]`.
    """
    if mapping is sys.modules:
        return open_modules(walk)
    count = dict.__len__(mapping)
    size = dict.__sizeof__(mapping) + GC_BYTES
    pairs = read_stable(_sample_entries, mapping, count, walk.sampled_items)
    if count <= MAXIMUM_NAMED_KEYS and all(type(key) is str for key, _ in pairs):
        parts = [(f"['{key}']" if _is_name(key) else "[*]", value) for key, value in pairs]
        return OpenedObject("dict", size, count, parts=[*parts, *(("[key]", key) for key, _ in pairs)])
    entries = [part for key, value in pairs for part in (("[*]", value), ("[key]", key))]  # two children for each item
    if count <= walk.sampled_items:
        return OpenedObject("dict", size, count, parts=entries)
    return OpenedObject("dict", size, count, sampled=entries, children_per_item=2)


def _is_name(key: str) -> bool:
    """Return whether a key looks like the name of a field: short, and without digits, as numbers tell items apart."""
    return len(key) <= _MAXIMUM_NAME_LETTERS and not any(letter.isdigit() for letter in key)


def _sample_entries(mapping: dict[Any, Any], count: int, maximum: int) -> list[tuple[Any, Any]]:
    """Return all `count` entries of a small dict, else at most `maximum`: evenly spaced, or at both ends of a huge one.

    An entry is a pair of key and value.
    """
    # Called by `read_stable`: C code alone, as another thread may change the dict between two Python instructions.
    if count <= max(maximum, MAXIMUM_NAMED_KEYS):
        return list(dict.items(mapping))
    if count <= MAXIMUM_SPREAD_DICT:
        return list(islice(dict.items(mapping), 0, count, -(-count // maximum)))  # the step is rounded up
    half = maximum // 2  # the ends are reached at once from both sides; the newest entries are at the end
    return [*islice(dict.items(mapping), half), *islice(reversed(dict.items(mapping)), half)]


def _open_class(cls: type, walk: Walk) -> OpenedObject:
    """Open a class of the user's, or a class made at run time; other classes of libraries are not entered.

    Its children are its attributes without special ones, such as `__module__`. Of a class made at run time special
    attributes with data count too: a library writes fields, schemas and validators into it.
    """
    made_at_run_time = _is_missing_from_module(cls)
    if not walk.is_user_class(cls) and not made_at_run_time:
        return OPAQUE
    entries = named_entries(class_dict(cls))
    parts = []
    for name, value in entries:
        is_special = name.startswith("__")
        if not is_special or (made_at_run_time and _is_class_data(value)):
            parts.append((f".{name}", value))
    # Its namespace is the dict that the collector sees: `__dict__` is a proxy, without the bytes.
    namespace_bytes = sum(dict.__sizeof__(referent) for referent in gc.get_referents(cls) if type(referent) is dict)
    # Special methods are no parts, so their bytes count with the class.
    special_bytes = sum(function_size(value, walk) for name, value in entries if name.startswith("__"))
    # Once: the walk may come to a class both as an object and as the class of an instance.
    size = claim_bytes(walk, id(cls), type.__sizeof__(cls) + GC_BYTES + namespace_bytes + special_bytes)
    return OpenedObject("class", size, len(parts), parts)


def _is_missing_from_module(cls: type) -> bool:
    """Return whether a class is missing from its module, as classes of `make_dataclass` and `namedtuple` may be."""
    module, name = full_name(cls)
    space = module_namespace(module)
    # A nested class, which has a dot in its name, is looked for in no module.
    return space is not None and "." not in name and name not in space


def _is_class_data(value: object) -> bool:
    """Return whether an attribute of a class is data: a builtin container, or an object of no builtin class.

    Functions and descriptors, which each class has, are of builtin classes.
    """
    kind = type(value)
    # By identity: a set would hash the class, and a metaclass of the program may have a hash of its own.
    is_container = any(kind is container for container in (dict, list, tuple, set))
    module, _ = full_name(kind)
    return is_container or module not in {"builtins", "types"}


def _open_container(container: Any, walk: Walk, *, spec: ContainerSpec) -> OpenedObject:
    """Open a library's container, such as a queue: the list, deque, dict or set with its items, and other attributes.

    `spec` names the attributes with the items and the bound.
    """
    fields = attribute_reader(type(container))(container)
    attributes = dict(fields)  # by name with a dot, as in paths: `.queue`
    if f".{spec.items}" not in attributes:  # a subclass may keep its items in another attribute
        return OpenedObject("object", object.__sizeof__(container) + GC_BYTES, len(fields), parts=fields)
    opened_items = open_object(attributes.pop(f".{spec.items}"), walk)
    capacity = None if spec.bound is None else attributes.pop(f".{spec.bound}", None)
    return opened_items._replace(
        kind="queue" if spec.is_queue else opened_items.kind,
        parts=[*opened_items.parts, *attributes.items()],
        capacity=capacity if type(capacity) is int and capacity > 0 else None,
    )


def _open_reference(reference: weakref.ReferenceType[Any], _walk: Walk) -> OpenedObject:
    """Open a weak reference: its own bytes and its callback, but not its referent, which it does not hold."""
    callback = c_attribute(reference, "__callback__")
    parts = [] if callback is None else [(".<callback>", callback)]
    return OpenedObject("object", weakref.ReferenceType.__sizeof__(reference) + GC_BYTES, len(parts), parts)


def _open_context_variable(variable: ContextVar[Any], walk: Walk) -> OpenedObject:
    """Open a context variable: its values in the contexts of all tasks, which hold them for it."""
    parts = [(".<value>", context[variable]) for context in _task_contexts(walk).values() if variable in context]
    return OpenedObject("object", object.__sizeof__(variable) + GC_BYTES, len(parts), parts)


def _task_contexts(walk: Walk) -> dict[int, Context]:
    """Return the contexts of all tasks by their ids, which the walk keeps until the end of its slice."""
    if walk.contexts is None:
        walk.contexts = {id(context): context for context in known_contexts()}
    return walk.contexts


def _open_context(context: Context, walk: Walk) -> OpenedObject:
    """Open a context: its values; a task's context is not entered, as its values count with their variables."""
    if id(context) in _task_contexts(walk):
        return OPAQUE
    values = list(context.values())
    return open_container("dict", object.__sizeof__(context) + GC_BYTES, len(values), values, walk)


def _open_simple_queue(queue: Any, walk: Walk) -> OpenedObject:
    """Open a `queue.SimpleQueue`: its items, and 8 bytes for the pointer to each."""
    items = queued_items(queue)
    count = len(items)
    sample = items[evenly_spaced_slice(count, walk.sampled_items)]
    return open_container("queue", object.__sizeof__(queue) + GC_BYTES + 8 * count, count, sample, walk)


def _open_torch_module(module: Any, _walk: Walk) -> OpenedObject:
    """Open a torch module: parameters, buffers and submodules under the names by which the program reaches them."""
    parts: list[Named] = []
    for name, value in attribute_reader(type(module))(module):
        if name in {"._parameters", "._buffers", "._modules"} and issubclass(type(value), dict):
            # Layers of a `Sequential` have numbers for names, and count as items.
            parts += [("[*]" if key.isdigit() else f".{key}", attribute) for key, attribute in named_entries(value)]
        else:
            parts.append((name, value))
    return OpenedObject("object", object.__sizeof__(module) + GC_BYTES, len(parts), parts=parts)


def _open_polars_table(table: Any, _walk: Walk) -> OpenedObject:
    """Open a polars frame or series: the bytes and rows of its columns, which lie outside of Python."""
    attributes = instance_dict(table)
    is_frame = "_df" in attributes
    rust_object = attributes.get("_df", attributes.get("_s"))  # of a frame, or of a series
    methods = class_dict(type(rust_object))  # the methods of `table` itself are Python code
    length_method = methods["height" if is_frame else "len"]
    return OpenedObject("array", methods["estimated_size"](rust_object), length_method(rust_object))


_Opener = Callable[..., OpenedObject]
_BUILTIN_TYPES: dict[type, _Opener] = {
    list: _open_list,
    tuple: _open_tuple,
    dict: _open_dict,
    set: _open_set,
    frozenset: _open_set,
    deque: _open_deque,
    str: _open_text,
    bytes: _open_text,
    bytearray: _open_text,
    type: _open_class,
    partial: open_partial,
    BaseException: open_exception,
    weakref.ReferenceType: _open_reference,
    Graph: open_graph,
    Context: _open_context,
    ContextVar: _open_context_variable,
    types.FunctionType: open_function,
    types.MethodType: open_method,
    types.BuiltinFunctionType: open_builtin_method,
    types.MethodWrapperType: open_builtin_method,
    types.GeneratorType: open_generator,
    types.CoroutineType: open_generator,
    types.AsyncGeneratorType: open_generator,
    types.FrameType: open_frame,
    types.TracebackType: open_traceback,
    types.CodeType: open_code,
}
_BUILTIN_OPENERS = {id(kind): opener for kind, opener in _BUILTIN_TYPES.items()}
_LIBRARY_OPENERS: dict[tuple[str, str], _Opener] = {
    ("functools", "_lru_cache_wrapper"): open_cache,
    ("_io", "BytesIO"): open_bytes_io,
    ("_io", "StringIO"): open_string_io,
    ("_queue", "SimpleQueue"): _open_simple_queue,
    ("mmap", "mmap"): open_mapping,
    ("numpy", "ndarray"): open_array,
    ("torch._C", "TensorBase"): open_tensor,
    ("torch.storage", "UntypedStorage"): open_storage,
    ("torch.nn.modules.module", "Module"): _open_torch_module,
    ("polars.dataframe.frame", "DataFrame"): _open_polars_table,
    ("polars.series.series", "Series"): _open_polars_table,
}
_OPENERS_WITH_ATTRIBUTES = {_open_torch_module, _open_class}
"""Openers that read the attributes of an instance themselves."""
