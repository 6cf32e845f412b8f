"""Stacked DDPG updates of a population against the same members updated one by one, in one run.

The one-by-one side is written as in CleanRL (`ddpg_continuous_action.py`): a module, two Adam optimisers and a polyak
loop over parameters for each member. Both sides take turns on the same batches (17 observations, 6 actions, as in
HalfCheetah), in one process, with the same threads; the ratio is that of the medians of wall time, so a busy machine
slows both. Exit status 1 where a ratio falls below what is claimed.

    python benchmarks/flatwater/bench_stacked.py [--compile] [--jax] [--threads 2] [--members 16] [--json]

`--jax` instead has all members stacked here, eager and with `--compile` compiled, and the same with products in
bfloat16, take turns with the same update as one program of JAX (`stacked_in_jax.py`) in float32, whose threads are the
machine's cores. It claims nothing: it prints medians of wall and CPU time.
"""

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims
from torch import Tensor, nn
from torch.nn.functional import mse_loss, relu

from flatwater.algorithms.api import Networks, Setting
from flatwater.algorithms.config import DDPGConfig
from flatwater.algorithms.ddpg import build, make_update
from flatwater.nets.mlp import MLPActor, MLPCritic
from flatwater.replay.batch import Batch
from flatwater_trading.training.learner import LearnerConfig

OBS, ACTION = 17, 6
CASES = {"64-64": ((64, 64), 64, 20), "256-256": ((256, 256), 256, 4), "1024-1024": ((1024, 1024), 256, 1)}
"""Hidden layers, batch size, updates in one turn: enough of them that each side works with warm caches."""
TURNS = 11
CLAIMS = {False: {"64-64": 11.0, "256-256": 1.8, "1024-1024": 1.4}, True: {"64-64": 17.0, "256-256": 2.0}}
"""Least ratio, by whether the update is compiled."""
GAMMA, TAU, ACTOR_LR, CRITIC_LR = 0.99, 0.005, 1e-4, 3e-4


