"""What installed packages add to Flatwater: recipes, commands, pages, algorithms, environments and trackers.

A package lists them in tables, and names its tables as entry points:

    [project.entry-points."flatwater.recipes"]
    acme = "acme.tables:RECIPES"

where `RECIPES = {"boats": ("acme.boats:BOATS", "learn to sail")}`. Flatwater's own are found in the same way. A table
is a light module: it is imported with every command, and what it names when it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from flatwater_watch.errors import ConfigError
from flatwater_watch.printable import shown

GROUPS = ("recipes", "commands", "sections", "pages", "algorithms", "environments", "trackers")
"""Each is the group `flatwater.NAME` of entry points."""


@dataclass
class Table:
    """What all packages together add to a group."""

    rows: dict[str, Any] = field(default_factory=dict)
    """By name; what a row holds is the group's to say."""
    package: dict[str, str] = field(default_factory=dict)
    """The package that each comes from."""
    faults: list[str] = field(default_factory=list)
    """Packages whose tables cannot be read, in a sentence each: they add nothing, and stop nobody."""

    def add_(self, entry: EntryPoint) -> None:
        """Add the table of one package.

        Raises:
            ConfigError: another package has a row of the same name.
        """
        package = entry.dist.name if entry.dist is not None else entry.value
        try:
            rows = entry.load()
        except Exception as fault:  # noqa: BLE001  (the edge to other people's packages)
            self.faults.append(
                f"the package {package} cannot be used: {entry.value}: {type(fault).__name__}: {fault}. "
                f"Mend it, or remove it: pip uninstall {package}"
            )
            return
        for name, row in rows.items():
            if name in self.rows:
                raise ConfigError(
                    f"{entry.group}: {shown(name)} is in the packages {self.package[name]} and {package}. "
                    "Uninstall one of them."
                )
            self.rows[name], self.package[name] = row, package


@cache
def read_table(group: str) -> Table:
    """The rows of all installed packages, in the order of their packages' names; Flatwater's own come first.

    Args:
        group: one of `GROUPS`.

    Raises:
        ConfigError: two packages have a row of the same name.
    """
    table = Table()
    for entry in sorted(entry_points(group=f"flatwater.{group}"), key=_order):
        table.add_(entry)
    return table


def rows(group: str) -> Mapping[str, Any]:
    """The rows of a group, by name."""
    return read_table(group).rows


def faults(group: str) -> str:
    """What is wrong with packages that should add to a group, to be told where a name is not found."""
    return "".join(f"\n{fault}" for fault in read_table(group).faults)


def load(where: str) -> Any:  # noqa: ANN401  (whatever is there)
    """What a row names as `package.module:Name`. The text is a package's own, and never one of a file.

    Raises:
        ImportError: the package is broken, or lacks another one.
        AttributeError: the same.
    """
    module, _, name = where.partition(":")
    return getattr(import_module(module), name)


def _order(entry: EntryPoint) -> tuple[bool, str]:
    return not entry.value.startswith("flatwater"), entry.name
