"""A replay memory of the last four thousand pictures of a pole, from which torch learns to balance it."""

import random
import sys
from collections import deque
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
rng = np.random.default_rng(9)
Transition = tuple[np.ndarray, int, float]


def play(network: nn.Module, steps: int) -> Iterator[Transition]:
    """Pictures of the pole, as a small camera sees it."""
    for _ in range(steps):
        picture = rng.random((48, 48), dtype=np.float32)
        with torch.no_grad():
            action = int(network(torch.from_numpy(picture).reshape(1, -1)).argmax())
        yield picture, action, random.random()


def learn(network: nn.Module, optimizer: torch.optim.Optimizer, batch: list[Transition]) -> float:
    pictures = torch.from_numpy(np.stack([picture for picture, _, _ in batch])).reshape(len(batch), -1)
    actions = torch.tensor([action for _, action, _ in batch])
    rewards = torch.tensor([reward for _, _, reward in batch])
    values = network(pictures).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(values, rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main(rounds: int) -> None:
    network = nn.Sequential(nn.Linear(48 * 48, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    memory: deque[Transition] = deque(maxlen=4_000)
    steps, loss = 0, 0.0
    for _ in range(rounds):
        memory.extend(play(network, 40))
        loss = learn(network, optimizer, random.sample(memory, 40))
        steps += 40
    sys.stdout.write(f"{steps} steps, loss {loss:.4f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3400)
