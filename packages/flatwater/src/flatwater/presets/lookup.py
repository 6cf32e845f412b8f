"""Finds the settings of a named preset for an environment and a recipe. Presets are data: they contain no code.

A preset is a folder beside this file. It has a TOML file for each recipe: a table for each environment's ID, with
settings by the names that the recipe has. Three names are no settings: the table `shared` has what is the same in all
of the file's environments, `newer` leads from the ID of a newer version to the ID whose settings it gets, and
`left_out` in an environment's table says what the source asks for and Flatwater does not have.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from flatwater.algorithms.config import custom_algorithm_place
from flatwater.config.convert import did_you_mean
from flatwater.config.mappings import merge_tables
from flatwater.config.toml import read_toml
from flatwater.envs.names import gymnasium_id
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

PRESET_FOLDER = Path(__file__).parent
PRESET, LEFT_OUT = "preset", "left_out"
SHARED, NEWER = "shared", "newer"


def preset_settings(config_type: type[Any], given_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the preset that the user asks for, which all that he gives wins over; empty without one.

    Args:
        config_type: class of the recipe's settings.
        given_settings: what the user gives, by the names of settings: the preset, the environment, and all others.

    Raises:
        ConfigError: there is no such preset, or it has no settings for the recipe or the environment.
    """
    name = given_settings.get(PRESET)
    defaults = {field.name: field.default for field in fields(config_type)}
    # Without a preset, or in a recipe that has none. A value of another type is refused by the settings' own check.
    if not isinstance(name, str) or PRESET not in defaults:
        return {}
    recipe, env = str(defaults["trainer"]), str(given_settings.get("env") or defaults["env"])
    learner = given_settings.get("learner")
    # On the command line the names of settings have dots; in a file and in Python they are nested.
    nested_algorithm = learner.get("algorithm") if isinstance(learner, Mapping) else None
    algorithm = given_settings.get("learner.algorithm") or nested_algorithm
    if algorithm and custom_algorithm_place(str(algorithm)):
        raise ConfigError(
            f"preset = {short_repr(name)}: expected {recipe} as the algorithm, got learner.algorithm = "
            f"{short_repr(algorithm)}, which has other settings. Leave the preset out, and give single settings"
        )
    tables = _recipe_tables(name, recipe)
    settings = _environment_table(tables, env)
    if settings is None:
        env_ids = sorted(_environment_ids(tables))
        raise ConfigError(
            f"env = {short_repr(env)}: the preset {name} of `train {recipe}` has no settings for it: expected one of "
            f"{', '.join(env_ids)}.{did_you_mean(env, env_ids)}"
        )
    settings = {key: value for key, value in settings.items() if key != LEFT_OUT} | {PRESET: name}
    if "rounds" in given_settings and "total_steps" not in given_settings:
        settings.pop("total_steps", None)  # it would win over the user's rounds
    return settings


def preset_note(config: Any) -> Iterator[str]:  # noqa: ANN401  (settings of a recipe)
    """Yield a line, at the start and in the plan, if the run's preset asks for what Flatwater does not have."""
    # Nothing is refused here: a run keeps its settings, whatever becomes of the preset that they came from. A file is
    # named by its recipe.
    file = next((file for file in _preset_files(config.preset) if file.stem == config.trainer), None)
    settings = None if file is None else _environment_table(read_toml(file), config.env)
    if settings and LEFT_OUT in settings:
        yield f"left out of the preset {config.preset}: {'; '.join(settings[LEFT_OUT])}"


def preset_names() -> list[str]:
    """Return the names of all presets."""
    return sorted({file.parent.name for file in PRESET_FOLDER.glob("*/*.toml")})


def _preset_files(name: str | None) -> list[Path]:
    """Return the files of a preset, one for each recipe; none for an unknown name."""
    return sorted(file for file in PRESET_FOLDER.glob("*/*.toml") if file.parent.name == name)


def _recipe_tables(name: str, recipe: str) -> dict[str, Any]:
    """Return the tables of a preset's file for a recipe.

    Raises:
        ConfigError: there is no such preset, or it has no settings for the recipe.
    """
    files = {file.stem: file for file in _preset_files(name)}
    if not files:
        names = preset_names()
        raise ConfigError(f"preset = {short_repr(name)}: expected {', '.join(names)}.{did_you_mean(name, names)}")
    if recipe not in files:
        raise ConfigError(
            f"preset = {short_repr(name)}: it has no settings for `train {recipe}`: expected one of {', '.join(files)}"
        )
    return read_toml(files[recipe])


def _environment_ids(tables: Mapping[str, Any]) -> list[str]:
    """Return the IDs of all environments of a preset's file: those with a table, and newer versions of these."""
    return [name for name in {**tables, **tables.get(NEWER, {})} if name not in (SHARED, NEWER)]


def _environment_table(tables: Mapping[str, Any], env: str) -> dict[str, Any] | None:
    """Return the settings for an environment, with those that all environments share; None if there are none."""
    # Without the module that registers the environment: `CartPole-v1` of `module:CartPole-v1`.
    env_id = (gymnasium_id(env) or "").rpartition(":")[2]
    if env_id not in _environment_ids(tables):
        return None
    id_with_settings = tables.get(NEWER, {}).get(env_id, env_id)  # of the version that has a table
    return merge_tables(tables[SHARED], tables[id_with_settings])
