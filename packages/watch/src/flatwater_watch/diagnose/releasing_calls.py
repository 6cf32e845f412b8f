"""Public calls of a library that release objects in one of its private tables, for the advice on a table that grows.

A user who deletes from a private table may break the library. So where no rule of `rules.py` is known, calls are found
by their names, such as `clear`, and by their code, which must empty or replace what one of the names on the path to the
table stands for: functions of the packages around the table, and methods of the classes and objects that hold it.
"""

import re
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_names import (
    NO_NAME,
    USED_AS_CONTAINERS,
    CodeName,
    holder_names,
    library_of_frame,
    library_of_root,
    public_hop,
)
from flatwater_watch.diagnose.code_use import (
    LENGTH,
    SELF,
    UserCode,
    class_namespace,
    code_use,
    first_word,
    plain_function,
    stored_parameters,
)
from flatwater_watch.diagnose.declared_bounds import find_unset_bounds, lifetime_parameters
from flatwater_watch.diagnose.hops import chain_of_holdings
from flatwater_watch.diagnose.release_search import (
    DELETIONS,
    MAXIMUM_CALLS,
    ReleaseSearch,
    releases_one,
    written_call,
    written_calls,
)
from flatwater_watch.heap.census import Census, Holding
from flatwater_watch.heap.raw import (
    class_dict,
    class_name,
    full_name,
    instance_dict,
    module_namespace,
    mro,
    named_entries,
)

_NAME = re.compile(r"\w+")
_KEEPING = ("save", "keep", "store", "record", "track")
"""First words of the names of arguments that make a library keep something."""
_TAKING = frozenset({"get", "take", "receive", "recv", "read", "next", "poll", "pop", "fetch", "consume"})
"""First words of the names of methods that take an item out of a queue for their caller."""
_CACHE_CLEARING = ("clear_caches", "clear_all_caches", "clear_cache")
"""Names of functions of a package that clear all its caches."""


class LibraryTable(NamedTuple):
    """A container that belongs to a library."""

    library: str
    """Name of the package."""
    calls: tuple[str, ...]
    """Its calls that release objects: "regex.purge()", "train.CONVERTER.reset()"; empty if it has none."""
    argument: str = ""
    """An argument by which the user's code asks for the table, such as "save_history" for "history"; empty if none is
    known, or if there are calls."""
    bounds: tuple[str, ...] = ()
    """Calls that set a bound on the table: "train.CLIENT.max_messages_set(number)"; empty if there are calls."""
    holder: CodeName = NO_NAME
    """The outermost object of the library that holds the table, or the item whose calls they are."""
    is_queue: bool = False
    """Whether it is a queue, whose calls take items out."""

    @property
    def advice(self) -> str:
        """Sentences for the user: the calls that release the objects, and the library that keeps them."""
        if self.argument:
            return f"Leave `{self.argument}` out where its result is not needed. {self.library} keeps it for that."
        if self.bounds:
            bounds = " or ".join(f"`{call}`" for call in self.bounds)
            return f"Bound it by {bounds}{self.holder.each_words}. {self.library} keeps it without a bound."
        if self.is_queue:
            calls = " or ".join(f"`{call}`" for call in self.calls)
            calls_clause = f", by {calls}{self.holder.each_words}"
            instruction = f"Take items out as fast as they come{calls_clause if calls else ', or put fewer in'}"
            return f"{instruction}. {self.library} keeps each until it is taken."
        if not self.calls:
            name = self.holder.text
            renewal = f", or make `{name}` anew when a job is done{self.holder.each_words}" if name else ""
            instruction = f"Run the line that adds less often, once if it registers something{renewal}"
            return f"{instruction}. {self.library} keeps it, and no call of it that lets go was found."
        item_calls = " or ".join(f"`{call}`" for call in self.calls if releases_one(call))
        all_calls = " or ".join(f"`{call}`" for call in self.calls if not releases_one(call))
        call_words = f"{item_calls} for each that is done with" if item_calls else f"{all_calls} when this is done with"
        rest = f", or {all_calls} for all" if item_calls and all_calls else ""
        return f"Call {call_words}{rest}{self.holder.each_words}. {self.library} keeps it until then."


