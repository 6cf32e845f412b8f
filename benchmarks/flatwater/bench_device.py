"""Every way to train, on one device: a run in one piece against one that is stopped in the middle and resumed.

    python benchmarks/flatwater/bench_device.py [--device cuda] [--only ppo sac ...] [--at-once 8]

Each case is trained whole, then for half of its rounds and resumed for the rest, all in processes of their own, and the
whole run is evaluated. Wanted: exit code 0 four times, and every leaf of both last checkpoints with the same bytes.
Where there is no CUDA device it says so and ends with 0; `--device cpu` asks the same of the processor. Exit status 1
where a case differs or fails; what its commands said is printed then.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims

EXAMPLES = Path(__file__).parents[2] / "examples" / "flatwater"
SHORT = "--steps 300 --replay.warmup 100 --evaluation.episodes 2"
PANEL = "--panel synthetic:6x900 --replay.warmup 100"
GROWN = "--envs 4 --env.steps 6 --evaluation.episodes 2"
CASES = {
    "ppo": "ppo",
    "ppo, compiled": "ppo --learner.compile",
    "ppo with memory": "ppo --policy.memory 32",
    "ppo, normalised, bfloat16": "ppo --env Pendulum-v1 --policy.observations normalised --rewards normalised "
    "--learner.autocast bf16",
    "ppo on images": "ppo --env catch:Catch",
    "ppo on images, bfloat16": "ppo --env catch:Catch --learner.autocast bf16",
    "teach": "teach --envs 4 --block 16 --learner.minibatches 4 --evaluation.envs 2",
    "grow": f"grow {GROWN}",
    "grow, multilayer perceptrons": f"grow {GROWN} --env.host.kind mlp",
    "dqn": f"dqn --env CartPole-v1 {SHORT}",
    "dqn, compiled": f"dqn --env CartPole-v1 {SHORT} --learner.compile",
    "dqn, prioritised": f"dqn --env CartPole-v1 {SHORT} --replay.prioritised --learner.n-steps 3 --learner.duelling",
    "dqn on images": f"dqn --env catch:Catch {SHORT} --replay.capacity 5000",
    "dqn, four agents": f"dqn --env CartPole-v1 {SHORT} --population.size 4",
    "sac": f"sac --env Pendulum-v1 {SHORT}",
    "sac, compiled": f"sac --env Pendulum-v1 {SHORT} --learner.compile",
    "sac on choices": f"sac --env CartPole-v1 {SHORT}",
    "td3": f"td3 --env Pendulum-v1 {SHORT}",
    "td3, compiled": f"td3 --env Pendulum-v1 {SHORT} --learner.compile",
    "ddpg": f"ddpg --env Pendulum-v1 {SHORT}",
    "evolve": "evolve --env Pendulum-v1 --steps 200",
    "evolve, compiled": "evolve --env Pendulum-v1 --steps 200 --learner.compile",
    "erl in hindsight": "erl --panel synthetic:6x900",
    "erl by td3": f"erl --learner.algorithm td3 {PANEL}",
    "erl by sac": f"erl --learner.algorithm sac {PANEL}",
    "weights": "weights --panel synthetic:8x1500 --learner.updates 60",
    "weights, short too": "weights --panel synthetic:8x1500 --learner.updates 60 --account.shorts --members.size 4",
}
ROUNDS = 4


@dataclass(frozen=True)
class Outcome:
    """What came out of a case."""

    case: str
    problem: str
    """What is not as wanted, and what the commands printed; empty where all is."""
    leaves: int


def last_leaves(run: Path) -> dict[str, str]:
    """Return the checksum of every leaf in the last checkpoint of a run."""
    manifest = json.loads(max((run / "checkpoints").glob("*.json")).read_text())
    return {leaf["path"]: leaf["sha256"] for leaf in manifest["leaves"]}


def try_case(device: str, folder: Path, case: str) -> Outcome:
    """Train a case whole, and in two pieces; evaluate it, and compare every leaf."""
    home = folder / case.replace(" ", "_")
    home.mkdir()
    train = f"train {CASES[case]} --device {device} --threads 1 --quiet"
    commands = (
        f"{train} --rounds {ROUNDS} --run {home}/whole",
        f"{train} --rounds {ROUNDS // 2} --run {home}/parts",
        f"resume {home}/parts --rounds {ROUNDS} --quiet",
        f"evaluate {home}/whole",
    )
    for command in commands:
        # In the folder of the examples: `catch:Catch` is found from there.
        words = [sys.executable, "-m", "flatwater", *command.split()]
        ended = subprocess.run(words, cwd=EXAMPLES, capture_output=True, text=True, check=False)
        if ended.returncode:
            return Outcome(case, f"flatwater {command}: exit code {ended.returncode}\n{ended.stderr}", 0)
    whole, parts = last_leaves(home / "whole"), last_leaves(home / "parts")
    differing = [path for path in whole | parts if whole.get(path) != parts.get(path)]
    return Outcome(case, f"other bytes in {', '.join(differing)}" if differing else "", len(whole))


def main() -> int:
    """Try the cases, print a line for each, and return 1 where one is not as wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="*", default=[*CASES], choices=[*CASES], metavar="CASE")
    parser.add_argument("--at-once", type=int, default=1, help="cases at the same time, each on one core")
    options = parser.parse_args()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device here: nothing was tried")
        return 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        outcomes = []
        for outcome in pool.map(partial(try_case, options.device, Path(folder)), options.only):
            print(f"{outcome.case:30} {outcome.problem or f'{outcome.leaves} leaves bit-equal'}", flush=True)
            outcomes.append(outcome)
    good = sum(not outcome.problem for outcome in outcomes)
    name = f"ways to train that are bit-equal after a resume, on {options.device.split(':')[0]}"
    measured = f"{good} of {len(outcomes)}"
    record_claims([Claim("flatwater", options.device, name, measured, "all", reached=good == len(outcomes))])
    return int(good < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
