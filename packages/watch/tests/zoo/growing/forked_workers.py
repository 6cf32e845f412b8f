"""A dataset that is a long list of Python objects, read by worker processes: reading an object writes its reference
count, and the page that it lies on is copied.

Looks like: memory of the whole machine climbs through the first epoch, up to a copy of the dataset for every worker.
Fix: keep the samples in one array or tensor, whose pages are only read: `np.asarray(samples)`.
"""

import sys
import time
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, SequentialSampler


class Samples(Dataset[torch.Tensor]):
    def __init__(self, n: int) -> None:
        self.samples = [(float(i), i * 0.5, i * 0.25, str(i)) for i in range(n)]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> torch.Tensor:
        first, second, third, _ = self.samples[i]
        return torch.tensor((first, second, third))


class Spread(SequentialSampler):
    """Every sixteenth sample: a sample's page is copied with all that lies on it."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(0, len(self.data_source), 16))


def main(rounds: int) -> None:
    samples = Samples(480_000)
    batches = iter(
        DataLoader(
            samples, 500, sampler=Spread(samples), num_workers=2, prefetch_factor=1, multiprocessing_context="fork"
        )
    )
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for _ in range(rounds):
        for _ in range(4):
            loss = model(next(batches)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.15)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
