"""E hosts in one arena against the same hosts one by one, and pooled env states against fresh ones over 50 batches.

    python benchmarks/flatwater/bench_hosts.py [--parts speed memory] [--json]

speed: 20 Adam updates of eight hosts with a seed in each slot, as one arena and as a loop of modules with optimizers of
their own (`looped_hosts.py`), on the same images. The hosts' validation losses stay at most 1e-5 apart, and the arena
takes 1/1.3 of the CPU time (convolutional) and 1/3 (mlp), or less: medians of turns that alternate in one process.

memory: 50 batches of 4 envs at 1.2 and 4.9 million weights, each batch a new episode of one step, in a fresh process:
pooled and fresh, with freed memory given back after each batch as runs do; and fresh as programs without Flatwater are,
with the classic mistake planted: a callback that closes over the env state in a cycle, left to Python's collector.
Pooled, resident memory grows by 4 MB or less from batch 10 to batch 50 at 1.2 million. Exits with 1 where a claim
fails.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim
from fresh import run_fresh
from looped_hosts import LoopedHost
from parts import measure_parts, report_parts
from torch import Tensor

from flatwater.envs.growing.config import FitConfig, GrowingConfig, HostConfig
from flatwater.envs.growing.fitting import fit_hosts_, host_losses
from flatwater.envs.growing.pool import GrowingEnvs, build_envs, pool_host
from flatwater.envs.growing.simulator import host_gates, reset_, step_
from flatwater.envs.growing.spaces import HEADS
from flatwater.envs.growing.stages import SlotStage
from flatwater.envs.growing.stream import SEEDLING, draw_weights_, image_numbers, stream_key
from flatwater.envs.growing.task import load_task
from flatwater.nets.stack import views
from flatwater.runs.machine import keep_freed_memory, release_freed_memory
from flatwater.state.tree import nbytes
from flatwater_watch.meters.mappings import peak_bytes
from flatwater_watch.meters.process import resident_bytes

CPU = torch.device("cpu")
HOSTS, UPDATES, TURNS = 8, 20, 7
APART, FASTER = 1e-5, {"conv": 1.3, "mlp": 3.0}
ENVS, BATCHES, FROM = 4, 50, 10
SIZES = {"1.2M": (66, 132, 264), "4.9M": (132, 264, 528)}
LEAKING = "fresh and leaking"
WAYS = ("pooled", "fresh", LEAKING)
GROWTH = 4e6


def begun(config: GrowingConfig) -> GrowingEnvs:
    """Hosts with seeds of all blueprints in their slots, blended in to different degrees."""
    envs = build_envs(config, count=HOSTS, data=load_task("digits", CPU), device=CPU)
    reset_(envs, torch.arange(HOSTS))
    everywhere = torch.ones(HOSTS, dtype=torch.bool)
    for slot, (part, layout) in enumerate(zip(envs.seeds, pool_host(envs).seeds, strict=True)):
        draw_weights_(part.weights, layout, stream_key(envs.seed, SEEDLING, slot), everywhere)
    place = torch.arange(HOSTS)[:, None] + torch.arange(len(envs.seeds))
    envs.slots.blueprint.copy_(place % 3)
    envs.slots.alpha.copy_(place % 4 / 3)
    envs.slots.stage.fill_(SlotStage.BLENDING)
    return envs


def named_weights(envs: GrowingEnvs) -> list[dict[str, Tensor]]:
    """The weights of hosts and seeds by name."""
    net = pool_host(envs)
    parts, layouts = (envs.host, *envs.seeds), (net.layout, *net.seeds)
    return [views(part.weights, layout) for part, layout in zip(parts, layouts, strict=True)]


def looped_hosts(envs: GrowingEnvs) -> list[LoopedHost]:
    """Return the hosts of the environments one by one, and not as a pool."""
    net: Any = pool_host(envs)
    hosts = []
    for env in range(HOSTS):
        own, *grown = ({name: weight[env] for name, weight in part.items()} for part in named_weights(envs))
        taps = int(envs.kernel[env].sum())
        hosts.append(LoopedHost(net, own, grown, envs.slots.blueprint[env].tolist(), taps))
    return hosts


def speed(kind: str) -> dict[str, Any]:
    """Measure how far apart both sides are after 20 updates, and the CPU seconds of each side's turns."""
    config = GrowingConfig(host=HostConfig(kind="mlp" if kind == "mlp" else "conv"), fit=FitConfig(batch_size=32))
    envs = begun(config)
    alone = looped_hosts(envs)
    optimizers = [host.optimizers(config.fit.lr) for host in alone]
    gates, net = host_gates(envs), pool_host(envs)
    learns = torch.ones_like(envs.slots.stage, dtype=torch.bool)
    images, labels = envs.task.train_images, envs.task.train_labels
    rows = image_numbers(envs.seed, envs.drawn, count=UPDATES * config.fit.batch_size, images=len(labels))
    batches = torch.split(rows, config.fit.batch_size)

    def stacked_turn() -> None:
        for chosen in batches:
            fit_hosts_(envs.host, envs.seeds, net, gates, task=envs.task, rows=chosen, learns=learns, config=config.fit)

    def looped_turn() -> None:
        for chosen in batches:
            for env, host in enumerate(alone):
                at = chosen[:, env]
                host.update_(optimizers[env], images[at], labels[at], (gates.alpha[env], gates.train[env]))

    stacked_turn()
    looped_turn()
    apart = distance(envs, alone)
    seconds = [(cpu_seconds(stacked_turn), cpu_seconds(looped_turn)) for _ in range(TURNS)]
    together, one_by_one = (statistics.median(side) for side in zip(*seconds, strict=True))
    ratio = one_by_one / together
    return {"apart": apart, "stacked": together, "looped": one_by_one, "ratio": ratio, "claim": FASTER[kind]}


