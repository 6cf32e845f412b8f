"""Training, planning, judging and using runs from Python: the commands as functions.

    import flatwater as fw

    run = fw.train("ppo", env="CartPole-v1", rounds=30, on_round=lambda r: print(r.metrics["return/mean"]))
    print(run.result["players"]["policy"]["return"])
    action = fw.load(run.path).act(observation)

A run that is begun here is a run like any other: its folder, its checkpoints and its page are the same, and the
commands know it. Settings are those of `flatwater train RECIPE --help`, tables as dicts: `learner={"lr": 3e-4}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from signal import SIGINT
from typing import Any, overload

from rich.console import Console

from flatwater.comparisons.named import compare_named
from flatwater.config.mappings import flat_settings, from_mapping, merge_tables, to_mapping
from flatwater.config.toml import read_toml
from flatwater.description import Description
from flatwater.envs.makers import ENV, find_env_object, hand_over_env, refuse_fixed_number, replace_env_object
from flatwater.envs.open_envs import close_open_envs
from flatwater.memory.planner import Plan
from flatwater.metrics.jsonl import read_metrics
from flatwater.named_imports import trust_code
from flatwater.presets.lookup import preset_settings
from flatwater.recipe import lazy_function, recipe_in_env, recipe_of_config
from flatwater.reports.page import run_page
from flatwater.reports.records import read_run
from flatwater.reports.result_blocks import result_table
from flatwater.rundir.description import read_description, read_settings
from flatwater.rundir.layout import RunFolder, new_run_path, open_folder
from flatwater.rundir.listing import read_run_line
from flatwater.rundir.results import read_result
from flatwater.rundir.seeds import begun_runs, read_seeds
from flatwater.runs.callbacks import PYTHON_OBJECT, Callbacks, OnRound
from flatwater.runs.config import drop_total_steps
from flatwater.runs.evaluate import evaluate as evaluate_run
from flatwater.runs.fork import find_parent
from flatwater.runs.machine import usual_torch_modes
from flatwater.runs.policy_export import export as write_policy
from flatwater.runs.policy_file import read_policy
from flatwater.runs.seeds import create_group, group_runs
from flatwater.runs.session import RunOutcome, read_config, restore_run
from flatwater.runs.session import resume as resume_run
from flatwater.runs.session import start_new_run as start_run
from flatwater.runs.settings_checks import check_and_plan
from flatwater.runs.signals import SIGNAL_EXIT_BASE, end_on_signals
from flatwater.runs.trust import load_settings
from flatwater.storage.objects import is_url
from flatwater.trainers.logged_numbers import OnEpisode
from flatwater_watch.errors import ConfigError, Terminated
from flatwater_watch.events.background import say_nothing
from flatwater_watch.files.directory import expand_home
from flatwater_watch.files.output import PAGE_OUTPUT, check_output, replace_output
from flatwater_watch.pages.blocks import Paragraph, Piece
from flatwater_watch.pages.document import fragment
from flatwater_watch.terminal import lasting_terminal, silent_terminal

draw_run = lazy_function("flatwater.reports.picture:draw_run")
"""Draws a finished run; matplotlib is imported by the first call."""


@dataclass(frozen=True)
class TrainedRun:
    """A run's folder, after training."""

    path: Path
    finished: bool = True
    """False if the run was stopped before its last round; `resume` goes on."""
    env: Any = field(default=None, repr=False, compare=False)
    """The environment that was given as an object, for `resume` and `evaluate`; None if the run has its name."""

    @property
    def _run_folder(self) -> RunFolder:
        return open_folder(self.path)

    @cached_property
    def recipe(self) -> Description:
        """Description of the recipe by which the run was trained, from its folder; nothing is imported for it."""
        return read_description(self._run_folder, read_settings(self._run_folder))

    @property
    def result(self) -> dict[str, Any] | None:
        """`result.json`: the score of the trained policy next to the baselines; None if the run has not finished."""
        return read_result(self._run_folder.result, self.recipe)

    @property
    def metrics(self) -> dict[str, list[float]]:
        """Every number of every round: a column for each name, NaN where a round does not have the number."""
        return read_metrics(self._run_folder.metrics)

    def resume(
        self,
        rounds: int | None = None,
        *,
        on_round: OnRound | None = None,
        on_episode: OnEpisode | None = None,
        quiet: bool = False,
    ) -> "TrainedRun":
        """Go on, bit for bit, until `rounds` rounds in all; see `flatwater.resume`."""
        return resume(self.path, rounds, env=self.env, on_round=on_round, on_episode=on_episode, quiet=quiet)

    def evaluate(self, *, holdout: bool = False, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  (settings of any type)
        """Play the trained policy again; see `flatwater.evaluate`."""
        return evaluate(self.path, env=self.env, holdout=holdout, **changes)

    def report(self, out: Path | str | None = None) -> Path:
        """Write the run as one web page to `out`, or to `report.html` in its folder; return the file."""
        default_file = self.path / "report.html"
        target = default_file if out is None else expand_home(out)
        # Before the page is made: a place that cannot be written is refused at once.
        check_output("out =", target, PAGE_OUTPUT, run_default=default_file)
        html = run_page(read_run(self.path))
        replace_output(target, html.encode(errors="replace"), PAGE_OUTPUT, run_default=default_file)
        return target

    def _repr_html_(self) -> str:
        """Return the table of the result as HTML, for a notebook; the run's path while there is no result."""
        result = self.result
        return fragment(Paragraph(Piece(str(self.path))) if result is None else result_table(self.recipe, result))


@dataclass(frozen=True)
class TrainedSeeds:
    """Runs with the same settings and several seeds, in one folder."""

    path: Path
    env: Any = field(default=None, repr=False, compare=False)
    """The environment, as in a `TrainedRun`."""

    @property
    def runs(self) -> list[TrainedRun]:
        """Runs that have begun, in the order of their seeds."""
        states = {run: read_run_line(RunFolder(run)).state for run in begun_runs(self.path)}
        return [TrainedRun(run, finished=state == "finished", env=self.env) for run, state in states.items()]

    @property
    def finished(self) -> bool:
        """Whether the run of every seed has begun and finished; if not, `resume` goes on."""
        return len(self.runs) == len(read_seeds(RunFolder(self.path))) and all(run.finished for run in self.runs)

    def resume(
        self,
        rounds: int | None = None,
        *,
        on_round: OnRound | None = None,
        on_episode: OnEpisode | None = None,
        quiet: bool = False,
        trust: bool = False,
        **changes: Any,  # noqa: ANN401  (settings of any type)
    ) -> "TrainedSeeds":
        """Go on with all runs that have not finished, one after the other; see `flatwater.resume`."""
        folder = RunFolder(self.path)
        changes = {"rounds": rounds, **changes}
        with trust_code(trust), hand_over_env(self.env), closing(group_runs(folder, changes)) as runs:
            for _seed, train_one in runs:
                with usual_torch_modes(), _end_on_early_signals():
                    outcome = train_one(_make_console(quiet=quiet), on_round=on_round, on_episode=on_episode)
                if not _finish_run(outcome, self.env).finished:
                    break  # `round.stop()` of one run stops the group
        return self


@overload
def train(recipe: str, *, seeds: None = None, **settings: Any) -> TrainedRun: ...  # noqa: ANN401  (settings of any type)
@overload
def train(recipe: str, *, seeds: int | Sequence[int], **settings: Any) -> TrainedSeeds: ...  # noqa: ANN401  (settings of any type)
def train(
    recipe: str,
    *,
    run: Path | str | None = None,
    config: Path | str | None = None,
    seeds: int | Sequence[int] | None = None,
    on_round: OnRound | str | None = None,
    on_episode: OnEpisode | str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> TrainedRun | TrainedSeeds:
    """Train by a recipe in a new run folder. Returns the run, or the runs of several `seeds`.

    Args:
        recipe: `ppo`, `evolve`, `grow`, `teach`, one of an installed package such as `erl`, or `package.module:NAME` of
            one of your own.
        run: the folder, new or empty; left out, `runs/RECIPE-DATE-NUMBER`.
        config: TOML file with settings; those given here win over it.
        seeds: number of runs that are trained one after the other, with the seeds `seed`, `seed` + 1, ...; or a list
            of seeds; left out, one run.
        on_round: called with each round that has ended, before it is recorded: `round.log(name, value)` adds a number
            to it, `round.stop()` ends the run there. A function, or package.module:function.
        on_episode: called with each finished episode of training; the round has the mean of what `episode.log(name,
            value)` gives. A function, or package.module:function; a run that was begun with a function is resumed
            with one.
        quiet: print nothing.
        settings: settings of the recipe, tables as dicts. `env` may be a class, a function, an environment of Gymnasium
            (each copy is a copy of it) or a vector environment as well, and `env_kwargs` its arguments.

    Raises:
        FlatwaterError: settings, data or folder cannot be used, or the run does not fit into memory: nothing was
            trained.
        KeyboardInterrupt: Ctrl-C; where training had begun, the step was finished and a checkpoint saved.
        SystemExit: SIGTERM, SIGHUP or SIGUSR1, after the same steps; its code is that of the command, such as 143.
    """
    # A name is a setting. A function cannot be written to config.toml, so it is passed on beside the settings.
    if isinstance(on_round, str):
        settings["on_round"] = on_round
    if on_episode is not None:
        settings["on_episode"] = on_episode if isinstance(on_episode, str) else PYTHON_OBJECT
    env, full_config = find_env_object(settings), resolve_config(recipe, config, settings)
    callbacks = {"on_round": on_round, "on_episode": on_episode}
    functions: dict[str, Any] = {name: call for name, call in callbacks.items() if not isinstance(call, str)}
    if seeds is not None:
        with usual_torch_modes(), hand_over_env(env):
            group = create_group(full_config, seeds, new_run_path(run), Callbacks(**functions))
        return TrainedSeeds(group.path, env).resume(quiet=quiet, **functions)
    with usual_torch_modes(), _end_on_early_signals(), hand_over_env(env):
        outcome = start_run(full_config, new_run_path(run), _make_console(quiet=quiet), **functions)
    return _finish_run(outcome, env)


def resume(
    run: TrainedRun | Path | str,
    rounds: int | None = None,
    *,
    env: Any = None,  # noqa: ANN401  (what the user has)
    on_round: OnRound | None = None,
    on_episode: OnEpisode | None = None,
    quiet: bool = False,
    trust: bool = False,
    **changes: Any,  # noqa: ANN401  (settings of any type)
) -> TrainedRun:
    """Go on with a run from its newest intact checkpoint, bit for bit.

    Args:
        run: result of `train`, folder of the run, or the URL at which it is mirrored.
        rounds: number of rounds in all; left out, as many as the run was begun with.
        env: the environment, where the run was begun with an object that has no name.
        on_round: called with each round, as in `train`.
        on_episode: called with each finished episode, as in `train`; the run must have been begun with one.
        quiet: print nothing.
        trust: run the code that the run names, and its command for events, though there is no record that you began it
            on this machine.
        changes: `budget`, `mirror`, `trackers` or `panel` from here on.

    Raises:
        FlatwaterError: there is no intact checkpoint, configuration or data are not those of the checkpoint, or the run
            names code that may be somebody else's.
        KeyboardInterrupt, SystemExit: a signal stopped it, as in `train`.
    """
    place, env = _find_run(run, env)
    with usual_torch_modes(), _end_on_early_signals(), trust_code(trust), hand_over_env(env):
        console = _make_console(quiet=quiet)
        outcome = resume_run(place, console, rounds=rounds, on_round=on_round, on_episode=on_episode, **changes)
    return _finish_run(outcome, env)


def fork(
    parent: TrainedRun | Path | str,
    /,
    *,
    run: Path | str | None = None,
    checkpoint: int | None = None,
    on_round: OnRound | None = None,
    on_episode: OnEpisode | None = None,
    quiet: bool = False,
    trust: bool = False,
    **settings: Any,  # noqa: ANN401  (of the recipe)
) -> TrainedRun:
    """Go on from the exact state of a run with other settings, as a new run; the parent run is only read.

    Args:
        parent: result of `train`, or the folder of a run.
        run: the new run's folder, new or empty; left out, `runs/RECIPE-DATE-NUMBER`.
        checkpoint: round of the checkpoint to go on from; left out, the newest between two rounds.
        on_round: called with each round, as in `train`.
        on_episode: called with each finished episode, as in `train`; the run must have been begun with one.
        quiet: print nothing.
        trust: see `resume`.
        settings: settings that are changed, tables as dicts.

    Raises:
        FlatwaterError: the settings need another state or other data than the run has, there is no such checkpoint,
            or the run names code that may be somebody else's.
        KeyboardInterrupt, SystemExit: a signal stopped it, as in `train`.
    """
    # The parent's environment object, unless the fork gets another environment.
    env = parent.env if isinstance(parent, TrainedRun) and ENV not in settings else find_env_object(settings)
    settings = replace_env_object(settings)
    with usual_torch_modes(), _end_on_early_signals(), trust_code(trust), hand_over_env(env):
        console = _make_console(quiet=quiet)
        folder = open_folder(Path(_find_run(parent, env)[0]))
        parent_config = read_config(folder, trains=True, replaced_names=flat_settings(settings))
        base = to_mapping(drop_total_steps(parent_config, settings))  # `rounds` wins over its `total_steps`
        config = from_mapping(type(parent_config), merge_tables(base, settings), f"fork of {folder.path}")
        parent_state = find_parent(folder, parent_config, config, checkpoint, console.print)
        new_folder = new_run_path(run)
        outcome = start_run(config, new_folder, console, parent=parent_state, on_round=on_round, on_episode=on_episode)
    return _finish_run(outcome, env)


def plan(recipe: str, *, config: Path | str | None = None, **settings: Any) -> Plan:  # noqa: ANN401  (settings of any type)
    """Return the plan of a run: the bytes that it would hold, by owner, with the same arguments as for `train`.

    Raises:
        FlatwaterError: no run could start with these settings. Whether it fits into memory is `plan.fits`.
    """
    with usual_torch_modes(), hand_over_env(find_env_object(settings)):
        _checked_settings, plan = check_and_plan(resolve_config(recipe, config, settings), trains=False)
        return plan


def evaluate(
    run: TrainedRun | Path | str,
    *,
    env: Any = None,  # noqa: ANN401  (what the user has)
    holdout: bool = False,
    video: Path | str | None = None,
    video_episodes: int = 1,
    trust: bool = False,
    **changes: Any,  # noqa: ANN401  (settings of a recipe)
) -> dict[str, Any]:
    """Play the policy of a run's newest checkpoint against the baselines.

    Args:
        run: result of `train`, folder of the run, or the URL at which it is mirrored.
        env: the environment, where the run was begun with an object that has no name.
        holdout: play days or episodes that no part of training has seen. Each look is logged: a holdout that is
            looked at often is no longer unseen.
        video: a .gif or .mp4 file for a video of the first episodes; the result has their returns as `video`.
        video_episodes: number of episodes in the video.
        trust: run the code that the run names, though there is no record that you began it on this machine: its
            environment, recipe or algorithm, if they do not come with Flatwater.
        changes: for a run of traders, `panel`: where its panel lies now (newer days in it are left out), and
            `benchmark`: an instrument that the traders are compared with as well.

    Raises:
        FlatwaterError: there is no run, nothing to be judged yet, or the run names code that may be somebody else's.
    """
    place, env = _find_run(run, env)
    with usual_torch_modes(), trust_code(trust), hand_over_env(env):
        file = None if video is None else expand_home(video)
        return evaluate_run(
            place, holdout=holdout, say=say_nothing, video=file, video_episodes=video_episodes, **changes
        )


def compare(*runs: TrainedRun | TrainedSeeds | Path | str, page: Path | str | None = None) -> dict[str, Any]:
    """Return two to eight runs, groups of seeds or studies side by side, as `flatwater compare --json` prints them.

    Args:
        runs: results of `train`, folders of runs or of studies, or URLs at which runs are mirrored.
        page: file for a web page with the curves of all runs over each other; left out, no page is written.

    Returns:
        `runs`, each with its letter, the settings that differ, its last metrics, its result and what its seeds say; and
        `differences`, each against the first, with an interval where both are groups of seeds, or traders on the same
        days, and a reason where not.

    Raises:
        FlatwaterError: the runs are too few or too many, one cannot be read, or the page cannot be written.
    """
    page_file = None if page is None else expand_home(page)
    if page_file is not None:
        check_output("page =", page_file, PAGE_OUTPUT)
    places = [_find_run(run, env=None)[0] for run in runs]
    comparison = compare_named([*map(str, places)], say_nothing)
    if page_file is not None:
        html = comparison.draw_page(datetime.now().astimezone())
        replace_output(page_file, html.encode(errors="replace"), PAGE_OUTPUT)
    return dict(comparison.values)


def load(run: TrainedRun | Path | str, *, env: Any = None, trust: bool = False) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the trained policy of a run: an object with `act`; a trader of `erl` has `orders` as well.

    Args:
        run: result of `train`, its folder, or a .safetensors file that `flatwater export` wrote.
        env: the environment, where the run was begun with an object that has no name.
        trust: run the code that the run or file names, though there is no record that you began the run, or wrote the
            file, on this machine.

    Raises:
        FlatwaterError: there is no run or no intact checkpoint, the run has no policy yet, the file holds no policy, or
            it names code that may be somebody else's.
    """
    place, env = _find_run(run, env)
    with usual_torch_modes(), trust_code(trust), hand_over_env(env):
        return read_policy(Path(place)) if Path(place).is_file() else _load_policy(Path(place))


@close_open_envs()
def _load_policy(run: Path) -> Any:  # noqa: ANN401  (what a recipe's policy is)
    """Return the policy of a run folder at its newest intact checkpoint.

    Raises:
        ConfigError: a run of this recipe has no policy to be loaded.
    """
    folder = open_folder(run)
    config = read_config(folder)
    recipe = recipe_of_config(config)
    if recipe.policy is None:
        raise ConfigError(
            f"{run}: a run of `{recipe.name}` cannot be loaded, only evaluated. Use evaluate({str(run)!r})"
        )
    return recipe.policy(restore_run(config, folder, say_nothing)[0], folder)


def export(run: TrainedRun | Path | str, to: Path | str, *, trust: bool = False, budget: str | None = None) -> float:
    """Write the policy of a run as one file that needs no run; see `flatwater export`.

    Args:
        run: result of `train`, folder of the run, or a .safetensors file that this function wrote.
        to: the file; .pt2 for torch alone, .onnx for ONNX Runtime and its like, .safetensors for `load`.
        trust: run the code that the run names; see `load`.
        budget: memory that writing it may take, such as 2GiB. Left out: 90 % of what the machine, the container and the
            shell allow.

    Returns:
        The largest difference between the written and the trained policy, relative to numbers above 1.

    Raises:
        FlatwaterError: the run cannot be used, the form cannot hold what it has trained, a package for it is missing,
            it would need more memory than it may take, the difference is above 0.00001, or the file cannot be written:
            nothing is written.
    """
    with usual_torch_modes():
        return write_policy(load(run, trust=trust), expand_home(to), budget)


def _find_run(run: TrainedRun | TrainedSeeds | Path | str, env: Any) -> tuple[Path | str, Any]:  # noqa: ANN401  (what the user has)
    """Return a run's path or URL, and its environment as an object: `env`, or else that of the result of `train`.

    Raises:
        ConfigError: `run` is of another type.
    """
    if isinstance(run, TrainedRun | TrainedSeeds):
        return run.path, run.env if env is None else env
    if not isinstance(run, Path | str):
        raise ConfigError(f"run: expected a result of train, a folder or a URL, got a {type(run).__name__}")
    return run if is_url(run) else expand_home(run), env


def resolve_config(recipe: str, config: Path | str | None, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the settings of a recipe: its defaults, overwritten by a preset, then by a file and then by arguments.

    Raises:
        ConfigError: there is no such recipe, preset or setting, or a setting is out of its range.
    """
    env, settings = find_env_object(settings), replace_env_object(settings)  # a configuration holds its name
    # `env` is read before the other settings: it may lead to another recipe, whose settings have another class.
    file_settings = {} if config is None else read_toml(Path(config))
    found_recipe = recipe_in_env(recipe, settings.get(ENV, file_settings.get(ENV)))
    # A vector environment has a fixed number of copies: the recipe needs the setting `envs`.
    refuse_fixed_number(env, {field.name for field in fields(found_recipe.config)}, recipe)
    base = preset_settings(found_recipe.config, merge_tables(file_settings, settings))  # empty without a preset
    if config is not None:
        base = to_mapping(load_settings(found_recipe.config, Path(config), base, replaced_names={*settings}))
    return from_mapping(found_recipe.config, merge_tables(base, settings), f"the settings of {recipe}")


def _make_console(*, quiet: bool) -> Console:
    return silent_terminal() if quiet else lasting_terminal()


def _finish_run(outcome: RunOutcome, env: object) -> TrainedRun:
    """Draw the picture of a finished run, and return the run with the environment that was given as an object.

    Raises:
        KeyboardInterrupt: Ctrl-C stopped the run.
        SystemExit: another signal stopped the run.
    """
    # The run has saved a checkpoint. The calling program now ends as if no handler had caught the signal.
    if outcome.signal:
        raise _exit_exception(outcome.signal)
    trained_run = TrainedRun(outcome.folder.path, outcome.finished, env)
    if outcome.finished:
        draw_run(trained_run.path, outcome.recipe)
    return trained_run


def _exit_exception(number: int) -> KeyboardInterrupt | SystemExit:
    """Return the exception that ends a program after a signal: KeyboardInterrupt after Ctrl-C, else SystemExit."""
    return KeyboardInterrupt() if number == SIGINT else SystemExit(SIGNAL_EXIT_BASE + number)


@contextmanager
def _end_on_early_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt or SystemExit on a signal before training listens to it, or on a second signal."""
    try:
        with end_on_signals():
            yield
    except Terminated as termination:
        raise _exit_exception(termination.number) from None  # without the chain: the user sees a plain Ctrl-C
