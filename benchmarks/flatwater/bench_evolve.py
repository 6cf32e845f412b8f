"""Evolved members beside Stable-Baselines3's TD3 and SAC: the return after the same CPU seconds.

    python benchmarks/flatwater/bench_evolve.py Pendulum-v1 --seconds 120 --seeds 0 1 2 --players flatwater-td3 sb3-td3

One thread. Each player has a process of its own, whose CPU seconds count from the first step of training on: for
Flatwater with the episodes that choose the champion, for Stable-Baselines3 without any, as it trains one agent and
takes the last. Both then play the same 20 episodes, whose seeds nothing was trained on. `--set NAME=VALUE` gives
Flatwater other settings than its defaults. `sb3-td3` has Stable-Baselines3's defaults, with the learning rate,
exploration noise and start that its model zoo gives for the environment; `alike-td3` has Flatwater's layers and batch
size besides, so that an update costs the same arithmetic. `agilerl-td3` (pip install agilerl peft) is AgileRL's
evolutionary TD3 with as many members as ours, our layers and batch size, an update a step, and the tournament and the
mutations of its documentation; it is stopped after the evolution in which the seconds are spent, and its elite plays.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import gymnasium
import numpy as np
import torch
from claims import Claim, record_claims

try:
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise
except ImportError:
    sys.exit("bench_evolve.py needs Stable-Baselines3: pip install stable-baselines3")

from flatwater.api import resolve_config
from flatwater.envs.split_seeds import HELD_OUT
from flatwater.recipes.evolve.config import EvolveRunConfig
from flatwater.recipes.evolve.policy import make_trained_policy
from flatwater.recipes.evolve.run import compose
from flatwater.trainers.loop import train_

EPISODES = 20
PLAYERS = [f"{who}-{algorithm}" for algorithm in ("td3", "sac") for who in ("flatwater", "alike", "sb3")]
AGILE = "agilerl-td3"
ZOO: dict[str, dict[str, dict[str, Any]]] = {
    "Pendulum-v1": {"td3": {"learning_rate": 1e-3, "learning_starts": 1000}, "sac": {"learning_rate": 1e-3}},
    "HalfCheetah-v5": {"td3": {"learning_rate": 1e-3, "learning_starts": 10_000}, "sac": {"learning_starts": 10_000}},
    "Hopper-v5": {"td3": {"learning_rate": 3e-4, "learning_starts": 10_000}, "sac": {"learning_starts": 10_000}},
}
"""Settings that Stable-Baselines3's model zoo changes from its defaults."""


@dataclass
class Budget:
    """A watcher that ends a run after its CPU seconds."""

    seconds: float
    began: float

    def spent(self) -> float:
        """CPU seconds since it began."""
        return time.process_time() - self.began

    def on_step(self, phase: str, done: int, total: int) -> None:
        """Nothing to show."""

    def on_round(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Show a generation."""
        numbers = {name: round(metrics[name], 2) for name in ("fitness/mean", "champion/return", "transitions")}
        sys.stderr.write(f"{self.spent():7.1f} s  generation {round_}  {numbers}\n")

    def should_stop(self) -> bool:
        """Whether the seconds are spent."""
        return self.spent() >= self.seconds


def ours(env: str, algorithm: str, seed: int, seconds: float, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train members for so many CPU seconds; the champion plays."""
    given = {"env": f"gymnasium:{env}", "seed": seed, "rounds": 1 << 30, "threads": 1, "learner.algorithm": algorithm}
    config = resolve_config("erl", None, nested_tables(given | dict(settings)))
    run = compose(config)
    budget = Budget(seconds, time.process_time())
    train_(run.trainer, config.rounds, budget)
    spent, state = budget.spent(), run.trainer.run
    policy = make_trained_policy(run)
    return {
        "returns": returns(env, policy.act),
        "cpu": spent,
        "transitions": state.transitions,
        "updates": state.learner.tally.updates * config.population.size,
    }


def nested_tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables from dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        *tables, last = name.split(".")
        table = found
        for each in tables:
            table = table.setdefault(each, {})
        table[last] = value
    return found


def theirs(env: str, algorithm: str, seed: int, seconds: float, *, alike: bool) -> dict[str, Any]:
    """Train one agent of Stable-Baselines3 for so many CPU seconds; it plays."""
    world = gymnasium.make(env)
    more = dict(ZOO.get(env, {}).get(algorithm, {}))
    if algorithm == "td3":
        acts = gymnasium.spaces.flatdim(world.action_space)
        more["action_noise"] = NormalActionNoise(np.zeros(acts), np.full(acts, 0.1))
    if alike:
        own = EvolveRunConfig()
        more["policy_kwargs"] = {"net_arch": [own.net.hidden] * own.net.layers}
        more["batch_size"] = getattr(own.learner, algorithm).batch_size
    build = {"td3": stable_baselines3.TD3, "sac": stable_baselines3.SAC}[algorithm]
    model = build("MlpPolicy", world, seed=seed, device="cpu", **more)
    budget = Budget(seconds, time.process_time())
    model.learn(1 << 30, callback=lambda _locals, _globals: not budget.should_stop())
    return {
        "returns": returns(env, lambda seen: model.predict(seen, deterministic=True)[0]),
        "cpu": budget.spent(),
        "transitions": model.num_timesteps,
        "updates": model._n_updates,  # noqa: SLF001  (it has no other name for it)
    }


def agile(env: str, seed: int, seconds: float) -> dict[str, Any]:
    """Evolve members of AgileRL for so many CPU seconds; its elite plays."""
    import agilerl.components.replay_buffer as buffers  # noqa: PLC0415  (the only player that needs it)
    from agilerl.hpo.mutation import Mutations  # noqa: PLC0415
    from agilerl.hpo.tournament import TournamentSelection  # noqa: PLC0415
    from agilerl.training.train_off_policy import train_off_policy  # noqa: PLC0415
    from agilerl.utils.utils import create_population  # noqa: PLC0415

    own = EvolveRunConfig()
    members, steps = own.population.size, own.steps
    world = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env)])
    world.reset(seed=seed)
    torch.manual_seed(seed)  # noqa: TID251  (its networks are drawn there)
    np.random.seed(seed)  # noqa: TID251, NPY002  (its noise is drawn there)
    layers = [own.net.hidden] * own.net.layers
    population = create_population(
        "TD3",
        {"encoder_config": {"hidden_size": layers}, "head_config": {"hidden_size": layers[-1:]}},
        {"BATCH_SIZE": own.learner.td3.batch_size, "LR_ACTOR": 1e-3, "LR_CRITIC": 1e-3, "LEARN_STEP": 1},
        world.single_observation_space,
        world.single_action_space,
        population_size=members,
    )
    memory = buffers.ReplayBuffer(max_size=1_000_000)
    budget, wanted = Budget(seconds, time.process_time()), 0
    while not budget.should_stop():
        wanted += steps
        population, scores = train_off_policy(
            world, env, "TD3", population, memory, max_steps=wanted, evo_steps=steps, learning_delay=1000,
            selection_strategy=TournamentSelection(2, elitism=True, population_size=members),
            mutation=Mutations(0.4, 0.2, 0.2, 0.2, 0.0, 0.2, rand_seed=seed), verbose=False,
        )  # fmt: skip
    elite = population[int(np.argmax([each[-1] if isinstance(each, list) else each for each in scores]))]
    elite.set_training_mode(False)
    return {
        "returns": returns(env, lambda seen: scale_actions(elite, elite.get_action(seen[None]))[0]),
        "cpu": budget.spent(),
        "transitions": wanted * members,
        "updates": max(1, wanted * members - 1000),
    }


