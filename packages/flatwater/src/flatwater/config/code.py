"""Settings that name code: a field declares that it does, and a file's are found without importing any of them.

    teacher: Annotated[str, Code(kinds=("run",))] = "search"

Code that a user types is his to run. The same text in a folder that somebody has sent is not, and a reader has to know
of every such setting before the first module is imported: also of those of a recipe that cannot be asked, as it is
itself one of the names.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Annotated, Any, get_type_hints

from flatwater_watch.errors import ConfigError
from flatwater_watch.options.bounds import declared_extras
from flatwater_watch.sanitize import short_repr

_DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)+\Z")
"""Pattern of `package.module:Name`, searched where no class says which settings name code."""


@dataclass(frozen=True, slots=True)
class Code:
    """Mark of a setting that names code, as `package.module:Name`; a value without a colon is a name that ships."""

    kinds: tuple[str, ...] = ()
    """Kinds whose `kind:NAME` names no user's code where NAME has no colon: `gymnasium:CartPole-v1`."""
    whole: bool = False
    """Whether any value is code: a command, or machines that exchange code with this machine."""
    trains: bool = False
    """Whether only a command that trains uses it."""

    def is_foreign(self, value: str) -> bool:
        """Return whether the value names code that may be somebody else's."""
        if self.whole or "(" in value:  # arguments reach code, and may name more of it
            return bool(value.strip())
        kind, colon, name = value.partition(":")
        return bool(colon) and not (kind in self.kinds and ":" not in name)


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Code that a setting names."""

    setting: str
    """Dotted path of the setting."""
    value: str
    declared: Code

    @property
    def module(self) -> str:
        """Module that would be imported; empty if none is."""
        if self.declared.whole or ":" not in self.value.partition("(")[0]:
            return ""
        parts = self.value.partition("(")[0].split(":")
        # `pettingzoo:classic/connect_four_v3` is an ID of PettingZoo's own, and no module.
        return parts[1] if parts[0] in {"gymnasium", "pettingzoo"} and "/" not in parts[1] else parts[0]


TRAINER = Code()
"""Mark of the setting `trainer`, by which a recipe is found."""
OBJECT = "object"
"""Kind of an environment that Python hands over as an object: its name is not code, and nothing is imported for it."""
ENVIRONMENT = Code(kinds=("gymnasium", OBJECT))
EnvName = Annotated[str, ENVIRONMENT]
"""The name of an environment, as `envs.names` reads it."""
EnvArguments = tuple[Annotated[str, Code(whole=True)], ...]
"""Arguments of an environment, as `config.arguments` reads them: they reach code, and may name more of it."""


def find_named_code(cls: type[Any] | None, settings: Mapping[str, Any], above: str = "") -> Iterator[NamedCode]:
    """Yield all code that settings name, whether they fit their class or not; imports nothing.

    Args:
        cls: the class that the settings are read into. Where it is None, and in tables that it does not have, every
            text counts that looks like a name of code.
        settings: settings as a file has them, unchecked.
        above: dotted path of their table.
    """
    declared = {} if cls is None else code_fields(cls)
    tables: dict[str, Any] = {} if cls is None else _tables(cls)
    field_names = set() if cls is None else {field.name for field in fields(cls)}
    for name, value in settings.items():
        path = f"{above}.{name}" if above else name
        # By its name and not by its class: which class it is follows from this very setting.
        if name == "trainer" and not above:
            code: Code | None = TRAINER
        elif name in declared:
            code = declared[name]
        elif isinstance(value, Mapping):
            yield from find_named_code(tables.get(name), value, path)
            continue
        else:
            code = None
        # A text in a place that no class knows counts where it looks like code: better one question too many.
        for text in _all_texts(value):
            if code.is_foreign(text) if code else name not in field_names and _DOTTED_NAME.match(text):
                yield NamedCode(path, text, code or TRAINER)


def code_fields(cls: type[Any]) -> Mapping[str, Code]:
    """Return the fields of a configuration's class that name code."""
    declared = ((f.name, declared_extras(f.type, Code)) for f in fields(cls))
    return {name: extras[0] for name, extras in declared if extras}


def name_of_code(code: Any, setting: str) -> str:  # noqa: ANN401  (a class or a function)
    """Return the `package.module:Name` by which a class or a function of Python is found again.

    Args:
        code: the class or the function.
        setting: dotted path of the setting that it was given for.

    Raises:
        ConfigError: the object cannot be found again by a name.
    """
    name, value = code.__qualname__, None
    with suppress(KeyError, AttributeError):  # of a class that a function made
        value = attrgetter(name)(sys.modules[code.__module__])
    if value is not code:
        raise ConfigError(
            f"{setting} = {short_repr(code)}: expected a class or a function with a name in its module, by which a "
            "resumed run finds it. Move it to the top of a module"
        )
    return f"{code.__module__}:{name}"


def _tables(cls: type[Any]) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(cls).items() if isinstance(hint, type) and is_dataclass(hint)}


def _all_texts(value: object) -> Iterator[str]:
    """Yield every text in a value of a configuration file, however deep, keys of tables left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _all_texts([*value.values()])
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        for item in value:
            yield from _all_texts(item)
