"""The beginning of a sweep: it makes a new folder with the settings and the space, or reopens an earlier folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.memory.planner import BUDGET_SHARE
from flatwater.rundir.layout import create_folder, write_config
from flatwater.runs.trust import load_settings, permit_file, remember_file
from flatwater.sweeps.differences import refuse_other_settings, setting_differences
from flatwater.sweeps.folder import SweepFolder
from flatwater.sweeps.run_processes import ask_process
from flatwater.sweeps.space import Space, read_space, require_evaluation
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.meters.limit import memory_limits
from flatwater_watch.meters.process import free_cores
from flatwater_watch.options.bounds import Bounds, check_fields


@dataclass(frozen=True, kw_only=True)
class SweepOrder:
    """Arguments of a sweep, as the user gives them."""

    config: Any
    """RunConfig of any kind: the settings that all trials share, apart from those that are searched."""
    space: Path | None
    """File of the space; None if the sweep has it already."""
    trials: Annotated[int, Bounds(1, 1 << 20)] | None
    """Number of trials in all; None for as many as the sweep was asked for before."""
    folder: Path | None
    """Folder of the sweep; None makes a new folder."""
    prune: bool
    """Whether to end trials that fall behind."""
    at_once: Annotated[int, Bounds(1, 1024)] | None = None
    """Number of trials that train at the same time; None for as many as the sweep was begun with, or 1."""

    def __post_init__(self) -> None:
        check_fields(self, "")


@dataclass(frozen=True, kw_only=True)
class OpenedSweep:
    """A sweep whose folder has its settings and its space."""

    folder: SweepFolder
    base: Any
    space: Space


def open_sweep(order: SweepOrder, program: Sequence[str]) -> OpenedSweep:
    """Return the sweep that was begun in the order's folder; if there is none, begin a new sweep.

    Args:
        order: arguments of the sweep.
        program: command of a process that checks the settings.
    """
    if order.folder is not None and SweepFolder(order.folder).base.is_file():
        return _reopen_sweep(order, SweepFolder(order.folder), program)
    return _create_sweep(order, program)


def _create_sweep(order: SweepOrder, program: Sequence[str]) -> OpenedSweep:
    """Make a sweep's folder with its space and the settings of all trials, among them threads and memory budget.

    Raises:
        ConfigError: the order names no space.
    """
    if order.space is None:
        raise ConfigError("--space: is missing. Give a TOML file of the settings to search.")
    space = read_space(order.space, order.config)
    require_evaluation(order.config, space)
    at_once = order.at_once or 1
    # All trials have the same number of threads: sums in another order differ in their last bit.
    threads = order.config.threads or max(1, free_cores() // at_once)
    # Trials that train at once share the memory: without a budget each would take nearly all of it.
    budget = order.config.budget or (None if at_once == 1 else f"{_allowed_bytes() // at_once}")
    base = _prepare_config(replace(order.config, threads=threads, budget=budget), program)
    folder = SweepFolder(create_folder(order.folder, f"sweep-{base.trainer}").path)
    write_object(folder.space, read_regular(order.space))
    # Recorded as this user's, so that a later start may import the code that the files name.
    remember_file(folder.space, _print_nothing, trainer=base.trainer)
    write_config(base, folder.base)  # last: a folder that has it is whole
    remember_file(folder.base, _print_nothing)
    return OpenedSweep(folder=folder, base=base, space=space)


def _allowed_bytes() -> int:
    return int(BUDGET_SHARE * min(memory_limits().values()))


def _reopen_sweep(order: SweepOrder, folder: SweepFolder, program: Sequence[str]) -> OpenedSweep:
    """Reopen the sweep of a folder, if the space and settings of the order are those that it was begun with.

    Writes the current settings to `folder.base`, and records that this user trusts the code that this file and the
    file of the space name.

    Raises:
        ConfigError: the order names another space, or settings differ that may not.
    """
    begun_config = load_settings(type(order.config), folder.base)
    # Before the space is read: its values may name code, and a folder may come from somebody else.
    permit_file(folder.space, trainer=begun_config.trainer)
    space = read_space(folder.space, begun_config)
    if order.space is not None and read_space(order.space, begun_config) != space:
        raise ConfigError(
            f"--space {order.space}: the sweep in {folder.path} searches another space. Leave --space out to continue "
            "the sweep, or give another folder for a new sweep."
        )
    current_config = replace(order.config, threads=order.config.threads or begun_config.threads)
    if setting_differences(begun_config, current_config, "the sweep"):
        # Compared as a run stores them: the same file may be given by another path now.
        current_config = _prepare_config(current_config, program)
    refuse_other_settings(begun_config, current_config, folder.path, "sweep")
    write_config(current_config, folder.base)
    remember_file(folder.base, _print_nothing)
    remember_file(folder.space, _print_nothing, trainer=current_config.trainer)
    return OpenedSweep(folder=folder, base=current_config, space=space)


def _print_nothing(_: str) -> None:
    """Drop a line: each trial prints by itself that the record of trust cannot be written."""


def _prepare_config(config: Any, program: Sequence[str]) -> Any:  # noqa: ANN401  (a RunConfig of any kind)
    """Return the settings as a run stores them, once a process has checked that a run could start with them."""
    # A process of its own, which ends: else the sweep would hold the memory of data and libraries while trials train.
    answer = ask_process(program, {"config": to_mapping(config)})
    return from_mapping(type(config), answer["config"], "the sweep")
