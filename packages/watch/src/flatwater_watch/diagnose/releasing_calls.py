"""Public calls of a library that release objects in one of its private tables, for the advice on a table that grows.

A user who deletes from a private table may break the library. So where no rule of `rules.py` is known, calls are found
by their names, such as `clear`, and by their code, which must empty or replace what one of the names on the path to the
table stands for: functions of the packages around the table, and methods of the classes and objects that hold it.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dis import Instruction, get_instructions
from inspect import CO_VARARGS
from itertools import accumulate, takewhile
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from flatwater_watch.diagnose.hops import chain_of_holdings
from flatwater_watch.heap.census import Census
from flatwater_watch.heap.raw import class_name, full_name, module_namespace, mro, named_entries, names_of
from flatwater_watch.heap.roots import Roots, is_user_file, user_modules

RELEASING = (
    "delete", "remove", "unregister", "unsubscribe", "disconnect", "unobserve", "evict", "forget", "discard",
    "detach", "clear", "reset", "purge", "uncache", "release", "expire", "flush", "sync", "dispose", "cleanup", "close",
    "shutdown",
)  # fmt: skip
"""First words of the names of functions that release objects, the surest first."""
_RELEASING_ONE = frozenset(RELEASING[: RELEASING.index("clear")])
"""Those that release one object if they take an argument, and come after the others if they take none."""
_FIRST_WORD, _NAME = re.compile("[a-z]*"), re.compile(r"\w+")
MAXIMUM_CALLS = 2
"""Maximum number of calls that the advice names."""
MAXIMUM_PARAMETERS = 2
"""Maximum number of parameters that a call is written with."""
_REMOVING_CALLS = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})
"""Methods of builtin containers that remove items."""
_NAME_CODES = frozenset({"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"})
"""Instructions that take an object by the name of a global, an attribute or a method."""
_REPLACING_CODES = frozenset({"DELETE_ATTR", "DELETE_GLOBAL", "STORE_ATTR", "STORE_GLOBAL"})
"""Instructions by which an attribute or a global gets another object, or none."""
_KEEPING = ("save", "keep", "store", "record", "track")
"""First words of the names of arguments that make a library keep something."""
_CACHE_CLEARING = ("clear_caches", "clear_all_caches", "clear_cache")
"""Names of functions of a package that clear all its caches."""
_CALL_DEPTH = 2
"""Depth to which the functions that a call calls are searched for a use of the table."""
_USED_AS_CONTAINERS = frozenset({
    "builtins", "collections", "functools", "itertools", "queue", "_queue", "threading", "types", "weakref",
    "_weakrefset", "contextlib", "asyncio.queues", "argparse", "numpy", "array",
})  # fmt: skip
"""Modules whose objects are containers that belong to the code that makes them."""


class LibraryTable(NamedTuple):
    """A container that belongs to a library."""

    library: str
    """Name of the package."""
    calls: tuple[str, ...]
    """Its calls that release objects, by their names: "regex.purge()", "Markdown.reset()"; empty if it has none."""
    argument: str = ""
    """An argument by which the user's code asks for the table, such as "save_history" for "history"; empty if none is
    known, or if there are calls."""

    @property
    def advice(self) -> str:
        """A sentence for the user: the calls that release the objects, and the library that keeps them."""
        if self.argument:
            return f"Leave `{self.argument}` out where its result is not needed: {self.library} keeps it for that."
        if not self.calls:
            return (
                f"{self.library} keeps it, and no call of it that lets go was found: hand less to it, or drop what "
                "holds it when a job is done, and make it anew."
            )
        calls_for_one = " or ".join(call for call in self.calls if _releases_one(call))
        calls_for_all = " or ".join(call for call in self.calls if not _releases_one(call))
        if not calls_for_one:
            return f"Call {calls_for_all} when this is done with: {self.library} keeps it until then."
        rest = f", or {calls_for_all} for all" if calls_for_all else ""
        return f"Call {calls_for_one} for each that is done with{rest}: {self.library} keeps it until then."


class _Holder(NamedTuple):
    """A class of a library, itself or one of its objects, that holds the container."""

    kind: type
    names: frozenset[str]
    """The names that lead from there to the container."""


def library_table(census: Census, path: str) -> LibraryTable | None:
    """The library whose table a container is, with the calls that release its objects; None for a table of the user's.

    A table belongs to the library whose object holds it, or whose global is its root, if no object of the user's lies
    between.

    Args:
        census: census with references to its containers.
        path: path of the container.
    """
    # Runs no code of the watched program.
    modules = user_modules(Roots())
    holdings = chain_of_holdings(census, path)
    root = holdings[0]
    holders: list[_Holder] = []  # innermost first
    is_user_owned = False
    for holding in reversed(holdings[:-1]):
        holder = census.live[holding.path]
        kind = holder if issubclass(type(holder), type) else type(holder)
        module = full_name(kind)[0]
        is_user_owned = module in modules
        if is_user_owned:
            break
        if module not in _USED_AS_CONTAINERS:
            holders.append(_Holder(kind, _names_in_path(path.removeprefix(holding.path))))
    root_module = "" if is_user_owned else _library_of_root(root.path)
    is_library_root = bool(root_module) and root_module not in modules
    if is_library_root:
        owner = _class_of_root(root_module, root.path)
        if owner is not None:
            holders.append(_Holder(owner, _names_in_path(path.removeprefix(root.path.rpartition(".")[0]))))
    elif not holders:
        return None
    calls, methods = _holder_calls(holders)
    if is_library_root:
        calls = _module_calls(root_module, _names_in_path(path.removeprefix(root_module)), methods) or calls
        return LibraryTable(root_module.partition(".")[0], calls or _cache_calls(root_module, holders))
    argument = "" if calls else _keeping_argument(path.rpartition(".")[2], modules.values())
    return LibraryTable(full_name(holders[0].kind)[0].partition(".")[0], calls, argument)


def _keeping_argument(table: str, modules: Iterable[Mapping[str, Any]]) -> str:
    """The argument with which the user's functions ask for a table by its name, as "save_history" does for "history".

    Empty if none of them has such a name in a call.
    """
    values = [value for space in modules for _, value in named_entries(space)]
    values += [value for kind in values if issubclass(type(kind), type) for value in names_of(kind).values()]
    functions = filter(None, map(_plain_function, values))
    keywords = {
        word
        for function in functions
        for constant in function.__code__.co_consts
        for word in (constant if type(constant) is tuple else ())
        if type(word) is str
    }
    return next((f"{verb}_{table}" for verb in _KEEPING if f"{verb}_{table}" in keywords), "")


def _cache_calls(module: str, holders: Iterable[_Holder]) -> tuple[str, ...]:
    """The functions of a package that clear all its caches, such as "jax.clear_caches()", for a table in a cache."""
    if not any("cache_clear" in names_of(owner) for holder in holders for owner in mro(holder.kind)):
        return ()
    package = module.partition(".")[0]
    space = module_namespace(package) or {}
    found = [name for name in _CACHE_CLEARING if _plain_function(space.get(name)) is not None]
    return _written_calls(package, space, found, is_class=False)


def _class_of_root(module: str, root: str) -> type | None:
    """The class of a module to whose attribute a root leads: of "luigi.task.Register.cache" `Register`, else None."""
    namespace: Mapping[str, Any] = module_namespace(module) or {}
    kind: type | None = None
    for name in root.removeprefix(f"{module}.").split(".")[:-1]:
        found: Any = namespace.get(name)
        if not issubclass(type(found), type):
            return None
        kind, namespace = found, names_of(found)
    return kind


def _names_in_path(path: str) -> frozenset[str]:
    """The names in a part of a path: `history` and `rows` in `.history[*].rows`."""
    return frozenset(_NAME.findall(path))


def _library_of_root(path: str) -> str:
    """The module of a library to which a global, or an attribute of a class, belongs; empty for any other root."""
    if ": " in path:  # a local variable, or a registry
        return ""
    module = path.rpartition(".")[0]
    while module and module_namespace(module) is None:
        module = module.rpartition(".")[0]
    file = (module_namespace(module) or {}).get("__file__") if module else None
    return module if type(file) is str and not is_user_file(file) else ""


def _releases_one(call: str) -> bool:
    """Whether a call with its parameters, such as "Saver.delete_thread(thread_id)", releases one object of many."""
    name = call.partition("(")[0].rpartition(".")[2]
    return first_word(name) in _RELEASING_ONE and not call.endswith("()")


def _module_calls(module: str, names: frozenset[str], methods: frozenset[str]) -> tuple[str, ...]:
    """The releasing functions, such as "regex.purge()", of the module of a table or the outermost package around it.

    Args:
        module: module of the table.
        names: names that lead from there to the table.
        methods: names of methods of the objects there that release the table.
    """
    search = _Search(names, methods, {}, module_namespace(module) or {}, module.partition(".")[0])
    packages = accumulate(module.split("."), "{}.{}".format)
    for public in takewhile(lambda package: "._" not in package, packages):
        space = module_namespace(public) or {}
        calls = _written_calls(public, space, search.releasing_names(space), is_class=False)
        if calls:
            return calls
    return ()


def _holder_calls(holders: Iterable[_Holder]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The calls of methods that release a table, such as "Markdown.reset()", and the names of all such methods.

    The calls are those of the outermost holder that has any, as the program has a name for it.

    Args:
        holders: holders of the table, innermost first.
    """
    calls: tuple[str, ...] = ()
    methods: frozenset[str] = frozenset()
    for kind, names in holders:
        space = class_namespace(kind, _USED_AS_CONTAINERS)
        found = _Search(names, methods, space, None, full_name(kind)[0].partition(".")[0]).releasing_names(space)
        calls = _written_calls(class_name(kind), space, found, is_class=True) or calls
        methods |= set(found)
    return calls, methods


