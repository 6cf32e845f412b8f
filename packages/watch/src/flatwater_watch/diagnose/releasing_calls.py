"""Public calls of a library that release objects in one of its private tables, for the advice on a table that grows.

A user who deletes from a private table may break the library. So where no rule of `rules.py` is known, calls are found
by their names, such as `clear`, and by their code, which must empty or replace what one of the names on the path to the
table stands for: functions of the packages around the table, and methods of the classes and objects that hold it (its
holders).
"""

from collections.abc import Container, Iterable, Sequence
from itertools import accumulate, takewhile
from types import CodeType
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_names import NO_NAME, USED_AS_CONTAINERS, CodeName, library_of_frame, library_of_root
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
from flatwater_watch.diagnose.library_holders import (
    LibraryHolder,
    class_of_root,
    find_library_holders,
    first_name_in_path,
    library_of_class,
    names_in_path,
)
from flatwater_watch.diagnose.release_search import (
    DELETIONS,
    MAXIMUM_CALLS,
    ReleaseSearch,
    releases_one,
    releasing_word,
    written_call,
    written_calls,
)
from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import class_dict, class_name, full_name, module_namespace, mro

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
        """Sentences for the user: what to do so that the library keeps fewer objects, and that it keeps them."""
        if self.argument:
            return f"Leave `{self.argument}` out where its result is not needed. {self.library} keeps it for that."
        if self.bounds:
            bounds = _alternatives(self.bounds)
            return f"Bound it by {bounds}{self.holder.each_words}. {self.library} keeps it without a bound."
        if self.is_queue:
            way = f"by {_alternatives(self.calls)}{self.holder.each_words}" if self.calls else "or put fewer in"
            return f"Take items out as fast as they come, {way}. {self.library} keeps each until it is taken."
        if not self.calls:
            name = self.holder.text
            renewal = f", or make `{name}` anew when a job is done{self.holder.each_words}" if name else ""
            instruction = f"Run the line that adds less often, once if it registers something{renewal}"
            return f"{instruction}. {self.library} keeps it, and no call of it that lets go was found."
        return f"Call {self._call_words()}{self.holder.each_words}. {self.library} keeps it until then."

    def _call_words(self) -> str:
        """Return the calls, at least one, with their purpose: "… for each that is done with, or … for all"."""
        item_calls = _alternatives([call for call in self.calls if releases_one(call)])
        all_calls = _alternatives([call for call in self.calls if not releases_one(call)])
        if not item_calls:
            return f"{all_calls} when this is done with"
        return f"{item_calls} for each that is done with" + (f", or {all_calls} for all" if all_calls else "")


def _alternatives(calls: Iterable[str]) -> str:
    """Return calls as alternatives: "`pool.clear()` or `pool.close()`"."""
    return " or ".join(f"`{call}`" for call in calls)


def library_table(census: Census, path: str, user_code: UserCode, item: Any = None) -> LibraryTable | None:
    """Return the library that keeps a container, with calls that release its objects; None for one of the user's.

    A container is a library's if an object of the library holds it, or if its root is the library's global or local
    variable; and if no object of the user's lies between. An attribute that a library's class sets in an object of a
    derived class is the library's too.

    Args:
        census: snapshot of the program's containers, with references to them.
        path: path of the container.
        user_code: the code of the user's program.
        item: an item of the container, which may have a method that takes it out; None if none is known.
    """
    # Runs no code of the watched program.
    modules = user_code.modules
    root = chain_of_holdings(census, path)[0]
    is_queue = census.holdings[path].kind == "queue"
    holders, names, is_user_owned = find_library_holders(census, path, modules)
    root_module = "" if is_user_owned else library_of_root(root.path)
    is_library_root = bool(root_module) and root_module not in modules
    if is_library_root:
        owner = class_of_root(root_module, root.path)
        if owner is not None:  # the table is an attribute of a class: the class is its outermost holder
            holders.append(LibraryHolder(owner, names_in_path(path.removeprefix(root.path.rpartition(".")[0]))))
    elif not holders:  # a local variable of a library's function, or a table of the user's
        package = "" if is_user_owned else library_of_frame(root.path)
        return LibraryTable(package, calls=(), is_queue=is_queue) if package else None
    if is_queue:
        library = root_module.partition(".")[0] or library_of_class(holders[0].kind, modules)
        return _library_queue(library, holders, path)
    user_names = user_code.names
    calls, methods = _holder_calls(holders, user_names, accepts_any_name=False)
    if is_library_root:
        names |= names_in_path(path.removeprefix(root_module))
        # The first kind of calls that the library has, the surest kind first.
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
    holders: Sequence[LibraryHolder], calls: tuple[str, ...], path: str, user_code: UserCode
) -> LibraryTable:
    """Return a container (table) that objects of a library hold, with the surest remedy.

    In this order: calls with a word for a release in their name, an argument to leave out, a bound to set, other calls.

    Args:
        holders: the library's objects that hold the table, innermost first.
        calls: their calls with a word for a release; may be empty.
        path: path of the table.
        user_code: the code of the user's program.
    """
    argument = "" if calls else _keeping_argument(path.rpartition(".")[2], user_code.given_names)
    bounds = () if calls or argument else _bounds(holders, path) or _lifetime_calls(holders, user_code)
    if not (calls or argument or bounds):
        calls = _holder_calls(holders, user_code.names, accepts_any_name=True)[0]
    # Calls of `item` are those of the innermost holder; any others those of the outermost, which the program can name.
    has_item_calls = any(call.startswith("item.") for call in calls)
    holder = holders[0].code_name if has_item_calls else holders[-1].code_name
    library = library_of_class(holders[0].kind, user_code.modules)
    return LibraryTable(library, calls, argument=argument, bounds=bounds, holder=holder)


