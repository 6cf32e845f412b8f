"""Exploration noise: its decay, its scale for each part of an action, its bounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from populations import settings_of

from flatwater.algorithms.api import perturb
from flatwater.algorithms.config import DDPGConfig
from flatwater.algorithms.ddpg import noise_scale
from flatwater_watch.errors import ConfigError


@given(updates=st.integers(0, 200_000))
def test_scale_decays_by_each_update_down_to_the_floor(updates: int) -> None:
    config = DDPGConfig(noise=0.125, noise_decay=0.99995, noise_floor=0.01)
    scale, following = noise_scale(config, updates), noise_scale(config, updates + 1)

    # 0.125 * 0.99995 ** n = 0.01 at n = ln(12.5) / 5.000125e-5 = 50,513.3
    if updates < 50_513:
        assert following == pytest.approx(scale * 0.99995, rel=1e-12)
    else:
        assert following == 0.01


def test_each_part_of_an_action_has_a_deviation_of_its_own() -> None:
    action, scale = torch.zeros(100_000, 2), torch.tensor([0.05, 0.2])

    noisy = perturb(action, scale, torch.Generator().manual_seed(0))

    torch.testing.assert_close(noisy.std(0), scale, rtol=0.02, atol=0)
    assert abs(float(torch.corrcoef(noisy.T)[0, 1])) < 0.02


def test_a_member_without_noise_acts_as_it_would() -> None:
    action = torch.rand(2, 50, 3, generator=torch.Generator().manual_seed(1)) * 2 - 1
    scale = torch.tensor([0.0, 0.5]).view(2, 1, 1)

    noisy = perturb(action, scale, torch.Generator().manual_seed(0))

    assert torch.equal(noisy[0], action[0])
    assert not torch.equal(noisy[1], action[1])
    assert noisy.abs().max() <= 1


def test_the_same_generator_gives_the_same_noise_and_no_other_is_touched() -> None:
    before = torch.get_rng_state()
    first, second = (perturb(torch.zeros(9), torch.ones(1), torch.Generator().manual_seed(3)) for _ in range(2))

    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("field", "value"), [("gamma", 1.5), ("tau", 0.0), ("actor_lr", 0.0), ("noise", 0.001)])
@pytest.mark.parametrize("algorithm", ["ddpg", "td3"])
def test_a_value_out_of_range_is_refused_by_name(algorithm: str, field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"learner\.{algorithm}\.{field} = {value}: "):
        settings_of({"algorithm": algorithm, field: value})


@pytest.mark.parametrize(("field", "value"), [("grad_clip", -1.0), ("micro_batches", 0)])
def test_a_shared_value_out_of_range_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"learner\.{field} = {value}: "):
        settings_of({field: value})
