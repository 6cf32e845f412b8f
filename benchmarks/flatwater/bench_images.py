"""PPO on images: three tasks by the command, and the CPU seconds of a frame beside Stable-Baselines3's.

    python benchmarks/flatwater/bench_images.py [--tasks catch minigrid pong] [--turns 3] [--library-python PYTHON]
    python benchmarks/flatwater/bench_images.py --speed           without the whole runs

Needs `pip install minigrid "gymnasium[atari]" opencv-python-headless`, and stable-baselines3 here or in the interpreter
that `--library-python` names. A whole run is `flatwater train ppo`, with defaults besides its environment and length:
start, training, evaluations, records and result; what counts is its CPU seconds, and whether it solves its task. Of a
frame count the CPU seconds of playing and learning: ours in the command, from its ledger, with what it records; the
library's in `learn`. Both have 8 copies, blocks of 128 steps, 4 epochs of 4 minibatches, the three convolutions and the
layer of 512 of Mnih et al., one thread, and the same environments. They take turns, and the median of the ratios
counts.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

EXAMPLES = Path(__file__).parents[2] / "examples" / "flatwater"
ENVS, BLOCK = 8, 128
MAXIMUM_SECONDS, MAXIMUM_SHARE = 300, 0.7
"""CPU seconds of a whole run, and CPU of a frame as a share of the library's."""


@dataclass(frozen=True)
class Task:
    """An environment of images."""

    options: tuple[str, ...]
    """Options of the command that name it."""
    make: str
    """Code that defines `make`, which returns one for the library."""
    rounds: int
    """Blocks of the whole run."""
    solved: float
    """Return from which it is solved; minus infinity where the run only has to end in time."""
    frames: int = 4096
    """Frames by which speeds are compared."""


PONG = "AtariPreprocessing", "FrameStackObservation(stack_size=4)"
TASKS = {
    "catch": Task(
        ("--env", "catch:Catch", "--wrapped.steps", "12"),
        "from catch import Catch as make",
        60,
        0.9,
    ),
    "minigrid": Task(
        (
            *("--env", "minigrid:MiniGrid-Empty-8x8-v0"),
            *("--wrapped.wrappers", "minigrid.wrappers:RGBImgPartialObsWrapper", "minigrid.wrappers:ImgObsWrapper"),
        ),
        "import gymnasium, minigrid\nfrom minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper\n"
        "make = lambda: ImgObsWrapper(RGBImgPartialObsWrapper(gymnasium.make('MiniGrid-Empty-8x8-v0')))",
        60,
        0.9,
    ),
    "pong": Task(
        ("--env", "ale_py:ALE/Pong-v5", "--env-args", "frameskip=1", "--wrapped.wrappers", *PONG),
        "import ale_py, gymnasium\nfrom gymnasium.wrappers import AtariPreprocessing, FrameStackObservation\n"
        "gymnasium.register_envs(ale_py)\n"
        "make = lambda: FrameStackObservation(AtariPreprocessing(gymnasium.make('ALE/Pong-v5', frameskip=1)), 4)",
        25,  # 102,400 frames of the game, of which an agent sees each fourth
        float("-inf"),
    ),
}
LIBRARY = """
import sys
import time
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

{make}

torch.set_num_threads(1)
frames, envs, block = map(int, sys.argv[1:])
vector = DummyVecEnv([lambda: Monitor(make())] * envs)
agent = PPO("CnnPolicy", vector, seed=0, device="cpu", n_steps=block, batch_size=envs * block // 4, n_epochs=4)
began = time.process_time()
agent.learn(frames)
print((time.process_time() - began) / frames)
"""


