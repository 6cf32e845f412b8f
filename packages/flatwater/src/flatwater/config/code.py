"""Settings that name code: a field declares that it does, and a file's names of code are found without any import.

    teacher: Annotated[str, Code(kinds=("run",))] = "search"

A name of code that a user types may be imported. The same name in a folder that somebody has sent must not be, so every
such setting is found before the first import, also in settings of a recipe that is itself named code and so not loaded.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from inspect import isroutine
from operator import attrgetter
from typing import Annotated, Any, get_type_hints

from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import declared_extras
from flatwater_watch.options.declare import WordOption
from flatwater_watch.sanitize import short_repr

_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)+\Z")
"""Pattern of `package.module:Name`, by which code is found in settings whose class is not known."""


@dataclass(frozen=True, slots=True)
class Code:
    """Annotation of a setting that may name code, as `package.module:Name`; other values are names that ship."""

    kinds: tuple[str, ...] = ()
    """Kinds K for which `K:NAME` names no user's code, unless NAME has a colon itself: `gymnasium:CartPole-v1`."""
    every_value: bool = False
    """Whether every value counts as code: a command, or machines that exchange code with this machine."""
    training_only: bool = False
    """Whether only commands that train use the setting."""

    def is_foreign(self, value: str) -> bool:
        """Return whether the value names code that does not ship with Flatwater or Gymnasium."""
        if self.every_value or "(" in value:  # arguments are given to code, and may name more code
            return bool(value.strip())
        # `module:Name` is code; `gymnasium:CartPole-v1` is a kind with a name, and `gymnasium:module:Name` code again.
        kind, colon, name = value.partition(":")
        is_shipped_name = kind in self.kinds and ":" not in name
        return bool(colon) and not is_shipped_name


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Code that a setting names."""

    setting: str
    """Dotted path of the setting."""
    value: str
    declared: Code
    """Annotation of the setting."""

    @property
    def module(self) -> str:
        """Module that is imported for the value, `package.module` of `package.module:Name`; empty if none is."""
        name = self.value.partition("(")[0]  # without arguments
        if self.declared.every_value or ":" not in name:
            return ""
        kind, behind_kind, *_ = name.split(":")  # a kind of environments, or the module itself
        # `gymnasium:boat:Boat` names module `boat`; `pettingzoo:classic/connect_four_v3` has an ID of PettingZoo.
        has_module_behind_kind = kind in {"gymnasium", "pettingzoo"} and "/" not in behind_kind
        return behind_kind if has_module_behind_kind else kind


TRAINER = Code()
"""Annotation of the setting `trainer`, by which a recipe is found."""
OBJECT = "object"
"""Kind of an environment that the user's program gives as an object: nothing is imported for its name."""
ENVIRONMENT = Code(kinds=("gymnasium", OBJECT))
EnvName = Annotated[str, ENVIRONMENT, WordOption()]
"""The name of an environment, as `envs.names` reads it."""
EnvArguments = tuple[Annotated[str, Code(every_value=True)], ...]
"""Arguments of an environment, as `config.arguments` reads them: they are given to code, and may name more code."""


def find_named_code(cls: type[Any] | None, settings: Mapping[str, Any], table_path: str = "") -> Iterator[NamedCode]:
    """Yield all code that settings name, whether they fit their class or not, without importing anything.

    Args:
        cls: class of the settings, which says which of them name code. Without one, and in settings that it does not
            have, every text that looks like `package.module:Name` counts.
        settings: settings as a file has them, unchecked.
        table_path: dotted path of the table that has these settings; empty for the whole file.
    """
    declared_code = {} if cls is None else code_fields(cls)
    tables: dict[str, Any] = {} if cls is None else _table_classes(cls)
    field_names = set() if cls is None else {field.name for field in fields(cls)}
    for name, value in settings.items():
        path = f"{table_path}.{name}" if table_path else name
        code = declared_code.get(name)
        if name == "trainer" and not table_path:  # by its name alone, as the class of the settings follows from it
            code = TRAINER
        if code is None and isinstance(value, Mapping):
            yield from find_named_code(tables.get(name), value, path)
            continue
        for text in _all_texts(value):
            if code is not None:
                names_code = code.is_foreign(text)
            else:
                # A setting that no class knows counts if its text looks like code: better to ask once too often.
                names_code = name not in field_names and _DOTTED_NAME.match(text) is not None
            if names_code:
                # For a setting that no class knows the annotation `TRAINER` serves, which excepts no kinds.
                yield NamedCode(path, text, code or TRAINER)


def code_fields(cls: type[Any]) -> Mapping[str, Code]:
    """Return the fields of a configuration's class that may name code, each with its annotation."""
    declared_extras_by_name = ((f.name, declared_extras(f.type, Code)) for f in fields(cls))
    return {name: extras[0] for name, extras in declared_extras_by_name if extras}


def name_of_code(code: Any, setting: str) -> str:  # noqa: ANN401  (a class or a function)
    """Return the `package.module:Name` by which a class or a function can be imported again.

    Args:
        code: the class or the function.
        setting: dotted path of the setting whose value the code is, for messages.

    Raises:
        ConfigError: the object cannot be found again by a name.
    """
    if not (isinstance(code, type) or isroutine(code)):
        raise ConfigError(
            f"{setting} = {short_repr(code)}: expected a class or a function with a name in its module, got an object "
            f"of the class {type(code).__name__}. Give the class, or a function that makes the object"
        )
    name, value = code.__qualname__, None
    with suppress(KeyError, AttributeError):  # a class made within a function is no attribute of its module
        value = attrgetter(name)(sys.modules[code.__module__])
    if value is not code:
        raise ConfigError(
            f"{setting} = {short_repr(code)}: expected a class or a function with a name in its module, by which a "
            "resumed run finds it. Move it to the top of a module"
        )
    return f"{code.__module__}:{name}"


def _table_classes(cls: type[Any]) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(cls).items() if isinstance(hint, type) and is_dataclass(hint)}


def _all_texts(value: object) -> Iterator[str]:
    """Yield every text in a value of a configuration file, however deep, but not the keys of tables."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _all_texts([*value.values()])
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for item in value:
            yield from _all_texts(item)
