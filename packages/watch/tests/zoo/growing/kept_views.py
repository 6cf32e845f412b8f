"""The first frame of every rollout kept for a video: a view of two rows that keeps the whole rollout alive.

Looks like: memory climbs by a rollout each time, although what is kept seems a few kilobytes.
Fix: keep a copy of the part, `rollout[:2].clone()`.
"""

import sys
import time

import torch


def collect(policy: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return policy(torch.randn(2000, 64))  # <- here


def main(rounds: int) -> None:
    policy = torch.nn.Linear(64, 1000)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
    first_frames = []
    for _ in range(rounds):
        rollout = collect(policy)
        first_frames.append(rollout[:2])
        loss = policy(torch.randn(64, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
