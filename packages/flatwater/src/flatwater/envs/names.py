"""Names of environments: their meanings, and the nearest known name for an unknown one.

Light, so that a wrong name is told before torch is imported.
"""

import importlib
import importlib.util
import re
import sys
from difflib import get_close_matches
from typing import Any

import gymnasium

from flatwater.config.code import ENVIRONMENT, OBJECT, code_fields
from flatwater.plugins import group_faults, group_rows, known_names
from flatwater.sources import module_place
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

FORAGE, GYMNASIUM, PETTINGZOO = "forage", "gymnasium", "pettingzoo"
"""The world that ships, and kinds of names that stand before a colon."""
ENVIRONMENT_NAMES = (
    "an ID of Gymnasium (CartPole-v1, ALE/Pong-v5), pettingzoo:ID or pettingzoo:MODULE "
    "(pettingzoo:classic/connect_four_v3, pettingzoo:mpe2.simple_spread_v3), or package.module:Name of a class or a "
    "function that makes an environment or a world"
)
PACKAGE_BY_PREFIX = {
    "MiniGrid-": ("minigrid", "'flatwater[teach]'"),
    "BabyAI-": ("minigrid", "'flatwater[teach]'"),
    "ALE/": ("ale_py", "ale-py"),
}
"""Packages to import for IDs that start so, and their names for pip. For others, Gymnasium takes `package:Name-v0`."""


def check_env_names(config: Any) -> None:  # noqa: ANN401  (settings of any recipe)
    """Refuse names of environments that are known to be none, in settings that the user gives now.

    Raises:
        ConfigError: the message names the setting.
    """
    for setting, code in code_fields(type(config)).items():
        if code == ENVIRONMENT:
            name = getattr(config, setting)
            try:
                _check_name(name)
            except ConfigError as error:
                raise ConfigError(f"{setting} = {name!r}: {error}") from error


def _check_name(name: str) -> None:
    """Refuse an ID that Gymnasium does not know, and code whose module is not found; code itself is not imported.

    Raises:
        ConfigError: the name leads to no environment.
    """
    name = resolve_alias(name)
    if name == FORAGE:
        return
    if (env_id := gymnasium_id(name)) is not None:
        registered_id(env_id)
        return
    kind, _, rest = name.partition(":")
    if kind == OBJECT:
        return
    is_registered = kind == PETTINGZOO and "/" in rest  # an ID: PettingZoo is asked when the environment is made
    module = kind if is_registered or kind != PETTINGZOO else rest
    if not (rest and kind) or kind == FORAGE:
        raise unknown_name(name)
    if module not in sys.modules and not module_place(module):
        raise ConfigError(
            f"no module named {short_repr(module)}: expected {ENVIRONMENT_NAMES}, installed or in the folder where "
            "the command runs"
        )


def resolve_alias(name: str) -> str:
    """Return the full name for a short name of an installed package (`plugins.py`); other names as they are."""
    return str(group_rows("environments").get(name, name))


def gymnasium_id(name: str) -> str | None:
    """Return the ID that `gymnasium.make` takes, in `ID` or `gymnasium:ID`; None if the name is of another kind."""
    kind, colon, rest = name.partition(":")
    if not colon:
        return None if name in {"", FORAGE} else name
    # Gymnasium's own form `module:ID-v0`; what follows the colon of a class has no hyphen.
    is_own_form = "-v" in rest and kind not in {PETTINGZOO, OBJECT}
    return (rest or None) if kind == GYMNASIUM else name if is_own_form else None


def registered_id(env_id: str) -> str:
    """Return an ID with the package that registers it, as `gymnasium.make` takes it.

    Raises:
        ConfigError: Gymnasium knows no such environment, or its package is not installed.
    """
    if ":" in env_id:  # known once its module is imported
        return env_id
    for start, (package, installed_by) in PACKAGE_BY_PREFIX.items():
        if env_id.startswith(start):
            if importlib.util.find_spec(package) is None:
                raise ConfigError(f"{env_id} needs {package}, which is not installed: pip install {installed_by}")
            importlib.import_module(package)
            env_id = f"{package}:{env_id}"
    bare_id = env_id.rpartition(":")[2]
    # A name without a version stands for the newest.
    if bare_id not in gymnasium.registry and bare_id not in map(_without_version, gymnasium.registry):
        raise unknown_name(bare_id)
    return env_id


def unknown_name(name: str) -> ConfigError:
    """Return the error for a name that stands for no environment, with the nearest that does."""
    return ConfigError(
        f"no environment has this name: expected {known_names('environments', FORAGE)}, {ENVIRONMENT_NAMES}."
        f"{_nearest(name)}{group_faults('environments')}"
    )


def _nearest(name: str) -> str:
    """Return a question with the known name that was perhaps meant; empty if none is near."""
    # By the name alone, as versions are alike; the newest version comes last and stays.
    known_ids = {
        _without_version(env_id).lower(): env_id
        for env_id in (FORAGE, *group_rows("environments"), *sorted(gymnasium.registry))
    }
    # The part behind a namespace as well: Pong stands for ALE/Pong-v5.
    known_ids = {name.rpartition("/")[2]: env_id for name, env_id in known_ids.items()} | known_ids
    near = get_close_matches(_without_version(name).lower(), known_ids, n=1)
    return f' Did you mean "{known_ids[near[0]]}"?' if near else ""


def _without_version(env_id: str) -> str:
    return re.sub(r"-v\d+\Z", "", env_id)