def run_process(command: Sequence[str], folder: str) -> tuple[float, str]:
    """CPU seconds of a process, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def own_command(task: Task, run: str, rounds: int, *more: str) -> list[str]:
    """Our command."""
    start = "import sys; from flatwater.cli.main import main; sys.exit(main())"
    options = (*task.options, "--rounds", str(rounds), "--threads", "1", "--quiet", "--run", run, *more)
    return [sys.executable, "-c", start, "train", "ppo", *options]


def whole_run(task: Task, folder: str) -> tuple[float, dict[str, Any]]:
    """CPU seconds of a run with its defaults, and the returns of its players."""
    seconds, _ = run_process(own_command(task, "whole", task.rounds), folder)
    players: dict[str, Any] = json.loads(Path(folder, "whole", "result.json").read_text())["players"]
    return seconds, players


def own_frame(task: Task, folder: str, turn: int) -> float:
    """CPU seconds of a frame, played, learned from and recorded, without evaluations."""
    rounds, run = task.frames // (ENVS * BLOCK), f"run{turn}"
    unseen = ("--evaluation.every", str(rounds + 1), "--evaluation.envs", "1")  # no phase of these counts
    run_process(own_command(task, run, rounds, *unseen), folder)
    lines = [json.loads(line)["phases"] for line in Path(folder, run, "ledger.jsonl").read_text().splitlines()]
    phases = ("collect", "update", "settle", "save")
    spent: float = sum(line[phase]["cpu_seconds"] for line in lines for phase in phases if phase in line)
    return spent / task.frames


def library_frame(task: Task, folder: str, python: str) -> float:
    """CPU seconds of a frame of the library's."""
    sizes = [str(size) for size in (task.frames, ENVS, BLOCK)]
    _, printed = run_process([python, "-c", LIBRARY.format(make=task.make), *sizes], folder)
    return float(printed.split()[-1])


def main() -> None:
    """Print what each task takes, and keep the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--speed", action="store_true", help="compare speeds alone")
    parser.add_argument("--whole", action="store_true", help="whole runs alone")
    parser.add_argument("--library-python", default=sys.executable, help="interpreter that has stable-baselines3")
    given = parser.parse_args()
    for name in given.tasks:
        task, found = TASKS[name], list[Claim]()
        with tempfile.TemporaryDirectory() as folder:
            if not given.speed:
                found += claims_of_run(name, task, *whole_run(task, folder))
            if not given.whole:
                pairs = [
                    (own_frame(task, folder, turn), library_frame(task, folder, given.library_python))
                    for turn in range(given.turns)
                ]
                found += claims_of_speed(name, pairs)
        for claim in found:
            print(claim, flush=True)
        record_claims(found)


def claims_of_run(name: str, task: Task, seconds: float, players: dict[str, Any]) -> Iterator[Claim]:
    """Whether the command solves a task, and in what time."""
    reached, chance = (players[player]["return"] for player in ("policy", "random"))
    frames = task.rounds * ENVS * BLOCK
    wanted = f"≥ {task.solved}" if task.solved > float("-inf") else "ends"
    label = f"`flatwater train ppo` on images, {name}, {frames:,} steps: return ({chance:.2f} by chance)"
    yield Claim("flatwater", f"{name}.return", label, f"{reached:.2f}", wanted, reached >= task.solved)
    label = f"the same, {name}: CPU seconds of the whole command"
    yield Claim(
        "flatwater", f"{name}.seconds", label, f"{seconds:.0f}", f"≤ {MAXIMUM_SECONDS}", seconds <= MAXIMUM_SECONDS
    )


def claims_of_speed(name: str, pairs: Sequence[tuple[float, float]]) -> Iterator[Claim]:
    """The CPU of a frame beside the library's."""
    share = median(own / library for own, library in pairs)
    each = ", ".join(f"{1e3 * own:.2f} and {1e3 * library:.2f}" for own, library in pairs)
    label = f"PPO on images, {name}: CPU of a frame as a share of Stable-Baselines3's ({each} ms)"
    yield Claim(
        "flatwater",
        f"{name}.frame",
        label,
        f"{share:.2f}",
        f"≤ {MAXIMUM_SHARE}",
        share <= MAXIMUM_SHARE,
        "1 (Stable-Baselines3)",
    )


if __name__ == "__main__":
    main()