class Layers(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.first = nn.Linear(widths[0], widths[1])
        self.second = nn.Linear(widths[1], widths[2])
        self.last = nn.Linear(widths[2], widths[3])

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's outputs."""
        y: Tensor = self.last(relu(self.second(relu(self.first(x)))))
        return y


class OneMember:
    """CleanRL's update of one agent."""

    def __init__(self, hidden: tuple[int, int]) -> None:
        self.actor, self.actor_target = Layers(OBS, *hidden, ACTION), Layers(OBS, *hidden, ACTION)
        self.critic, self.critic_target = Layers(OBS + ACTION, *hidden, 1), Layers(OBS + ACTION, *hidden, 1)
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_LR)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=ACTOR_LR)

    def value(self, net: Layers, obs: Tensor, action: Tensor) -> Tensor:
        """Q of each row."""
        y: Tensor = net(torch.cat([obs, action], 1))
        return y.view(-1)

    def update_(self, batch: Batch) -> None:
        """One update."""
        with torch.no_grad():
            following = self.value(self.critic_target, batch.next_obs, torch.tanh(self.actor_target(batch.next_obs)))
            target = batch.reward + batch.discount * GAMMA * following
        critic_loss = mse_loss(self.value(self.critic, batch.obs, batch.action), target)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()  # type: ignore[no-untyped-call]
        self.critic_optimizer.step()
        actor_loss = -self.value(self.critic, batch.obs, torch.tanh(self.actor(batch.obs))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()  # type: ignore[no-untyped-call]
        self.actor_optimizer.step()
        for net, slow in ((self.actor, self.actor_target), (self.critic, self.critic_target)):
            for online, target_weight in zip(net.parameters(), slow.parameters(), strict=True):
                target_weight.data.copy_(TAU * online.data + (1 - TAU) * target_weight.data)


def one_by_one(hidden: tuple[int, int], batch: Batch) -> Callable[[], None]:
    """A turn that updates every member by itself."""
    members = [OneMember(hidden) for _ in batch.reward]
    fields = ("obs", "action", "reward", "discount", "next_obs")
    batches = [Batch(**{name: getattr(batch, name)[p] for name in fields}) for p in range(len(members))]

    def turn() -> None:
        for member, own in zip(members, batches, strict=True):
            member.update_(own)

    return turn


def stacked_turn(hidden: tuple[int, int], batch: Batch, *, compiled: bool, bf16: bool = False) -> Callable[[], None]:
    """A turn that updates all members at once."""
    members, batch_size = batch.reward.shape
    config = LearnerConfig(
        algorithm="ddpg",
        weight_decay=0.0,
        grad_clip=0.0,
        compile=compiled,
        autocast="bf16" if bf16 else "off",
        ddpg=DDPGConfig(batch_size=batch_size, gamma=GAMMA, tau=TAU),
    )
    nets = Networks(MLPActor(OBS, ACTION, hidden), MLPCritic(OBS, ACTION, hidden))
    setting = Setting(members=members, seed=0, device=torch.device("cpu"))
    update_ = make_update(config, nets, build(config, nets, setting), [(0, members)])
    return lambda: consume(update_([lambda _low, _high: batch]))


def consume(_: Tensor | None) -> None:
    """Both sides leave their results on the device."""


def batch_of(members: int, size: int) -> Batch:
    """Random transitions."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(members, size, *shape, generator=rng)

    return Batch(
        obs=normal(OBS),
        action=normal(ACTION).clamp(-1, 1),
        reward=normal(),
        discount=torch.ones(members, size),
        next_obs=normal(OBS),
    )


def take_turns(
    sides: Mapping[str, Callable[[], object]], updates: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Median seconds of one update of each side, by a clock; the sides take turns of `updates` updates."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(TURNS + 1):
        for name, run in sides.items():
            run()
            start = clock()
            for _ in range(updates):
                run()
            if turn:
                taken[name].append((clock() - start) / updates)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def measure(members: int, *, compiled: bool) -> list[dict[str, Any]]:
    """One row for each case."""
    rows = []
    for name, claim in CLAIMS[compiled].items():
        hidden, size, updates = CASES[name]
        batch = batch_of(members, size)
        sides = {"one by one": one_by_one(hidden, batch), "stacked": stacked_turn(hidden, batch, compiled=compiled)}
        median = take_turns(sides, updates)
        ratio = median["one by one"] / median["stacked"]
        rows.append(
            {
                "network": name,
                "batch": size,
                "one_by_one_ms": 1000 * median["one by one"],
                "stacked_ms": 1000 * median["stacked"],
                "ratio": ratio,
                "claimed": claim,
            }
        )
    return rows


def beside_jax(members: int, networks: list[str], *, compiled: bool) -> None:
    """Print wall and CPU milliseconds of one update of all members, for each network and side."""
    from stacked_in_jax import stacked_in_jax  # noqa: PLC0415  (needs JAX)

    print(f"{'network':>10} {'batch':>6} {'side':>10} {'wall ms':>9} {'CPU ms':>9}")
    spent = []
    for name in networks:
        hidden, size, updates = CASES[name]
        batch, each = batch_of(members, size), [OneMember(hidden) for _ in range(members)]
        fields = [batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs]
        pairs, rates = [(member.actor, member.critic) for member in each], (ACTOR_LR, CRITIC_LR)
        sides: dict[str, Callable[[], object]] = {
            "eager": stacked_turn(hidden, batch, compiled=False),
            "bf16": stacked_turn(hidden, batch, compiled=False, bf16=True),
            "JAX": stacked_in_jax(pairs, fields, gamma=GAMMA, tau=TAU, rates=rates),
        }
        if compiled:
            sides["compiled"] = stacked_turn(hidden, batch, compiled=True)
            sides["both"] = stacked_turn(hidden, batch, compiled=True, bf16=True)
        wall, cpu = (take_turns(sides, updates, clock) for clock in (time.perf_counter, time.process_time))
        for side in sides:
            print(f"{name:>10} {size:>6} {side:>10} {1000 * wall[side]:>9.2f} {1000 * cpu[side]:>9.2f}", flush=True)
        spent.append((1000 * cpu["compiled" if compiled else "eager"], 1000 * cpu["JAX"]))
    mine, theirs = (" / ".join(f"{each[side]:.2f}" for each in spent) for side in (0, 1))
    name = f"an update of {members} members beside JAX's vmap and jit, CPU ms at {', '.join(networks)}"
    ahead = all(ours < jax for ours, jax in spent)
    record_claims([Claim("flatwater", "jax", name, mine, "less at each", ahead, f"{theirs} (JAX)")])


def keep_freed_memory() -> None:
    """Have glibc keep what is freed: else both sides fault their activations' pages in again at every update."""
    if sys.platform == "linux":
        trim_threshold, mmap_threshold = -1, -3
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_threshold, 1 << 30)
        libc.mallopt(trim_threshold, 1 << 30)


def main() -> int:
    """Measure, print, compare with the claims."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--compile", action="store_true", help="compile the stacked update (a minute or two)")
    parser.add_argument("--jax", action="store_true", help="beside JAX, which must be installed")
    parser.add_argument("--networks", nargs="+", default=list(CASES), choices=list(CASES), help="of --jax")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    keep_freed_memory()
    if args.jax:
        beside_jax(args.members, args.networks, compiled=args.compile)
        return 0
    rows = measure(args.members, compiled=args.compile)
    how = "compiled" if args.compile else "eager"
    ratios, wanted = (" / ".join(f"{row[key]:.1f}" for row in rows) for key in ("ratio", "claimed"))
    name = (
        f"{args.members} members in one update, {how}: times as fast as one by one, {', '.join(CLAIMS[args.compile])}"
    )
    right = all(row["ratio"] >= row["claimed"] for row in rows)
    record_claims([Claim("flatwater", how, name, ratios, f"≥ {wanted}", right)])
    if args.json:
        print(json.dumps({"members": args.members, "threads": args.threads, "compiled": args.compile, "rows": rows}))
    else:
        print(f"{args.members} members, {args.threads} threads, {how}; milliseconds for one update of all members")
        print(f"{'network':>10} {'batch':>6} {'one by one':>11} {'stacked':>9} {'ratio':>6} {'claimed':>8}")
        for row in rows:
            print(
                f"{row['network']:>10} {row['batch']:>6} {row['one_by_one_ms']:>11.2f} {row['stacked_ms']:>9.2f} "
                f"{row['ratio']:>6.2f} {row['claimed']:>8.1f}"
            )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
