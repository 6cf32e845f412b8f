"""The numbers of each round in Weights & Biases, under the names that they have everywhere else.

The run's id is kept in the run folder, so a resumed run goes on with the same one. Rounds that are done again after a
kill have numbers that are there already, bit for bit; Weights & Biases leaves out what it has.
"""

import secrets
from math import isfinite
from pathlib import Path
from typing import Literal

import wandb
from wandb.errors import CommError

from flatwater.metrics.config import WandbConfig
from flatwater.metrics.sinks import Metrics, TrackedRun
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.safe_read import read_regular

ID_FILE = "run-id.txt"
INIT_SECONDS, FINISH_SECONDS = 30, 10
"""Seconds that the start may wait for the service, and the end for rows on their way."""


class WandbSink:
    """One run in Weights & Biases, with the service or in files that `wandb sync` sends later."""

    def __init__(self, run: TrackedRun, place: WandbConfig) -> None:
        """Open the run, or go on with it. Without a network it is kept in the folder, as with `mode = "offline"`.

        Args:
            run: the run, whose folder keeps the id and the library's files; its settings are shown on its page.
            place: the project, the entity and the mode.

        Raises:
            RunError: the id cannot be kept.
            wandb.Error: the service refuses the run.
        """
        identity = kept_id(run.folder)
        try:
            self._run = _start_wandb_run(run, identity, place, place.mode)
        except CommError:
            if place.mode == "offline":
                raise
            run.say(f"cannot be reached; send the numbers later with: wandb sync {run.folder}/offline-run-*")
            self._run = _start_wandb_run(run, identity, place, "offline")

    def write(self, round: int, metrics: Metrics) -> None:
        """Hand the round's finite numbers on; the library sends them when it can."""
        finite = {name: value for name, value in metrics.items() if isfinite(value)}
        self._run.log(finite, step=round, commit=True)  # else it is held back until the next round

    def close(self) -> None:
        """Wait until everything is sent or kept, for at most `FINISH_SECONDS`."""
        self._run.finish()


def kept_id(folder: Path) -> str:
    """Return the run's id, or a new id if there is none yet."""
    path = folder / ID_FILE
    if not path.is_file():
        write_object(path, secrets.token_hex(6).encode())
    return read_regular(path, follow=False).decode(errors="replace").strip()


def check_key(place: WandbConfig) -> None:
    """Refuse, before the run starts, settings with which no round of it could be sent.

    Raises:
        ConfigError: nobody is logged in.
    """
    if place.mode == "online" and not wandb.login(prompt=False):
        raise ConfigError(
            "trackers: nobody is logged in to Weights & Biases. Log in with `wandb login`, set WANDB_API_KEY, or keep "
            'the numbers in the run folder: --wandb.mode offline, or mode = "offline" under [wandb] in its config.toml.'
        )


def _start_wandb_run(
    run: TrackedRun, identity: str, place: WandbConfig, mode: Literal["online", "offline"]
) -> wandb.Run:
    """Start the run at Weights & Biases, or go on with the run of this identity; sends no code of the user's.

    Args:
        run: name, folder and settings.
        identity: the run's id at the service, kept in its folder.
        place: project and entity.
        mode: whether numbers are sent now, or stay on the disk.

    Raises:
        wandb.Error: the service cannot be reached, or refuses the run.
    """
    settings = wandb.Settings(
        console="off",  # the terminal is the run's
        silent=True,
        disable_code=True,  # no source of the user's leaves this machine
        disable_git=True,
        init_timeout=INIT_SECONDS,
        finish_timeout=FINISH_SECONDS,
    )
    return wandb.init(
        dir=run.folder.parent,
        id=identity,
        resume="allow",
        name=run.name,
        project=place.project,
        entity=place.entity,
        mode=mode,
        config=dict(run.settings),
        settings=settings,
    )
