"""Twelve ways to lose memory, each as a careless user would write it; `faulty.py` plants one in a real run.

Every function is called once a round and adds 1.5 MB or more. The numbers are those of the patterns.
"""

import copy
import queue
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

ROWS = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
LOSSES: list[torch.Tensor] = []
ENVS: dict[int, "Env"] = {}
HISTORY: list[dict[str, float]] = []
HALL: list[Any] = []
REPLAY: deque[np.ndarray] = deque(maxlen=400)
CALLBACKS: list[Callable[[], object]] = []
HOLES: list[bytes | None] = [None] * 60_000
QUEUE: queue.Queue[np.ndarray] = queue.Queue()
VIEWS: list[torch.Tensor] = []


class Env:
    """An environment with a price history of its own."""

    def __init__(self, seed: int) -> None:
        self.prices = np.random.default_rng(seed).standard_normal((500, 500))

    def play(self) -> float:
        return float(self.prices.sum())


class Model(torch.nn.Module):
    """A network, and features that it caches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x))

    @lru_cache(maxsize=None)  # noqa: B019, UP033  (the fault)
    def features(self, day: int) -> np.ndarray:
        return np.full((1000, 250), float(day))


MODEL = Model()


def graphs(n: int) -> None:
    loss = MODEL(torch.full((1024, 512), float(n))).square().mean()
    LOSSES.append(loss)


def envs(n: int) -> None:
    env = Env(n)
    env.play()
    ENVS[n] = env


def history(n: int) -> None:
    for step in range(6000):
        record = {"step": step * 1.5, "reward": step * 0.1 + n, "equity": 1e5 + step}
        HISTORY.append(record)


def clones(n: int) -> None:
    weights = {name: p.detach().clone() + n for name, p in MODEL.named_parameters()}
    moments = [torch.zeros_like(p) + n for p in MODEL.parameters()]
    HALL.append(copy.copy((weights, moments)))


def figures(n: int) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    _, axes = plt.subplots(num=n + 1)
    axes.imshow(np.full((500, 500), float(n)))


def windows(n: int) -> None:
    for step in range(20):
        at = (n * 20 + step) % 1400
        REPLAY.append(ROWS[at : at + 504].copy())


def closures(_: int) -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(8, 512)).sum().backward()
    optimizer.step()

    def on_round() -> object:
        return optimizer.state_dict()

    CALLBACKS.append(on_round)


def holes(n: int) -> None:
    """More temporaries in each round, and between the last of them small blocks that stay: no page becomes free."""
    temporaries = [bytes(3600) for _ in range(1200 * n)]
    for k in range(1200):
        temporaries.append(bytes(3600))
        HOLES[n * 1200 + k] = bytes(520)
    temporaries.clear()


def backlog(n: int) -> None:
    for _ in range(10):
        QUEUE.put(np.full((200, 200), float(n)))
    for _ in range(4):
        QUEUE.get()


def cached(n: int) -> None:
    MODEL.features(n)


def hooks(n: int) -> None:
    seen = np.full((500, 500), float(n))

    def record(*_: object) -> None:
        seen.mean()

    MODEL.register_forward_hook(record)


def views(n: int) -> None:
    block = torch.full((1000, 500), float(n))
    VIEWS.append(block[:2])


FAULTS: dict[int, Callable[[int], None]] = dict(
    enumerate(
        (graphs, envs, history, clones, figures, windows, closures, holes, backlog, cached, hooks, views), start=1
    )
)
