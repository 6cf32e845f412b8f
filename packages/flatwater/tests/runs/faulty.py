"""Train a small run in which one of the faults of `faults.py` is planted, and print its findings as JSON.

    python faulty.py FOLDER FAULT ROUNDS [OPTION ...]

Fault 0 is none.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import faults
from rich.console import Console
from small_runs import TINY

from flatwater.cli.main import command_class
from flatwater.mirror.uploader import NoMirror
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import create_folder
from flatwater.runs.callbacks import NO_CALLBACKS
from flatwater.runs.session import train
from flatwater.trainers.loop import Phase
from flatwater_trading.recipe.run import ErlRun, compose


def plant_fault(composition: ErlRun, fault: int) -> ErlRun:
    """The run, with a phase more."""
    trainer = composition.trainer
    plant = Phase("plant", lambda: 1, lambda _: faults.FAULTS[fault](trainer.run.progress.round))
    return replace(composition, trainer=replace(trainer, phases=(*trainer.phases, plant)))


def main(folder: Path, fault: int, rounds: int, options: list[str]) -> None:
    command = command_class(("train", "erl")).read(
        "train erl", [*TINY, "--rounds", str(rounds), "--ledger-every", "1", *options]
    )
    composition = compose(command.settings())
    run = create_folder(folder, "erl")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        train(
            plant_fault(composition, fault) if fault else composition,
            run,
            RunEvents(Console(file=nowhere)),
            is_new=True,
            mirror=NoMirror(),
            callbacks=NO_CALLBACKS,
        )
    lines = run.findings.read_text().splitlines() if run.findings.exists() else []
    sys.stdout.write(json.dumps([json.loads(line) for line in lines]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
