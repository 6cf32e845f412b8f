"""Permission to import the code that a run's folder names: only if this user began the run here, or gives `--trust`.

A run's configuration names code: a recipe, an environment, a teacher, a command. A user who types a name wants it run,
but a folder may come from somebody else. So a command that composes a run asks here for a `Permit` before the first
name is imported, and a recipe cannot be found by a folder's configuration without one.

A run counts as begun here if this user has begun or resumed a run with the same settings, apart from those that may
change at a resume, and with its code at the same places. So a copy of the folder is the same run, and an edited class
is still the user's own (`fingerprint.changed_sources` reports it).
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from flatwater.config.code import NamedCode, code_fields, find_named_code
from flatwater.config.mappings import from_mapping, merge_tables
from flatwater.config.toml import read_toml
from flatwater.named_imports import SHIPPED_PERMIT, Permit, is_trusted
from flatwater.recipe import find_recipe, recipe_names
from flatwater.rundir.layout import RunFolder
from flatwater.runs.config import RunConfig, drop_total_steps
from flatwater.runs.started_runs import RECORD_PLACES, is_run_recorded, record_run
from flatwater.sources import enclosing_run_folder, module_files, module_place
from flatwater_watch.errors import ConfigError, TrustError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.directory import current_path as named_path
from flatwater_watch.sanitize import short_repr

C = TypeVar("C", bound=RunConfig)

WRITTEN_SETTINGS = ("base.toml", "best.toml")
"""Names of the settings files that a sweep or a study writes into its folder: they may come from somebody else."""


def request_permit(
    settings: Mapping[str, Any],
    source: Path | str,
    *,
    folder: Path | None = None,
    trains: bool = False,
    replaced_names: Collection[str] = (),
    extra_values: object = None,
) -> Permit:
    """Return a permit to import the code that settings name.

    Args:
        settings: settings as their file has them.
        source: the file or folder of the settings, as the user writes it, for messages.
        folder: the run's folder, from which no code is ever imported; None for settings outside of a run.
        trains: whether trackers and the command for events will be used as well.
        replaced_names: names of settings to which the user gives other values now; code that they name does not count.
        extra_values: further plain values that the code gets; the record must be of the same values.

    Raises:
        TrustError: somebody else may have written the settings, and the user has not said that he trusts them.
    """
    # Code for training alone, such as trackers, counts only where the run will be trained.
    named_codes = [
        code
        for code in list_named_code(settings, source)
        if (trains or not code.declared.training_only) and code.setting not in replaced_names
    ]
    # Refused even with --trust: code in a run's folder may have been sent with the folder.
    _refuse_code_in_runs(named_codes, source, folder)
    # The record is read last: settings without code, and --trust, need none.
    if named_codes and not is_trusted() and not is_run_recorded(trust_key(settings, source, extra_values)):
        raise TrustError(_refusal_message(named_codes, source, trains=trains))
    return Permit(frozenset(code.value for code in named_codes))


def permit_run(
    folder: RunFolder, source: Path | str, *, trains: bool = False, replaced_names: Collection[str] = ()
) -> tuple[dict[str, Any], Permit]:
    """Return the settings of a run, unchecked, and a permit to import the code that they name.

    Args:
        folder: the run.
        source: the run as the user writes it, a folder or URL, for messages.
        trains: whether trackers and the command for events will be used as well.
        replaced_names: names of settings to which the user gives other values now.

    Raises:
        ConfigError: the settings cannot be read.
        TrustError: somebody else may have written the settings; see `request_permit`.
    """
    settings = read_toml(folder.config)
    return settings, request_permit(
        settings, source, folder=folder.with_current_name.path, trains=trains, replaced_names=replaced_names
    )


def load_settings(
    cls: type[C],
    file: Path,
    base: Mapping[str, Any] = MappingProxyType({}),
    *,
    replaced_names: Collection[str] = (),
) -> C:
    """Return the settings in a file that the user gives, as an object of `cls`; `base` has those it leaves out.

    The code in a file of the user's own may be imported. A file in the folder of a run, or one that a sweep or a study
    has written, may come from somebody else, so it needs a permit.

    Raises:
        ConfigError: the settings do not fit.
        TrustError: somebody else may have written the settings; see `request_permit`.
    """
    settings = read_toml(file)
    # The resolved path: a link from elsewhere does not make the file the user's own.
    if file.name in WRITTEN_SETTINGS or enclosing_run_folder(file.resolve()) is not None:
        request_permit(settings, file, trains=True, replaced_names=replaced_names)
        # An earlier version may have written the file: then the tables that it did not have get the values of then.
        settings = {**cls.former_tables, **settings}
    config = from_mapping(cls, merge_tables(base, settings), str(file))
    return drop_total_steps(config, replaced_names)  # if the user gives `rounds` now


def remember_file(file: Path, say: ShowLine, **changes: Any) -> None:  # noqa: ANN401  (settings)
    """Record that the settings in a file, changed by `changes`, are this user's; see `remember_run`."""
    settings = read_toml(file) | changes
    if named_codes := list_named_code(settings, file):
        remember_trust(settings, file, named_codes, say)


