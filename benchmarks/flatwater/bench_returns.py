"""Returns and CPU seconds of PPO, DQN, SAC and TD3 beside Stable-Baselines3 and SBX, on games that nobody tuned for.

    python benchmarks/flatwater/bench_returns.py [--games ppo dqn:CartPole-v1 ...] [--seeds 0 1 2] [--at-once 1]
    python benchmarks/flatwater/bench_returns.py --page            writes docs/flatwater/returns.md, and plays nothing

Needs `pip install stable-baselines3 sbx-rl minigrid gymnasium[box2d,mujoco]`, here or where `--library-python` is.
Games, steps and the libraries' settings stand in `returns.toml`. The players of a game take turns, seed by seed, each
in a process of its own with one thread: `flatwater` has our defaults, `flatwater zoo` has `--preset zoo`, `sb3` and
`sbx` have RL Zoo's settings. Ours is the command that a user types, with its checkpoints and records. Every tenth of
the steps the likeliest action plays ten episodes on seeds that are not trained on. CPU seconds are those of the whole
process, with imports and compiling, without these episodes. A play that is kept in `results/returns.jsonl` is not
played again: stop it when you like, and go on with the same command.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import numpy as np
from claims import RESULTS, Claim, commit, machine, record_claims
from returns_page import middle_return, middle_seconds, players_of, write_page

from flatwater.api import resolve_config

HERE = Path(__file__).parent
GAMES: dict[str, Any] = tomllib.loads((HERE / "returns.toml").read_text())
KEPT = RESULTS / "returns.jsonl"
POINTS, EPISODES = GAMES.pop("points"), GAMES.pop("episodes")
LIBRARIES = {"sb3": "stable_baselines3", "sbx": "sbx"}
PLAYERS = ("flatwater", "flatwater zoo", *LIBRARIES)
SETTINGS = {"flatwater": "defaults", "flatwater zoo": "RL Zoo's settings"}
WANTED_RATIO = 0.5
CHOSEN_ON = {"dqn.flatwater": "These defaults were chosen on CartPole-v1 and Acrobot-v1."}
"""Claims -> what a reader has to know of their settings."""
Play = dict[str, Any]
"""Player, game, seed, and the curve: rows of environment steps, CPU seconds, mean return."""


def wanted_plays(games: Iterable[str], seeds: Iterable[int], players: Iterable[str]) -> Iterator[Play]:
    """Yield the plays in their order: all players of all games with the first seed come first."""
    named = [(algorithm, env) for algorithm, envs in GAMES.items() for env in envs]
    chosen = [(a, e) for a, e in named if not games or a in games or f"{a}:{e}" in games]
    for seed in seeds:
        for algorithm, env in chosen:
            for player in players:
                yield {"player": player, "algorithm": algorithm, "env": env, "seed": seed}


def identity(play: Play) -> tuple[Any, ...]:
    """Return what tells a play from others."""
    return tuple(play[name] for name in ("player", "algorithm", "env", "seed"))


def kept_plays() -> list[Play]:
    """Return the plays that have ended."""
    return [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def own_command(play: Play, run: Path) -> list[str]:
    """Return the command that a user types for this play."""
    algorithm, env = play["algorithm"], play["env"]
    game = GAMES[algorithm][env]
    settings: dict[str, Any] = {"env": env, "seed": play["seed"], "threads": 1, "run": run}
    if play["player"] == "flatwater zoo":
        settings["preset"] = "zoo"
    if "wrappers" in game:
        settings["wrapped.wrappers"] = game["wrappers"]
    if algorithm == "ppo":
        # Rounded up, as the libraries do, and to a whole number of rounds between evaluations.
        rounds = -(-game["steps"] // steps_per_round(algorithm, settings))
        every = -(-rounds // POINTS)
        settings |= {"rounds": -(-rounds // every) * every, "evaluation.every": every, "evaluation.envs": EPISODES}
    else:
        settings |= {"rounds": POINTS, "steps": game["steps"] // POINTS, "evaluation.episodes": EPISODES}
    start = "import sys; from flatwater.cli.main import main; sys.exit(main())"
    words = [
        word
        for name, value in settings.items()
        for word in (f"--{name}", *map(str, value if isinstance(value, list) else [value]))
    ]
    return [sys.executable, "-c", start, "train", algorithm, "--quiet", *words]


def steps_per_round(algorithm: str, settings: dict[str, Any]) -> int:
    """Return the environment steps of a round with these settings, as the command's plan has them."""
    given: dict[str, Any] = {name: settings[name] for name in ("env", "preset") if name in settings}
    return int(resolve_config(algorithm, None, given).steps_per_round)


