"""The command that a user types beside a script of Stable-Baselines3 that does the same: all of it, in CPU seconds.

    python benchmarks/flatwater/bench_command.py [--steps 102400] [--turns 3] [--library-python PYTHON] [--json]
    python benchmarks/flatwater/bench_command.py --long            2,048,000 steps, two turns: it compiles by itself

Needs `pip install stable-baselines3`, here or in the interpreter that `--library-python` names. Each is a process of
its own: start, imports, training on CartPole-v1 (8 copies, blocks of 128 steps, 4 epochs of 4 minibatches, two layers
of 64, one thread), an evaluation on 8 episodes, and its end. Ours evaluates twice, at the last block and for the
result, keeps checkpoints and records, and draws a picture; the library's script saves its policy once. They take turns,
and the median of the ratios counts. Before the first turn each takes one block that does not count: then both have
their bytecode, as installed packages have it, whatever PYTHONDONTWRITEBYTECODE says. torch's compiler begins without a
cache: the first long turn is that of a new machine, and the second finds what the first compiled.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "shared"))

from claims import Claim, record_claims

ENVS, BLOCK, EPISODES = 8, 128, 8
LONG = 2_048_000
LONG_TURNS = 2
WANTED = {False: 1.5, True: 4.0}
"""Multiples of the library's speed that a run must reach, short and long."""
BOOKKEEPING = 0.02
LIBRARY = """
import sys
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

torch.set_num_threads(1)
steps, envs, block, episodes, folder = *map(int, sys.argv[1:5]), sys.argv[5]
agent = PPO(
    "MlpPolicy",
    make_vec_env("CartPole-v1", envs, seed=0),
    seed=0,
    device="cpu",
    n_steps=block,
    batch_size=envs * block // 4,
    n_epochs=4,
    policy_kwargs={"net_arch": [64, 64]},
)
agent.learn(steps)
print(evaluate_policy(agent, make_vec_env("CartPole-v1", envs, seed=10_000), episodes))
agent.save(folder + "/policy")
"""


def cpu_seconds(command: Sequence[str], folder: str) -> float:
    """CPU seconds of a process and of those that it has started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["OMP_NUM_THREADS"] = "1"
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "compiled"))
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own_command(steps: int, run: str) -> list[str]:
    """Our command, with the library's passes."""
    rounds = str(steps // (ENVS * BLOCK))
    settings: dict[str, object] = {
        "envs": ENVS,
        "block": BLOCK,
        "learner.epochs": 4,
        "learner.minibatches": 4,
        "threads": 1,
    }
    settings |= {"rounds": rounds, "evaluation.every": rounds, "evaluation.envs": EPISODES, "run": run}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    start = "import sys; from flatwater.cli.main import main; sys.exit(main())"
    return [sys.executable, "-c", start, "train", "ppo", "--env", "gymnasium:CartPole-v1", "--quiet", *words]


def library_command(python: str, steps: int, folder: str) -> list[str]:
    """The script of the library, which saves its policy in the folder."""
    return [python, "-c", LIBRARY, *(str(size) for size in (steps, ENVS, BLOCK, EPISODES)), folder]


def bookkeeping_share(run: Path) -> float:
    """Share of a run's CPU seconds from its first round to its last that its records took."""
    lines = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    spent: dict[str, float] = {}
    for line in lines:
        for phase, effort in line["phases"].items():
            spent[phase] = spent.get(phase, 0.0) + effort["cpu_seconds"]
    return (spent["settle"] + spent.get("save", 0.0)) / sum(spent.values())


def measure(steps: int, turns: int, python: str) -> dict[str, list[float]]:
    """CPU seconds of both, turn by turn, their ratios, and the share of our bookkeeping."""
    found: dict[str, list[float]] = {"own": [], "library": [], "times": [], "bookkeeping": []}
    with tempfile.TemporaryDirectory() as folder:
        cpu_seconds(own_command(ENVS * BLOCK, "first"), folder)
        cpu_seconds(library_command(python, ENVS * BLOCK, folder), folder)
        for turn in range(turns):
            run = f"run{turn}"
            found["own"].append(cpu_seconds(own_command(steps, run), folder))
            found["library"].append(cpu_seconds(library_command(python, steps, folder), folder))
            found["times"].append(found["library"][-1] / found["own"][-1])
            found["bookkeeping"].append(bookkeeping_share(Path(folder, run)))
    return found


def main() -> None:
    """Print what both take."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=102_400, help="of all copies together")
    parser.add_argument("--long", action="store_true", help=f"{LONG:,} steps")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--library-python", default=sys.executable, help="interpreter that has stable-baselines3")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    steps = LONG if given.long else given.steps
    found = measure(steps, LONG_TURNS if given.long else given.turns, given.library_python)
    if given.json:
        print(json.dumps(found, indent=1))
    else:
        for name, values in found.items():
            print(f"{name:12} {median(values):8.3f}   {'  '.join(f'{value:.3f}' for value in values)}")
    record_claims(claims(found, steps, long=given.long))


def claims(found: dict[str, list[float]], steps: int, *, long: bool) -> Iterator[Claim]:
    """The speed of the whole command, and the share of its bookkeeping."""
    wanted, share = WANTED[long], median(found["bookkeeping"])
    name = f"`flatwater train ppo`, CartPole, {steps:,} steps, whole command: CPU speed as multiple"
    key, rival = "long" if long else "short", "1 (Stable-Baselines3)"
    if long:
        first, later = found["times"]
        measured = f"{later:.2f}; {first:.2f} where nothing is compiled yet"
    else:
        later = median(found["times"])
        measured = f"{later:.2f}"
    yield Claim("flatwater", f"{key}.times", name, measured, f"≥ {wanted}", later >= wanted, rival)
    kept = share <= BOOKKEEPING
    name = f"the same: share of training's CPU seconds for metrics, ledger and checkpoints, {steps:,} steps"
    yield Claim("flatwater", f"{key}.bookkeeping", name, f"{share:.1%}", f"≤ {BOOKKEEPING:.0%}", kept)


if __name__ == "__main__":
    main()
