"""A data set that caches each sample, in each worker.

Thread: https://github.com/pytorch/pytorch/issues/20433
Looks like: the workers grow, the program that is watched does not.
Fix: cache before the workers start, in one shared array.
"""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset[torch.Tensor]):
    def __init__(self, length: int) -> None:
        self.length = length
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, n: int) -> torch.Tensor:
        time.sleep(0.15)
        self.cache[n] = torch.full((400_000,), float(n))  # <- here
        return self.cache[n][:4]


def main(rounds: int) -> None:
    for _ in DataLoader(Cached(2 * rounds), batch_size=1, num_workers=2):
        pass


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
