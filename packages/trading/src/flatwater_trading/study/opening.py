"""Opening of a study: a new folder with all that it needs to go on, or the folder of an existing study."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.config.toml import load_config
from flatwater.memory.planner import BUDGET_SHARE
from flatwater.named_imports import GIVEN_PERMIT
from flatwater.recipe import Recipe, find_recipe
from flatwater.rundir.layout import create_folder, write_config
from flatwater.runs.trust import load_settings, permit_file, remember_file
from flatwater.sweeps.differences import refuse_other_settings
from flatwater.sweeps.installation import require_optuna
from flatwater.sweeps.run_processes import ask_process
from flatwater.sweeps.space import read_space, require_evaluation
from flatwater_trading.study.config import DEFAULT_FOLDS, MAXIMUM_FOLDS, MAXIMUM_TRIALS, StudyConfig, read_seeds
from flatwater_trading.study.folder import StudyFolder
from flatwater_watch.errors import ConfigError, MemoryLimitError
from flatwater_watch.events.background import say_nothing
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.meters.process import free_cores
from flatwater_watch.options.bounds import Bounds, check_fields
from flatwater_watch.units import format_bytes

DEFAULT_SEEDS, DEFAULT_TRIALS = "3", 20
"""Default numbers of seeds of a study, and of trials of a search in each fold."""
_OTHER_FOLDER_ADVICE = "Give another folder with --run for a new study."


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """What the user asks of a study; what is left out follows from an existing study, or from defaults."""

    config: Any
    """Settings of a recipe on a panel (`panel_settings.PanelSettings`); runs differ from them in fold and seed."""
    folds: Annotated[int, Bounds(1, MAXIMUM_FOLDS)] | None
    """Number of folds; None for as many as the existing study has, or `DEFAULT_FOLDS`, or fewer if no more fit."""
    seeds: str | None
    """Seeds as `read_seeds` takes them; None for those of the existing study, or `DEFAULT_SEEDS`."""
    jobs: Annotated[int, Bounds(1, 1024)] | None
    """Runs at once; None for as many as there are free cores and as memory allows."""
    folder: Path | None
    """Folder of the study; None makes a new one."""
    space: Path | None = None
    """File of the settings that are searched in each fold; None for no search, or for that of the existing study."""
    trials: Annotated[int, Bounds(1, MAXIMUM_TRIALS)] | None = None
    """Trials of each search; None for as many as the existing study has, or `DEFAULT_TRIALS`."""

    def __post_init__(self) -> None:
        check_fields(self, "")


@dataclass(frozen=True, kw_only=True)
class OpenedStudy:
    """A study with a complete folder, ready to run."""

    folder: StudyFolder
    base: Any
    """Settings that all runs share, apart from fold and seed."""
    setup: StudyConfig
    """Folds, seeds, trials and panel."""
    jobs: int
    """Runs at once."""
    days: str
    """First and last test day: `2002-03-28 to 2021-04-21`."""
    about: tuple[str, ...]
    """Lines about the folds, if they were chosen, about the panel's file, and about what is odd in the prices."""
    splits_note: str
    """End of the result's note, on moves that look like splits; empty without any."""

    @property
    def recipe(self) -> Recipe:
        """The recipe of its runs."""
        return find_recipe(self.base.trainer, GIVEN_PERMIT)


@dataclass(frozen=True, kw_only=True)
class CompletedRequest:
    """A completed request, with the settings of the study in the folder and the values that the machine determines."""

    existing_folder: StudyFolder | None
    """Folder of the study that goes on; None for a new study."""
    existing: StudyConfig | None
    """Folds, seeds and panel of that study; None for a new study."""
    base: Any
    """Settings that all runs share, apart from fold and seed."""
    folds: int | None
    """Number of folds; None if it is chosen once the panel is known."""
    seeds: tuple[int, ...]
    jobs: int
    """Most runs at once: the request's, or as many as there are free cores. A study may have fewer runs."""
    cores: int
    """Free cores of the machine, which the runs at work share."""
    trials: int
    """Trials of the search in each fold; 0 without a search."""


