"""A profiler around the whole training, without a schedule.

Thread: https://github.com/Lightning-AI/pytorch-lightning/issues/10717
Looks like: memory climbs with the steps, outside of Python.
Fix: `schedule(wait=…, warmup=…, active=…)` and `step()`.
"""

import sys
import time

import torch


def main(rounds: int) -> None:
    model = torch.nn.Linear(8, 8)
    rows = torch.ones(4, 8)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)
    profiler.start()
    for _ in range(rounds):
        for _ in range(400):
            model(rows).sum().backward()
        time.sleep(0.1)
    profiler.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