class _Holder(NamedTuple):
    """A class of a library, itself or one of its objects, that holds the container."""

    kind: type
    names: frozenset[str]
    """The names that lead from there to the container."""
    code_name: CodeName = NO_NAME
    """The name of the object in the user's code; empty for a class."""


def library_table(census: Census, path: str, user_code: UserCode, item: Any = None) -> LibraryTable | None:
    """Return the library whose table a container is, with calls that release its objects; None for a user's table.

    A table belongs to the library whose object holds it, or whose global or local variable is its root, if no object
    of the user's lies between. An attribute that a library's class sets in an object of a derived class is the
    library's too.

    Args:
        census: census with references to its containers.
        path: path of the container.
        user_code: the code of the user's.
        item: an item of the container, which may have a method that takes it out; None if none is known.
    """
    # Runs no code of the watched program.
    modules = user_code.modules
    root = chain_of_holdings(census, path)[0]
    is_queue = census.holdings[path].kind == "queue"
    holders, names, is_user_owned = _library_holders(census, path, modules)
    root_module = "" if is_user_owned else library_of_root(root.path)
    is_library_root = bool(root_module) and root_module not in modules
    if is_library_root:
        owner = _class_of_root(root_module, root.path)
        if owner is not None:  # the class is the outermost holder of its attribute
            holders.append(_Holder(owner, _names_in_path(path.removeprefix(root.path.rpartition(".")[0]))))
    elif not holders:  # a local variable of a library's function, or a table of the user's
        package = "" if is_user_owned else library_of_frame(root.path)
        return LibraryTable(package, calls=(), is_queue=is_queue) if package else None
    if is_queue:
        library = root_module.partition(".")[0] or _library_of_class(holders[0].kind, modules)
        return _library_queue(library, holders, path)
    user_names = user_code.names
    calls, methods = _holder_calls(holders, user_names, accepts_any_name=False)
    if is_library_root:
        names |= _names_in_path(path.removeprefix(root_module))
        # Of all kinds of calls the first that the library has, the surest kind first.
        calls = (
            _module_calls(root_module, names, methods, user_names, accepts_any_name=False)
            or calls
            or _item_calls(root_module, names, item, user_names)
            or _cache_calls(root_module, holders)
            or _module_calls(root_module, names, methods, user_names, accepts_any_name=True)
            or _holder_calls(holders, user_names, accepts_any_name=True)[0]
        )
        return LibraryTable(root_module.partition(".")[0], calls)
    return _table_of_holders(holders, calls, path, user_code)


def _table_of_holders(
    holders: Sequence[_Holder], calls: tuple[str, ...], path: str, user_code: UserCode
) -> LibraryTable:
    """Return the table that objects of a library hold, with the remedy that is surest.

    This is its calls; else an argument to leave out, a bound to set, or calls without a word for a release.
    """
    argument = "" if calls else _keeping_argument(path.rpartition(".")[2], user_code.given_names)
    bounds = () if calls or argument else _bounds(holders, path) or _lifetime_calls(holders, user_code)
    if not (calls or argument or bounds):
        calls = _holder_calls(holders, user_code.names, accepts_any_name=True)[0]
    # The innermost holder is the item; otherwise the program has a name for the outermost.
    has_item_calls = any(call.startswith("item.") for call in calls)
    holder = holders[0].code_name if has_item_calls else holders[-1].code_name
    library = _library_of_class(holders[0].kind, user_code.modules)
    return LibraryTable(library, calls, argument=argument, bounds=bounds, holder=holder)


def _library_of_class(kind: type, modules: Container[str]) -> str:
    """Return the package of a class, or of the nearest base class that is not the user's."""
    owner = next((owner for owner in mro(kind) if full_name(owner)[0] not in modules), kind)
    return full_name(owner)[0].partition(".")[0]


