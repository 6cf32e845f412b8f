"""A dataset that keeps what it has read, in worker processes: each fills a cache of its own.

Looks like: the program's own memory stands still, and the machine fills up as many times as there are workers.
Fix: no cache in the dataset, or one that all workers share: a mapped file, a tensor with `share_memory_()`.
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Readings(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, i: int) -> torch.Tensor:
        if i not in self.cache:
            self.cache[i] = torch.randn(4000)  # <- here
        return self.cache[i]


def main(rounds: int) -> None:
    readings = Readings()
    batches = iter(DataLoader(readings, 32, shuffle=True, num_workers=2, prefetch_factor=1))
    model = torch.nn.Linear(4000, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(rounds):
        for _ in range(20):
            loss = model(next(batches)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
