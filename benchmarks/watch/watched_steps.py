"""What parts of a watch cost steps of 8 µs: CartPoles stepped at random.

In one process, in pairs of 40 ms and 40 ms in alternating order, as two runs of a program differ by more than what
is looked for. The hook has a watch behind it, with its readings and censuses; `wrapper` is its wrapper alone, which is
called and counts down. `dicts` and `waking` are what a watch leaves alone: the `__dict__` of an instance, which Python
3.11 and 3.12 keep once it was asked for, and a thread that wakes up twenty times a second.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from statistics import quantiles
from typing import Any

import gymnasium

from flatwater_watch.agent.boundaries import TICK_SECONDS
from flatwater_watch.agent.call_counters import set_listener
from flatwater_watch.agent.process import ProcessWatch
from flatwater_watch.agent.step_hooks import hook_steps
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots

ENVS, STEPS = 8, 500
"""Environments stepped together, and their steps in one half of a pair."""
LONGER = 10
"""Halves in one of the pairs with a thread, which has to wake up some times in it."""
COUNTED: list[Any] = []
"""Objects that the census finds."""
HOOKED: dict[str, Any] = {}
"""CartPole's methods as the hook has wrapped them, which it does once in a process."""


def make_envs() -> Any:  # noqa: ANN401
    """Environments that have been reset once."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=ENVS, vectorization_mode="sync")
    envs.reset(seed=0)
    envs.action_space.seed(0)
    return envs


def seconds_of(envs: Any) -> float:  # noqa: ANN401
    """CPU seconds of one half of a pair."""
    began = time.process_time()
    for _ in range(STEPS):
        envs.step(envs.action_space.sample())
    return time.process_time() - began


def in_pairs(first: Callable[[], float], second: Callable[[], float], pairs: int) -> dict[str, Any]:
    """Quartiles of the ratios of the first to the second, and microseconds that it takes more for a step."""
    ratios, more = [], []
    for n in range(pairs):
        if n % 2:
            without, with_ = second(), first()
        else:
            with_, without = first(), second()
        ratios.append(with_ / without)
        more.append((with_ - without) / (ENVS * STEPS) * 1e6)
    return {"ratio": quantiles(ratios), "more": quantiles(more)}


def after_a_census(pairs: int) -> dict[str, Any]:
    """Environments that a census has looked at, beside some that it has not."""
    COUNTED.append(make_envs())
    take_census(Roots())
    others = make_envs()
    return in_pairs(lambda: seconds_of(COUNTED[0]), lambda: seconds_of(others), pairs)


def with_the_hook(pairs: int, *, alone: bool = False) -> dict[str, Any]:
    """Step the same environments with the hook and without it; alone, all that it could tell a watch is granted."""
    envs = make_envs()
    watch = ProcessWatch()
    gates = hook_steps(watch.step)
    watch.boundaries.attach_counters_(gates)
    if alone:
        for gate in gates.values():
            gate.skip_next_(1 << 60)
    cls: Any = type(envs.envs[0].unwrapped)
    if not HOOKED:
        HOOKED.update({name: vars(cls)[name] for name in ("step", "reset")})

    def half(methods: dict[str, Any]) -> float:
        for name, method in methods.items():
            setattr(cls, name, method)
        return seconds_of(envs)

    plain = {name: method.__wrapped__ for name, method in HOOKED.items()}
    found = in_pairs(lambda: half(HOOKED), lambda: half(plain), pairs)
    half(plain)
    set_listener(None)
    passed = (
        sum(gate.take_skipped_() for gate in gates.values())
        if alone
        else watch.boundaries.boundary_count(None, ticks=False)
    )
    watch.close(conclude=False)
    # An episode's end is followed by a reset in place of a step.
    return found | {"counted": passed == pairs * ENVS * STEPS}


def layers(env: Any) -> Iterator[Any]:  # noqa: ANN401
    """An environment's wrappers, and itself."""
    yield env
    while env is not env.unwrapped:
        env = env.env
        yield env


def with_dicts(pairs: int) -> dict[str, Any]:
    """Environments whose dicts somebody has asked for, beside some whose dicts nobody has."""
    asked, others = make_envs(), make_envs()
    for env in asked.envs:
        for layer in layers(env):
            vars(layer)
    return in_pairs(lambda: seconds_of(asked), lambda: seconds_of(others), pairs)


def with_a_thread(pairs: int) -> dict[str, Any]:
    """Environments stepped beside a thread that wakes up again and again, and by themselves."""
    envs, over, wakings, switches = make_envs(), threading.Event(), [0], [0]

    def by_themselves() -> float:
        return sum(seconds_of(envs) for _ in range(LONGER)) / LONGER

    def wake() -> None:
        while not over.wait(TICK_SECONDS):
            wakings[0] += 1

    def beside() -> float:
        over.clear()
        thread = threading.Thread(target=wake)
        thread.start()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        spent = by_themselves()
        switches[0] += resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
        over.set()
        thread.join()
        return spent

    found = in_pairs(beside, by_themselves, pairs // LONGER)
    return found | {"switches": switches[0] / wakings[0]}


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "census": after_a_census,
    "hook": with_the_hook,
    "wrapper": lambda pairs: with_the_hook(pairs, alone=True),
    "dicts": with_dicts,
    "waking": with_a_thread,
}

if __name__ == "__main__":
    pairs = int(sys.argv[1])
    print(json.dumps({part: measure(pairs) for part, measure in PARTS.items()}))
