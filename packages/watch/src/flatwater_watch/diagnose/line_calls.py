"""The objects of a line at which memory of C rises: which of them may keep it, and its calls that release memory.

They are noted while the line runs. An object that is another one each time is to be closed. One that stays is not, but
may have to be polled, or told that something is finished; and if no other object of C is used in the same way and
stays, it is named as the owner.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dis import Instruction
from inspect import CO_OPTIMIZED
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

from flatwater_watch.diagnose.code_names import code_name
from flatwater_watch.diagnose.code_use import class_namespace, first_word, single_instructions
from flatwater_watch.diagnose.evidence import UNKNOWN_USE, LineUse
from flatwater_watch.diagnose.handles import is_handle_class, nested_handles
from flatwater_watch.diagnose.release_search import MAXIMUM_CALLS, releasing_word, written_call, written_calls
from flatwater_watch.diagnose.releasing_calls import LibraryTable
from flatwater_watch.diagnose.rules import find_native_rule
from flatwater_watch.heap.locals import frame_locals, function_name
from flatwater_watch.heap.raw import (
    c_attribute,
    class_name,
    full_name,
    instance_dict,
    made_in_c,
    mro,
    namespace_value,
    referents,
)
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.heap.walk import find_path
from flatwater_watch.meters.rises import LinePlace
from flatwater_watch.paths import file_name

_ENDING = ("close", "release", "free", "destroy", "dispose")
"""First words of the methods that end an object, the surest first."""
_SERVING = ("poll", "finish")
"""First words of the methods by which an object that goes on lets go of what is done."""
_REMOVING = frozenset({
    "delete", "remove", "unregister", "unsubscribe", "evict", "forget", "discard", "clear", "reset", "purge", "expire",
})  # fmt: skip
"""First or last words of the methods by which an object that goes on lets go of what it keeps."""
_WITHOUT_MEMORY_OF_C = frozenset({"builtins", "_io", "io", "threading", "_thread", "pathlib", "collections", "asyncio"})
"""Modules whose objects are known not to keep memory of C, or only that of their file."""
_WITHOUT_OWN_MEMORY = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Classes of objects that lead to what a line calls, and keep no memory themselves."""
_STORE_CODES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
"""Instructions that set a variable."""

_METHOD = re.compile(r"\.(\w+)\(")
"""A method that a text calls."""
Use = Literal["called", "given", "made", "behind"]
"""How a line uses an object: it calls a method of it, it only names it, as an argument, it sets a variable to it, or an
object of C of the line refers to it, as a cursor to its connection."""
_OWNING_USES: tuple[Use, ...] = ("called", "given", "behind")
"""Uses of an object that may keep memory, the likeliest first."""


class _ObjectNote(NamedTuple):
    """An object that a line used, as it was noted at one time."""

    kind: type
    object_id: int
    calls: int
    """Calls of the function so far if it sets the variable that leads to the object, perhaps anew in each; else 0."""
    use: Use


class _LineObject(NamedTuple):
    """An object that a line uses, judged by all notes of it."""

    name: str
    """Its name in the code: `producer`, `self.producer`."""
    kind: type
    object_id: int
    use: Use
    is_made_anew: bool
    """Whether it is another one each time."""
    stays: bool
    """Whether it is known to be the same each time."""


