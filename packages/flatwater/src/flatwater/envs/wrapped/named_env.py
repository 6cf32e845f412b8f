"""Environments that Gymnasium knows by a name, made with arguments; errors say what to install or to change."""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium

from flatwater.envs.names import registered_id
from flatwater.named_imports import import_named_module
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError
from flatwater_watch.phrases import install_command

NOISY_MODULE = "minigrid.envs.babyai.core.roomgrid_level"
"""Module that prints a line for each map that it rejects before an episode: thousands of lines in a run of `teach`."""


def make_named_env(name: str, arguments: Mapping[str, Any] = MappingProxyType({})) -> gymnasium.Env[Any, Any]:
    """Make the environment that Gymnasium knows by a name, with these arguments.

    Raises:
        ConfigError: Gymnasium knows no environment `name`, or its package is missing.
    """
    known_errors: tuple[type[Exception], ...] = (ImportError, gymnasium.error.Error)
    if arguments:  # a TypeError then means arguments that the environment does not take, which is the user's mistake
        known_errors += (TypeError,)
    try:
        if ":" in name:  # Gymnasium imports the module before the colon
            import_named_module(name.partition(":")[0])
        with CallGuard(f"environment {name}", None, call="gymnasium.make()", passing=known_errors):
            env = gymnasium.make(registered_id(name), disable_env_checker=True, **arguments)
    except ModuleNotFoundError as fault:
        raise ConfigError(
            f"{name} needs {fault.name}, which is not installed: {install_command(fault.name)}"
        ) from fault
    except TypeError as refusal:  # where it was raised from another error, that one is shorter
        raise ConfigError(f"env_args: {refusal.__cause__ or refusal}. Give arguments that {name} takes") from refusal
    except gymnasium.error.DependencyNotInstalled as missing:  # it says what to install
        raise ConfigError(f"{name}: {missing}") from missing
    except known_errors as refusal:
        text = str(refusal)
        raise ConfigError(
            f"{name}: {text}{'' if text.endswith(('.', '?')) else '.'} Give an ID that "
            'gymnasium.make takes (python -c "import gymnasium; gymnasium.pprint_registry()" lists the installed '
            "IDs), or package.module:Class"
        ) from refusal
    _silence_noisy_module()
    return env


def _silence_noisy_module() -> None:
    """Let the noisy module print nothing, if it is imported; all other code prints as before."""
    module = sys.modules.get(NOISY_MODULE)
    if module is not None:
        # The module finds this global name before the builtin.
        vars(module)["print"] = lambda *_: None
