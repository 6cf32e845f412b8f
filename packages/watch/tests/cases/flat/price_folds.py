"""A house price network for each postcode area, with accelerate, which is told to free it."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def houses(area: int) -> TensorDataset:
    draw = torch.Generator().manual_seed(area)
    count = 1500 + 400 * (area % 4)
    rows = torch.randn(count, 96, generator=draw)
    return TensorDataset(rows, rows[:, :4].mean(dim=1, keepdim=True))


def mean_error(accelerator: Accelerator, area: int) -> float:
    data = houses(area)
    network = nn.Sequential(nn.Linear(96, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    network, optimizer, loader = accelerator.prepare(network, optimizer, DataLoader(data, batch_size=100, shuffle=True))
    for _ in range(2):
        for rows, price in loader:
            optimizer.zero_grad()
            accelerator.backward((network(rows) - price).abs().mean())
            optimizer.step()
    with torch.no_grad():
        error = (network(data.tensors[0]) - data.tensors[1]).abs().mean().item()
    accelerator.free_memory()
    return error


def main(areas: int) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    for area in range(areas):
        error = mean_error(accelerator, area)
        if area % 10 == 0:
            sys.stdout.write(f"{area} areas, error {error:.3f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
