"""Reads settings and description from a run's folder, and imports nothing that they name."""

import json
from collections.abc import Mapping
from typing import Any

from flatwater.config.toml import read_toml
from flatwater.description import MAXIMUM_BYTES, Description, describe_recipe, parse_description
from flatwater.recipe import Recipe, find_installed_recipe, recipe_name
from flatwater.rundir.layout import RunFolder
from flatwater_watch.errors import RunError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.sanitize import short_repr

MAXIMUM_SETTINGS = 256 << 10
"""Most bytes of a run's config.toml: this package's recipes have 10 KiB, and tomllib reads 1 MiB a second."""


def write_description(folder: RunFolder, recipe: Recipe, settings: Mapping[str, Any]) -> None:
    """Write the recipe's description into the run's folder, for readers that do not import the recipe.

    Raises:
        ConfigError: a format string or a text of the recipe's cannot be shown safely.
        RunError: the disk is full or the folder read-only.
    """
    content = describe_recipe(recipe, settings).to_json()
    write_object(folder.description, json.dumps(content, indent=1).encode() + b"\n")


def read_settings(folder: RunFolder) -> dict[str, Any]:
    """Return the tables and values of the run's config.toml, unchecked.

    Raises:
        ConfigError: config.toml is missing, too large, a link, or no TOML.
    """
    return read_toml(folder.config, MAXIMUM_SETTINGS, follow_links=False)


def read_description(folder: RunFolder, settings: Mapping[str, Any]) -> Description:
    """Return the description by which a run is shown: from its recipe if that is installed, else from its folder.

    Args:
        folder: folder of the run.
        settings: settings of the run, as `read_settings` gives them.

    Raises:
        ConfigError: the settings name no recipe.
        RunError: the recipe is not installed, and its description in the folder is missing or damaged.
    """
    name = recipe_name(settings, folder.config)
    # Only an installed recipe is imported, as this user has chosen it; a name in the file may be anybody's.
    if (installed_recipe := find_installed_recipe(name)) is not None:
        return describe_recipe(installed_recipe, settings)
    try:
        description = parse_description(read_regular(folder.description, MAXIMUM_BYTES, follow_links=False))
        if description.name != name:
            quoted_name = short_repr(description.name)
            raise ValueError(f"name = {quoted_name}: expected {short_repr(name)}, as config.toml has it")  # noqa: TRY301  (caught below, where the file is named)
    except FileNotFoundError as absence:
        raise RunError(
            f"{folder.config}: trainer = {short_repr(name)}: this recipe is not installed, and the folder has "
            f"no {folder.description.name}, which describes how to show its runs. Install the recipe, and write the "
            "file with `flatwater resume`."
        ) from absence
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(
            f"{folder.description}: cannot be read as the description of a recipe: {reason}. Restore the file, or "
            "rewrite it with `flatwater resume`."
        ) from error
    return description
