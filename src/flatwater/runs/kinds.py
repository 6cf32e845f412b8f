"""The kinds of runs there are."""

from collections.abc import Mapping
from typing import Any

from flatwater.errors import ConfigError
from flatwater.printable import shown
from flatwater.runs.erl.kind import ERL
from flatwater.runs.grow.kind import GROW
from flatwater.runs.kind import Kind
from flatwater.runs.teach.kind import TEACH

KINDS = {kind.name: kind for kind in (ERL, GROW, TEACH)}


def kind_of(settings: Mapping[str, Any], where: str) -> Kind:
    """The kind of run that a configuration file belongs to; `erl` where it names none.

    Raises:
        ConfigError: there is no such kind.
    """
    name = settings.get("trainer", ERL.name)
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(f"{where}: trainer = {shown(name)}: must be one of {', '.join(KINDS)}")
    return KINDS[name]


def rounds_of(settings: Mapping[str, Any], where: str) -> int:
    """The rounds that a run wants in all, as its configuration file says; 0 where it says nothing.

    Raises:
        ConfigError: it says something else than a number.
    """
    rounds = settings.get("rounds", 0)
    if type(rounds) is not int:
        raise ConfigError(f"{where}: rounds = {shown(rounds)}: must be a whole number")
    return rounds
