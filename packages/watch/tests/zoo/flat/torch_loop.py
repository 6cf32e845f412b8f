"""The plainest training loop: a model, an optimiser, random batches, and losses kept as numbers."""

import sys

import torch


def main(rounds: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(rounds):
        for _ in range(60):
            x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
