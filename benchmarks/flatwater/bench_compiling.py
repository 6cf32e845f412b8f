"""When it pays to compile a policy: CPU time that a step and an update of PPO save, and what compiling takes.

    python benchmarks/flatwater/bench_compiling.py [--turns 12]

CartPole, 8 copies, blocks of 128 steps, 4 epochs of 4 minibatches, one thread. A plain and a compiled run take turns of
three blocks in this process, and the medians count. Compiling is the difference of their first blocks: of 20 seconds
with an empty `TORCHINDUCTOR_CACHE_DIR`, and less where torch has the code there.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims

from flatwater.recipes.ppo.config import PpoRunConfig
from flatwater.recipes.ppo.run import compose
from flatwater.trainers.loop import train_

PASSES = 4
PHASES = {"collect": PpoRunConfig().block, "update": PASSES * PASSES}
"""Phases that are compiled, and calls of each in a round."""


class Clock:
    """Listens to the loop, and keeps the CPU seconds of each phase."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self._at = time.process_time()

    def on_step(self, phase: str, done: int, total: int) -> None:
        """Add the phase that ends with this step."""
        if done == total:
            at = time.process_time()
            self.spent.get(phase, []).append(at - self._at)
            self._at = at

    def on_round(self, _round: int, _metrics: Mapping[str, float]) -> None:
        """Leave the numbers of a round out."""
        self._at = time.process_time()

    def should_stop(self) -> bool:
        """Go on."""
        return False


def cpu_seconds() -> float:
    """CPU seconds of this process and of those that it waited for, such as C++ compilers."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def built_run(*, compiled: bool) -> tuple[Any, float]:
    """A trainer that has its first block behind it, and the CPU seconds of that block."""
    config = PpoRunConfig(env="gymnasium:CartPole-v1", threads=1)
    learner = replace(config.learner, epochs=PASSES, minibatches=PASSES, compile=compiled)
    trainer = compose(replace(config, learner=learner)).trainer
    began = cpu_seconds()
    train_(trainer, 1, Clock())
    return trainer, cpu_seconds() - began


def main() -> None:
    """Print what is saved, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12)
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    (plain, plain_first), (compiled, compiled_first) = (built_run(compiled=flag) for flag in (False, True))
    clocks = Clock(), Clock()
    for _ in range(turns):
        for trainer, total in zip((plain, compiled), clocks, strict=True):
            clock = Clock()
            train_(trainer, trainer.progress.round + 3, clock)
            for phase, seconds in clock.spent.items():
                total.spent[phase] += seconds
    claims = [
        Claim("flatwater", "first", "compiling a policy, CPU seconds", f"{compiled_first - plain_first:.1f}"),
    ]
    for phase, calls in PHASES.items():
        slow, fast = (1e6 * median(clock.spent[phase]) / calls for clock in clocks)
        label = f"a call of the phase {phase}, CartPole, compiled: CPU time"
        measured, rival = f"{fast:.0f} µs", f"{slow:.0f} µs (not compiled)"
        claims.append(Claim("flatwater", phase, label, measured, "less", fast < slow, rival))
    for claim in claims:
        print(claim)
    record_claims(claims)


if __name__ == "__main__":
    main()
