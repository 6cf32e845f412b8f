"""The trackers that a run's configuration names, such as TensorBoard; each runs in a thread and cannot stop the run."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from flatwater.config.convert import did_you_mean
from flatwater.config.mappings import to_mapping
from flatwater.metrics.sinks import TrackedRun
from flatwater.named_imports import find_object
from flatwater.plugins import group_faults, group_rows
from flatwater.rundir.layout import RunFolder
from flatwater.runs.config import RunConfig
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import BackgroundSink, ShowLine, Sink
from flatwater_watch.sanitize import short_repr


@runtime_checkable
class _SinkLike(Sink, Protocol):
    """A `Sink`, for `issubclass`: a class without its methods is refused."""


@dataclass(frozen=True)
class Tracker:
    """A service or program that gets each round's numbers in addition to the run folder."""

    open: Callable[[RunConfig, TrackedRun], Sink]
    """Opens the sink of a run; called in the tracker's own thread, where it may fail or hang."""
    check: Callable[[RunConfig], None] = lambda _: None
    """Loads the tracker's library before the run is planned; raises ConfigError if nothing could be sent."""
    install: str = "flatwater"
    """Argument for pip where a package is missing."""


def find_tracker(name: str) -> Tracker:
    """Return the tracker of a name.

    Args:
        name: a name in `TRACKERS`, or of an installed package's tracker (`plugins.py`), or `package.module:Class`.

    Raises:
        ConfigError: there is no tracker of that name, or the class of that name is not a tracker.
    """
    plugin_trackers = group_rows("trackers")
    if name in TRACKERS:
        return TRACKERS[name]
    import_path = plugin_trackers.get(name, name)  # a class of the user's own is named by its path
    names = [*TRACKERS, *plugin_trackers]
    field = f"trackers: {short_repr(name)}"
    expected = f"{', '.join(names)}, or package.module:Class of your tracker"
    # Names by which a user may mean that there is no tracker.
    if name.lower() in {"none", "off", "no", "false", ""}:
        raise ConfigError(f"{field}: no tracker has this name. Turn trackers off with `--trackers` and no name.")
    if ":" not in import_path:  # neither a known name nor the path of a class
        hint = did_you_mean(name, names)
        raise ConfigError(f"{field}: no tracker has this name.{hint} Expected {expected}.{group_faults('trackers')}")
    tracker_class = _find_tracker_class(import_path, field, expected)
    return Tracker(open=lambda _config, run: tracker_class(run))


def _find_tracker_class(import_path: str, field: str, expected: str) -> "Callable[[TrackedRun], Sink]":
    """Return the class of a tracker at `package.module:Class`; `field` and `expected` are texts for messages.

    Raises:
        ConfigError: there is no such class, it is not a tracker's, or cannot be called with a run alone.
    """
    tracker_class = find_object(import_path, setting=field, expected=expected)
    if not isinstance(tracker_class, type) or not issubclass(tracker_class, _SinkLike):
        raise ConfigError(f"{field}: expected a class with write(round, metrics) and close()")
    open_sink = cast("Callable[[TrackedRun], Sink]", tracker_class)
    try:
        # That one argument fits is checked here, as the tracker's thread calls the class only once the run has begun.
        inspect.signature(open_sink).bind(None)
    except TypeError as error:
        raise ConfigError(f"{field} cannot be called with a TrackedRun alone: {error}") from error
    return open_sink


def check_trackers(config: RunConfig) -> None:
    """Check the trackers and load their libraries, so that the run's plan counts the memory of these.

    Raises:
        ConfigError: there is no tracker of a name, its library is not installed, or nobody is logged in.
    """
    for name in config.trackers:
        tracker = find_tracker(name)
        try:
            tracker.check(config)
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"trackers: {name} needs the package {error.name}, which is not installed. Install it with: "
                f"pip install {tracker.install}, or leave {name} out of --trackers."
            ) from error


def open_trackers(config: RunConfig, folder: RunFolder, say: ShowLine, *, resume_at: int) -> list[BackgroundSink]:
    """Start a thread for each tracker of a run. Returns sinks that write to the trackers and never raise.

    Args:
        config: settings of the run, with the names of the trackers.
        folder: folder of the run.
        say: shows a line on the run's terminal, such as the first error of a tracker.
        resume_at: last complete round of the run; later rounds will be written to the trackers again.
    """
    settings: dict[str, Any] = to_mapping(config)

    def bind_open_sink(name: str) -> Callable[[ShowLine], Sink]:
        """Return a function that opens the tracker of a name, given a function that shows the tracker's lines."""

        # Called in the tracker's thread: the import of its library may take seconds, and its log-in a network.
        def open_sink(note: ShowLine) -> Sink:
            tracker_folder = folder.tracker(name)
            run_name = folder.path.absolute().name
            return find_tracker(name).open(config, TrackedRun(run_name, tracker_folder, settings, resume_at, note))

        return open_sink

    return [BackgroundSink(name, bind_open_sink(name), say) for name in config.trackers]


def queued_bytes_by_owner(trackers: list[BackgroundSink]) -> dict[str, int]:
    """Return the bytes that wait in each tracker's queue, by the tracker's path in the ledger."""
    return {f"trackers.{tracker.name}": tracker.queued_bytes for tracker in trackers}


def _load_tensorboard(_: RunConfig) -> None:
    import flatwater.metrics.tensorboard  # noqa: F401, PLC0415  (loaded only where it is asked for)


def _open_tensorboard(_: RunConfig, run: TrackedRun) -> Sink:
    from flatwater.metrics.tensorboard import TensorBoardSink  # noqa: PLC0415  (loaded only where it is asked for)

    return TensorBoardSink(run.folder, resume_at=run.resume_at)


def _check_wandb(config: RunConfig) -> None:
    from flatwater.metrics.wandb import check_login  # noqa: PLC0415  (loaded only where it is asked for)

    check_login(config.wandb)


def _open_wandb(config: RunConfig, run: TrackedRun) -> Sink:
    from flatwater.metrics.wandb import WandbSink  # noqa: PLC0415  (loaded only where it is asked for)

    return WandbSink(run, config.wandb)


TRACKERS = {
    "tensorboard": Tracker(open=_open_tensorboard, check=_load_tensorboard),
    "wandb": Tracker(open=_open_wandb, check=_check_wandb, install="'flatwater[wandb]'"),
}
