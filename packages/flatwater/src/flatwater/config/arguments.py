"""Arguments of a user's class or function as text, such as `gravity=0.5`, in which form options and files have them."""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from flatwater_watch.errors import ConfigError, require
from flatwater_watch.sanitize import short_repr

_WORD_VALUES = {"true": True, "false": False, "none": None, "null": None}


def read_arguments(texts: Sequence[str], setting: str) -> dict[str, Any]:
    """Return the arguments by name: a value that is a Python literal is read as one, any other stays text.

    Args:
        texts: arguments, each as `NAME=VALUE`.
        setting: name of the setting that has these texts, for messages.

    Raises:
        ConfigError: a text has another form, or a name comes twice.
    """
    arguments = dict[str, Any]()
    for text in texts:
        name, equals, value = text.partition("=")
        is_valid = bool(equals) and name.isidentifier() and name not in arguments
        require(is_valid, setting, text, "NAME=VALUE, each name once")
        arguments[name] = _read_value(value)
    return arguments


def _read_value(text: str) -> Any:  # noqa: ANN401  (a literal of any type)
    """Return the value of a Python literal, or of a word such as `true`; any other text unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _WORD_VALUES.get(text.lower(), text)  # `true` as TOML writes it; else the text itself


def write_arguments(arguments: Mapping[str, Any], setting: str) -> list[str]:
    """Return the texts from which `read_arguments` makes these arguments.

    Raises:
        ConfigError: a value is not a number, text, True, False, None, or a list, tuple, set or dict of these.
    """
    texts = []
    for name, value in arguments.items():
        if not name.isidentifier() or not _is_same(_read_value(repr(value)), value):
            raise ConfigError(
                f"{setting}: {name} = {short_repr(value)}: expected a number, a text, True, False, None, or lists and "
                f"dicts of these, which a run's configuration can hold, got a {type(value).__name__}. Give env as a "
                "function instead: env=lambda: YourEnv(...)"
            )
        texts.append(f"{name}={value!r}")
    return texts


def _is_same(read_value: object, value: object) -> bool:
    # By type and text and not by `==`, which takes 1 for True, and gives no single answer for arrays.
    return type(read_value) is type(value) and repr(read_value) == repr(value)


def call_arguments(arguments_text: str, text: str, setting: str) -> dict[str, Any]:
    """Return the named arguments of a call by name: `{"stack_size": 4}` of `FrameStackObservation(stack_size=4)`.

    Args:
        arguments_text: text of the call behind the opening bracket: `stack_size=4)`.
        text: text of the whole call, for messages.
        setting: name of the setting that has the text, for messages.

    Raises:
        ConfigError: the text is not a call with named arguments of plain values.
    """
    try:
        call = ast.parse(f"call({arguments_text}", mode="eval").body
        # Others are refused below: positional arguments, and `**mapping`, whose `arg` is None.
        if isinstance(call, ast.Call) and not call.args and all(keyword.arg for keyword in call.keywords):
            return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    raise ConfigError(
        f"{setting} = {short_repr(text)}: expected NAME, or NAME(argument=value, ...) as Python writes it"
    )
