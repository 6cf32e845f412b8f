"""An env that was used and reset is a new one, bit for bit, and what would keep it from that is found by name."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from small import begun, config, do, envs_of, generator, grow, play
from torch import Tensor

from flatwater.envs.growing.config import GrowingConfig
from flatwater.envs.growing.pool import GrowingEnvs
from flatwater.envs.growing.simulator import reset_
from flatwater.envs.pooled import Remnant, remnants
from flatwater.state.tree import leaves, nbytes

torch.set_num_threads(1)
SEEDS = torch.tensor([5, 2**40 + 8, 7])
EPISODES = 10


def begin_(envs: GrowingEnvs) -> None:
    reset_(envs, SEEDS)


def live_(envs: GrowingEnvs, *, episodes: int = EPISODES) -> None:
    """Random episodes, in which slots are pruned and grown again; and one that leaves a seed at work in each slot."""
    grown = torch.zeros_like(envs.slots.germinations)
    for episode in range(episodes):
        reset_(envs, SEEDS + 100 * episode)
        for _ in play(envs, generator(episode), envs.config.steps):
            pass
        grown = torch.maximum(grown, envs.slots.germinations)
    assert grown.max() >= 2, "no slot was pruned and grown again"
    reset_(envs, SEEDS + 1)
    for slot in range(3):
        grow(envs, slot)
    do(envs)


def trace(envs: GrowingEnvs) -> Iterator[tuple[str, Tensor]]:
    return play(envs, generator(77), envs.config.steps)


def remnants_of(config: GrowingConfig, begin_: Callable[[GrowingEnvs], None] = begin_, **live: int) -> list[Remnant]:
    return remnants(build=partial(envs_of, config), reset_=begin_, dirty_=partial(live_, **live), trace=trace)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("conv", "adam"),
        ("mlp", "sgd"),
        pytest.param("conv", "sgd", marks=pytest.mark.slow),
        pytest.param("mlp", "adam", marks=pytest.mark.slow),
    ],
)
def test_ten_episodes_leave_no_bit_behind(kind: str, optimizer: str) -> None:
    assert remnants_of(config(kind, optimizer)) == []


def keeping(path: str) -> Callable[[GrowingEnvs], None]:
    """A reset that forgets one leaf."""

    def begin_without_(envs: GrowingEnvs) -> None:
        (leaf,) = (leaf for leaf in leaves(envs) if leaf.path == path)
        assert isinstance(leaf.value, Tensor)
        kept = leaf.value.clone()
        begin_(envs)
        leaf.value.copy_(kept)

    return begin_without_


SABOTAGES = {
    "moments not zeroed": "host.moments.exp_avg",
    "second moments not zeroed": "host.moments.exp_avg_sq",
    "count of updates not zeroed": "host.moments.updates",
    "histories kept": "measures.loss",
    "what a seed contributed kept": "measures.contribution",
    "images not drawn from the start": "drawn",
    "slot state kept": "slots.stage",
    "germinations, which seeds are drawn from, kept": "slots.germinations",
    "slot optimizer kept": "seeds.0.moments.exp_avg",
    "last good weights kept": "seeds.1.good",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("path", SABOTAGES.values(), ids=SABOTAGES.keys())
def test_each_sabotage_of_a_reset_is_found_by_name(path: str) -> None:
    found = remnants_of(config(), keeping(path), episodes=2)
    assert [r.path for r in found if "after the reset" in r.difference] == [path]


def test_a_seed_of_the_data_stream_that_is_not_written_is_found() -> None:
    def begin_with_old_seeds_(envs: GrowingEnvs) -> None:
        old = envs.seed.clone()
        begin_(envs)
        if old.any():
            envs.seed.copy_(old)

    found = remnants_of(config(), begin_with_old_seeds_, episodes=2)
    assert found[0].path == "seed"
    assert "loss" in {r.path for r in found}  # and it is not without consequence


def test_a_rebound_buffer_is_found_though_its_numbers_are_right() -> None:
    def begin_elsewhere_(envs: GrowingEnvs) -> None:
        begin_(envs)
        envs.drawn = envs.drawn.clone()

    assert [r.path for r in remnants_of(config(), begin_elsewhere_, episodes=2)] == ["drawn"]


def test_nothing_moves_in_fifty_episodes() -> None:
    envs = begun(config("mlp", steps=1), SEEDS)
    homes = [leaf.value.data_ptr() for leaf in leaves(envs) if isinstance(leaf.value, Tensor)]
    held = nbytes(envs)
    for episode in range(50):
        reset_(envs, SEEDS + episode)
        for _ in play(envs, generator(episode), 1):
            pass
    assert [leaf.value.data_ptr() for leaf in leaves(envs) if isinstance(leaf.value, Tensor)] == homes
    assert nbytes(envs) == held