def scale_actions(agent: Any, action: Any) -> Any:  # noqa: ANN401  (of AgileRL)
    """Its actions within the bounds of the space, as its own loop scales them."""
    from agilerl.networks.actors import DeterministicActor  # noqa: PLC0415

    given = torch.from_numpy(np.asarray(action))
    kind = agent.actor.output_activation
    return DeterministicActor.rescale_action(given, agent.action_low, agent.action_high, kind).numpy()


def returns(env: str, act: Callable[[Any], Any]) -> list[float]:
    """Play the episodes, and return what each of them paid."""
    world, found = gymnasium.make(env), []
    for episode in range(EPISODES):
        seen, _ = world.reset(seed=(HELD_OUT + episode) % 2**32)
        paid, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = world.step(act(seen))
            paid, over = paid + float(reward), terminated or truncated
        found.append(paid)
    return found


def play(player: str, env: str, seed: int, seconds: float, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One player with one seed, in this process."""
    torch.set_num_threads(1)
    who, _, algorithm = player.partition("-")
    if player == AGILE:
        return agile(env, seed, seconds)
    if who != "flatwater":
        return theirs(env, algorithm, seed, seconds, alike=who == "alike")
    return ours(env, algorithm, seed, seconds, settings)


def main() -> None:
    """Each player with each seed, one process after the other; a line of JSON each, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env", nargs="?", default="Pendulum-v1")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--players",
        nargs="+",
        default=PLAYERS,
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--alone", action="store_true", help="the first player with the first seed, in this process")
    given = parser.parse_args()
    settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in given.set)}
    if given.alone:
        print(json.dumps(play(given.players[0], given.env, given.seeds[0], given.seconds, settings)))
        return
    means: dict[str, list[float]] = {player: [] for player in given.players}
    for player in given.players:
        for seed in given.seeds:
            command = [sys.executable, __file__, given.env, "--alone", "--players", player, "--seeds", str(seed)]
            command += ["--seconds", str(given.seconds), "--set", *given.set]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            paid = np.array(found.pop("returns"))
            means[player].append(float(paid.mean()))
            each = 1e3 * found["cpu"] / found["updates"]
            print(
                f"{player:14} seed {seed}: return {paid.mean():9.1f} (dev {paid.std():7.1f}, worst {paid.min():9.1f}) "
                f"after {found['cpu']:.0f} CPU s, {found['transitions']:,} transitions, {found['updates']:,} updates "
                f"of single members, {each:.2f} CPU ms each",
                flush=True,
            )
    record_claims(claims(given.env, given.seconds, means))


def claims(env: str, seconds: float, means: Mapping[str, list[float]]) -> Iterator[Claim]:
    """Ours beside the best of the others with the same algorithm."""
    scores = {player: float(np.mean(each)) for player, each in means.items()}
    for ours in (player for player in scores if player.startswith("flatwater-")):
        algorithm = ours.removeprefix("flatwater-")
        others = {player: score for player, score in scores.items() if player != ours and player.endswith(algorithm)}
        best = max(others, key=lambda player: others[player], default="")
        name = f"{algorithm.upper()} in {env}, return after {seconds:g} CPU seconds, {len(means[ours])} seeds"
        rival, ahead = (f"{others[best]:,.1f} ({best})", scores[ours] > others[best]) if best else ("", None)
        yield Claim("flatwater", f"{env}.{algorithm}", name, f"{scores[ours]:,.1f}", "ahead", ahead, rival)


if __name__ == "__main__":
    main()
