"""A DataLoader with worker processes over a tensor: pages that are only read stay shared."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset


def main(rounds: int) -> None:
    dataset = TensorDataset(torch.randn(4096, 128), torch.randn(4096, 1))
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(rounds):
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