@torch.no_grad()
def distance(envs: GrowingEnvs, alone: list[LoopedHost]) -> float:
    """The largest difference between the validation losses of a host here and there."""
    net, gates, images, labels = (
        pool_host(envs),
        host_gates(envs),
        envs.task.valid_images,
        envs.task.valid_labels,
    )
    own, *grown = named_weights(envs)
    together = net.logits(own, grown, gates, images[:, None].expand(-1, HOSTS, -1))
    single = torch.stack([host(images, gates.alpha[env], gates.train[env]) for env, host in enumerate(alone)], 1)
    at = labels[:, None].expand(-1, HOSTS)
    return float((host_losses(together, at) - host_losses(single, at)).abs().max())


def cpu_seconds(turn: Callable[[], None]) -> float:
    """Return the CPU seconds of a turn in this process, which has one thread."""
    began = time.process_time()
    turn()
    return time.process_time() - began


def plant_cycle(envs: GrowingEnvs) -> None:
    """A list of callbacks in which each can reach the list and, by closing over it, the env state."""
    callbacks: list[Callable[[], tuple[GrowingEnvs, int]]] = []
    callbacks.append(lambda: (envs, len(callbacks)))


def another(envs: GrowingEnvs) -> GrowingEnvs:
    """New envs in the place of these, as many programs build them for every batch."""
    known = envs.alone
    envs = build_envs(envs.config, count=len(envs.seed), data=envs.task, device=CPU, net=pool_host(envs))
    envs.alone = known
    return envs


