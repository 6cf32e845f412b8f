"""The recurrent policy against itself in one piece, and what its observations are normalised by."""

import pytest
import torch
from torch import Tensor, nn

from flatwater.nets.policy import (
    ACTIVATIONS,
    CLIP_DEVIATIONS,
    FeedForwardPolicy,
    RecurrentPolicy,
    build_statistics,
    normalise_obs,
    stretch_columns,
    update_running_stats_,
)
from flatwater.nets.stack import init_, views
from flatwater.trainers.grow.config import GrowPolicyConfig
from flatwater_watch.errors import ConfigError

CPU = torch.device("cpu")
POLICY = RecurrentPolicy(obs=5, hidden=8, cells=6, outputs=9)


def weights_of(seed: int = 0) -> dict[str, Tensor]:
    block = torch.empty(1, POLICY.layout.size, dtype=torch.float64)
    init_(block, POLICY.layout, torch.Generator().manual_seed(seed))
    return {name: view[0] for name, view in views(block, POLICY.layout).items()}


def test_step_by_step_is_the_same_as_all_at_once() -> None:
    weights = weights_of()
    obs = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    memory = torch.zeros(2, 3, 6, dtype=torch.float64)
    whole = POLICY(weights, obs, memory)
    for t in range(7):
        step = POLICY(weights, obs[t : t + 1], memory)
        memory = step.memory
        torch.testing.assert_close(step.logits[0], whole.logits[t], rtol=0, atol=1e-12)
        torch.testing.assert_close(step.value[0], whole.value[t], rtol=0, atol=1e-12)
    torch.testing.assert_close(memory, whole.memory, rtol=0, atol=1e-12)