def _library_queue(library: str, holders: Sequence[_Holder], path: str) -> LibraryTable | None:
    """Return the queue of a library, with the methods of its holder that take items out.

    None if the holder got the queue as an argument of its constructor: then the user's code made it.
    """
    if not holders:
        return LibraryTable(library, calls=(), is_queue=True)
    kind, names, code_name = holders[0]
    # The constructor of the class, and those of its base classes.
    constructors = map(plain_function, (class_dict(owner).get("__init__") for owner in mro(kind)))
    attribute = path.rpartition(".")[2]
    if any(attribute in stored_parameters(function.__code__) for function in constructors if function is not None):
        return None
    namespace = class_namespace(kind, USED_AS_CONTAINERS)
    methods = [name for name in namespace if first_word(name) in _TAKING and _takes(namespace[name], names)]
    calls = [written_call(code_name.text or class_name(kind), name, namespace[name], is_class=True) for name in methods]
    return LibraryTable(library, tuple(sorted(calls)[:MAXIMUM_CALLS]), holder=code_name, is_queue=True)


def _takes(value: Any, names: frozenset[str]) -> bool:
    """Return whether a function calls a method, such as `get`, of an object for which one of the names stands."""
    function = plain_function(value)
    calls = () if function is None else code_use(function.__code__).calls
    return any(first_word(name) in _TAKING and not names.isdisjoint(receivers) for name, receivers in calls)


def _library_holders(census: Census, path: str, modules: Container[str]) -> tuple[list[_Holder], frozenset[str], bool]:
    """Find the objects of a library that hold a table, from the table up to the first object of the user's.

    Returns:
        The objects, innermost first, with the table itself if its attributes grow; all names on the way from them to
        the table; and whether an object of the user's holds them.
    """
    holders: list[_Holder] = []
    names, hops_of_child = frozenset[str](), ""
    named_holdings = zip(chain_of_holdings(census, path), holder_names(census, path, modules), strict=True)
    for holding, name in reversed(list(named_holdings)):
        holder, hops = census.containers[holding.path], path.removeprefix(holding.path)
        # The table itself, which is no holder unless its attributes grow, or bytes inside of it.
        if not hops and holding.kind != "object" and not _is_object_of_c(holding, type(holder)):
            continue
        is_class = issubclass(type(holder), type)
        kind = holder if is_class else type(holder)
        # The user's code may name the way also by the property that leads from this holder to the next.
        names |= _names_in_path(hops) | _names_in_path(public_hop(kind, hops.removesuffix(hops_of_child)))
        hops_of_child = hops
        if full_name(kind)[0] in modules and not _is_set_by_library(kind, hops, modules):
            return holders, names, True
        # A list or a dict on the way has no method of the library.
        if full_name(kind)[0] not in USED_AS_CONTAINERS:
            table_names = names
            if not hops:  # the table itself: a method may release any attribute, or all by `delattr(self, name)`
                table_names = frozenset({SELF, *(attribute for attribute, _ in named_entries(instance_dict(holder)))})
            holders.append(_Holder(kind, table_names, code_name=NO_NAME if is_class else name))
    return holders, names, False


def _is_object_of_c(holding: Holding, kind: type) -> bool:
    """Return whether a holding is an object of a library's class of C that says how many bytes it has."""
    return holding.kind == "bytes" and full_name(kind)[0] not in sys.stdlib_module_names


def _is_set_by_library(kind: type, hops: str, modules: Container[str]) -> bool:
    """Return whether an attribute of a user's object is a library's, as is the first of its classes that uses it.

    Args:
        kind: the class of the user's.
        hops: the way from an object of the class, which begins with the attribute: `._handlers['change']`.
        modules: names of the user's modules.
    """
    attribute_match = _NAME.match(hops.removeprefix("."))
    for owner in mro(kind):  # the class itself first, then its base classes
        namespace = class_dict(owner)
        functions = filter(None, map(plain_function, list(namespace.values())))
        if attribute_match is not None and any(
            attribute_match[0] in function.__code__.co_names for function in functions
        ):
            return full_name(owner)[0] not in modules
    return False


