"""A small run that loses memory in every round until it is stopped.

python leaking.py FOLDER SEED limit|budget
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from rich.console import Console
from small_runs import TINY

from flatwater.cli.main import command_class
from flatwater.config.toml import dumps_config
from flatwater.mirror.uploader import NoMirror
from flatwater.rundir.events import RunEvents
from flatwater.rundir.layout import create_folder
from flatwater.runs.callbacks import NO_CALLBACKS
from flatwater.runs.session import train
from flatwater.trainers.loop import Phase
from flatwater_trading.recipe.run import compose
from flatwater_watch.meters.process import resident_bytes

LOST: list[bytes] = []
MIB = 1 << 20


def lose(_: int) -> None:
    LOST.extend(os.urandom(MIB) for _ in range(12))


def main(folder: Path, seed: int, kind: str) -> int:
    given = [*TINY, "--rounds", "500", "--ledger-every", "1", "--seed", str(seed)]
    command = command_class(("train", "erl")).read("train erl", given)
    config = command.settings()
    if kind == "budget":
        compose(config)  # everything that a run imports is there now
        config = replace(config, budget=str(resident_bytes() + 200 * MIB))
    composition = compose(config)
    trainer = composition.trainer
    composition = replace(
        composition, trainer=replace(trainer, phases=(*trainer.phases, Phase("lose", lambda: 1, lose)))
    )
    run = create_folder(folder, "erl")
    # Resumed without the fault, and with all the memory that there is.
    run.config.write_text(dumps_config(replace(config, budget=None)))
    events = RunEvents(Console(width=100))
    ended = train(composition, run, events, is_new=True, mirror=NoMirror(), callbacks=NO_CALLBACKS)
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
