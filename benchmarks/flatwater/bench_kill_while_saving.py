"""Kill a process while it saves, again and again: how often is there nothing left that can be loaded?

    python benchmarks/flatwater/bench_kill_while_saving.py

Each try starts a process that saves a new round after another, waits for the first save to end, and kills it with
SIGKILL at a random moment of one of the next. Then the state is loaded. Ours must never be unloadable, must hold one
round everywhere (a mixture of two counts as torn), and must not lose a round whose save had ended. The other saver is
what most training scripts do: `torch.save` to the final path.

Exits with 1 where a checkpoint of ours was unloadable, torn or lost.
"""

import argparse
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims
from torch import Tensor

from flatwater.checkpoints.config import CheckpointConfig
from flatwater.checkpoints.reader import newest_intact, restore_state_
from flatwater.checkpoints.writer import save_checkpoint

CONFIG = CheckpointConfig(keep=2, shard_bytes=1 << 20)
OUTCOMES = ("unloadable", "torn", "lost")
Tree = dict[str, Tensor]


@dataclass(frozen=True)
class Saver:
    """A way to save a tree, and the way back. `load_` returns False where there is nothing that can be loaded."""

    name: str
    save: Callable[[Path, Tree, int], None]
    load_: Callable[[Tree, Path], bool]


def build(megabytes: float) -> Tree:
    """A tree of one large leaf, some of middling size and many small ones; every number in it is the round's."""
    large = int(megabytes * 2**20 / 4 / 2)
    sizes = [large, *[large // 8] * 6, *[large // 800] * 200]
    return {f"leaf{at}": torch.zeros(size) for at, size in enumerate(sizes)}


def save_ours(folder: Path, tree: Tree, at: int) -> None:
    """A checkpoint of Flatwater's."""
    save_checkpoint(folder, tree, round=at, step=0, facts={}, config=CONFIG)


def load_ours_(tree: Tree, folder: Path) -> bool:
    """The newest intact checkpoint, into `tree`."""
    intact = newest_intact(folder, say=lambda _: None)
    if intact is not None:
        restore_state_(tree, intact)
    return intact is not None


def save_plain(folder: Path, tree: Tree, _at: int) -> None:
    """`torch.save` to the final path."""
    torch.save(tree, folder / "checkpoint.pt")


def load_plain_(tree: Tree, folder: Path) -> bool:
    """`torch.load`, into `tree`."""
    try:
        loaded = torch.load(folder / "checkpoint.pt", weights_only=True)
    except (RuntimeError, EOFError, OSError, pickle.UnpicklingError, ValueError):
        return False
    for name, leaf in tree.items():
        leaf.copy_(loaded[name])
    return True


SAVERS = (Saver("flatwater", save_ours, load_ours_), Saver("torch.save", save_plain, load_plain_))


def keep_saving(saver: Saver, folder: Path, tree: Tree, done: int) -> NoReturn:
    """Save round after round until killed, writing a byte to `done` after each."""
    at = 0
    while True:
        at += 1
        for leaf in tree.values():
            leaf.fill_(float(at))
        saver.save(folder, tree, at)
        os.write(done, b".")


def kill_while_saving(saver: Saver, folder: Path, tree: Tree, wait: float) -> int:
    """Start a saver, let its first save end, and kill it `wait` such saves later. Returns the saves that had ended."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            keep_saving(saver, folder, tree, writing)
        finally:
            os._exit(1)
    os.close(writing)
    began = time.monotonic()
    ended = len(os.read(reading, 1))
    time.sleep(wait * (time.monotonic() - began))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    with os.fdopen(reading, "rb") as rest:
        ended += len(rest.read())
    if ended == 0:
        raise SystemExit(f"{saver.name}: the saving process failed before its first save ended")
    return ended


def judge(saver: Saver, folder: Path, tree: Tree, ended: int) -> str:
    """Say what is wrong with the files that were left behind; empty where nothing is."""
    for leaf in tree.values():
        leaf.fill_(-1.0)
    if not saver.load_(tree, folder):
        return "unloadable"
    at = tree["leaf0"][0]
    if not all(bool((leaf == at).all()) for leaf in tree.values()):
        return "torn"
    return "lost" if float(at) < ended else ""


def trial(saver: Saver, tries: int, megabytes: float, seed: int) -> tuple[Counter[str], int]:
    """Outcomes of `tries` kills, and the temporary files that are still there after one more save."""
    rng, tree = random.Random(seed), build(megabytes)  # noqa: S311  (moments of a kill, no secret)
    outcomes, stale = Counter[str](), 0
    for _ in range(tries):
        folder = Path(tempfile.mkdtemp(prefix="flatwater-kill-"))
        try:
            ended = kill_while_saving(saver, folder, tree, rng.uniform(0.05, 2.0))
            outcomes[judge(saver, folder, tree, ended)] += 1
            saver.save(folder, tree, ended + 5)
            stale += len(list(folder.rglob("*.tmp")))
        finally:
            shutil.rmtree(folder)
    return outcomes, stale


def main() -> int:
    """Run the trials and print a line for each saver."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tries", type=int, default=60)
    parser.add_argument("--megabytes", type=float, default=32.0, help="size of the state that is saved")
    parser.add_argument("--only", choices=[saver.name for saver in SAVERS])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)
    failed, lost = 0, dict[str, int]()
    print(f"{options.tries} tries each, {options.megabytes:g} MiB, killed at a random moment while saving")
    print(f"{'saver':<12}" + "".join(f"{name:>12}" for name in (*OUTCOMES, "stale files")))
    for saver in SAVERS:
        if options.only in (None, saver.name):
            outcomes, stale = trial(saver, options.tries, options.megabytes, options.seed)
            counts = [outcomes[name] for name in OUTCOMES]
            print(f"{saver.name:<12}" + "".join(f"{count:>12}" for count in (*counts, stale)), flush=True)
            failed += sum(counts) if saver.name == "flatwater" else 0
            lost[saver.name] = sum(counts)
    record_claims(claims(lost, options.tries))
    return 1 if failed else 0


def claims(lost: dict[str, int], tries: int) -> Iterator[Claim]:
    """Ours beside the other saver."""
    if "flatwater" in lost:
        rival = ", ".join(f"{count} ({name})" for name, count in lost.items() if name != "flatwater")
        name, count = "killed while saving: checkpoints that cannot be loaded, are torn or lost", lost["flatwater"]
        yield Claim("flatwater", "unloadable", name, f"{count} of {tries}", "0", count == 0, rival)


if __name__ == "__main__":
    sys.exit(main())
