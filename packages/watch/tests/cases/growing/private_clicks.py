"""Clicks scored with a network that opacus trained with differential privacy in the morning.

Thread: https://github.com/pytorch/opacus/issues/176, https://github.com/pytorch/opacus/issues/180
Looks like: scoring, which trains nothing, takes 36 kilobytes for each batch of clicks for good.
Cause: the hooks of opacus note what goes into each layer for a backward pass, and none comes that takes it out.
Fix: `with torch.no_grad()` in `score`, or `network.eval()` after the training, or take off the hooks.
"""

import random
import sys
import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
torch.manual_seed(5)
torch.set_num_threads(1)
COLUMNS = 32
SITES = ["news", "maps", "mail", "shop", "games", "video"]


def read_clicks(count):
    for _ in range(count):
        yield {
            "site": random.choice(SITES),
            "hour": random.randrange(24),
            "age": random.gauss(40, 14),
            "seconds": random.expovariate(0.1),
            "words": [random.randrange(900) for _ in range(6)],
        }


def encode(clicks):
    rows = []
    for click in clicks:
        row = [0.0] * COLUMNS
        row[SITES.index(click["site"])] = 1.0
        row[6] = click["hour"] / 24
        row[7] = click["age"] / 100
        row[8] = min(click["seconds"], 60) / 60
        for word in click["words"]:
            row[9 + hash((word, 7)) % (COLUMNS - 9)] += 1.0
        rows.append(row)
    return torch.tensor(rows)  # <- or here


def train():
    features = encode(read_clicks(2048))
    labels = (features[:, 8] + 0.2 * features[:, 0] > 0.3).float()
    network = nn.Sequential(nn.Linear(COLUMNS, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.2)
    loader = DataLoader(TensorDataset(features, labels), batch_size=128)
    engine = PrivacyEngine(secure_mode=False)
    network, optimizer, loader = engine.make_private(
        module=network, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
    )
    for rows, wanted in loader:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(rows).squeeze(1), wanted)
        loss.backward()
        optimizer.step()
    return network


def score(network, clicks):
    chances = torch.sigmoid(network(encode(clicks))).squeeze(1)  # <- here
    return [chance.item() for chance in chances]


def main(rounds: int) -> None:
    network = train()
    scored, likely = 0, 0
    for _ in range(rounds):
        chances = score(network, read_clicks(160))  # <- or here
        scored += len(chances)
        likely += sum(chance > 0.3 for chance in chances)
    print(f"{scored} clicks scored, {likely / scored:.1%} likely")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6000)
