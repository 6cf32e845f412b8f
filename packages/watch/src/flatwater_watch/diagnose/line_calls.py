"""Calls that release memory of C, for the advice on a line that runs while memory rises that no object holds.

They are methods of the objects whose methods the line calls. An object that each pass of a loop makes anew is to be
closed; one that lives longer than a pass is not, but may have to be polled, or told that something is finished.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dis import Instruction
from inspect import CO_OPTIMIZED
from types import CodeType, FunctionType
from typing import Any, NamedTuple

from flatwater_watch.diagnose.code_use import class_namespace, first_word, single_instructions
from flatwater_watch.diagnose.finding import AllocationSite
from flatwater_watch.diagnose.release_search import MAXIMUM_CALLS, written_call
from flatwater_watch.diagnose.rules import find_native_rule
from flatwater_watch.heap.locals import frame_locals, function_name
from flatwater_watch.heap.raw import class_name, full_name, instance_dict, mro, namespace_value
from flatwater_watch.heap.roots import Roots, running_frames, user_modules

_ENDING = ("close", "release", "free", "destroy", "dispose")
"""First words of the methods that end an object, the surest first."""
_SERVING = ("poll", "finish")
"""First words of the methods by which an object that goes on lets go of what is done."""
_WITHOUT_MEMORY_OF_C = frozenset({"builtins", "_io", "io", "threading", "_thread", "pathlib", "collections", "asyncio"})
"""Modules whose objects are known not to keep memory of C, or only that of their file."""
_STORE_CODES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
"""Instructions that set a variable."""

_METHOD = re.compile(r"\.(\w+)\(")
"""A method that a text calls."""


class _Receiver(NamedTuple):
    """An object whose method a line calls, or that it makes."""

    name: str
    """Its name in the code: `producer`, `self.producer`."""
    kind: type
    is_made_anew: bool
    """Whether each pass of a loop makes the object."""


def find_line_advice(site: AllocationSite) -> str:
    """Return the advice for a line while memory of C rises: calls for the objects of the line; empty if none is known.

    The function of the line must not call them itself: "producer.poll()". Its local variables are known while it runs.
    """
    # Runs no code of the watched program.
    modules = user_modules(Roots())
    first_use = next(_uses_of_function(site, modules.values()), None)
    if first_use is None:
        return ""
    code, variables, namespace = first_use
    receivers = _receivers(code, site.line, variables, namespace)
    library_receivers = (receiver for receiver in receivers if full_name(receiver.kind)[0] not in modules)
    return next(filter(None, (_receiver_advice(receiver, code) for receiver in library_receivers)), "")


def _uses_of_function(
    site: AllocationSite, modules: Iterable[dict[str, Any]]
) -> Iterator[tuple[CodeType, Mapping[str, Any], dict[str, Any]]]:
    """Yield the code of a line's function, its local variables and its globals: first where it runs, then as defined.

    There are no local variables where it does not run.
    """
    for frame in running_frames(lambda file: file == site.file):
        if function_name(frame.f_code) == site.function:
            is_function = frame.f_code.co_flags & CO_OPTIMIZED  # else a module or a class body
            yield frame.f_code, frame_locals(frame) if is_function else {}, frame.f_globals
    for namespace in modules:
        value: Any = namespace_value(namespace, site.function)
        if type(value) is FunctionType and value.__code__.co_filename == site.file:
            yield value.__code__, {}, namespace


def _receiver_advice(receiver: _Receiver, code: CodeType) -> str:
    """Return the advice for an object of a line, by the rule for its class or by its methods; empty without any."""
    rule = find_native_rule(receiver.kind)
    # A rule whose method the code calls already is no news.
    if rule is not None and set(_METHOD.findall(rule.fix)).isdisjoint(code.co_names):
        return rule.advice({class_name(owner): receiver.name for owner in mro(receiver.kind)})
    calls = " or ".join(f"`{call}`" for call in _releasing_methods(receiver, code))
    return f"Call {calls} in each pass, if nothing does." if calls else ""


def _receivers(code: CodeType, line: int, variables: Mapping[str, Any], namespace: dict[str, Any]) -> list[_Receiver]:
    """Return the objects whose methods a line calls, and those that it makes, in the order of its instructions.

    Args:
        code: code of the function.
        line: line of its file.
        variables: its local variables.
        namespace: globals of its module.
    """
    instructions = list(single_instructions(code))
    loop_variables = _variables_of_loops(instructions)
    receivers: list[_Receiver] = []
    # The object that the last instruction loaded, None if it cannot be told.
    value, value_name, is_made_anew = None, "", False
    for instruction in instructions:
        if instruction.positions is None or instruction.positions.lineno != line:
            continue
        operation, name = instruction.opname, instruction.argval
        if operation.startswith(("LOAD_FAST", "LOAD_DEREF")):
            value, value_name, is_made_anew = variables.get(name), name, name in loop_variables
        elif operation in {"LOAD_GLOBAL", "LOAD_NAME"}:
            value, value_name, is_made_anew = namespace_value(namespace, name), name, name in loop_variables
        elif operation in {"LOAD_ATTR", "LOAD_METHOD"} and value is not None:
            receivers.append(_Receiver(value_name, type(value), is_made_anew))
            value, value_name, is_made_anew = namespace_value(instance_dict(value), name), f"{value_name}.{name}", False
        else:
            value = None
        if operation in _STORE_CODES and name in variables:  # what the line makes
            receivers.append(_Receiver(name, type(variables[name]), is_made_anew=True))
    return receivers


def _variables_of_loops(instructions: list[Instruction]) -> set[str]:
    """Return the variables, local or global, that the passes of a loop set."""
    # The code of a loop lies between the target of the jump back and the jump.
    loops = [(step.argval, step.offset) for step in instructions if "JUMP_BACKWARD" in step.opname]
    stores = [step for step in instructions if step.opname in _STORE_CODES]
    return {step.argval for step in stores if any(start <= step.offset <= end for start, end in loops)}


def _releasing_methods(receiver: _Receiver, code: CodeType) -> tuple[str, ...]:
    """Return calls of an object's methods that release memory; none if the code calls one of these methods itself."""
    words = _ENDING if receiver.is_made_anew else _SERVING
    if receiver.is_made_anew and _has_with_statement(code):  # which may end the object
        return ()
    methods = class_namespace(receiver.kind, _WITHOUT_MEMORY_OF_C)
    names = [name for name in methods if first_word(name) in words and callable(methods[name])]
    if not set(names).isdisjoint(code.co_names):
        return ()
    names.sort(key=lambda name: (words.index(first_word(name)), name))
    return tuple(written_call(receiver.name, name, methods[name], is_class=True) for name in names[:MAXIMUM_CALLS])


def _has_with_statement(code: CodeType) -> bool:
    """Return whether a function has a `with` statement."""
    return any(step.opname in {"BEFORE_WITH", "BEFORE_ASYNC_WITH"} for step in single_instructions(code))
