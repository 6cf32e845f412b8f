"""The trackers of a run, as its configuration names them: each behind a thread, so that none can stop the run."""

from collections.abc import Callable, Mapping
from typing import Any

from flatwater.config.toml import to_mapping
from flatwater.errors import ConfigError
from flatwater.metrics.background import BackgroundSink, Say
from flatwater.metrics.config import Tracker
from flatwater.metrics.sinks import Sink
from flatwater.rundir.layout import RunFolder
from flatwater.runs.config import RunConfig

EXTRAS: Mapping[Tracker, str] = {"tensorboard": "train", "wandb": "wandb"}
"""What to install for each."""


def check_trackers(config: RunConfig) -> None:
    """Load the trackers, so that what their libraries hold is there before the run is planned.

    Raises:
        ConfigError: one is not installed, or nobody is logged in.
    """
    for name in config.trackers:
        try:
            _CHECKS[name](config)
        except ModuleNotFoundError as missing:
            raise ConfigError(
                f"trackers: {name} needs the package {missing.name}, which is not installed. Install it with: "
                f"pip install 'flatwater[{EXTRAS[name]}]', or leave {name} out of --trackers."
            ) from missing


def open_trackers(config: RunConfig, folder: RunFolder, say: Say, *, resume_at: int) -> list[BackgroundSink]:
    """Start a thread for each tracker; what goes wrong there is told through `say`, once, and never raised.

    Args:
        config: the run's.
        folder: its files.
        say: shows a line.
        resume_at: the last round that the run remembers.
    """
    openers: Mapping[Tracker, Callable[[Say], Sink]] = {
        "tensorboard": lambda _: _tensorboard(folder, resume_at),
        "wandb": lambda note: _wandb(config, folder, note),
    }
    return [BackgroundSink(name, openers[name], say) for name in config.trackers]


def held_bytes(trackers: list[BackgroundSink]) -> dict[str, int]:
    """Bytes that wait to be sent, by owner."""
    return {f"trackers.{tracker.name}": tracker.held_bytes for tracker in trackers}


def _check_tensorboard(_: RunConfig) -> None:
    import flatwater.metrics.tensorboard  # noqa: F401, PLC0415  (loaded only where it is asked for)


def _check_wandb(config: RunConfig) -> None:
    from flatwater.metrics.wandb import check_key  # noqa: PLC0415  (same)

    check_key(config.wandb)


_CHECKS: Mapping[Tracker, Callable[[RunConfig], None]] = {"tensorboard": _check_tensorboard, "wandb": _check_wandb}


def _tensorboard(folder: RunFolder, resume_at: int) -> Sink:
    from flatwater.metrics.tensorboard import TensorBoardSink  # noqa: PLC0415  (same)

    return TensorBoardSink(folder.tensorboard, resume_at=resume_at)


def _wandb(config: RunConfig, folder: RunFolder, note: Say) -> Sink:
    from flatwater.metrics.wandb import WandbRun, WandbSink  # noqa: PLC0415  (same)

    settings: dict[str, Any] = to_mapping(config)
    run = WandbRun(folder=folder.wandb, name=folder.path.absolute().name, settings=settings, place=config.wandb)
    return WandbSink(run, note)
