"""The same settings with several seeds: runs in one folder, one after the other, which go on as a whole.

The folder has the settings (`config.toml`), the seeds (`seeds.json`) and a run for each, so that a group that was
stopped or killed goes on where it was: finished runs stay, the current run is resumed, the others begin.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import refuse
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import RunFolder, create_folder, hold_lock, recorded_rounds, write_config
from flatwater.rundir.listing import run_state
from flatwater.rundir.seeds import MAXIMUM_RUNS, read_seeds, seed_folder
from flatwater.runs.callbacks import NO_CALLBACKS, Callbacks
from flatwater.runs.config import extend_mirror_url
from flatwater.runs.machine import release_freed_memory, use_threads
from flatwater.runs.planning import check_settings
from flatwater.runs.session import RunOutcome, read_config, resume, start_new_run, with_changes
from flatwater.runs.trust import note_run
from flatwater_watch.errors import require
from flatwater_watch.files.directory import write_object

TrainOne = Callable[..., RunOutcome]
"""Function that trains a run of a group, or goes on with it: of a console, and further arguments of `start_new_run`."""


@close_open_envs()
def create_group(
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    seeds: int | Sequence[int],
    run: Path | None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> RunFolder:
    """Make the folder of a group: its settings and its seeds.

    Args:
        config: settings of all its runs, a RunConfig of any recipe; its seed is the first where a number is given.
        seeds: number of seeds, or the seeds.
        run: the folder, new or empty; None for `runs/RECIPE-DATE-NUMBER`.
        callbacks: functions that are given in Python.

    Raises:
        FlatwaterError: no run could start with these settings.
    """
    count = seeds if isinstance(seeds, int) else len(seeds)
    require(count <= MAXIMUM_RUNS, "seeds", count, f"at most {MAXIMUM_RUNS}")  # before a list of them is made
    numbers = [config.seed + index for index in range(seeds)] if isinstance(seeds, int) else [*seeds]
    require(len(numbers) == len(set(numbers)) > 0, "seeds", seeds, "one or more numbers, each once")
    checked = check_settings(config, callbacks)
    plan = recipe_of_config(config).plan(checked.config)
    if not config.start_over_budget:
        refuse(plan)  # before the folder is made
    folder = create_folder(run, config.trainer, checked.taken)
    # The number of threads of the first run is that of all: sums in another order differ in their last bit.
    base = replace(checked.config, seed=numbers[0], threads=use_threads(config.threads))
    write_object(folder.seeds, json.dumps(numbers).encode() + b"\n")
    write_config(base, folder.config)
    note_run(folder, lambda _: None)
    return folder


def group_runs(folder: RunFolder, changes: Mapping[str, Any]) -> Generator[tuple[int, TrainOne]]:
    """Yield each unfinished seed of a group, with the function that trains it, which the caller calls at once.

    Args:
        folder: folder of the group.
        changes: settings that change from here on, as `resume` takes them.
    """
    with hold_lock(folder) as locked_folder:
        changed_names = {name for name, value in changes.items() if value is not None}
        base = with_changes(read_config(locked_folder, trains=True, replaced_names=changed_names), changes)
        write_config(base, locked_folder.config)
        note_run(locked_folder, lambda _: None)
        path = locked_folder.with_current_name.path
        for seed in read_seeds(locked_folder):
            run = seed_folder(path, seed)
            seed_config = extend_mirror_url(replace(base, seed=seed), path)
            if not run.config.is_file():
                yield seed, _begin(seed_config, run)
            elif run_state(run, recorded_rounds(run), seed_config.rounds) != "finished":
                mirror = None if changes.get("mirror") is None else seed_config.mirror
                own_changes = {**changes, "total_steps": None, "rounds": seed_config.rounds, "mirror": mirror}
                yield seed, partial(resume, run.path, **own_changes)
            # What a run leaves in this process must not count to the next run.
            release_freed_memory()


def _begin(config: Any, run: RunFolder) -> TrainOne:  # noqa: ANN401  (a RunConfig of any recipe)
    return lambda console, **how: start_new_run(config, run.path, console, **how)
