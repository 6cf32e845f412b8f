"""Train a small run of growing networks that builds its env states anew for every batch, and keep the old ones alive.

    python leaking_envs.py FOLDER HOW ROUNDS [OPTION ...]

HOW is `none`, `cycle` (a list of callbacks that closes over the env state: only the cyclic collector frees it) or
`registry` (the callback is kept in a module's list as well, as loggers do). Prints findings and resident bytes as JSON.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
from rich.console import Console
from small_runs import TINY_GROW

from flatwater.cli.main import command_class
from flatwater.envs.growing.pool import build_envs, pool_host
from flatwater.mirror.uploader import NoMirror
from flatwater.recipes.grow.run import GrowRun, compose
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import create_folder
from flatwater.runs.session import train
from flatwater.trainers.loop import Phase

CALLBACKS: list[Callable[[], Any]] = []


def plant(run: GrowRun, how: str) -> None:
    envs, callbacks = run.trainer.run.envs, list[Callable[[], Any]]()
    anew = build_envs(envs.config, count=len(envs.seed), data=envs.task, device=envs.seed.device, net=pool_host(envs))
    anew.alone, run.trainer.run.envs = envs.alone, anew
    callbacks.append(lambda: (envs, len(callbacks)))
    if how == "registry":
        CALLBACKS.extend(callbacks)


def main(folder: Path, how: str, rounds: int, options: list[str]) -> None:
    given = ["--evaluation.every", "1000", "--rounds", str(rounds), "--ledger-every", "1"]
    command = command_class(("train", "grow")).read("train grow", [*TINY_GROW, *given, *options])
    run = compose(command.settings())
    if how != "none":
        planted = Phase("plant", lambda: 1, lambda _: plant(run, how))
        run = replace(run, trainer=replace(run.trainer, phases=(*run.trainer.phases, planted)))
    files = create_folder(folder, "grow")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        train(run, files, RunEvents(Console(file=nowhere)), is_new=True, mirror=NoMirror())
    found = files.findings.read_text().splitlines() if files.findings.exists() else []
    ledger = [json.loads(line) for line in files.ledger.read_text().splitlines()]
    sys.stdout.write(
        json.dumps(
            {
                "findings": [json.loads(line) for line in found],
                "resident": [line["resident"] for line in ledger],
                "envs": [line["envs"] for line in ledger],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:])
