"""What a user might bring to see with: images in each form, numbers beside them, and networks of `torch.nn`."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from torch import Tensor, nn


class Spot(gymnasium.Env[Any, Any]):
    """A spot is shown in the left or the right half of an image; the action that names the half is paid 1."""

    observation_space: gymnasium.Space[Any] = Box(0, 255, (12, 10, 3), np.uint8)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.age = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        paid, self.age = float(action == (self.column >= 5)), self.age + 1
        return self.show(), paid, self.age >= 6, False, {}

    def show(self) -> Any:
        self.column = int(self.np_random.integers(10))
        self.image = np.zeros((12, 10, 3), np.uint8)
        self.image[3:9, self.column] = 255
        return self.make_observation()

    def make_observation(self) -> Any:
        return self.image


class Stack(Spot):
    """A stack of four images, its axis first, as Gymnasium's `FrameStackObservation` gives it."""

    observation_space = Box(0, 255, (4, 12, 10), np.uint8)

    def make_observation(self) -> Any:
        return np.repeat(self.image[None, ..., 0], 4, 0)


class Beside(Spot):
    """An image beside two numbers, a choice and words."""

    observation_space = Dict(
        image=Spot.observation_space,
        body=Tuple([Box(-1, np.array([1, 2], np.float32), (2,), np.float32), Discrete(3)]),
        words=gymnasium.spaces.Text(9),
    )

    def make_observation(self) -> Any:
        return {"image": self.image, "body": (np.array([0.5, self.age / 6], np.float32), 2), "words": "look"}


class Numbers(Spot):
    """Numbers alone, in a Dict."""

    observation_space = Dict(a=Box(-np.inf, np.inf, (2, 3), np.float32), b=MultiDiscrete([2, 3]))

    def make_observation(self) -> Any:
        return {"a": np.full((2, 3), self.column - 4.5, np.float32), "b": np.array([1, 2])}


class Eyes(nn.Module):
    """Convolutions with a buffer that learning changes, and a constant one; an image of one's own beside numbers."""

    constant: Tensor

    def __init__(self, space: Dict) -> None:
        super().__init__()
        channels = (space["image"].shape or ())[0]
        self.convolution = nn.Conv2d(channels, 4, 3, stride=2)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.top = nn.LazyLinear(8)
        self.register_buffer("constant", torch.full((1,), 0.5))

    def forward(self, obs: Any) -> Tensor:
        seen = self.norm(self.convolution(obs["image"])).relu().flatten(1)
        numbers, choice = obs["body"]
        joined = torch.cat([seen, numbers * self.constant, choice], dim=1)
        features: Tensor = self.top(joined).relu()
        return features


