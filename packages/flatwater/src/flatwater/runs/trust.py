"""Permission to run the code that a run's folder names: only where this user began the run here, or says so.

A run's configuration names code: a recipe, an environment, a teacher, a command. A user who types a name wants it run;
a folder that somebody has sent has the same file. So a command that composes a run asks here before the first name is
imported, and no other way leads from a configuration in a folder to a recipe (`Permit`).

A run counts as begun here where its settings that make its numbers, and the places where its code lies, are those with
which this user began or continued one: a copy of the folder is the same run, and an edited class is still the user's
own (`fingerprint.changed_sources` tells of it). Code that lies elsewhere is another's.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from flatwater.config.code import NamedCode, code_fields, find_named_code
from flatwater.config.toml import from_mapping, read_toml
from flatwater.named_imports import SHIPPED, Permit, is_trusted
from flatwater.recipe import find_recipe, recipe_names
from flatwater.rundir.layout import RunFolder
from flatwater.runs.config import RunConfig, rounds_alone
from flatwater.runs.started_runs import RECORD_PLACES, note_begun, was_begun
from flatwater.sources import enclosing_run_folder, module_files, module_place
from flatwater_watch.errors import ConfigError, TrustError
from flatwater_watch.files.directory import current_path as named_path
from flatwater_watch.sanitize import short_repr

C = TypeVar("C")

WRITTEN_SETTINGS = ("base.toml", "best.toml")
"""Names of settings files that a sweep or a study writes into its folder."""


def request_permit(
    settings: Mapping[str, Any],
    source: Path | str,
    *,
    folder: Path | None = None,
    trains: bool = False,
    replaced_names: Collection[str] = (),
    extra_values: object = None,
) -> Permit:
    """Return a permit to import the code which settings in a file name.

    Args:
        settings: settings as the file has them.
        source: the file or folder of the settings, as the user writes it.
        folder: the folder from which no code is taken, whatever the user says; None if there is none.
        trains: whether trackers and the command for events will be used as well.
        replaced_names: settings in whose place the user gives others now.
        extra_values: plain values that the code will be given as well, which name no code: a record covers these too.

    Raises:
        TrustError: somebody else may have written the settings, and the user has not said that he trusts them.
    """
    codes = [
        code
        for code in named_code(settings, source)
        if (trains or not code.declared.trains) and code.setting not in replaced_names
    ]
    # Before trust is asked: code in a run's folder was sent with it, and --trust does not help it.
    _refuse_own_code(codes, source, folder)
    # In this order: without code nothing is asked of the disk, and --trust needs no record.
    if codes and not is_trusted() and not was_begun(trust_key(settings, source, extra_values)):
        raise TrustError(_refusal(codes, source, trains=trains))
    return Permit(frozenset(code.value for code in codes))


def permit_run(
    folder: RunFolder, source: Path | str, *, trains: bool = False, replaced_names: Collection[str] = ()
) -> tuple[dict[str, Any], Permit]:
    """Return the settings of a run, unchecked, and a permit to import the code which they name.

    Args:
        folder: the run.
        source: the run as the user writes it, a folder or URL.
        trains: whether trackers and the command for events will be used as well.
        replaced_names: settings in whose place the user gives others now.

    Raises:
        ConfigError: the settings cannot be read.
        TrustError: somebody else may have written the settings; see `request_permit`.
    """
    settings = read_toml(folder.config)
    return settings, request_permit(
        settings, source, folder=folder.with_current_name.path, trains=trains, replaced_names=replaced_names
    )


def load_settings(cls: type[C], file: Path, *, replaced_names: Collection[str] = ()) -> C:
    """Return the settings in a file that the user names.

    A file of his own is his word. One that lies in the folder of a run, or that a sweep or a study has written, names
    what the maker of that folder wanted.

    Raises:
        ConfigError: the settings do not fit.
        TrustError: somebody else may have written the settings; see `request_permit`.
    """
    settings = read_toml(file)
    # Resolved: a link elsewhere does not make the file the user's own.
    if file.name in WRITTEN_SETTINGS or enclosing_run_folder(file.resolve()) is not None:
        request_permit(settings, file, trains=True, replaced_names=replaced_names)
    return rounds_alone(from_mapping(cls, settings, str(file)), replaced_names)


def note_file(file: Path, say: Callable[[str], None], **more: Any) -> None:  # noqa: ANN401  (settings)
    """Remember that this user has the settings in a file, with `more` in place of some; see `note_run`."""
    settings = read_toml(file) | more
    if codes := named_code(settings, file):
        remember_trust(settings, file, codes, say)


def permit_file(file: Path, **more: Any) -> None:  # noqa: ANN401  (settings)
    """Refuse a file that is not a configuration by itself and names code that may not be imported.

    Raises:
        TrustError: somebody else may have written the file; see `request_permit`.
    """
    request_permit(read_toml(file) | more, file, trains=True)


def note_run(folder: RunFolder, say: Callable[[str], None]) -> None:
    """Remember that this user trains the run here, where it names code at all; say where that cannot be written."""
    note_file(folder.config, say)


def remember_trust(
    settings: Mapping[str, Any],
    source: Path,
    codes: Sequence[NamedCode],
    say: Callable[[str], None],
    extra_values: object = None,
) -> None:
    """Remember that settings which name code are this user's; a record that cannot be written is told, and no error.

    Args:
        settings: settings as the file has them.
        source: the file of the settings.
        codes: the code that they name.
        say: told where the record cannot be written.
        extra_values: plain values that the code is given as well; None for none.
    """
    about = {"of": str(named_path(source).absolute()), "code": {code.setting: code.value for code in codes}}
    try:
        note_begun(trust_key(settings, source, extra_values), about)
    except OSError as error:
        say(
            f"the record of your runs ({RECORD_PLACES}) cannot be written ({error.strerror}). "
            "This run names code that does not come with Flatwater. To resume or evaluate the run, give --trust"
        )


def named_code(settings: Mapping[str, Any], source: Path | str) -> list[NamedCode]:
    """Return all code that settings name; imports none of it.

    Raises:
        ConfigError: the settings are nested too deeply.
    """
    try:
        return [*find_named_code(_settings_class(settings), settings)]
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error


def _settings_class(settings: Mapping[str, Any]) -> type[Any]:
    """Return the class that settings are read into; for a recipe that is not installed, the settings of all runs."""
    name = settings.get("trainer")
    if not isinstance(name, str) or name not in recipe_names():
        return RunConfig
    return find_recipe(name, SHIPPED).config


def trust_key(settings: Mapping[str, Any], source: Path | str, extra_values: object = None) -> str:
    """Return a hash of a run that names code: its fixed settings, the place of its code, and `extra_values`."""
    cls = _settings_class(settings)
    # Settings that may change at a resume are left out, but for those that name code.
    exempt_names = cls.open_ended - set(code_fields(cls)) - {"trainer"}
    key_settings = {name: value for name, value in settings.items() if name not in exempt_names}
    modules = {code.module for code in named_code(settings, source)} - {""}
    code = {module: module_place(module) for module in sorted(modules)}
    # Sorted, so that the order of a file's lines does not count; `str` for TOML's dates.
    return hashlib.sha256(
        json.dumps([key_settings, code, extra_values], sort_keys=True, default=str).encode()
    ).hexdigest()


def _refuse_own_code(codes: Sequence[NamedCode], source: Path | str, folder: Path | None) -> None:
    """Refuse code of the settings that lies in `folder` or in the folder of another run.

    Raises:
        TrustError: such code is there.
    """
    # Resolved places: neither a link nor `..` leads into the folder of a run unseen.
    for code in codes:
        for file in module_files(code.module) if code.module else ():
            in_folder = folder is not None and file.is_relative_to(folder.resolve())
            if in_folder or enclosing_run_folder(file) is not None:
                raise TrustError(
                    f"{source}: {code.setting} = {short_repr(code.value)}: {file} lies in the folder of a run, and "
                    "code there is never imported. Read the code; to use it, move it to the folder "
                    "where you call Flatwater."
                )


def _refusal(codes: Sequence[NamedCode], source: Path | str, *, trains: bool) -> str:
    """Return the message that refuses to import named code: the names, and how to permit them."""
    import_lines = [
        f"  {code.setting} = {short_repr(code.value)}{_missing_module(code)}" for code in codes if code.module
    ]
    whole_values = [f"  {code.setting} = {short_repr(code.value)}" for code in codes if not code.module]
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


def _missing_module(code: NamedCode) -> str:
    """Return words for a module that is not found: most likely the command runs in another folder than before."""
    is_found = module_place(code.module)
    return (
        ""
        if is_found
        else f": there is no module {short_repr(code.module)}, installed or in the folder of this command"
    )
