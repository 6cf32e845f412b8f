"""What the code of a function does with the objects that names stand for, read from its instructions."""

import re
from collections.abc import Callable, Container, Iterator
from dis import Instruction, get_instructions, stack_effect
from functools import cached_property, wraps
from inspect import CO_VARARGS
from itertools import islice
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType
from typing import Any, NamedTuple, TypeVar

from flatwater_watch.heap.raw import class_dict, full_name, mro, named_entries, namespace_value
from flatwater_watch.heap.roots import Roots, is_user_file, user_modules
from flatwater_watch.heap.view import OwnWeakref

MAXIMUM_PARAMETERS = 2
"""Maximum number of parameters that a call is written with."""
MAXIMUM_DECORATORS = 100
"""Maximum number of decorators around a function that is read."""
_FIRST_WORD = re.compile("[a-z]*")
_REMOVING_CALLS = frozenset({"clear", "pop", "popitem", "popleft", "remove", "discard"})
"""Methods of builtin containers that remove items."""
_BUILTIN_CONTAINERS = frozenset({"dict", "list", "set", "deque"})
"""Names of classes whose methods may be called with the container as first argument."""
_ADDING_CALLS = frozenset({"append", "appendleft", "add", "insert", "extend", "update", "setdefault"})
"""Methods of builtin containers that add items."""
_ITEM_CALLS = frozenset({"get", "setdefault", "values", "items", "pop", "copy"})
"""Methods of builtin containers whose result, the items, stands for the container."""
_NAME_CODES = frozenset({"LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD"})
"""Instructions that take an object by the name of a global, an attribute or a method."""
_REMOVING_FUNCTIONS = frozenset({"delattr", "heappop"})
"""Functions that remove from their first argument."""
_REPLACING_CODES = frozenset({"DELETE_ATTR", "DELETE_GLOBAL", "STORE_ATTR", "STORE_GLOBAL"})
"""Instructions by which an attribute or a global gets another object, or none."""


_NOTHING = frozenset[str]()
_REMOVER = frozenset({"()"})
"""Stands for a function that removes from its first argument."""
_TAKEN = "pop()"
"""Stands for what was taken out, beside the names of the container whose it was."""
LENGTH = "len"
"""Stands for a length, beside the names of the container whose it is."""
SELF = ""
"""Stands for the first parameter, which is `self` or `cls` in a method."""


class CodeUse(NamedTuple):
    """What the code of a function does with the objects that names stand for."""

    removed: set[str]
    """Names whose object it empties or shortens."""
    replaced: set[str]
    """Names to which it gives another object, or none."""
    added: set[str]
    """Names to whose object it adds, or of which it keeps what it takes out."""
    compared: list[tuple[frozenset[str], frozenset[str]]]
    """The names of both sides of each comparison; those of a length have `LENGTH` among them."""
    calls: list[tuple[str, frozenset[str]]]
    """Names of what it may call, each with the names that the object before the dot may stand for."""