def test_the_memory_is_that_of_torchs_lstm() -> None:
    """With its gates in torch's order (input, forget, new, output) and the constant of the forget gate in its bias."""
    weights = weights_of()
    obs = torch.randn(7, 3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    lstm = torch.nn.LSTM(8, 6, dtype=torch.float64)

    def put_in_order(columns: Tensor) -> Tensor:
        take, keep, show, new = columns.chunk(4, dim=-1)
        return torch.cat([take, keep, new, show], dim=-1)

    with torch.no_grad():
        lstm.weight_ih_l0.copy_(put_in_order(weights["gates.seen"]).T)
        lstm.weight_hh_l0.copy_(put_in_order(weights["gates.remembered"]).T)
        lstm.bias_ih_l0.copy_(put_in_order(weights["gates.bias"]))
        lstm.bias_hh_l0.zero_()[6:12] = 1.0
        seen = torch.tanh(obs @ weights["encoder.weight"] + weights["encoder.bias"])
        _, (output, cell) = lstm(seen)
    ours = POLICY(weights, obs, torch.zeros(2, 3, 6, dtype=torch.float64)).memory
    torch.testing.assert_close(ours, torch.cat([output, cell]), rtol=0, atol=1e-12)


def test_the_first_policy_is_nearly_uniform_over_what_is_legal() -> None:
    obs = torch.randn(1, 50, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits = POLICY(weights_of(), obs, torch.zeros(2, 50, 6, dtype=torch.float64)).logits
    assert 0 < logits.abs().max() < 0.05


def test_the_statistics_hold_mean_and_variance_of_all_batches_together() -> None:
    rng = torch.Generator().manual_seed(0)
    batches = [3 + 2 * torch.randn(n, 4, 5, generator=rng) * torch.arange(1, 6) for n in (1, 7, 30)]
    statistics = build_statistics(5, range(5), CPU)
    home = [each.data_ptr() for each in statistics.values()]
    for batch in (batches[0][:0], *batches):
        update_running_stats_(statistics, batch)
    rows = torch.cat(batches).flatten(0, 1)
    assert statistics["obs.count"] == len(rows)
    torch.testing.assert_close(statistics["obs.mean"], rows.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(statistics["obs.variance"], rows.var(0, correction=0), rtol=1e-5, atol=1e-5)
    assert [each.data_ptr() for each in statistics.values()] == home
    scaled = normalise_obs(statistics, rows)
    torch.testing.assert_close(
        scaled.clamp(-3, 3), ((rows - rows.mean(0)) / rows.std(0)).clamp(-3, 3), atol=0.02, rtol=0
    )


def test_new_statistics_change_nothing_and_a_constant_column_stays_harmless() -> None:
    statistics, obs = build_statistics(2, range(2), CPU), torch.tensor([[0.5, -1.5]])
    torch.testing.assert_close(normalise_obs(statistics, obs), obs, rtol=1e-4, atol=0)
    update_running_stats_(statistics, obs.expand(100, -1))
    update_running_stats_(statistics, obs.expand(100, -1))
    assert normalise_obs(statistics, obs + 1000).tolist() == [[CLIP_DEVIATIONS, CLIP_DEVIATIONS]]
    assert normalise_obs(statistics, obs).abs().max() < 1e-3


def test_narrow_numbers_are_stretched_and_places_and_wide_ones_are_not() -> None:
    statistics, rng = build_statistics(3, (0, 2), CPU), torch.Generator().manual_seed(0)
    rows = torch.randn(1000, 3, generator=rng) * torch.tensor([0.1, 0.0, 0.6]) + torch.tensor([-0.3, 0.0, 7.0])
    rows[:9, 1] = 1  # seldom: 10 deviations from the mean
    update_running_stats_(statistics, rows)
    read = stretch_columns(statistics, rows)
    assert torch.equal(read[:, 1:], rows[:, 1:])
    torch.testing.assert_close(read[:, 0].std(), torch.tensor(0.5), atol=0.01, rtol=0)
    torch.testing.assert_close(read[:, 0].mean(), torch.tensor(-0.3), atol=0.02, rtol=0)
    far = stretch_columns(statistics, rows + 1000)
    assert (far[:, 0] - statistics["obs.mean"][0]).tolist() == pytest.approx([CLIP_DEVIATIONS] * 1000)
    assert torch.equal(far[:, 1:], rows[:, 1:] + 1000)


@pytest.mark.parametrize(("field", "wrong"), [("hidden", 0), ("memory", 0), ("floor", 1.0), ("floor", -0.1)])
def test_settings_out_of_range_are_named(field: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"policy.{field} = {wrong}"):
        GrowPolicyConfig(**{field: wrong})


MODULES = {"tanh": nn.Tanh(), "relu": nn.ReLU(), "silu": nn.SiLU(), "elu": nn.ELU(), "gelu": nn.GELU()}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_are_those_of_torch_shared_or_separate(activation: str, shared: bool) -> None:  # noqa: FBT001
    policy = FeedForwardPolicy(5, (8, 6), 4, 1, activation=activation, shared=shared)  # type: ignore[arg-type]
    block = torch.empty(1, policy.layout.size)
    init_(block, policy.layout, torch.Generator().manual_seed(0))
    weights = {name: view[0] for name, view in views(block, policy.layout).items()}
    assert ("shared.0.weight" in weights) is shared
    assert policy.layout.size == (1 if shared else 2) * (5 * 8 + 8 + 8 * 6 + 6) + 6 * 3 + 3 + 6 + 1 + 1

    def run(net: str, x: Tensor) -> Tensor:
        for layer in (0, 1):
            name = f"{'shared' if shared else net}.{layer}"
            x = MODULES[activation](x @ weights[f"{name}.weight"] + weights[f"{name}.bias"])
        return x @ weights[f"{net}.weight"] + weights[f"{net}.bias"]

    obs = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(1))
    output = policy(weights, obs, torch.zeros(2, 2, 0))
    torch.testing.assert_close(output.logits[..., :3], run("action", obs))
    torch.testing.assert_close(output.value, run("value", obs)[..., 0])
    torch.testing.assert_close(policy.action_outputs(weights, obs[0]), output.logits[0])