def _written_calls(owner: str, space: Mapping[str, Any], names: Iterable[str], *, is_class: bool) -> tuple[str, ...]:
    """The calls of functions of a class or module with their parameters, the surest first, at most `MAXIMUM_CALLS`."""
    calls = [(written_call(owner, name, space[name], is_class=is_class), first_word(name)) for name in names]
    calls.sort(key=lambda call: (_rank(*call), call))
    return tuple(call for call, _ in calls[:MAXIMUM_CALLS])


def written_call(owner: str, name: str, value: Any, *, is_class: bool) -> str:
    """The call of a function of a class or module with its parameters: "Saver.delete_thread(thread_id)"."""
    return f"{owner}.{name}({_parameters(value, is_method=is_class)})"


def _rank(call: str, word: str) -> int:
    """The place of a call among others, the surest first: one that releases one object comes before all that do not."""
    place = RELEASING.index(word)
    return place if word not in _RELEASING_ONE or _releases_one(call) else len(RELEASING) + place


class _CodeUse(NamedTuple):
    """What the code of a function does with the objects that names stand for."""

    released: frozenset[str]
    """Names whose object it empties, shortens or replaces."""
    calls: tuple[tuple[str, frozenset[str]], ...]
    """Names of what it may call, each with the names that the object before the dot may stand for."""


