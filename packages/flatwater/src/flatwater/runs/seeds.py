"""A group of runs with the same settings and several seeds, in one folder, trained one after the other.

The folder has the settings (`config.toml`), the seeds (`seeds.json`) and a run for each seed. A group that was stopped
or killed can be resumed: finished runs stay, the run that was stopped is resumed, and the others begin.
"""

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import require_fit
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder, create_folder, hold_lock, recorded_rounds, write_config
from flatwater.rundir.listing import run_state
from flatwater.rundir.seeds import MAXIMUM_RUNS, read_seeds, seed_folder
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks
from flatwater.runs.config import extend_mirror_url
from flatwater.runs.machine import release_freed_memory, use_threads
from flatwater.runs.session import RunOutcome, read_config, resume, start_new_run
from flatwater.runs.settings_checks import check_settings, with_changes
from flatwater.runs.trust import remember_run
from flatwater.sources import current_folder
from flatwater_watch.errors import require
from flatwater_watch.events.background import say_nothing
from flatwater_watch.files.directory import write_object

TrainSeed = Callable[..., RunOutcome]
"""Function that trains or resumes one run of a group, from a console and further arguments of `start_new_run`."""


@close_open_envs()
def create_group(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    seeds: int | Sequence[int],
    run: Path | None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> RunFolder:
    """Make the folder of a group, with its settings and its seeds. Nothing is trained yet.

    Args:
        config: settings of all runs.
        seeds: the seeds, or their number: then they count up from the seed in `config`.
        run: the folder, new or empty; None for `runs/RECIPE-DATE-NUMBER`.
        callbacks: functions that the user gives in Python.

    Raises:
        FlatwaterError: no run could start with these settings.
    """
    home, seed_list = current_folder(), _list_seeds(seeds, config.seed)
    for seed in seed_list:
        replace(config, seed=seed)  # refuses a seed that no run can have, before the folder is made
    checked_settings = check_settings(config, callbacks)
    plan = recipe_of_config(config).plan(checked_settings.config)
    if not config.start_over_budget:
        require_fit(plan)  # before the folder is made
    # `taken_names` are those of runs at the mirror's URL, which a new run must not overwrite.
    folder = create_folder(run, config.trainer, checked_settings.taken_names, home)
    # All runs have the same number of threads, set now: with another number the last bits of sums differ.
    base = replace(checked_settings.config, seed=seed_list[0], threads=use_threads(config.threads))
    write_object(folder.seeds, json.dumps(seed_list).encode() + b"\n")
    write_config(base, folder.config)
    remember_run(folder, say=say_nothing)
    return folder


def _list_seeds(seeds: object, first: int) -> list[int]:
    """Return the seeds as Python's numbers: those of a list or an array, or as many as a number says, from `first` on.

    Raises:
        ConfigError: they are not whole numbers, too many, none, or one comes twice.
    """
    if isinstance(seeds, Integral):
        seeds = range(first, first + int(seeds))
    expected = f"their number, or a list of whole numbers, each once, and at most {MAXIMUM_RUNS}"
    require(isinstance(seeds, Sized) and isinstance(seeds, Iterable), "seeds", seeds, expected)
    numbers: Any = seeds  # for the type checker, which does not know what `require` has refused
    # The length first: a range of any length is not made a list.
    require(len(numbers) <= MAXIMUM_RUNS and all(isinstance(n, Integral) for n in numbers), "seeds", seeds, expected)
    seed_list = [int(number) for number in numbers]
    require(len(seed_list) == len(set(seed_list)) > 0, "seeds", seeds, expected)
    return seed_list


def group_runs(folder: RunFolder, changes: Mapping[str, Any]) -> Generator[tuple[int, TrainSeed]]:
    """Yield each unfinished seed of a group, and the function that trains its run, to be called before the next seed.

    Args:
        folder: folder of the group, which is locked meanwhile.
        changes: new values of settings, as `resume` takes them; they are saved as the group's settings.
    """
    with hold_lock(folder) as locked_folder:
        changed_names = {name for name, value in changes.items() if value is not None}
        base = with_changes(read_config(locked_folder, trains=True, replaced_names=changed_names), changes)
        write_config(base, locked_folder.config)
        remember_run(locked_folder, say=say_nothing)
        path = locked_folder.with_current_name.path
        for seed in read_seeds(locked_folder):
            run = seed_folder(path, seed)
            seed_config = extend_mirror_url(replace(base, seed=seed), path)
            if not run.config.is_file():
                yield seed, _bind_start(seed_config, run)
            elif run_state(run, recorded_rounds(run), seed_config.rounds) != "finished":
                # A mirror that the user does not change now stays that of the run's own settings.
                mirror = None if changes.get("mirror") is None else seed_config.mirror
                # `rounds` of the group already follows from a new `total_steps`.
                own_changes = {**changes, "total_steps": None, "rounds": seed_config.rounds, "mirror": mirror}
                yield seed, partial(resume, run.path, **own_changes)
            # Memory that a run leaves in this process must not count to the next run.
            release_freed_memory()


def _bind_start(config: Any, run: RunFolder) -> TrainSeed:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return a function that starts one run of the group; it takes a console and further arguments."""
    return lambda console, **arguments: start_new_run(config, run.path, console, **arguments)
