"""The tracker of Weights & Biases: sends the numbers of each round, under the same names as in `metrics.jsonl`.

The run's id is in the run folder, so a resumed run continues the same run there. Rounds that are computed again after a
kill have the same numbers, and Weights & Biases ignores rounds that it has.
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
from flatwater_watch.files.regular_files import read_regular

ID_FILE = "run-id.txt"
INIT_SECONDS, FINISH_SECONDS = 30, 10
"""Most seconds to wait for the service at the start, and for the last rows at the end."""


class WandbSink:
    """One run in Weights & Biases, with the service or in files that `wandb sync` sends later."""

    def __init__(self, run: TrackedRun, config: WandbConfig) -> None:
        """Start or continue the run at the service. Without a network it is written to files, as in the mode `offline`.

        Args:
            run: the run, with the folder for the id and the library's files, and the settings to show.
            config: the project, the entity and the mode.

        Raises:
            RunError: the id cannot be written.
            wandb.Error: the service refuses the run.
        """
        run_id = read_or_make_id(run.folder)
        try:
            self._run = _start_wandb_run(run, run_id, config, config.mode)
        except CommError:
            if config.mode == "offline":
                raise
            run.say(f"cannot be reached; send the numbers later with: wandb sync {run.folder}/offline-run-*")
            self._run = _start_wandb_run(run, run_id, config, "offline")

    def write(self, round: int, metrics: Metrics) -> None:
        """Give the round's finite numbers to the library, which sends them in the background."""
        finite = {name: value for name, value in metrics.items() if isfinite(value)}
        self._run.log(finite, step=round, commit=True)  # else the library keeps the row until the next one

    def close(self) -> None:
        """Wait until all rows are sent or written, for at most `FINISH_SECONDS`."""
        self._run.finish()


def read_or_make_id(folder: Path) -> str:
    """Return the run's id in its folder; if there is none, make a new id and write it there."""
    path = folder / ID_FILE
    if not path.is_file():
        write_object(path, secrets.token_hex(6).encode())
    return read_regular(path, follow_links=False).decode(errors="replace").strip()


def check_login(config: WandbConfig) -> None:
    """Refuse settings with which nothing could be sent, before the run starts.

    Raises:
        ConfigError: nobody is logged in.
    """
    if config.mode == "online" and not wandb.login(prompt=False):
        raise ConfigError(
            "trackers: nobody is logged in to Weights & Biases. Log in with `wandb login`, set WANDB_API_KEY, or keep "
            'the numbers in the run folder: --wandb.mode offline, or mode = "offline" under [wandb] in its config.toml.'
        )


def _start_wandb_run(
    run: TrackedRun, run_id: str, config: WandbConfig, mode: Literal["online", "offline"]
) -> wandb.Run:
    """Start the run of an id at Weights & Biases, or continue it; no code of the user's is sent.

    Args:
        run: name, folder and settings.
        run_id: the run's id at the service.
        config: project and entity.
        mode: whether numbers are sent, or written to files.

    Raises:
        wandb.Error: the service cannot be reached, or refuses the run.
    """
    settings = wandb.Settings(
        console="off",  # the library must not capture the terminal
        silent=True,
        disable_code=True,  # no source of the user's leaves this machine
        disable_git=True,
        init_timeout=INIT_SECONDS,
        finish_timeout=FINISH_SECONDS,
    )
    return wandb.init(
        dir=run.folder.parent,
        id=run_id,
        resume="allow",
        name=run.name,
        project=config.project,
        entity=config.entity,
        mode=mode,
        config=dict(run.settings),
        settings=settings,
    )
