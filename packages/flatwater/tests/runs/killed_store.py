"""Kill -9 `flatwater mirror` or `flatwater prune` again and again, and see that nothing is lost and that it goes on.

    python killed_store.py FOLDER KILLS COMMAND PLACE

COMMAND is mirror or prune, PLACE what is pruned: folder or url. The kills fall evenly on what the command does to disk
and store, from the first operation to the last. Every command is a fork of this process. Prints one JSON object.
"""

import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import torch

sys.path.append(str(Path(__file__).parent))
from forked import exit_of, in_fork

from flatwater.checkpoints.catalogue import find_damage, list_checkpoints
from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.writer import save_checkpoint
from flatwater.cli.main import main
from flatwater.rundir.layout import write_config
from flatwater_trading.recipe.config import ErlRunConfig

for heavy in ("flatwater.cli.checkpoints", "flatwater.runs.catch_up", "flatwater.mirror.pruning"):
    importlib.import_module(heavy)

EVENTS = ("open", "os.rename", "os.remove", "os.mkdir")
ROUNDS, KEPT = 6, 2


def exit_code(work: Callable[[], int]) -> int:
    """Run `work` in a fork; its exit code."""
    return exit_of(in_fork(work))


def dying(work: Callable[[], int], folder: Path, at: int) -> Callable[[], int]:
    """The same work, which kills itself at its n-th operation below the folder or on the store."""
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS and str(arguments[0]).startswith(str(folder)):
            count()

    def count_calls(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_and_count(*args: Any, **options: Any) -> Any:
            count()
            result = call(*args, **options)
            count()
            return result

        return call_and_count

    def work_in_child() -> int:
        sys.addaudithook(hook)
        for name in ("put", "delete"):
            setattr(obstore, name, count_calls(getattr(obstore, name)))
        code = work()
        (folder / "operations").write_text(str(seen))
        return code

    return work_in_child


def make_run(run: Path) -> None:
    """A run of six rounds, all of them kept, which share a shard."""
    config = CheckpointConfig(keep=ROUNDS, shard_bytes=1024)
    for number in range(ROUNDS):
        tree = {"shared": torch.zeros(300), "own": torch.full((200,), float(number)), "round": number}
        save_checkpoint(run / "checkpoints", tree, round=number, step=0, facts={}, config=config)
    write_config(ErlRunConfig(checkpoints=config), run / "config.toml")
    (run / "metrics.jsonl").write_text('{"round": 5}\n')


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run's checkpoints, and its records."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name[0] != "." and "lock" not in path.name]
    apart = ("operations", "mirror.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in apart}


def rounds_whole(folder: Path) -> list[int]:
    """Of the checkpoints in a folder; every manifest that is there has all it needs."""
    found = list_checkpoints(folder)
    assert all(find_damage(folder, manifest) == [] for manifest in found), folder
    return [manifest.round for manifest in found]


def series(folder: Path, kills: int, command: str, place: str) -> dict[str, object]:
    run, far = folder / "run", folder / "far" / "run"
    make_run(run)
    if place == "url":
        assert exit_code(lambda: main(["mirror", str(run), "--to", f"file://{folder}/far"])) == 0
    target = far if place == "url" else run
    options = ["mirror", str(run), "--to", f"file://{folder}/far"]
    if command == "prune":
        options = ["prune", f"file://{far}" if place == "url" else str(run), "--keep", str(KEPT)]
    before = folder.with_name("before")
    shutil.copytree(folder, before)
    saved = contents(run)
    assert exit_code(dying(lambda: main(options), folder, -1)) == 0
    wanted, operations = contents(target if command == "prune" else far), int((folder / "operations").read_text())
    codes = []
    for n in range(kills):
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        codes.append(exit_code(dying(lambda: main(options), folder, (n + 1) * operations // (kills + 1))))
        if command == "mirror":
            assert contents(run) == saved, "the run is as it was"
            whole = rounds_whole(far / "checkpoints")
            assert whole == list(range(len(whole)))
        else:
            assert rounds_whole(target / "checkpoints")[-KEPT:] == [ROUNDS - 2, ROUNDS - 1]
        assert exit_code(lambda: main(options)) == 0, (n, codes)
        assert contents(target if command == "prune" else far) == wanted, (n, codes)
    return {"operations": operations, "killed": codes.count(-9), "kept": sorted(wanted)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(series(Path(sys.argv[1]).resolve() / "all", int(sys.argv[2]), *sys.argv[3:5])))
