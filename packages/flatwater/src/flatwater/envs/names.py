"""Names of environments: their meanings, and the nearest known name for an unknown one.

It imports little, so that a wrong name is reported before torch is imported.
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
"""Name of the world that ships; and kinds of names, which stand before a colon."""
ENVIRONMENT_NAMES = (
    "an ID of Gymnasium (CartPole-v1, ALE/Pong-v5), package:ID if a package registers it (highway_env:highway-v0), "
    "pettingzoo:ID or pettingzoo:MODULE (pettingzoo:classic/connect_four_v3, pettingzoo:mpe2.simple_spread_v3), or "
    "package.module:Name of a class or a function that makes an environment or a world"
)
PACKAGE_BY_PREFIX = {
    "MiniGrid-": ("minigrid", "'flatwater[teach]'"),
    "BabyAI-": ("minigrid", "'flatwater[teach]'"),
    "ALE/": ("ale_py", "ale-py"),
}
"""Beginning of an ID -> package that registers it, and the package's name for pip."""


def check_env_names(config: Any) -> None:  # noqa: ANN401  (settings of any recipe)
    """Refuse settings that name an environment which does not exist, as far as that is known without importing code.

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
    env_id = gymnasium_id(name)
    if env_id is not None:
        registered_id(env_id)  # refuses an ID that Gymnasium does not know
        return
    kind, _, rest = name.partition(":")
    if kind == OBJECT:
        return
    # Of `pettingzoo:ID` the module is pettingzoo, which is asked for the ID when the environment is made.
    is_pettingzoo_id = kind == PETTINGZOO and "/" in rest
    module = rest if kind == PETTINGZOO and not is_pettingzoo_id else kind
    # A part is missing, as in `:Name` or `module:`; or the name is `forage:Name`, and `forage` contains no names.
    if not (rest and kind) or kind == FORAGE:
        raise unknown_name(name)
    if module not in sys.modules and not module_place(module):
        raise ConfigError(
            f"no module named {short_repr(module)}: expected {ENVIRONMENT_NAMES}, installed or in the folder where "
            "the command runs"
        )


def resolve_alias(name: str) -> str:
    """Return the full name for a short name that an installed package declares (`plugins.py`), else the name itself."""
    return str(group_rows("environments").get(name, name))


def gymnasium_id(name: str) -> str | None:
    """Return the ID that `gymnasium.make` takes, in `ID` or `gymnasium:ID`; None if the name is of another kind."""
    kind, colon, rest = name.partition(":")
    if not colon:  # `CartPole-v1`; the one name without a colon that is not Gymnasium's is `forage`
        return None if name in {"", FORAGE} else name
    if kind == GYMNASIUM:
        return rest or None
    # Gymnasium's own form is `module:ID-v0` or `module:namespace/ID`; the name of a class has no hyphen and no slash.
    is_id = ("-v" in rest or "/" in rest) and kind not in {PETTINGZOO, OBJECT}
    return name if is_id else None


def registered_id(env_id: str) -> str:
    """Return an ID as `gymnasium.make` takes it: with the package that registers it, `ale_py:ALE/Pong-v5`.

    Raises:
        ConfigError: Gymnasium knows no such environment, or its package is not installed.
    """
    if ":" in env_id:  # Gymnasium knows it only once its module is imported
        return env_id
    for start, (package, install_command) in PACKAGE_BY_PREFIX.items():
        if env_id.startswith(start):
            if importlib.util.find_spec(package) is None:
                raise ConfigError(f"{env_id} needs {package}, which is not installed: pip install {install_command}")
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
        f"{_suggest_name(name)}{group_faults('environments')}"
    )


def _suggest_name(name: str) -> str:
    """Return ` Did you mean "CartPole-v1"?` with the known name nearest to `name`; empty if none is near."""
    # Names are compared without versions; of several versions the newest comes last, and replaces the others.
    known_ids = {
        _without_version(env_id).lower(): env_id
        for env_id in (FORAGE, *group_rows("environments"), *sorted(gymnasium.registry))
    }
    # A name without its namespace is known as well: Pong stands for ALE/Pong-v5.
    known_ids = {known_name.rpartition("/")[2]: env_id for known_name, env_id in known_ids.items()} | known_ids
    matches = get_close_matches(_without_version(name).lower(), known_ids, n=1)
    return f' Did you mean "{known_ids[matches[0]]}"?' if matches else ""


def _without_version(env_id: str) -> str:
    """Return an ID without the version at its end: CartPole for CartPole-v1."""
    return re.sub(r"-v\d+\Z", "", env_id)
