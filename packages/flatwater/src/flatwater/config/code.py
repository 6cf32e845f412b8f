"""Settings that name code: which they are is declared with the field, and found in a file without importing any of it.

    teacher: Annotated[str, Code(kinds=("run",))] = "search"

What a user types is his to run. The same text in a folder that somebody has sent is not, and who reads it has to know
of every such setting before the first module is imported: also of those of a recipe that cannot be asked, as it is
itself one of the names.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from flatwater_watch.options.bounds import declared_extras

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)+\Z")
"""`package.module:Name`, as it is looked for where no class says which settings name code."""


@dataclass(frozen=True, slots=True)
class Code:
    """A setting that names code, as `package.module:Name`; a value without a colon stands for something that ships."""

    kinds: tuple[str, ...] = ()
    """`kind:NAME` names nothing of somebody's where NAME has no colon: `gymnasium:CartPole-v1`."""
    whole: bool = False
    """Any value is code: a command, or machines that exchange code with this one."""
    trains: bool = False
    """Only a command that trains makes use of it."""

    def is_foreign(self, value: str) -> bool:
        """Whether the value names code that may be somebody's."""
        kind, colon, rest = value.partition(":")
        return bool(value.strip()) if self.whole else bool(colon) and not (kind in self.kinds and ":" not in rest)


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Code that a setting names."""

    setting: str
    """Its dotted path."""
    value: str
    declared: Code

    @property
    def module(self) -> str:
        """The module that would be imported; empty for what is not imported."""
        if self.declared.whole:
            return ""
        parts = self.value.split(":")
        return parts[1] if parts[0] in {"gymnasium", "pettingzoo"} else parts[0]


TRAINER = Code()
"""Of the setting `trainer`, by which a recipe is found."""


def find_named_code(cls: type[Any] | None, settings: Mapping[str, Any], above: str = "") -> Iterator[NamedCode]:
    """All code that settings name, whether they fit their class or not; imports nothing.

    Args:
        cls: the class that the settings are read into. Where it is None, and in tables that it does not have, every
            text counts that looks like a name of code.
        settings: as a file has them, unchecked.
        above: the dotted path of their table.
    """
    declared = {} if cls is None else code_fields(cls)
    tables: dict[str, Any] = {} if cls is None else _tables(cls)
    known = set() if cls is None else {field.name for field in fields(cls)}
    for name, value in settings.items():
        path = f"{above}.{name}" if above else name
        if name == "trainer" and not above:
            marked: Code | None = TRAINER
        elif name in declared:
            marked = declared[name]
        elif isinstance(value, Mapping):
            yield from find_named_code(tables.get(name), value, path)
            continue
        else:
            marked = None
        for text in _texts(value):
            if marked.is_foreign(text) if marked else name not in known and _NAME.match(text):
                yield NamedCode(path, text, marked or TRAINER)


def code_fields(cls: type[Any]) -> Mapping[str, Code]:
    """The fields of a configuration's class that name code."""
    found = ((f.name, declared_extras(f.type, Code)) for f in fields(cls))
    return {name: extras[0] for name, extras in found if extras}


def _tables(cls: type[Any]) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(cls).items() if isinstance(hint, type) and is_dataclass(hint)}


def _texts(value: object) -> Iterator[str]:
    """Every text in a value, however it is nested."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts([*value.values()])
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for item in value:
            yield from _texts(item)