def _keeping_argument(table: str, keywords: Container[str]) -> str:
    """Return an argument of the user's calls that asks for a table by its name: "save_history" for `history`.

    Empty if no call has such an argument.
    """
    return next((f"{verb}_{table}" for verb in _KEEPING if f"{verb}_{table}" in keywords), "")


def _bounds(holders: Sequence[_Holder], path: str) -> tuple[str, ...]:
    """Return calls that set a bound on a table: of its outermost holder that has any, else of a constructor."""
    kind, _, code_name = holders[0]
    calls = next(filter(None, map(_bounding_calls, reversed(holders))), ())
    # An object within another of the library is not made by the user's code.
    if calls or len(holders) > 1 or not code_name.text:
        return calls
    constructor = plain_function(class_namespace(kind, USED_AS_CONTAINERS).get("__init__"))
    table_match = _NAME.match(path.rpartition(".")[2])  # without an item behind it: `rows` of `rows[*]`
    parameters = [] if constructor is None or table_match is None else find_unset_bounds(constructor, table_match[0])
    return tuple(f"{class_name(kind)}({parameter}=...)" for parameter in parameters[:MAXIMUM_CALLS])


def _lifetime_calls(holders: Sequence[_Holder], user_code: UserCode) -> tuple[str, ...]:
    """Return calls that the user's code makes, with an argument that makes entries expire: `cache.set(..., ttl=...)`.

    Only arguments that the user's code does not give yet count.
    """
    calls = [
        f"{code_name.text}.{name}(..., {parameter}=...)"
        for kind, _, code_name in reversed(holders)
        for name, value in class_namespace(kind, USED_AS_CONTAINERS).items()
        if code_name.text and name in user_code.names and (function := plain_function(value)) is not None
        for parameter in lifetime_parameters(function)
        if parameter not in user_code.given_names
    ]
    return tuple(calls[:MAXIMUM_CALLS])


def _bounding_calls(holder: _Holder) -> tuple[str, ...]:
    """Return the calls and assignments that set the bound of a table: the attribute with which its length is compared.

    Such as `Client(max_messages=...)`, `client.max_messages = max_messages` or `client.set_max_messages(number)`.
    """
    kind, names, code_name = holder
    owner = code_name.text or class_name(kind)
    namespace = class_namespace(kind, USED_AS_CONTAINERS)
    # Of a property the function that sets it.
    setters = {key: value.fset if type(value) is property else value for key, value in namespace.items()}
    functions = {key: plain_function(value) for key, value in setters.items()}
    codes = {key: function.__code__ for key, function in functions.items() if function is not None}
    # Only methods that take a length, and name something on the way to the table.
    uses = [
        code_use(code) for code in codes.values() if LENGTH in code.co_names and not names.isdisjoint(code.co_names)
    ]
    # The length of the table may stand on either side of a comparison.
    sides = {side for use in uses for pair in use.compared for side in (pair, pair[::-1])}
    bounds = {name for length, bound in sides if LENGTH in length and not names.isdisjoint(length) for name in bound}
    calls = []
    for key, code in codes.items():
        for attribute, parameter in stored_parameters(code).items():
            if attribute not in bounds:
                continue
            if key == "__init__":
                calls.append(f"{class_name(kind)}({parameter}=...)")
            elif type(namespace[key]) is property:
                calls.append(f"{owner}.{key} = {parameter}")
            elif not key.startswith("_"):
                calls.append(written_call(owner, key, namespace[key], is_class=True))
    return tuple(sorted(calls)[:MAXIMUM_CALLS])


