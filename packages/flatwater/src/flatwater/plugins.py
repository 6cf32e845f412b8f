"""Additions of installed packages: recipes, commands, sections and pages of a report, and objects for settings.

A package lists them in tables, and names its tables as entry points:

    [project.entry-points."flatwater.recipes"]
    acme = "acme.tables:RECIPES"

where `RECIPES = {"boats": ("acme.boats:BOATS", "learn to sail")}`. Flatwater's own are found in the same way. A table
is a light module, as every command imports it; the objects that it names are imported when they are used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flatwater_watch.errors import ConfigError, FlatwaterError
from flatwater_watch.sanitize import short_repr

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# `acme.boats:BOATS`: parts of identifiers, which begin with a letter or `_`.
_PLACE_PATTERN = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*\Z"
_NAME, _WORDS, _FILE = r"[^\W_][\w.-]*\Z", r"[^\W_][\w.-]*( [^\W_][\w.-]*)*\Z", r"[^\W_][\w.-]*\Z"


@dataclass(frozen=True)
class Group:
    """Rules for the tables of a group, by which each row and its name are checked."""

    row: tuple[str, ...]
    """Regular expressions, one for each text of a row. A row of one text is that text, not a tuple."""
    expected_row: str
    """A row as a message shows it: `"package.module:Name"`."""
    name: str = _NAME
    """Regular expression of a row's name. It allows no colon: a name with a colon is looked up as code."""
    shipped: tuple[str, ...] = ()
    """Names that Flatwater has besides those in tables."""

    def check(self, name: object, row: object) -> None:
        """Refuse a name or a row that does not match the group's patterns; a row of one text is that text alone.

        Raises:
            ValueError: the row or its name does not match.
        """
        if not isinstance(name, str) or not re.match(self.name, name):
            raise ValueError(f"{short_repr(name)}: expected a name of letters, digits, '-', '_' and '.'")
        texts: Any = (row,) if len(self.row) == 1 else row
        has_length = isinstance(texts, tuple | list) and len(texts) == len(self.row)
        is_row = has_length and all(isinstance(text, str) for text in texts)
        if not is_row or not all(map(re.match, self.row, texts)):  # each text by its own pattern
            raise ValueError(f"{short_repr(name)}: expected {self.expected_row}, got {short_repr(row)}")


_ONE_PLACE = (_PLACE_PATTERN,), '"package.module:Name"'  # `row` and `expected_row` of groups that name one object
# The expression "" matches any text.
GROUPS = {
    "recipes": Group((_PLACE_PATTERN, ""), '("package.module:NAME", "what it trains")'),
    "commands": Group((_PLACE_PATTERN, ""), '("package.module:Class", "what it does")', name=_WORDS),
    "pages": Group((_FILE, _PLACE_PATTERN), '("the file that its folders have", "package.module:function")'),
    "comparisons": Group((_FILE, _PLACE_PATTERN), '("the file that its folders have", "package.module:function")'),
    "sections": Group(*_ONE_PLACE),
    "algorithms": Group(*_ONE_PLACE, shipped=("ppo", "ddpg", "td3", "sac", "dqn", "own")),
    "environments": Group(*_ONE_PLACE, shipped=("forage", "gymnasium", "pettingzoo")),
    "trackers": Group(*_ONE_PLACE, shipped=("tensorboard", "wandb")),
}
"""Rules by name of the group; each is the group `flatwater.NAME` of entry points."""


@dataclass
class GroupTable:
    """Rows that all packages together add to a group."""

    group: str
    rows: dict[str, Any] = field(default_factory=dict)
    """Rows by name; each matches `Group.row`."""
    package: dict[str, str] = field(default_factory=dict)
    """Package of each row by name."""
    faults: list[str] = field(default_factory=list)
    """Sentences about packages whose tables cannot be read: they add nothing, and stop no command."""

    def __post_init__(self) -> None:
        """Register the names that Flatwater has besides those in tables as names of its own package."""
        self.package |= dict.fromkeys(GROUPS[self.group].shipped, "flatwater")

    def add_(self, entry: "EntryPoint") -> None:
        """Add the table of one package: all of it, or none of it and a line in `faults` if a row cannot be used.

        Raises:
            ConfigError: another package has a row of the same name.
        """
        package = entry.dist.name if entry.dist is not None else entry.value  # of no package: by its import path
        # A table is all or nothing: half of a package would fail later, further from its cause.
        try:
            rows = dict(entry.load())
            for name, row in rows.items():
                GROUPS[self.group].check(name, row)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (the edge to other people's packages)
            self.faults.append(
                f"the package {package} cannot be used: {entry.value}: {type(error).__name__}: {error}. "
                f"Mend it, or remove it: pip uninstall {package}"
            )
            return
        for name, row in rows.items():
            if name in self.package:
                raise ConfigError(
                    f"{entry.group}: {short_repr(name)} is in the packages {self.package[name]} and {package}. "
                    "Uninstall one of them."
                )
            self.rows[name], self.package[name] = row, package


@cache
def read_table(group: str) -> GroupTable:
    """Return the table of a group: the rows of Flatwater, then of other packages in the order of entry points' names.

    Args:
        group: one of `GROUPS`.

    Raises:
        ConfigError: two packages have a row of the same name.
    """
    table = GroupTable(group)
    for entry in sorted(installed_entries()[group], key=_entry_order):
        table.add_(entry)
    return table


@cache
def installed_entries() -> dict[str, "list[EntryPoint]"]:
    """Return the entry points of all packages by group, found at once: a search reads every package's metadata."""
    from importlib.metadata import entry_points  # noqa: PLC0415  (0.03 CPU s, which a command that ships need not pay)

    all_entries = entry_points()
    return {group: list(all_entries.select(group=f"flatwater.{group}")) for group in GROUPS}


def group_rows(group: str) -> Mapping[str, Any]:
    """Return the rows of a group, by name."""
    return read_table(group).rows


def group_faults(group: str) -> str:
    """Return a line for each package whose table of a group cannot be read: the end of a message on an unknown name."""
    return "".join(f"\n{fault}" for fault in read_table(group).faults)


def known_names(group: str, shipped_names: str) -> str:
    """Return names for a message, such as `forage, boat`: the text `shipped_names`, and those of a group's rows."""
    return ", ".join((shipped_names, *group_rows(group)))


def load_named_object(place: str) -> Any:  # noqa: ANN401  (whatever is there)
    """Return the object that a row names as `package.module:Name`: a text of an installed package, never of a file.

    Raises:
        ImportError: the package is broken, or lacks another package.
        AttributeError: the module has no such name.
    """
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def load_row(group: str, name: str, place: str) -> Any:  # noqa: ANN401  (whatever is there)
    """Return the object at the import path `place`, which the row `name` of a group has.

    Raises:
        ConfigError: the object cannot be imported; the message names the package that has the row.
    """
    try:
        return load_named_object(place)
    except FlatwaterError:
        raise
    except Exception as error:
        package = read_table(group).package[name]
        kind = group.removesuffix("s")
        message = f"{type(error).__name__}: {error}"
        remedy = f" Install {error.name}." if isinstance(error, ModuleNotFoundError) and error.name else ""
        raise ConfigError(
            f"{kind} {short_repr(name)} of the package {package}: {place} cannot be imported: {message}.{remedy}"
        ) from error


def _entry_order(entry: "EntryPoint") -> tuple[bool, str]:
    return not entry.value.startswith("flatwater"), entry.name  # False sorts first
