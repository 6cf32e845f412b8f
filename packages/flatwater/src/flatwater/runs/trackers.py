"""The trackers of a run, as its configuration names them: each behind a thread, so that none can stop the run."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from flatwater.config.convert import did_you_mean
from flatwater.config.toml import to_mapping
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
    """A `Sink`, by its methods, so that any other class can be refused."""


@dataclass(frozen=True)
class Tracker:
    """One place where numbers are shown besides the run folder."""

    open: Callable[[RunConfig, TrackedRun], Sink]
    """Called in the tracker's own thread, where it may fail or hang."""
    check: Callable[[RunConfig], None] = lambda _: None
    """Loads the tracker's library before the run is planned. Raises ConfigError if it could not send anything."""
    install: str = "flatwater"
    """Argument for pip where a package is missing."""


def find_tracker(name: str) -> Tracker:
    """Return the tracker of a name.

    Args:
        name: a name in `TRACKERS`, that of an installed package's tracker (`plugins.py`), or `package.module:Class`.

    Raises:
        ConfigError: there is no tracker of that name, or the object of that name is not a tracker.
    """
    plugin_trackers = group_rows("trackers")
    if name in TRACKERS:
        return TRACKERS[name]
    import_path = plugin_trackers.get(name, name)
    names = [*TRACKERS, *plugin_trackers]
    field, expected = f"trackers: {short_repr(name)}", f"{', '.join(names)}, or package.module:Class of your tracker"
    if name.lower() in {"none", "off", "no", "false", ""}:
        raise ConfigError(f"{field}: no tracker has this name. Turn trackers off with `--trackers` and no name.")
    if ":" not in import_path:
        hint = did_you_mean(name, names)
        raise ConfigError(f"{field}: no tracker has this name.{hint} Expected {expected}.{group_faults('trackers')}")
    tracker_class = find_object(import_path, setting=field, expected=expected)
    if not isinstance(tracker_class, type) or not issubclass(tracker_class, _SinkLike):
        raise ConfigError(f"{field}: expected a class with write(round, metrics) and close()")
    build = cast("Callable[[TrackedRun], Sink]", tracker_class)
    try:
        # The arguments are checked here: its own thread would only find out when the run has begun.
        inspect.signature(build).bind(None)
    except TypeError as error:
        raise ConfigError(f"{field} cannot be called with a TrackedRun alone: {error}") from error
    return Tracker(lambda _, run: build(run))


def check_trackers(config: RunConfig) -> None:
    """Load the trackers, so that the memory of their libraries is counted before the run is planned.

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
    """Start a thread for each tracker; its faults are told through `say`, once, and never raised.

    Args:
        config: settings of the run, the trackers' names among them.
        folder: the run.
        say: shows a line on the run's terminal.
        resume_at: last round that the run remembers; a tracker will be given later rounds again.
    """
    settings: dict[str, Any] = to_mapping(config)

    def opener(name: str) -> Callable[[ShowLine], Sink]:
        """Return a function that opens the tracker of a name in the tracker's thread."""

        # Called in the tracker's thread: importing its library may take seconds, and its log-in a network.
        def open_sink(note: ShowLine) -> Sink:
            """Open the tracker's sink, to go on after the round `resume_at`."""
            place = folder.tracker(name)
            run = folder.path.absolute().name
            return find_tracker(name).open(config, TrackedRun(run, place, settings, resume_at, note))

        return open_sink

    return [BackgroundSink(name, opener(name), say) for name in config.trackers]


def held_bytes(trackers: list[BackgroundSink]) -> dict[str, int]:
    """Return the bytes that wait to be sent, by owner."""
    return {f"trackers.{tracker.name}": tracker.queued_bytes for tracker in trackers}


def _load_tensorboard(_: RunConfig) -> None:
    import flatwater.metrics.tensorboard  # noqa: F401, PLC0415  (loaded only where it is asked for)


def _tensorboard(_: RunConfig, run: TrackedRun) -> Sink:
    from flatwater.metrics.tensorboard import TensorBoardSink  # noqa: PLC0415  (loaded only where it is asked for)

    return TensorBoardSink(run.folder, resume_at=run.resume_at)


def _check_wandb(config: RunConfig) -> None:
    from flatwater.metrics.wandb import check_key  # noqa: PLC0415  (loaded only where it is asked for)

    check_key(config.wandb)


def _wandb(config: RunConfig, run: TrackedRun) -> Sink:
    from flatwater.metrics.wandb import WandbSink  # noqa: PLC0415  (loaded only where it is asked for)

    return WandbSink(run, config.wandb)


TRACKERS = {
    "tensorboard": Tracker(_tensorboard, _load_tensorboard),
    "wandb": Tracker(_wandb, _check_wandb, "'flatwater[wandb]'"),
}
