"""What the hook at each boundary, and what a census leaves behind, cost steps of 8 µs: CartPoles stepped at random.

In one process, in pairs of 40 ms and 40 ms in alternating order, as two runs of a program differ by more than what
is looked for. The hook has a watch behind it, with its readings and censuses.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any

import gymnasium

from flatwater.memory.leaks.census import take_census
from flatwater.memory.leaks.roots import Roots
from flatwater.memory.watch.process import ProcessWatch
from flatwater.memory.watch.steps import find_steps, lose_steps

ENVS, STEPS = 8, 500
"""Environments stepped together, and their steps in one half of a pair."""
COUNTED: list[Any] = []
"""What the census finds."""


def made() -> Any:  # noqa: ANN401
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
    COUNTED.append(made())
    take_census(Roots())
    others = made()
    return in_pairs(lambda: seconds_of(COUNTED[0]), lambda: seconds_of(others), pairs)


def with_the_hook(pairs: int) -> dict[str, Any]:
    """The same environments with the hook and without it."""
    envs = made()
    watch = ProcessWatch()
    watch.boundaries.grant_to_(find_steps(watch.step))
    cls: Any = type(envs.envs[0].unwrapped)
    hooked = {name: vars(cls)[name] for name in ("step", "reset")}

    def half(methods: dict[str, Any]) -> float:
        for name, method in methods.items():
            setattr(cls, name, method)
        return seconds_of(envs)

    plain = {name: method.__wrapped__ for name, method in hooked.items()}
    found = in_pairs(lambda: half(hooked), lambda: half(plain), pairs)
    lose_steps()
    passed = watch.boundaries.counts
    watch.close(conclude=False)
    # An episode's end is followed by a reset in place of a step.
    return found | {"counted": passed["step"] + passed["episode"] == pairs * ENVS * STEPS}


if __name__ == "__main__":
    pairs = int(sys.argv[1])
    print(json.dumps({"census": after_a_census(pairs), "hook": with_the_hook(pairs)}))
