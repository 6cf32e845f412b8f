"""Feature sets for a churn model, compared by one small network for each fold.

Thread: https://github.com/huggingface/accelerate/issues/84, https://github.com/huggingface/accelerate/issues/739
Looks like: each fold takes memory for good, although its network is a local variable.
Cause: the `Accelerator` lists all that it has prepared, with Adam's state and the gradients.
Fix: `accelerator.free_memory()` after each fold, or a new `Accelerator` for each.
"""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CUSTOMERS = 2400
FEATURES = 64


def customers(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(CUSTOMERS, FEATURES, generator=draw)
    left = (rows[:, :6].sum(dim=1, keepdim=True) > 0).float()
    return rows, left


def churn_network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 384),
        nn.ReLU(),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, 1),
    )


def fold_accuracy(accelerator: Accelerator, fold: int) -> float:
    rows, left = customers(fold)
    network = churn_network()  # <- or here
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)  # <- or here
    loader = DataLoader(TensorDataset(rows[400:], left[400:]), batch_size=128, shuffle=True)
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)  # <- here
    loss_of = nn.BCEWithLogitsLoss()
    for _ in range(4):
        for batch, wanted in loader:
            optimizer.zero_grad()
            accelerator.backward(loss_of(network(batch), wanted))  # <- or here
            optimizer.step()  # <- or here
    with torch.no_grad():
        guesses = network(rows[:400]) > 0
    return (guesses == left[:400].bool()).float().mean().item()


def main(folds: int) -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    best = 0.0
    for fold in range(folds):
        score = fold_accuracy(accelerator, fold)
        best = max(best, score)
        if fold % 10 == 0:
            print(f"fold {fold}: {score:.3f}, best {best:.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 45)
