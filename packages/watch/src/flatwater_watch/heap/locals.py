"""The local variables of a frame, read so that the program's own `locals()` stays as it is.

Up to Python 3.12 a function's frame keeps one dict, which is overwritten whenever somebody asks for its locals: values
that the program wrote into its `locals()` would be lost, and so would those that a debugger or a tracer is about to
write back into the variables. From 3.13 on `f_locals` is a view, and nothing is kept.
"""

import ctypes
import sys
from types import CodeType, FrameType
from typing import Any, ClassVar

from flatwater_watch.heap.raw import plain_text

_FRAMES_KEEP_LOCALS = sys.version_info < (3, 13)
_POINTERS_BEFORE_LOCALS = 3 if sys.version_info < (3, 12) else 5
"""Pointers in an interpreter's frame before the pointer to its dict; 3.11 and 3.12 will not change this any more."""


class _InterpreterFrame(ctypes.Structure):
    """The beginning of `_PyInterpreterFrame` in Python 3.11 and 3.12."""

    _fields_: ClassVar = [("before", ctypes.c_void_p * _POINTERS_BEFORE_LOCALS), ("locals", ctypes.py_object)]


class _FrameObject(ctypes.Structure):
    """The beginning of `PyFrameObject` in Python 3.11 and 3.12."""

    _fields_: ClassVar = [
        ("head", ctypes.c_char * object.__basicsize__),
        ("back", ctypes.c_void_p),
        ("running", ctypes.POINTER(_InterpreterFrame)),
    ]


def frame_locals(frame: FrameType) -> dict[str, Any]:
    """Return a copy of the local variables of a function's frame, and leave the dict of its `locals()` as it was."""
    # In any frame of the watched program: changes no variable of it.
    if not _FRAMES_KEEP_LOCALS:
        return dict(frame.f_locals)
    cached_dict = _cached_locals(frame)
    kept_content = {} if cached_dict is None else dict.copy(cached_dict)
    shared_dict = frame.f_locals  # overwrites the cached dict and returns it: its content is restored below
    copied_dict = dict(shared_dict)
    dict.clear(shared_dict)
    dict.update(shared_dict, kept_content)
    return copied_dict


def _cached_locals(frame: FrameType) -> dict[str, Any] | None:
    """Return the dict that a frame keeps for `locals()`, up to Python 3.12; None if nobody has asked for it yet."""
    fields = _FrameObject.from_address(id(frame))
    try:
        # Another thread may take over only at a call: so the frame cannot end between these three attribute reads.
        return fields.running.contents.locals  # type: ignore[no-any-return]
    except ValueError:  # a null pointer
        return None


def function_name(code: CodeType) -> str:
    """Return the qualified name of a function without `<locals>`: `Agent.act`, `main.step`."""
    return plain_text(code.co_qualname).replace("<locals>.", "")
