"""What the code of a function does with the objects that names stand for, read from its bytecode.

The bytecode is followed roughly: for each object on the stack of the interpreter only the names are known that it may
stand for. An attribute `self.rows` stands for "rows", an item of `self.rows` stands for "rows" too, and the first
parameter for `SELF`.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dis import Instruction, get_instructions, stack_effect
from functools import cached_property, wraps
from inspect import CO_VARARGS
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
    """Yield the bytecode instructions of a function, each on one local variable at most.

    Python 3.13 has instructions on two local variables; each is yielded as two instructions.
    """
    for instruction in get_instructions(code):
        if "_FAST" in instruction.opname and type(instruction.argval) is tuple:
            # Each half of LOAD_FAST_LOAD_FAST or STORE_FAST_LOAD_FAST is the name of an instruction.
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
    """Decorate `read` with a cache of its results by code object, which keeps no code alive.

    The same codes are read at each comparison, and the methods of Django's connection alone take 90 ms. All callers get
    the same result, so nobody may change it.
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
    """Read from the bytecode of a function which names it removes from, adds to, replaces, compares and calls.

    The instructions are followed one after the other, as if there were no jumps.
    """
    use = CodeUse(removed=set(), replaced=set(), added=set(), compared=[], calls=[])
    # For each local variable, the names that its object may stand for.
    meanings = {code.co_varnames[0]: frozenset({SELF})} if code.co_argcount else {}
    # For each object on the stack of the interpreter, the names that it may stand for.
    stack: list[frozenset[str]] = []
    for instruction in single_instructions(code):
        operation, name = instruction.opname, instruction.argval
        top = stack[-1] if stack else _NOTHING
        if operation == "STORE_FAST":
            meanings[name] = top
            del stack[-1:]
        elif operation.startswith("LOAD_FAST"):
            stack.append(meanings.get(name, _NOTHING))
        elif operation in _NAME_CODES:
            # An attribute takes the place of its object on the stack; a global has no such object.
            taken_count = 0 if operation == "LOAD_GLOBAL" else 1
            owner_names = top if taken_count else _NOTHING
            del stack[len(stack) - taken_count :]
            # A method takes two places on the stack, one of which its result will have.
            place_count = _stack_effect(instruction) + taken_count
            stack += [_attribute_meaning(name, owner_names)] * place_count
            use.calls.append((name, owner_names))
            if name in _REMOVING_CALLS:
                use.removed.update(owner_names)
            if name in _ADDING_CALLS:
                use.added.update(owner_names)
        else:
            _apply_instruction_(stack, instruction, use)
    return use


def _attribute_meaning(name: str, owner_names: frozenset[str]) -> frozenset[str]:
    """Return the names that an attribute or a global may stand for.

    A method that returns items, such as `rows.get`, stands for the container ("rows"), and `rows.pop` also for
    `_TAKEN`. A function that removes from its first argument, such as `list.pop` in `list.pop(rows)`, is a `_REMOVER`.
    Any other attribute stands for its own name.

    Args:
        name: name of the attribute or the global.
        owner_names: names that the object with the attribute may stand for; none for a global.
    """
    is_method_of_class = name in _REMOVING_CALLS and owner_names and owner_names <= _BUILTIN_CONTAINERS
    if name in _REMOVING_FUNCTIONS or is_method_of_class:
        return _REMOVER
    returns_items = name in _ITEM_CALLS and owner_names not in (_NOTHING, {SELF})
    if not returns_items:
        return frozenset({name})
    return owner_names | {_TAKEN} if name in _REMOVING_CALLS else owner_names


def _apply_instruction_(stack: list[frozenset[str]], instruction: Instruction, use: CodeUse) -> None:
    """Change the stack as an instruction does, and record in `use` what the instruction does with the objects on it.

    Loads of globals, attributes and local variables never come here: `code_use` applies these itself.

    Args:
        stack: names that each object on the stack of the interpreter may stand for.
        instruction: instruction to apply.
        use: record of what the function does.
    """
    operation, count = instruction.opname, instruction.arg or 0
    # Three unknown objects below: the stack may lack objects, as jumps are not followed.
    operands = [_NOTHING] * 3 + stack
    _record_use_(use, instruction, operands)
    # A call with `count` arguments: the function lies below them, in two places.
    if operation.startswith(("CALL", "PRECALL")) and 0 < count < len(stack) - 1:
        called, first_argument = stack[-count - 1], stack[-count]
        if called == _REMOVER:
            use.removed.update(first_argument)
        if called == {LENGTH}:  # `len(rows)`: the result stands for "len" and "rows"
            stack[-count - 1] = stack[-count - 2] = called | first_argument
    effect = _stack_effect(instruction)
    if operation == "SWAP" and count <= len(stack):
        stack[-1], stack[-count] = stack[-count], stack[-1]
    elif operation == "COPY" and count <= len(stack):
        stack.append(stack[-count])
    elif effect < 0:
        del stack[effect:]
    else:  # a constant stands for nothing; what is made of an object, such as its items, stands for the object
        new_names = _NOTHING if operation.startswith("LOAD") else operands[-1]
        stack += [new_names] * effect