def _library_queue(library: str, holders: Sequence[LibraryHolder], path: str) -> LibraryTable | None:
    """Return the queue of a library, with the methods of its holder that take items out.

    None if the holder got the queue as an argument of its constructor: then the user's code made it.

    Args:
        library: name of the package.
        holders: the library's objects that hold the queue, innermost first.
        path: path of the queue.
    """
    if not holders:
        return LibraryTable(library, calls=(), is_queue=True)
    kind, names, code_name = holders[0]
    attribute = path.rpartition(".")[2]
    for owner in mro(kind):
        constructor = plain_function(class_dict(owner).get("__init__"))
        if constructor is not None and attribute in stored_parameters(constructor.__code__):
            return None
    namespace = class_namespace(kind, USED_AS_CONTAINERS)
    methods = [name for name in namespace if first_word(name) in _TAKING and _takes(namespace[name], names)]
    calls = [written_call(code_name.text or class_name(kind), name, namespace[name], is_class=True) for name in methods]
    return LibraryTable(library, tuple(sorted(calls)[:MAXIMUM_CALLS]), holder=code_name, is_queue=True)


def _takes(value: Any, names: frozenset[str]) -> bool:
    """Return whether a function takes items out of a queue: it calls a method such as `get` of it.

    Args:
        value: the function; False for anything else.
        names: names in the library's code that stand for the queue.
    """
    function = plain_function(value)
    if function is None:
        return False
    calls = code_use(function.__code__).calls
    return any(first_word(name) in _TAKING and not names.isdisjoint(receivers) for name, receivers in calls)


def _keeping_argument(table: str, keywords: Container[str]) -> str:
    """Return the argument by which the user's code asks for a table: "save_history" for the table "history".

    Empty if none of the keywords, which are the names of arguments in the user's calls, is such an argument.
    """
    arguments = (f"{verb}_{table}" for verb in _KEEPING)
    return next((argument for argument in arguments if argument in keywords), "")


def _bounds(holders: Sequence[LibraryHolder], path: str) -> tuple[str, ...]:
    """Return calls that set a bound on a library's container: ("client.set_max_messages(number)",).

    They are calls of the outermost object that holds it and has any, or else of that object's constructor.

    Args:
        holders: the library's objects that hold the container, innermost first.
        path: path of the container.
    """
    for holder in reversed(holders):
        calls = _bounding_calls(holder)
        if calls:
            return calls
    kind, _, code_name = holders[0]
    # The constructor helps only if the user's code makes the object: it can name it, and no other object holds it.
    if len(holders) > 1 or not code_name.text:
        return ()
    constructor = plain_function(class_namespace(kind, USED_AS_CONTAINERS).get("__init__"))
    table = first_name_in_path(path.rpartition(".")[2])
    parameters = [] if constructor is None or not table else find_unset_bounds(constructor, table)
    return tuple(f"{class_name(kind)}({parameter}=...)" for parameter in parameters[:MAXIMUM_CALLS])


def _lifetime_calls(holders: Sequence[LibraryHolder], user_code: UserCode) -> tuple[str, ...]:
    """Return calls of the user's code, each with an argument that makes entries expire: "cache.set(..., ttl=...)".

    Arguments that the user's code gives already are left out. `holders` are the library's objects that hold the
    container with the entries, innermost first.
    """
    calls: list[str] = []
    for kind, _, code_name in reversed(holders):
        for name, value in class_namespace(kind, USED_AS_CONTAINERS).items():
            function = plain_function(value)
            if function is None or not code_name.text or name not in user_code.names:
                continue
            calls += [
                f"{code_name.text}.{name}(..., {parameter}=...)"
                for parameter in lifetime_parameters(function)
                if parameter not in user_code.given_names
            ]
    return tuple(calls[:MAXIMUM_CALLS])


