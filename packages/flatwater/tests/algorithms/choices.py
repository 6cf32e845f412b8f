"""Batches of choices, and a member's network in plain torch, for the tests of algorithms whose actions are choices."""

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from flatwater.nets.mlp import MLPValues
from flatwater.nets.stack import Layout, views
from flatwater.replay.batch import Batch

OBS, CHOICES, HIDDEN, B = 5, 3, (8, 7), 6
CPU = torch.device("cpu")


def batch_of(rng: torch.Generator) -> Batch:
    def normal(*shape: int) -> Tensor:
        return torch.randn(3, B, *shape, generator=rng, dtype=torch.float64)

    return Batch(
        obs=normal(OBS),
        action=torch.randint(CHOICES, (3, B), generator=rng),
        reward=3 * normal(),
        discount=(normal() > -1).double(),
        next_obs=normal(OBS),
        weight=normal().abs(),
    )


def members_of(batch: Batch, low: int, high: int) -> Batch:
    return Batch(**{name: part[low:high] for name, part in vars(batch).items()})


class OneNetwork(nn.Module):
    """One member's network, from its row."""

    def __init__(self, values: MLPValues, row: Tensor) -> None:
        super().__init__()
        self.weights = nn.ParameterDict(
            {k.replace(".", "_"): nn.Parameter(v[0].clone()) for k, v in views(row[None], values.layout).items()}
        )

    def layer(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}_weight"] + self.weights[f"{name}_bias"]

    def forward(self, obs: Tensor) -> Tensor:
        x = relu(self.layer("1", relu(self.layer("0", obs))))
        advantage = self.layer("2", x)
        if "value_weight" not in self.weights:
            return advantage
        return self.layer("value", x) + advantage - advantage.mean(1, keepdim=True)


def assert_same_weights(net: OneNetwork, row: Tensor, layout: Layout, *, atol: float) -> None:
    """Compare a network with a member's row."""
    for name, given in views(row[None], layout).items():
        torch.testing.assert_close(net.weights[name.replace(".", "_")].detach(), given[0], rtol=0, atol=atol)