class LineObjects:
    """The objects of the lines at which memory rises, noted at some of the rises; none of them is kept alive."""

    # Runs no code of the watched program.
    def __init__(self) -> None:
        self._rises = Counter[LinePlace]()
        self._codes: dict[LinePlace, CodeType] = {}
        """Code of the function of each line that was noted."""
        self._instructions: dict[LinePlace, list[Instruction]] = {}
        """Instructions of each of these lines."""
        self._set_names: dict[LinePlace, frozenset[str]] = {}
        """Variables that the function of each of these lines sets."""
        self._notes: dict[LinePlace, list[dict[str, _ObjectNote]]] = {}
        """The objects of each line by their names in the code, for each time that it was noted."""
        self._keeps_memory: dict[int, bool] = {}
        """Whether objects of a class may keep memory of C, by what one of them holds, by the id of the class."""

    def note_objects_(self, frame: FrameType, line: LinePlace, calls: int) -> bool:
        """Note the objects that a line uses, if memory rose at it for the 1st, 2nd, 4th, 8th… time; return whether so.

        Args:
            frame: frame of the function, past the line.
            line: the line.
            calls: number of calls of the function so far.
        """
        self._rises[line] += 1
        is_power_of_two = self._rises[line].bit_count() == 1
        if not is_power_of_two:
            return False
        code = frame.f_code
        if line not in self._codes:
            instructions = list(single_instructions(code))
            self._codes[line] = code
            self._set_names[line] = frozenset(step.argval for step in instructions if step.opname in _STORE_CODES)
            self._instructions[line] = [
                step for step in instructions if step.positions is not None and step.positions.lineno == line[1]
            ]
        variables = frame_locals(frame) if code.co_flags & CO_OPTIMIZED else {}  # the flag of functions
        notes: dict[str, _ObjectNote] = {}
        for name, value, use in _objects_of_line(self._instructions[line], variables, frame.f_globals):
            is_set = name.partition(".")[0] in self._set_names[line]
            # A line may both call an object and name it: then the call counts.
            if name not in notes or notes[name].use != "called":
                notes[name] = _ObjectNote(type(value), id(value), calls if is_set else 0, use)
            notes.update(self._note_referents_(name, value))
        self._notes.setdefault(line, []).append(notes)
        return True

    def _note_referents_(self, name: str, value: Any) -> dict[str, _ObjectNote]:
        """Return notes of the objects of C to which an object of C refers, by name: "cursor of Connection".

        Also notes in `_keeps_memory` whether objects of their classes may keep memory of C.
        """
        kind = type(value)
        if id(kind) not in self._keeps_memory:
            self._keeps_memory[id(kind)] = not issubclass(kind, _WITHOUT_OWN_MEMORY) and bool(nested_handles([value]))
        if not self._keeps_memory[id(kind)] or not made_in_c(kind):
            return {}
        notes = {}
        for holder in referents(value):
            if is_handle_class(type(holder)):
                self._keeps_memory[id(type(holder))] = True
                notes[f"{name} of {class_name(type(holder))}"] = _ObjectNote(type(holder), id(holder), 0, "behind")
        return notes

    def describe_use(self, line: LinePlace) -> LineUse:
        """Return what is known of the objects of a line at which memory of C rises: advice, and the likely owner.

        The advice names calls that release memory, but none that the function of the line makes itself.
        """
        if line not in self._codes:
            return UNKNOWN_USE
        code, modules = self._codes[line], user_modules(Roots())
        objects = [obj for obj in _line_objects(self._notes[line]) if full_name(obj.kind)[0] not in modules]
        advised_objects = [obj for obj in objects if obj.use in {"called", "made"}]
        advice = next(filter(None, (_object_advice(obj, code) for obj in advised_objects)), "")
        owner = self._find_owner(objects)
        if owner is None:
            return LineUse(advice)
        path = find_path(Roots(), owner.object_id, owner.kind)
        if owner.use == "behind":  # its name stands for the object that refers to it
            owner = owner._replace(name=code_name(path).text or class_name(owner.kind))
        elif not path:
            path = f"{function_name(code)}() in {file_name(code.co_filename)}: {owner.name}"
        return LineUse(advice or _removal_advice(owner, code), path, class_name(owner.kind))

    def _find_owner(self, objects: list[_LineObject]) -> _LineObject | None:
        """Return the one object that stays and may keep the memory of C; None if there is none, or more than one.

        Only objects of the likeliest use count, in the order of `_OWNING_USES`.
        """
        if any(obj.use == "made" and self._keeps_memory[id(obj.kind)] for obj in objects):
            return None  # what the line makes has the memory
        for use in _OWNING_USES:
            # By id, so that an object with two names in a line counts once.
            owners = {obj.object_id: obj for obj in objects if obj.use == use and obj.stays and self._may_own(obj.kind)}
            if owners:
                return next(iter(owners.values())) if len(owners) == 1 else None
        return None

    def _may_own(self, kind: type) -> bool:
        """Return whether an object of a class may be named as the owner of memory of C."""
        package = full_name(kind)[0].partition(".")[0]
        return self._keeps_memory[id(kind)] and package not in {"ctypes", "numpy", *_WITHOUT_MEMORY_OF_C}