def _bounding_calls(holder: LibraryHolder) -> tuple[str, ...]:
    """Return the calls and assignments that bound a container in an object: ("Client(max_messages=...)",).

    The bound is the attribute with which methods of the object (the holder) compare the length of the container. It may
    be set by the constructor, a property ("client.max_messages = number") or a method ("client.set_max(number)").
    """
    kind, names, code_name = holder
    owner = code_name.text or class_name(kind)
    namespace = class_namespace(kind, USED_AS_CONTAINERS)
    # Of a property, the function that sets it.
    setters = {key: value.fset if type(value) is property else value for key, value in namespace.items()}
    functions = {key: plain_function(value) for key, value in setters.items()}
    codes = {key: function.__code__ for key, function in functions.items() if function is not None}
    bounds = _compared_with_length(codes.values(), names)
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


def _compared_with_length(codes: Iterable[CodeType], names: frozenset[str]) -> set[str]:
    """Return the names of attributes with which functions compare the length of a container.

    Args:
        codes: codes of the functions.
        names: names that stand for the container in the codes.
    """
    compared_names = set[str]()
    for code in codes:
        # Only a function that uses both `len` and the container can take its length.
        if LENGTH not in code.co_names or names.isdisjoint(code.co_names):
            continue
        for left, right in code_use(code).compared:
            for side, other_side in ((left, right), (right, left)):
                if LENGTH in side and not names.isdisjoint(side):
                    compared_names |= other_side
    return compared_names


def _cache_calls(module: str, holders: Iterable[LibraryHolder]) -> tuple[str, ...]:
    """Return calls that clear all caches of a package: ("jax.clear_caches()",); empty if no holder is a cache.

    Args:
        module: module of the library.
        holders: the library's classes and objects that hold a container.
    """
    # A cache of a function's results has this method.
    if not any("cache_clear" in class_dict(owner) for holder in holders for owner in mro(holder.kind)):
        return ()
    package = module.partition(".")[0]
    namespace = module_namespace(package) or {}
    functions = [name for name in _CACHE_CLEARING if plain_function(namespace.get(name)) is not None]
    return written_calls(package, namespace, functions, user_names=frozenset(), is_class=False)


def _module_calls(
    module: str, names: frozenset[str], methods: frozenset[str], user_names: frozenset[str], *, accepts_any_name: bool
) -> tuple[str, ...]:
    """Return calls of a library's functions that take items out of a container (table): ("regex.purge()",).

    They are those of the outermost package around the module that has any.

    Args:
        module: module whose global leads to the table.
        names: names that lead from the module to the table.
        methods: methods of objects that hold the table, which take items out of it.
        user_names: names in the user's functions.
        accepts_any_name: whether the name of a function needs no word for a release.
    """
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
    for package in takewhile(lambda name: "._" not in name, packages):  # up to the first private package
        namespace = module_namespace(package) or {}
        calls = written_calls(package, namespace, search.releasing_names(namespace), user_names, is_class=False)
        if calls:
            return calls
    return ()


def _item_calls(module: str, names: frozenset[str], item: Any, user_names: frozenset[str]) -> tuple[str, ...]:
    """Return calls by which an item of a library's container (table) takes itself out: ("Widget.close()",).

    Args:
        module: module whose global leads to the table.
        names: names that lead from the module to the table.
        item: item of the table.
        user_names: names in the user's functions.
    """
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
    holders: Iterable[LibraryHolder], user_names: frozenset[str], *, accepts_any_name: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return method calls that take items out of a library's container, ("converter.reset()",), and names of methods.

    The calls are methods of the outermost holder that has any, as the program has a name for it; the names are those of
    all holders' methods that do so.

    Args:
        holders: the library's objects that hold the container, innermost first.
        user_names: names in the user's functions.
        accepts_any_name: whether the name of a method needs no word for a release.
    """
    calls: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    is_typable = False  # whether the program has a name for the object of the calls
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
        # A later holder lies further out; its functions without a word for a release only call one further in.
        if found_methods and (any(map(releasing_word, found_methods)) or accepts_any_name or not is_typable):
            calls = written_calls(owner, namespace, found_methods, user_names, is_class=True)
            is_typable = bool(code_name.text)
        methods |= set(found_methods)
        if SELF in names and calls and code_name.text:  # the table itself, which the program can name
            break
    return calls, methods