def complete_request(request: StudyRequest) -> CompletedRequest:
    """Complete a request by the settings of the study in its folder, the defaults, and the machine's cores.

    Raises:
        ConfigError: folds, seeds or settings differ from those of the study in the folder.
    """
    folder = None if request.folder is None else StudyFolder(request.folder)
    existing_folder = folder if folder is not None and folder.study.is_file() else None
    existing = None if existing_folder is None else load_config(StudyConfig, existing_folder.study)
    folds = request.folds or (None if existing is None else existing.folds)
    if existing is not None and folds != existing.folds:
        raise ConfigError(
            f"--folds {folds}: the study in {request.folder} has {existing.folds}. {_OTHER_FOLDER_ADVICE}"
        )
    seeds = _choose_seeds(request, existing)
    cores = free_cores()
    base = request.config if existing_folder is None else _match_settings(request.config, existing_folder)
    if existing_folder is None or existing is None:
        trials = _trials_of_new_study(request, base)
    else:
        trials = _trials_of_existing_study(request, base, existing_folder, existing)
    return CompletedRequest(
        existing_folder=existing_folder,
        existing=existing,
        base=base,
        folds=folds,
        seeds=seeds,
        jobs=request.jobs or cores,
        cores=cores,
        trials=trials,
    )


def open_study_folder(request: StudyRequest, program: Sequence[str]) -> OpenedStudy:
    """Open the study in the requested folder, or a new one; `program` is the command of the process that plans it.

    Raises:
        FlatwaterError: settings, panel or folder cannot be used, or the runs do not fit into memory at once.
    """
    completed_request = complete_request(request)
    # In another process, so that this process stays free of torch while its runs take the memory.
    existing = completed_request.existing
    begun = None if existing is None else to_mapping(existing)
    answer = ask_process(
        program, {"config": to_mapping(completed_request.base), "folds": completed_request.folds, "begun": begun}
    )
    base = from_mapping(type(completed_request.base), answer["config"], "the study")
    most_jobs = min(completed_request.jobs, answer["folds"] * len(completed_request.seeds))
    jobs = jobs_that_fit(most_jobs, answer["needed_bytes"], answer["limit_bytes"], is_explicit=request.jobs is not None)
    # Decided once and written with the settings, as the last bits of a run follow from its threads.
    base = replace(base, threads=base.threads or max(1, completed_request.cores // jobs))
    setup = StudyConfig(
        folds=answer["folds"],
        seeds=completed_request.seeds,
        days=answer["days"],
        data=answer["data"],
        trials=completed_request.trials,
        # Kept from the beginning, as the settings of a trial follow from the trials that have ended before it.
        trials_at_once=min(jobs, max(1, completed_request.trials)) if existing is None else existing.trials_at_once,
    )
    folder = completed_request.existing_folder or StudyFolder(create_folder(request.folder, "study").path)
    if existing is None and request.space is not None:
        write_object(folder.space, read_regular(request.space))
        # Permitted from now on, as its values may name code: the user has given it.
        remember_file(folder.space, say_nothing, trainer=base.trainer)  # silent, as below
    write_config(base, folder.base)
    remember_file(folder.base, say_nothing)  # silent: if the file cannot be noted, each run says so
    write_config(setup, folder.study)  # last: a folder that has it is whole
    days = f"{answer['first_day']} to {answer['last_day']}"
    about = answer["about"]
    if completed_request.folds is None and setup.folds < DEFAULT_FOLDS:
        about = [fewer_folds_line(setup.folds), *about]
    return OpenedStudy(
        folder=folder,
        base=base,
        setup=setup,
        jobs=jobs,
        days=days,
        about=tuple(about),
        splits_note=answer["splits_note"],
    )


def fewer_folds_line(folds: int) -> str:
    """Return the line that says that fewer folds than by default were chosen."""
    return f"folds: {folds}, as the panel has too few rows for {DEFAULT_FOLDS}, the default, with these splits"


def _trials_of_new_study(request: StudyRequest, base: Any) -> int:  # noqa: ANN401  (settings of any recipe on a panel)
    """Return the number of trials of the search in each fold; 0 without a search. Check that the search can be made.

    Args:
        request: what the user asks.
        base: settings that all runs share.

    Raises:
        ConfigError: trials are given without a space, the space does not fit the settings, or Optuna is missing.
    """
    if request.space is None:
        if request.trials is not None:
            raise ConfigError(f"--trials {request.trials}: expected --space too, a TOML file of settings to search")
        return 0
    require_optuna()
    require_evaluation(base, read_space(request.space, base))  # trials are compared by evaluations
    return request.trials or DEFAULT_TRIALS


def _trials_of_existing_study(request: StudyRequest, base: Any, folder: StudyFolder, existing: StudyConfig) -> int:  # noqa: ANN401  (any recipe's)
    """Return the number of trials of the existing study; 0 without a search. Check that the request asks for the same.

    Args:
        request: what the user asks.
        base: settings that all runs share.
        folder: folder of the study.
        existing: setup of the study.

    Raises:
        ConfigError: the request has another number of trials or another space, or Optuna is missing.
    """
    if request.trials not in (None, existing.trials):
        raise ConfigError(
            f"--trials {request.trials}: the study in {request.folder} has {existing.trials}, and another number would "
            f"be a choice after a look at the test days. {_OTHER_FOLDER_ADVICE}"
        )
    if existing.trials:
        require_optuna()
        # Before the study's space is read, as its values may name code and a folder may come from somebody else.
        permit_file(folder.space, trainer=base.trainer)
    if request.space is None:
        return existing.trials
    space = read_space(request.space, base)
    if existing.trials and space == read_space(folder.space, base):
        return existing.trials
    search = "searches another space" if existing.trials else "was begun without a search"
    raise ConfigError(
        f"--space {request.space}: the study in {request.folder} {search}. Leave --space out, or give another "
        "folder with --run for a new study."
    )


def _choose_seeds(request: StudyRequest, existing: StudyConfig | None) -> tuple[int, ...]:
    """Return the seeds of the request, else those of the existing study, else `DEFAULT_SEEDS`.

    Raises:
        ConfigError: a seed of the existing study is left out, or the text names no seeds.
    """
    if request.seeds is None and existing is not None:
        return existing.seeds
    seeds = read_seeds(request.seeds or DEFAULT_SEEDS, request.config.seed)
    if existing is not None and (missing := [seed for seed in existing.seeds if seed not in seeds]):
        raise ConfigError(
            f"--seeds {request.seeds}: leaves out {', '.join(map(str, missing))}, which the study in {request.folder} "
            f"has. Seeds can be added and not taken away: a choice among them would be one more try. "
            f"{_OTHER_FOLDER_ADVICE}"
        )
    return seeds


def _match_settings(settings: Any, folder: StudyFolder) -> Any:  # noqa: ANN401  (settings of any recipe on a panel)
    """Check that the settings are those of the study in a folder; return them, with its threads if they have none.

    Raises:
        ConfigError: a setting that may not change differs.
    """
    existing = load_settings(type(settings), folder.base)
    settings = replace(settings, threads=settings.threads or existing.threads)
    # The panel's file may have moved: its contents are compared later, by their fingerprint.
    refuse_other_settings(replace(existing, panel=None), replace(settings, panel=None), folder.path, "study")
    return settings


def jobs_that_fit(jobs: int, needed_bytes: int, limit: int, *, is_explicit: bool) -> int:
    """Return the number of runs that can be at work at once: `jobs`, or as many as there is memory for, at least 1.

    Args:
        jobs: number of runs that cores allow, or that the user asked for.
        needed_bytes: bytes that a run takes.
        limit: bytes that there are; `BUDGET_SHARE` of them may be taken.
        is_explicit: whether the user asked for `jobs`; else fewer are taken without an error.

    Raises:
        MemoryLimitError: the user asked for `jobs`, and there is no memory for so many.
    """
    # The share of the machine that a single run may take, here for all runs together.
    allowance = int(BUDGET_SHARE * limit)
    # At least 1: a run that does not fit even alone is refused by its own plan.
    most_jobs = max(1, allowance // max(1, needed_bytes))
    if is_explicit and jobs > most_jobs:
        raise MemoryLimitError(
            f"--jobs {jobs}: this number of runs would take {format_bytes(jobs * needed_bytes)} at once, and "
            f"{format_bytes(allowance)} are allowed ({BUDGET_SHARE:.0%} of what there is). Give --jobs {most_jobs} or "
            "fewer."
        )
    return min(jobs, most_jobs)