def _record_use_(use: CodeUse, instruction: Instruction, operands: Sequence[frozenset[str]]) -> None:
    """Record an instruction that sets, deletes or compares objects.

    Args:
        use: record of what the function does.
        instruction: instruction to record.
        operands: names that each object on the stack may stand for; the last operand of the instruction is on top.
    """
    operation = instruction.opname
    below_top, top = operands[-2], operands[-1]
    if operation == "DELETE_SUBSCR":  # `del below_top[top]`
        use.removed.update(below_top)
    elif operation == "STORE_SUBSCR":  # `below_top[top] = ...`
        use.added.update(below_top)
    elif operation == "COMPARE_OP":
        use.compared.append((below_top, top))
    elif operation in _REPLACING_CODES:
        use.replaced.add(instruction.argval)
        # `self.last = rows.pop()` keeps what it takes out of `rows`. The value lies below the object that gets it.
        if operation == "STORE_ATTR" and _TAKEN in below_top:
            use.added.update(below_top)


def _stack_effect(instruction: Instruction) -> int:
    """Return the number of objects that an instruction adds to the stack, without a jump; negative if it removes."""
    return stack_effect(instruction.opcode, instruction.arg, jump=False)


@remembered_by_code
def stored_parameters(code: CodeType) -> dict[str, str]:
    """Return the parameter that each attribute of `self` is set to: `{"_rows": "rows"}` for `self._rows = rows`."""
    count = code.co_argcount + code.co_kwonlyargcount
    self_names = code.co_varnames[: min(1, count)]  # the first parameter; none if there are no parameters
    parameters = code.co_varnames[1:count]
    instructions = list(single_instructions(code))
    # `self._rows = rows` is three instructions in a row: load `rows`, load `self`, store the attribute.
    triples = zip(instructions, instructions[1:], instructions[2:], strict=False)
    return {
        store.argval: value.argval
        for value, owner, store in triples
        if store.opname == "STORE_ATTR" and owner.argval in self_names and value.argval in parameters
    }


def class_namespace(kind: type, excluded_modules: Container[str]) -> dict[str, Any]:
    """Return the attributes and methods of a class by name, without those from base classes in the excluded modules."""
    owners = [owner for owner in mro(kind) if full_name(owner)[0] not in excluded_modules]
    # From the outermost base class on, so that a class overrides its base classes.
    return {name: value for owner in reversed(owners) for name, value in named_entries(class_dict(owner))}


def first_word(name: str) -> str:
    """Return the first word of a name, "clear" of "clear_cache" or "clearCache"; empty for a private name."""
    match = _FIRST_WORD.match(name)
    return "" if match is None else match[0]


def plain_function(value: Any) -> FunctionType | None:
    """Return the Python function below all decorators of a function or method; None if it is not one of Python."""
    # Runs no code of the watched program: a class may not be hashable, and a function may be behind itself.
    kind = type(value)
    function = value.__func__ if kind is classmethod or kind is staticmethod else value
    for _ in range(MAXIMUM_DECORATORS):
        if type(function) is not FunctionType:
            return None
        # `functools.wraps` keeps the function that a decorator got under this name.
        decorated_function = namespace_value(function.__dict__, "__wrapped__")
        if decorated_function is None:
            return function
        function = decorated_function
    return None


def required_parameters(value: Any, *, is_method: bool) -> str:
    """Return the arguments that a call of a function must give, as code: `key, mode=...`; `...` for more than two.

    Args:
        value: function, class method or static method; parameters of others are unknown, and the text is empty.
        is_method: whether it is called on an object or a class, which is its first argument.
    """
    function = plain_function(value)
    if function is None:
        # C code describes its parameters in a text, if at all: "($self, token, /)".
        text = value.__text_signature__ if type(value) in {MethodDescriptorType, BuiltinFunctionType} else None
        required_names = [name for name in re.findall(r"[^(), ]+", text or "") if name.isidentifier()]
    else:
        code = function.__code__
        is_bound = is_method and type(value) is not staticmethod
        # Without `self`, and without the last parameters, which have defaults.
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
        """The codes of functions and methods in the user's modules, if a file of the user's defines them."""
        values = [value for namespace in self.modules.values() for _, value in named_entries(namespace)]
        classes = [value for value in values if issubclass(type(value), type)]
        values += [member for kind in classes for member in class_dict(kind).values()]
        codes = [function.__code__ for function in map(plain_function, values) if function is not None]
        return [code for code in codes if is_user_file(code.co_filename)]  # not of what a module imports

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all globals, attributes and methods that the user's functions use."""
        return frozenset(name for code in self._codes for name in code.co_names)

    @cached_property
    def given_names(self) -> frozenset[str]:
        """The names of keyword arguments in calls of the user's functions, and any other texts in constant tuples."""
        # Bytecode keeps the names of a call's keywords as a tuple of constants.
        constants = (constant for code in self._codes for constant in code.co_consts if type(constant) is tuple)
        return frozenset(word for constant in constants for word in constant if type(word) is str)