def permit_file(file: Path, **changes: Any) -> None:  # noqa: ANN401  (settings)
    """Refuse a settings file, changed by `changes`, that names code which may not be imported.

    Raises:
        TrustError: somebody else may have written the file; see `request_permit`.
    """
    request_permit(read_toml(file) | changes, file, trains=True)


def remember_run(folder: RunFolder, say: ShowLine) -> None:
    """Record that this user trains the run here, if it names code; `say` shows a record that cannot be written."""
    remember_file(folder.config, say)


def remember_trust(
    settings: Mapping[str, Any],
    source: Path,
    named_codes: Sequence[NamedCode],
    say: ShowLine,
    extra_values: object = None,
) -> None:
    """Record that settings which name code are this user's.

    Args:
        settings: settings as their file has them.
        source: the file of the settings.
        named_codes: the code that the settings name.
        say: shows a line if the record cannot be written; that is no error.
        extra_values: further plain values that the code gets; None for none.
    """
    # For people who read the record; `named_path` is the file's path by its present names.
    facts = {"of": str(named_path(source).absolute()), "code": {code.setting: code.value for code in named_codes}}
    try:
        record_run(trust_key(settings, source, extra_values), facts)
    except OSError as error:
        say(
            f"the record of your runs ({RECORD_PLACES}) cannot be written ({error.strerror}). "
            "This run names code that does not come with Flatwater. To resume or evaluate the run, give --trust"
        )


def list_named_code(settings: Mapping[str, Any], source: Path | str) -> list[NamedCode]:
    """Return all code that settings name, without an import of it.

    Raises:
        ConfigError: the settings are nested too deeply.
    """
    try:
        return [*find_named_code(_class_of_settings(settings), settings)]
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error


def _class_of_settings(settings: Mapping[str, Any]) -> type[Any]:
    """Return the configuration class of the settings' recipe; `RunConfig` if the recipe is not installed."""
    name = settings.get("trainer")
    if not isinstance(name, str) or name not in recipe_names():
        return RunConfig
    return find_recipe(name, SHIPPED_PERMIT).config


def trust_key(settings: Mapping[str, Any], source: Path | str, extra_values: object = None) -> str:
    """Return a hash that identifies a run with code: of its fixed settings, its code's places, and `extra_values`."""
    cls = _class_of_settings(settings)
    # Without settings that may change at a resume, except those that name code, such as the recipe (`trainer`).
    exempt_names = cls.changeable_settings - {*code_fields(cls), "trainer"}
    key_settings = {name: value for name, value in settings.items() if name not in exempt_names}
    modules = {code.module for code in list_named_code(settings, source)} - {""}  # a command has no module
    places = {module: module_place(module) for module in sorted(modules)}
    # Keys are sorted, so that the order of a file's lines does not matter; `str` writes TOML's dates.
    text = json.dumps([key_settings, places, extra_values], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_code_in_runs(named_codes: Sequence[NamedCode], source: Path | str, folder: Path | None) -> None:
    """Refuse code of the settings that lies in `folder` or in the folder of another run.

    Raises:
        TrustError: such code is there.
    """
    # The paths are resolved, so that neither a link nor `..` hides the folder of a run.
    for code in named_codes:
        for file in module_files(code.module) if code.module else ():
            is_in_folder = folder is not None and file.is_relative_to(folder.resolve())
            if is_in_folder or enclosing_run_folder(file) is not None:
                raise TrustError(
                    f"{source}: {code.setting} = {short_repr(code.value)}: {file} lies in the folder of a run, and "
                    "code there is never imported. Read the code; to use it, move it to the folder "
                    "where you call Flatwater."
                )


def _refusal_message(named_codes: Sequence[NamedCode], source: Path | str, *, trains: bool) -> str:
    """Return the message that refuses named code: it lists the code, and says how to permit it.

    Code with a module would be imported; a value without one, such as a command, would be used whole.
    """
    import_lines = [
        f"  {code.setting} = {short_repr(code.value)}{_missing_module_hint(code)}"
        for code in named_codes
        if code.module
    ]
    whole_values = [f"  {code.setting} = {short_repr(code.value)}" for code in named_codes if not code.module]
    reason = (
        "names code that does not come with Flatwater, and there is no record that you began this run on this machine"
    )
    lines = [f"{source}: {reason} with this code. Nothing of it was run."]
    lines += ["It would import:", *import_lines] if import_lines else []
    lines += ["It would call, connect to, or hand to code:", *whole_values] if whole_values else []
    alternative = " An option such as --on-event '' replaces the setting." if trains and whole_values else ""
    lines.append(
        f"If you know who made the run and what its code does, give --trust (in Python: trust=True).{alternative} "
        "`flatwater runs`, `report` and `compare` show a run without its code."
    )
    return "\n".join(lines)


def _missing_module_hint(code: NamedCode) -> str:
    """Return the end of the code's line in the message: a hint if its module is not found, else empty."""
    if module_place(code.module):
        return ""
    # Most likely the command runs in another folder than before.
    return f": there is no module {short_repr(code.module)}, installed or in the folder of this command"