def batches(way: str, size: str) -> dict[str, Any]:
    """In a fresh process: 50 batches, resident memory after each, the peak, and CPU seconds."""
    config = GrowingConfig(
        steps=1,
        host=HostConfig(channels=SIZES[size]),
        fit=FitConfig(updates=1, batch_size=4),
    )
    task = load_task("digits", CPU)
    task.valid_images, task.valid_labels = task.valid_images[:8].clone(), task.valid_labels[:8].clone()
    envs = build_envs(config, count=ENVS, data=task, device=CPU)
    germinate = torch.zeros(ENVS, len(HEADS), dtype=torch.int64)
    germinate[:, 0] = 1
    resident, began = [], time.process_time()
    if way != LEAKING:
        keep_freed_memory()
    for batch in range(BATCHES):
        if way != "pooled":
            envs = another(envs)
        reset_(envs, torch.arange(ENVS) + ENVS * batch)
        if way == LEAKING:
            plant_cycle(envs)
        step_(envs, germinate)
        if way != LEAKING:
            release_freed_memory()
        resident.append(resident_bytes())
    seconds = time.process_time() - began
    weights = sum(part.weights.shape[1] for part in (envs.host, *envs.seeds))
    return {
        "weights": weights,
        "held": sum(nbytes(envs).values()),
        "resident": resident,
        "grown": resident[-1] - resident[FROM - 1],
        "peak": peak_bytes(),
        "cpu": seconds,
    }


def failures(found: dict[str, Any]) -> list[str]:
    """The claims that do not hold."""
    wrong = []
    for kind, part in found.get("speed", {}).items():
        wrong += [f"{kind}: apart"] * (part["apart"] > APART) + [f"{kind}: ratio"] * (part["ratio"] < part["claim"])
    if "memory" in found:
        wrong += ["pooled growth"] * (found["memory"]["1.2M"]["pooled"]["grown"] > GROWTH)
    return wrong


def claims(found: dict[str, Any]) -> Iterator[Claim]:
    """Yield the claims of each part."""
    for kind, part in found.get("speed", {}).items():
        name = f"{HOSTS} growing networks ({kind}) in one arena: times as fast as one by one"
        right = part["ratio"] >= part["claim"] and part["apart"] <= APART
        yield Claim("flatwater", kind, name, f"{part['ratio']:.2f}", f"≥ {part['claim']}", right)
    if sizes := found.get("memory"):
        grown = {way: part["grown"] / 1e6 for way, part in sizes["1.2M"].items()}
        name = f"growth of resident memory, batches {FROM} to {BATCHES}, networks pooled"
        wanted = f"≤ {GROWTH / 1e6:.0f} MB"
        right, rival = grown["pooled"] <= GROWTH / 1e6, f"{grown['fresh']:.1f} MB (new networks each time)"
        yield Claim("flatwater", "memory", name, f"{grown['pooled']:.1f} MB", wanted, right, rival)


def show(found: dict[str, Any]) -> None:
    """Print what was measured."""
    for kind, part in found.get("speed", {}).items():
        print(
            f"{kind}, E = {HOSTS}, {UPDATES} updates: {part['apart']:.1e} apart (limit {APART:.0e}); CPU s stacked "
            f"{part['stacked']:.3f}, looped {part['looped']:.3f}: {part['ratio']:.2f} x (claim {part['claim']})"
        )
    for ways in found.get("memory", {}).values():
        for way, part in ways.items():
            resident = [part["resident"][n - 1] / 1e6 for n in (1, FROM, BATCHES)]
            print(
                f"{ENVS} x {part['weights'] / 1e6:.2f} M, {way}: resident MB after batch 1, {FROM}, {BATCHES}: "
                f"{', '.join(f'{mb:,.0f}' for mb in resident)}; grown: {part['grown'] / 1e6:+,.1f}; "
                f"peak {part['peak'] / 1e6:,.0f}; {part['cpu']:.0f} CPU s (env states {part['held'] / 1e6:,.0f} MB)"
            )


def main() -> int:
    """Measure what was asked for, print it, compare it with the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", choices=["speed", "memory"], default=["speed", "memory"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.in_process:
        print(json.dumps(batches(*options.in_process)))
        return 0
    parts: dict[str, Callable[[], Any]] = {
        "speed": lambda: {kind: speed(kind) for kind in FASTER},
        "memory": lambda: {
            size: {way: run_fresh(__file__, ["--in-process", way, size]) for way in WAYS} for size in SIZES
        },
    }
    found = measure_parts(parts, options.parts)
    return report_parts(found, show, failures, claims, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