def _objects_of_line(
    instructions: list[Instruction], variables: Mapping[str, Any], names: dict[str, Any]
) -> Iterator[tuple[str, Any, Use]]:
    """Yield the objects that a line calls, names or makes, as (name, object, use).

    Args:
        instructions: bytecode instructions of the line.
        variables: local variables of its function.
        names: globals of its function.
    """
    # The object that the last instruction loaded, and its name: `self.producer`. None if it cannot be told.
    value, value_name = None, ""
    for instruction in instructions:
        operation, name = instruction.opname, instruction.argval
        if value is not None and operation not in {"LOAD_ATTR", "LOAD_METHOD"}:  # nothing of it is called
            yield value_name, value, "given"
        if operation.startswith(("LOAD_FAST", "LOAD_DEREF")):
            value, value_name = variables.get(name), name
        elif operation in {"LOAD_GLOBAL", "LOAD_NAME"}:
            value, value_name = namespace_value(names, name), name
        elif operation in {"LOAD_ATTR", "LOAD_METHOD"} and value is not None:
            yield value_name, value, "called"
            attribute = namespace_value(instance_dict(value), name)
            value = c_attribute(value, name) if attribute is None else attribute
            value_name = f"{value_name}.{name}"
        else:
            value = None
        if operation in _STORE_CODES:
            made = variables.get(name, namespace_value(names, name))
            if made is not None:
                yield name, made, "made"


def _line_objects(notes: list[dict[str, _ObjectNote]]) -> list[_LineObject]:
    """Return the objects in the latest notes of a line, each with whether it was the same at all times.

    Args:
        notes: notes of the line's objects by name, for each time that they were taken, the latest last.
    """
    objects = []
    for name, last_note in notes[-1].items():
        notes_of_name = [notes_by_name[name] for notes_by_name in notes if name in notes_by_name]
        is_same = len({(note.object_id, note.calls) for note in notes_of_name}) == 1
        is_made = last_note.use == "made"
        objects.append(
            _LineObject(
                name,
                last_note.kind,
                last_note.object_id,
                last_note.use,
                is_made_anew=is_made or not is_same,
                stays=is_same and not is_made and len(notes_of_name) > 1,
            )
        )
    return objects


def _object_advice(line_object: _LineObject, code: CodeType) -> str:
    """Return the advice for an object of a line, by its class's rule or else by its methods; empty if none is known.

    Args:
        line_object: object that the line uses.
        code: code of the line's function; what it calls already is not advised.
    """
    rule = find_native_rule(line_object.kind)
    if rule is not None and set(_METHOD.findall(rule.fix)).isdisjoint(code.co_names):
        return rule.advice({class_name(owner): line_object.name for owner in mro(line_object.kind)})
    calls = " or ".join(f"`{call}`" for call in _releasing_methods(line_object, code))
    return f"Call {calls} in each pass, if nothing does." if calls else ""


def _releasing_methods(line_object: _LineObject, code: CodeType) -> tuple[str, ...]:
    """Return calls of an object's methods that release memory, the surest first: ("producer.poll(timeout)",).

    For an object that is made anew each time these end it, for any other they let go of what is done. Empty if the code
    of the line's function makes one of these calls itself.
    """
    words = _ENDING if line_object.is_made_anew else _SERVING
    if line_object.is_made_anew and _has_with_statement(code):  # the statement may end the object
        return ()
    methods = class_namespace(line_object.kind, _WITHOUT_MEMORY_OF_C)
    names = [name for name in methods if first_word(name) in words and callable(methods[name])]
    if not set(names).isdisjoint(code.co_names):
        return ()
    names.sort(key=lambda name: (words.index(first_word(name)), name))
    return tuple(written_call(line_object.name, name, methods[name], is_class=True) for name in names[:MAXIMUM_CALLS])


def _removal_advice(line_object: _LineObject, code: CodeType) -> str:
    """Return the advice for a long-lived object whose C code keeps memory: calls that remove what it keeps.

    Methods that the code of the line's function calls already are left out. Without any other, the advice is to make
    the object anew, or to bound it.
    """
    methods = class_namespace(line_object.kind, _WITHOUT_MEMORY_OF_C)
    names = [name for name in methods if releasing_word(name) in _REMOVING and callable(methods[name])]
    # Any class of C may define how an attribute is deleted, which says nothing of what its objects keep.
    unused_names = [name for name in names if name not in code.co_names and name != "__delattr__"]
    library = full_name(line_object.kind)[0].partition(".")[0]
    code_names = frozenset(code.co_names)  # a method that undoes one of these comes first
    calls = written_calls(line_object.name, methods, unused_names, code_names, is_class=True)
    if not calls:
        fallback_sentence = (
            f"Make `{line_object.name}` anew when a job is done, or bound what it keeps where it is made."
        )
        return f"{fallback_sentence} No call of {library} that lets go was found."
    return LibraryTable(library, calls).advice


def _has_with_statement(code: CodeType) -> bool:
    return any(step.opname in {"BEFORE_WITH", "BEFORE_ASYNC_WITH"} for step in single_instructions(code))