_SELF = ""
"""Stands for the first parameter, which is `self` or `cls` in a method."""


def single_instructions(code: CodeType) -> Iterator[Instruction]:
    """Yield the instructions of a function; one of Python 3.13 that takes two local variables is yielded as two."""
    for instruction in get_instructions(code):
        if "_FAST" in instruction.opname and type(instruction.argval) is tuple:
            words = instruction.opname.split("_")  # LOAD_FAST_LOAD_FAST, STORE_FAST_LOAD_FAST
            first, second = instruction.argval
            yield instruction._replace(opname="_".join(words[: len(words) // 2]), argval=first)
            yield instruction._replace(opname="_".join(words[len(words) // 2 :]), argval=second, starts_line=None)
        else:
            yield instruction


def _code_use(code: CodeType) -> _CodeUse:
    """Read from the instructions of a function what it does with the objects that names stand for."""
    nothing: frozenset[str] = frozenset()
    released: set[str] = set()
    calls: list[tuple[str, frozenset[str]]] = []
    meanings = {code.co_varnames[0]: frozenset({_SELF})} if code.co_argcount else {}  # of local variables
    chains: list[frozenset[str]] = []  # of this line: the last name of each `a.b.c`
    for instruction in single_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if instruction.starts_line:
            chains = []
        first, last = (chains[0], chains[-1]) if chains else (nothing, nothing)
        if operation == "STORE_FAST":
            meanings[name] = first
        elif operation.startswith("LOAD_FAST"):
            chains.append(meanings.get(name, nothing))
        elif operation in _NAME_CODES:
            before = nothing if operation == "LOAD_GLOBAL" else last
            calls.append((name, before))
            released |= before if name in _REMOVING_CALLS else nothing
            # An attribute takes the place of its object.
            chains = [*(chains if operation == "LOAD_GLOBAL" else chains[:-1]), frozenset({name})]
        elif operation == "BINARY_SUBSCR":
            chains.append(first)
        released |= _released_names(operation, name, first)
    return _CodeUse(frozenset(released), tuple(calls))


def _released_names(operation: str, name: Any, first: frozenset[str]) -> frozenset[str]:
    """The names whose object an instruction releases; `first` are those with which its line begins."""
    if operation == "DELETE_SUBSCR":
        return first
    return frozenset({name}) if operation in _REPLACING_CODES else frozenset()


class _Search(NamedTuple):
    """A search for functions that release a table."""

    names: frozenset[str]
    """Names that lead to the table."""
    methods: frozenset[str]
    """Names of methods of objects on the way to the table that release it."""
    space: Mapping[str, Any]
    """Names of the class whose methods are searched; empty for a module."""
    home: Mapping[str, Any] | None
    """Names of the module whose global leads to the table: only there the names mean the table. None for a class."""
    package: str
    """Package of the library."""

    def releasing_names(self, space: Mapping[str, Any]) -> list[str]:
        """Names in a class or module of functions that release the table."""
        return [
            name
            for name, value in list(space.items())
            if (word := first_word(name)) in RELEASING
            and (self.releases(value) or (word not in _RELEASING_ONE and self._is_of_c(value)))
        ]

    def releases(self, value: Any, depth: int = _CALL_DEPTH) -> bool:
        """Whether a function, or one that it calls, empties or replaces what is on the way to the table."""
        function = _plain_function(value)
        if function is None:
            return False
        use = _code_use(function.__code__)
        is_home = self.home is None or function.__globals__ is self.home
        if is_home and not self.names.isdisjoint(use.released):
            return True
        return any(
            (name in self.methods and self._stands_for_holder(before, function, is_home=is_home))
            or (depth > 0 and self.releases(self._callee(name, before, function), depth - 1))
            for name, before in use.calls
        )

    def _stands_for_holder(self, before: frozenset[str], function: FunctionType, *, is_home: bool) -> bool:
        """Whether one of the names stands for an object on the way to the table, or for a function that gives it."""
        if is_home and not self.names.isdisjoint(before):
            return True
        givers = [_plain_function(function.__globals__.get(name)) for name in before]
        return any(
            giver is not None and giver.__globals__ is self.home and not self.names.isdisjoint(giver.__code__.co_names)
            for giver in givers
        )

    def _callee(self, name: str, before: frozenset[str], function: FunctionType) -> Any:
        """What a name that is called stands for, if it is a method of the same object or a global; else None."""
        if not before:
            return function.__globals__.get(name)
        return self.space.get(name) if before == {_SELF} else None

    def _is_of_c(self, value: Any) -> bool:
        """Whether a value is the library's function or method of C, whose code cannot be read."""
        kind = full_name(type(value))
        if kind == ("builtins", "method_descriptor"):
            return True
        module = value.__module__ if kind == ("builtins", "builtin_function_or_method") else None
        return type(module) is str and module.partition(".")[0].lstrip("_") == self.package


def class_namespace(kind: type, left_out: Container[str]) -> dict[str, Any]:
    """The names that a class has from itself and its base classes, without those of classes of some modules."""
    owners = [owner for owner in mro(kind) if full_name(owner)[0] not in left_out]
    return {name: value for owner in reversed(owners) for name, value in named_entries(names_of(owner))}


def first_word(name: str) -> str:
    """The small letters with which a name begins; empty for a private name."""
    found = _FIRST_WORD.match(name)
    return "" if found is None else found[0]


def _plain_function(value: Any) -> FunctionType | None:
    """The Python function behind a function, a class method or a static method; None for anything else."""
    function = value.__func__ if type(value) in {classmethod, staticmethod} else value
    return function if type(function) is FunctionType else None


def _parameters(value: Any, *, is_method: bool) -> str:
    """The parameters that a function must be given, as they are written in a call; `...` if there are many."""
    function = _plain_function(value)
    if function is None:
        return ""
    code = function.__code__
    is_bound = is_method and type(value) is not staticmethod
    positional = code.co_varnames[int(is_bound) : code.co_argcount - len(function.__defaults__ or ())]
    keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    required = [*positional, *(f"{name}=..." for name in keywords if name not in (function.__kwdefaults__ or {}))]
    if code.co_flags & CO_VARARGS:
        required.append(f"*{code.co_varnames[code.co_argcount + code.co_kwonlyargcount]}")
    return ", ".join(required) if len(required) <= MAXIMUM_PARAMETERS else "..."