class Plain(nn.Module):
    """Reads a Dict of numbers; one layer is never used."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.layer, self.idle = nn.Linear(11, 6), nn.Linear(1, 1)
        assert space == Dict(a=Box(-np.inf, np.inf, (2, 3), np.float32), b=Box(0, 1, (5,), np.float32))

    def forward(self, obs: Any) -> Tensor:
        features: Tensor = self.layer(torch.cat([obs["a"].flatten(1), obs["b"]], dim=1)).tanh()
        return features


class Faulty(Plain):
    """A module with a fault that its name tells."""

    def forward(self, obs: Any) -> Tensor:
        raise ValueError(f"no such thing as a forward of {len(obs)}")


class Wide(Plain):
    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs)[None]


class Drops(Plain):
    def forward(self, obs: Any) -> Tensor:
        return nn.functional.dropout(super().forward(obs))


class Looks(Plain):
    def forward(self, obs: Any) -> Tensor:
        found = super().forward(obs)
        return found if found.sum().item() > 0 else -found


class Keeps(Plain):
    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.weights = torch.ones(6)

    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs) * self.weights


class Swaps(Plain):
    count: Tensor

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, obs: Any) -> Tensor:
        self.count = self.count + 1
        return super().forward(obs)


class Doubles(Plain):
    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.double()


class Wants(nn.Module):
    def __init__(self, space: gymnasium.Space[Any], width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(gymnasium.spaces.flatdim(space), width)


def not_a_module(space: gymnasium.Space[Any]) -> object:
    return space


class Numbered(Spot):
    """Six numbers."""

    observation_space = Box(-3, 3, (6,), np.float32)

    def make_observation(self) -> Any:
        return np.linspace(-2, 2, 6, dtype=np.float32) + np.float32(self.column >= 5)


class Tied(nn.Module):
    """Two layers with one weight, one of them twice."""

    def __init__(self, _: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.again = nn.Sequential(self.first, nn.Tanh())

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.second(self.again(obs))
        return features


class Attention(nn.Module):
    """A transformer over six tokens, of which those above a number are padding."""

    def __init__(self, _: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.embed, self.places = nn.Linear(1, 8), nn.Parameter(torch.randn(6, 8))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), 2)

    def forward(self, obs: Tensor) -> Tensor:
        padding = (obs > 1.5) & (torch.arange(6, device=obs.device) > 0)
        features: Tensor = self.layers(self.embed(obs[..., None]) + self.places, src_key_padding_mask=padding)[:, 0]
        return features


class Stocked(nn.Module):
    """Parametrisations, lazy layers, and buffers of every type."""

    counted: Tensor
    precise: Tensor
    turning: Tensor
    places: Tensor
    allowed: Tensor
    halves: Tensor

    def __init__(self, _: gymnasium.Space[Any]) -> None:
        super().__init__()
        parametrizations = nn.utils.parametrizations
        self.first, self.second = nn.LazyBatchNorm1d(affine=False), parametrizations.spectral_norm(nn.Linear(6, 8))
        self.third = parametrizations.weight_norm(nn.Linear(8, 8))
        self.fourth = parametrizations.orthogonal(nn.Linear(8, 8))
        for name, value in {
            "counted": torch.zeros((), dtype=torch.int64),
            "precise": torch.arange(6, dtype=torch.float64),
            "turning": torch.randn(6, dtype=torch.complex64),
            "places": torch.arange(6).flip(0),
            "allowed": torch.tensor([True, False] * 3),
            "halves": torch.ones(6, dtype=torch.bfloat16),
        }.items():
            self.register_buffer(name, value)

    def forward(self, obs: Tensor) -> Tensor:
        if self.training:
            self.counted.add_(1)
        seen = (
            self.first(obs[:, self.places]) + (self.turning * obs).real + self.precise.float() / self.counted.clamp(1)
        )
        features: Tensor = self.fourth(self.third(self.second(seen * self.allowed + self.halves.float()).relu()))
        return features


class LateDrops(nn.Module):
    """Dropout behind a lazy layer."""

    def __init__(self, _: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LazyLinear(8), nn.Dropout(0.5))

    def forward(self, obs: Any) -> Tensor:
        features: Tensor = self.layers(obs["b"])
        return features


class Counts(Plain):
    """It becomes quieter while it learns."""

    steps = 0

    def forward(self, obs: Any) -> Tensor:
        self.steps += self.training
        return super().forward(obs) / (1 + self.steps)


class Fills(Plain):
    """Its buffer is None at first."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("last", None)

    def forward(self, obs: Any) -> Tensor:
        features = super().forward(obs)
        self.last = features.detach()
        return features


class Remembers(Plain):
    def forward(self, obs: Any) -> Tensor:
        MEMORY.append(len(MEMORY))
        return super().forward(obs) + len(MEMORY)


MEMORY: list[int] = []


class Rolls(Plain):
    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs) * float(np.random.rand())  # noqa: NPY002  (this is the fault)


class OwnRolls(Plain):
    """It draws from a generator of its own, and only while it learns."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.rng = torch.Generator()

    def forward(self, obs: Any) -> Tensor:
        features = super().forward(obs)
        return features * torch.rand((), generator=self.rng) if self.training else features


class Scribbles(Plain):
    def forward(self, obs: Any) -> Tensor:
        obs["a"].mul_(2)
        return super().forward(obs)


class Aliases(Plain):
    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.register_buffer("table", torch.zeros(2, 6))
        self.register_buffer("row", self.get_buffer("table")[1])


class Compiles(Plain):
    """Its layer is compiled; the backend that does nothing takes no time."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.layer: Any = torch.compile(self.layer, backend="eager")


class Mixes(Plain):
    """Takes the axis of the batch for one of the features."""

    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs).softmax(dim=0)


class Pairs(Plain):
    """Knows the number of observations with which it is tried."""

    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs).reshape(2, 6)


class Halves(Plain):
    """Gives two rows, whatever the number of observations."""

    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs).reshape(2, -1)


class Featureless(Plain):
    def forward(self, obs: Any) -> Tensor:
        return super().forward(obs)[:, 6:]


class ToNumPy(Plain):
    def forward(self, obs: Any) -> Tensor:
        return torch.as_tensor(np.cos(super().forward(obs).detach().numpy()))


class Scripted(Plain):
    """One of its modules is TorchScript."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit is deprecated
            self.inner = torch.jit.script(nn.Linear(6, 6))


class Sparse(Plain):
    def __init__(self, space: gymnasium.Space[Any]) -> None:
        super().__init__(space)
        self.table = nn.Embedding(9, 6, sparse=True)

    def forward(self, obs: Any) -> Tensor:
        found: Tensor = self.table(obs["b"].argmax(-1))
        return super().forward(obs) + found


MADE = nn.Linear(4, 8)
"""A module in place of what makes it."""
