"""What the code of a function does with the objects that names stand for, read from its instructions."""

import re
from collections.abc import Container, Iterator
from dis import Instruction, get_instructions
from functools import cached_property
from inspect import CO_VARARGS
from itertools import islice
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from flatwater_watch.heap.raw import full_name, mro, named_entries, names_of
from flatwater_watch.heap.roots import Roots, is_user_file, user_modules

MAXIMUM_PARAMETERS = 2
"""Maximum number of parameters that a call is written with."""
MAXIMUM_DECORATORS = 100
"""Maximum number of decorators around a function that is read."""
_FIRST_WORD = re.compile("[a-z]*")
_REMOVING_CALLS = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})
"""Methods of builtin containers that remove items."""
_BUILTIN_CONTAINERS = frozenset({"dict", "list", "set", "deque"})
"""Names of classes whose methods may be called with the container as first argument."""
_NAME_CODES = frozenset({"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"})
"""Instructions that take an object by the name of a global, an attribute or a method."""
_REMOVING_FUNCTIONS = frozenset({"delattr", "heappop"})
"""Functions that remove from their first argument."""
_REPLACING_CODES = frozenset({"DELETE_ATTR", "DELETE_GLOBAL", "STORE_ATTR", "STORE_GLOBAL"})
"""Instructions by which an attribute or a global gets another object, or none."""


class CodeUse(NamedTuple):
    """What the code of a function does with the objects that names stand for."""

    released: frozenset[str]
    """Names whose object it empties, shortens or replaces."""
    calls: tuple[tuple[str, frozenset[str]], ...]
    """Names of what it may call, each with the names that the object before the dot may stand for."""


SELF = ""
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


def code_use(code: CodeType) -> CodeUse:
    """Read from the instructions of a function what it does with the objects that names stand for."""
    nothing: frozenset[str] = frozenset()
    released: set[str] = set()
    calls: list[tuple[str, frozenset[str]]] = []
    meanings = {code.co_varnames[0]: frozenset({SELF})} if code.co_argcount else {}  # of local variables
    chains: list[frozenset[str]] = []  # of this line: the last name of each `a.b.c`
    argument: int | None = None  # place in `chains` of what a function removes from, as `dict.pop(a.b, key)` does
    for instruction in single_instructions(code):
        operation, name = instruction.opname, instruction.argval
        if instruction.starts_line:
            chains, argument = [], None
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
            is_of_builtin = name in _REMOVING_CALLS and bool(before) and before <= _BUILTIN_CONTAINERS
            if is_of_builtin or name in _REMOVING_FUNCTIONS:
                argument = len(chains)
        elif operation == "BINARY_SUBSCR":
            chains.append(first)
        elif operation.startswith("CALL") and argument is not None and argument < len(chains):
            released |= chains[argument]
            argument = None
        released |= _released_names(operation, name, first)
    return CodeUse(frozenset(released), tuple(calls))


def _released_names(operation: str, name: Any, first: frozenset[str]) -> frozenset[str]:
    """The names whose object an instruction releases; `first` are those with which its line begins."""
    if operation == "DELETE_SUBSCR":
        return first
    return frozenset({name}) if operation in _REPLACING_CODES else frozenset()


def stored_parameters(code: CodeType) -> dict[str, str]:
    """The attributes of its first parameter that a function sets to another parameter, with the name of that."""
    count = code.co_argcount + code.co_kwonlyargcount
    owners, parameters = code.co_varnames[: min(1, count)], code.co_varnames[1:count]
    return {
        store.argval: value.argval
        for value, owner, store in zip(*(islice(single_instructions(code), n, None) for n in range(3)), strict=False)
        if store.opname == "STORE_ATTR" and owner.argval in owners and value.argval in parameters
    }


def names_by_line(code: CodeType) -> list[set[str]]:
    """The names of globals, attributes and methods that a function uses, for each line that uses any."""
    lines: dict[int | None, set[str]] = {}
    for step in get_instructions(code):
        if step.opname in _NAME_CODES and step.positions is not None:
            lines.setdefault(step.positions.lineno, set()).add(step.argval)
    return list(lines.values())


def class_namespace(kind: type, left_out: Container[str]) -> dict[str, Any]:
    """The names that a class has from itself and its base classes, without those of classes of some modules."""
    owners = [owner for owner in mro(kind) if full_name(owner)[0] not in left_out]
    return {name: value for owner in reversed(owners) for name, value in named_entries(names_of(owner))}


def first_word(name: str) -> str:
    """The small letters with which a name begins; empty for a private name."""
    found = _FIRST_WORD.match(name)
    return "" if found is None else found[0]


def plain_function(value: Any) -> FunctionType | None:
    """The Python function behind a function, a class method or a static method; None for anything else."""
    # Runs no code of the watched program: a class may not be hashable, and a function may be behind itself.
    kind = type(value)
    function = value.__func__ if kind is classmethod or kind is staticmethod else value
    for _ in range(MAXIMUM_DECORATORS):
        if type(function) is not FunctionType:
            return None
        if (decorated := dict.get(function.__dict__, "__wrapped__")) is None:
            return function
        function = decorated
    return None


def required_parameters(value: Any, *, is_method: bool) -> str:
    """The parameters that a function must be given, as they are written in a call; `...` if there are many."""
    function = plain_function(value)
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


class UserCode:
    """The code of the user's at one time, read once for all containers of a comparison."""

    # Runs no code of the watched program.
    @cached_property
    def modules(self) -> dict[str, dict[str, Any]]:
        """The namespaces of the user's modules, by name."""
        return user_modules(Roots())

    @cached_property
    def _codes(self) -> list[CodeType]:
        """The codes of the functions and methods of the modules that files of the user's define."""
        values = [value for space in self.modules.values() for _, value in named_entries(space)]
        values += [value for kind in values if issubclass(type(kind), type) for value in names_of(kind).values()]
        codes = [function.__code__ for function in map(plain_function, values) if function is not None]
        return [code for code in codes if is_user_file(code.co_filename)]  # not of what a module imports

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of globals, attributes and methods in the functions."""
        return frozenset(name for code in self._codes for name in code.co_names)

    @cached_property
    def given_names(self) -> frozenset[str]:
        """The names with which the functions give arguments, among other texts in their tuples."""
        constants = (constant for code in self._codes for constant in code.co_consts if type(constant) is tuple)
        return frozenset(word for constant in constants for word in constant if type(word) is str)