def single_instructions(code: CodeType) -> Iterator[Instruction]:
    """Yield the instructions of a function; an instruction of Python 3.13 on two local variables is yielded as two."""
    for instruction in get_instructions(code):
        if "_FAST" in instruction.opname and type(instruction.argval) is tuple:
            # Of LOAD_FAST_LOAD_FAST or STORE_FAST_LOAD_FAST each half is the name of an instruction.
            words = instruction.opname.split("_")
            first, second = instruction.argval
            yield instruction._replace(opname="_".join(words[: len(words) // 2]), argval=first)
            yield instruction._replace(opname="_".join(words[len(words) // 2 :]), argval=second)
        else:
            yield instruction


MAXIMUM_REMEMBERED = 2000
"""Maximum number of functions whose instructions are remembered as read."""
_Facts = TypeVar("_Facts")


def remembered_by_code(read: Callable[[CodeType], _Facts]) -> Callable[[CodeType], _Facts]:
    """Remember what a function reads from each code, without keeping the code alive: nobody may change the result.

    The owners of a comparison are those of the one before, and to read the methods of Django's connection takes 90 ms.
    """
    facts_by_id: dict[int, tuple[OwnWeakref, _Facts]] = {}

    @wraps(read)
    def read_once(code: CodeType) -> _Facts:
        reference, facts = facts_by_id.get(id(code), (None, None))
        if facts is None or reference is None or reference() is not code:  # new, or at the address of one that is gone
            if len(facts_by_id) >= MAXIMUM_REMEMBERED:
                facts_by_id.clear()
            facts = read(code)
            facts_by_id[id(code)] = OwnWeakref(code), facts
        return facts

    return read_once


@remembered_by_code
def code_use(code: CodeType) -> CodeUse:
    """Read from the instructions of a function what it does with the objects that names stand for.

    The instructions are followed in their order, jumps or not, with what may lie on the stack of the interpreter.
    """
    use = CodeUse(removed=set(), replaced=set(), added=set(), compared=[], calls=[])
    # By local variable: the names that its object may stand for.
    meanings = {code.co_varnames[0]: frozenset({SELF})} if code.co_argcount else {}
    stack: list[frozenset[str]] = []  # the names that each object may stand for
    for instruction in single_instructions(code):
        operation, name = instruction.opname, instruction.argval
        top = stack[-1] if stack else _NOTHING
        if operation == "STORE_FAST":
            meanings[name] = top
            del stack[-1:]
        elif operation.startswith("LOAD_FAST"):
            stack.append(meanings.get(name, _NOTHING))
        elif operation in _NAME_CODES:
            # An attribute takes the place of its object on the stack; a global takes no object away.
            taken_count = 0 if operation == "LOAD_GLOBAL" else 1
            owner_names = top if taken_count else _NOTHING
            del stack[len(stack) - taken_count :]
            # A method lies on the stack twice, and one of the places is that of what it returns.
            stack += [_attribute_meaning(name, owner_names)] * (_stack_effect(instruction) + taken_count)
            use.calls.append((name, owner_names))
            use.removed.update(owner_names if name in _REMOVING_CALLS else _NOTHING)
            use.added.update(owner_names if name in _ADDING_CALLS else _NOTHING)
        else:
            _apply_instruction_(stack, instruction, use)
    return use


def _attribute_meaning(name: str, owner_names: frozenset[str]) -> frozenset[str]:
    """Return the names that an attribute or a global may stand for; of a method those that its result may stand for.

    Args:
        name: name of the attribute or the global.
        owner_names: names that the object with the attribute may stand for; none for a global.
    """
    # The second case is a method that is taken from its class, as in `list.pop(rows)`.
    if name in _REMOVING_FUNCTIONS or (name in _REMOVING_CALLS and owner_names and owner_names <= _BUILTIN_CONTAINERS):
        return _REMOVER
    if name not in _ITEM_CALLS or owner_names in (_NOTHING, {SELF}):  # any other attribute stands for itself
        return frozenset({name})
    # The items of a container stand for it, with `_TAKEN` if they were taken out.
    return owner_names | {_TAKEN} if name in _REMOVING_CALLS else owner_names


def _apply_instruction_(stack: list[frozenset[str]], instruction: Instruction, use: CodeUse) -> None:
    """Change the stack as an instruction does, and add to `use` what it does with the objects that names stand for.

    Loads by a name and local variables are left out: `code_use` applies these itself.
    """
    operation, count = instruction.opname, instruction.arg or 0
    # Filled up from below: the stack may lack objects, as jumps are not followed.
    operands = [_NOTHING] * 3 + stack
    if operation == "DELETE_SUBSCR":  # in this and the next, the key is on top, the container below it
        use.removed.update(operands[-2])
    elif operation == "STORE_SUBSCR":
        use.added.update(operands[-2])
    elif operation in _REPLACING_CODES:
        use.replaced.add(instruction.argval)
        # `self.last = rows.pop()` keeps what it takes out; the value lies below the object that gets it.
        use.added.update(operands[-2] if operation == "STORE_ATTR" and _TAKEN in operands[-2] else _NOTHING)
    elif operation == "COMPARE_OP":
        use.compared.append((operands[-2], operands[-1]))
    # A call with arguments: the function lies below them, in one of two places.
    elif operation.startswith(("CALL", "PRECALL")) and 0 < count < len(stack) - 1:
        called, first = stack[-count - 1], stack[-count]
        use.removed.update(first if called == _REMOVER else _NOTHING)
        if called == {LENGTH}:  # the result of `len(...)` stands for a length of what its argument stands for
            stack[-count - 1] = stack[-count - 2] = called | first
    effect = _stack_effect(instruction)
    if operation == "SWAP" and count <= len(stack):
        stack[-1], stack[-count] = stack[-count], stack[-1]
    elif operation == "COPY" and count <= len(stack):
        stack.append(stack[-count])
    elif effect < 0:
        del stack[effect:]
    else:  # the items of a container stand for it
        stack += [_NOTHING if operation.startswith("LOAD") else operands[-1]] * effect


def _stack_effect(instruction: Instruction) -> int:
    """By how many objects an instruction that does not jump makes the stack longer."""
    return stack_effect(instruction.opcode, instruction.arg, jump=False)


@remembered_by_code
def stored_parameters(code: CodeType) -> dict[str, str]:
    """Return the parameter that each attribute of `self` is set to: `{"rows": "rows"}` for `self.rows = rows`."""
    count = code.co_argcount + code.co_kwonlyargcount
    owners = code.co_varnames[: min(1, count)]  # `self`, the first parameter; none if there are no parameters
    parameters = code.co_varnames[1:count]
    # `self.rows = rows` is three instructions in a row: load `rows`, load `self`, store the attribute.
    return {
        store.argval: value.argval
        for value, owner, store in zip(*(islice(single_instructions(code), n, None) for n in range(3)), strict=False)
        if store.opname == "STORE_ATTR" and owner.argval in owners and value.argval in parameters
    }


def class_namespace(kind: type, excluded_modules: Container[str]) -> dict[str, Any]:
    """Return what a class has from itself and its base classes, by name; without classes of the excluded modules."""
    owners = [owner for owner in mro(kind) if full_name(owner)[0] not in excluded_modules]
    # From the outermost base class on, so that a class overrides its base classes.
    return {name: value for owner in reversed(owners) for name, value in named_entries(class_dict(owner))}


def first_word(name: str) -> str:
    """Return the small letters with which a name begins; empty for a private name."""
    match = _FIRST_WORD.match(name)
    return "" if match is None else match[0]


def plain_function(value: Any) -> FunctionType | None:
    """Return the Python function below the decorators of a function, a class method or a static method; else None."""
    # Runs no code of the watched program: a class may not be hashable, and a function may be behind itself.
    kind = type(value)
    function = value.__func__ if kind is classmethod or kind is staticmethod else value
    for _ in range(MAXIMUM_DECORATORS):
        if type(function) is not FunctionType:
            return None
        # `functools.wraps` keeps the function that a decorator got.
        if (decorated_function := namespace_value(function.__dict__, "__wrapped__")) is None:
            return function
        function = decorated_function
    return None


def required_parameters(value: Any, *, is_method: bool) -> str:
    """Return the arguments that a call must give, as code: `key, mode=...`; `...` for more than two."""
    function = plain_function(value)
    if function is None:
        # C code describes its parameters in a text, if at all: "($self, token, /)".
        text = value.__text_signature__ if type(value) in {MethodDescriptorType, BuiltinFunctionType} else None
        required_names = [name for name in re.findall(r"[^(), ]+", text or "") if name.isidentifier()]
    else:
        code = function.__code__
        is_bound = is_method and type(value) is not staticmethod
        # Without the first, `self`, and without the last ones, which have defaults.
        positional = code.co_varnames[int(is_bound) : code.co_argcount - len(function.__defaults__ or ())]
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        required_names = [
            *positional,
            *(f"{name}=..." for name in keywords if name not in (function.__kwdefaults__ or {})),
        ]
        if code.co_flags & CO_VARARGS:  # such as `*keys`, without which the call may do nothing
            required_names.append(f"*{code.co_varnames[code.co_argcount + code.co_kwonlyargcount]}")
    return ", ".join(required_names) if len(required_names) <= MAXIMUM_PARAMETERS else "..."


class UserCode:
    """The code of the user's at one time, read once for all containers of a comparison."""

    # Runs no code of the watched program.
    @cached_property
    def modules(self) -> dict[str, dict[str, Any]]:
        """The namespaces of the user's modules, by name."""
        return user_modules(Roots())

    @cached_property
    def _codes(self) -> list[CodeType]:
        """The codes of functions and methods in the modules' namespaces, if a file of the user's defines them."""
        values = [value for space in self.modules.values() for _, value in named_entries(space)]
        values += [value for kind in values if issubclass(type(kind), type) for value in class_dict(kind).values()]
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