def play_own(play: Play, folder: Path) -> dict[str, Any]:
    """Return the curve of our run, and the CPU seconds of its evaluations."""
    run = folder / "run"
    spent = run_process(own_command(play, run), folder)
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    reached = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # Short rounds share a line of the ledger, so that the seconds of one round are interpolated.
    rounds, training, judging = [0], [0.0], 0.0
    for line in ledger:
        phases = {name: each["cpu_seconds"] for name, each in line["phases"].items()}
        judged = phases.pop("evaluate", 0.0) + phases.pop("baselines", 0.0)
        judging += judged
        rounds.append(line["round"])
        training.append(training[-1] + sum(phases.values()))
    # What is spent outside of the phases: imports, plan, the last evaluation, the end.
    around = spent - training[-1] - judging
    curve = [
        [
            row.get("agent_steps", row.get("transitions")),
            around + float(np.interp(row["round"], rounds, training)),
            row["evaluation/policy"],
        ]
        for row in reached
        if "evaluation/policy" in row
    ]
    return {"curve": curve, "judging": judging}


def play_library(play: Play, folder: Path, python: str) -> dict[str, Any]:
    """Return the curve of a library's agent, and the CPU seconds of its evaluations."""
    words = [LIBRARIES[play["player"]], play["algorithm"], play["env"], str(play["seed"])]
    printed = folder / "printed"
    run_process([python, str(HERE / "library_agent.py"), *words], folder, printed)
    return dict(json.loads(printed.read_text().splitlines()[-1]))


def run_process(command: list[str], folder: Path, printed: Path | None = None) -> float:
    """Run a command with one thread, and return its CPU seconds, with those of the processes that it waited for.

    Raises:
        CalledProcessError: it failed; `stderr` has what it said.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # Compiled code of an earlier play would make this one look cheaper than a user's first.
    environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled")}
    said = folder / "said"
    with Path(printed or os.devnull).open("w") as out, said.open("w") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=said.read_text()[-2000:])
    return usage.ru_utime + usage.ru_stime


def play_one(play: Play, python: str) -> Play:
    """Return a play with its result; one that fails has the words that it failed with."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            if play["player"] in LIBRARIES:
                found = play_library(play, Path(folder), python)
            else:
                found = play_own(play, Path(folder))
        except subprocess.CalledProcessError as error:
            found = {"failed": str(error.stderr).strip().splitlines()[-1:]}
    where = {"commit": commit(), "date": datetime.now(UTC).date().isoformat(), "machine": machine()}
    return play | found | where | {"seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    """Play what is not kept yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="*", default=[], help="algorithms, or ALGORITHM:ENV; all if left out")
    parser.add_argument("--players", nargs="+", default=PLAYERS, choices=PLAYERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--at-once", type=int, default=1, help="plays at the same time")
    parser.add_argument("--library-python", default=sys.executable, help="interpreter that has the libraries")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    given = parser.parse_args()
    if not given.page:
        have = {identity(play) for play in kept_plays()}
        plays = [p for p in wanted_plays(given.games, given.seeds, given.players) if identity(p) not in have]
        with ThreadPoolExecutor(given.at_once) as pool, KEPT.open("a") as kept:
            for number, play in enumerate(pool.map(lambda each: play_one(each, given.library_python), plays), 1):
                kept.write(json.dumps(play) + "\n")
                kept.flush()
                last = play["curve"][-1] if "curve" in play else play["failed"]
                print(f"{number}/{len(plays)} {' '.join(map(str, identity(play)))}: {last}", flush=True)
    plays = kept_plays()
    write_page(plays, GAMES)
    record_claims(claims(plays), [play["commit"] for play in plays])


def claims(plays: Iterable[Play]) -> Iterator[Claim]:
    """Returns and CPU seconds of all kept plays beside Stable-Baselines3's, for each algorithm."""
    curves = [play for play in plays if "curve" in play]
    for algorithm, envs in GAMES.items():
        played = [players_of([play for play in curves if play["algorithm"] == algorithm], env) for env in envs]
        for player in ("flatwater", "flatwater zoo"):
            both = [players for players in played if player in players and "sb3" in players]
            if not both:
                continue
            ahead = sum(middle_return(players[player]) >= middle_return(players["sb3"]) for players in both)
            ratio = median(middle_seconds(players[player]) / middle_seconds(players["sb3"]) for players in both)
            name = f"{algorithm.upper()} in {len(both)} environments, {SETTINGS[player]}"
            key = f"{algorithm}.{player.replace(' ', '_')}"
            returns = f"{name}: return after the same steps at least that of Stable-Baselines3"
            measured = f"{ahead} of {len(both)}"
            note = CHOSEN_ON.get(key, "")
            yield Claim("flatwater", f"{key}.returns", returns, measured, "all", ahead == len(both), note=note)
            seconds = f"{name}: CPU seconds over those of Stable-Baselines3, median"
            measured = f"{ratio:.2f}"
            yield Claim("flatwater", f"{key}.seconds", seconds, measured, "≤ 0.5", ratio <= WANTED_RATIO, note=note)


if __name__ == "__main__":
    main()