def _cache_calls(module: str, holders: Iterable[_Holder]) -> tuple[str, ...]:
    """Return calls that clear all caches of a package, such as "jax.clear_caches()"; empty for a table in no cache."""
    # A cache of a function's results is known by this method.
    if not any("cache_clear" in class_dict(owner) for holder in holders for owner in mro(holder.kind)):
        return ()
    package = module.partition(".")[0]
    namespace = module_namespace(package) or {}
    functions = [name for name in _CACHE_CLEARING if plain_function(namespace.get(name)) is not None]
    return written_calls(package, namespace, functions, user_names=frozenset(), is_class=False)


def _class_of_root(module: str, root: str) -> type | None:
    """Return the innermost class in a root's path: `Register` for "luigi.task.Register.cache"; None for a global."""
    namespace: Mapping[str, Any] = module_namespace(module) or {}
    kind: type | None = None
    for name in root.removeprefix(f"{module}.").split(".")[:-1]:
        found: Any = namespace.get(name)
        if not issubclass(type(found), type):  # not `isinstance`: it may run the object's own `__class__`
            return None
        kind, namespace = found, class_dict(found)
    return kind


def _names_in_path(path: str) -> frozenset[str]:
    """Return the names in a part of a path: `history` and `rows` in `.history[*].rows`."""
    return frozenset(_NAME.findall(path))


def _module_calls(
    module: str, names: frozenset[str], methods: frozenset[str], user_names: frozenset[str], *, accepts_any_name: bool
) -> tuple[str, ...]:
    """Return calls, such as "regex.purge()", of functions that release a table, in its outermost package with any."""
    search = ReleaseSearch(
        names,
        methods,
        class_namespace={},
        module_namespace=module_namespace(module) or {},
        package=module.partition(".")[0],
        user_names=user_names,
        accepts_any_name=accepts_any_name,
    )
    packages = accumulate(module.split("."), "{}.{}".format)  # `luigi`, then `luigi.task`
    for public in takewhile(lambda package: "._" not in package, packages):  # up to the first private package
        namespace = module_namespace(public) or {}
        calls = written_calls(public, namespace, search.releasing_names(namespace), user_names, is_class=False)
        if calls:
            return calls
    return ()


def _item_calls(module: str, names: frozenset[str], item: Any, user_names: frozenset[str]) -> tuple[str, ...]:
    """Return calls by which an item of a module's global table takes itself out: "Widget.close()"."""
    namespace = class_namespace(type(item), USED_AS_CONTAINERS)
    search = ReleaseSearch(
        names,
        methods=frozenset(),
        class_namespace=namespace,
        module_namespace=module_namespace(module) or {},
        package=module.partition(".")[0],
        user_names=user_names,
        accepts_any_name=False,
    )
    return written_calls(
        class_name(type(item)), namespace, search.releasing_names(namespace), user_names, is_class=True
    )


def _holder_calls(
    holders: Iterable[_Holder], user_names: frozenset[str], *, accepts_any_name: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the calls, such as `Markdown.reset()`, by which one holder releases a table, and the names of all methods.

    The calls are those of the outermost holder that has any, as the program has a name for it; the names are those of
    the releasing methods of all holders.
    """
    calls: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    for kind, names, code_name in holders:
        namespace = class_namespace(kind, USED_AS_CONTAINERS)
        package = full_name(kind)[0].partition(".")[0]
        search = ReleaseSearch(
            names,
            methods,
            namespace,
            module_namespace=None,
            package=package,
            user_names=user_names,
            accepts_any_name=accepts_any_name,
        )
        # `del table[key]` is advice only on an object that the program can name.
        found_methods = [name for name in search.releasing_names(namespace) if code_name.text or name not in DELETIONS]
        owner = code_name.text or class_name(kind)
        # A later holder lies further out.
        calls = written_calls(owner, namespace, found_methods, user_names, is_class=True) or calls
        methods |= set(found_methods)
        if SELF in names and calls and code_name.text:  # the table itself, which the program can name
            break
    return calls, methods
