"""The factored distribution against its enumeration, and the recurrent policy against itself in one piece."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flatwater.errors import ConfigError
from flatwater.nets.heads import Heads, judge, likeliest, sample
from flatwater.nets.policy import CLIP, RecurrentPolicy, absorb_, build_normaliser, normalise
from flatwater.nets.policy_config import PolicyConfig
from flatwater.nets.stack import init_

CPU = torch.device("cpu")
RELEVANT = torch.tensor([[False, False], [True, True], [True, False], [False, True]])
"""Four operations, two further heads of 3 and 2 choices: each operation needs other ones."""
HEADS = Heads(choices=(3, 2), relevant=RELEVANT, floor=0.2)


def logits_of(rows: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(rows, HEADS.outputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def legality(rows: int, seed: int = 0) -> Tensor:
    """At random; an operation is legal only where each head that it needs has a legal choice, and one always is."""
    rng = torch.Generator().manual_seed(seed)
    tables = [torch.rand(rows, 4, c, generator=rng) < 0.5 for c in HEADS.choices]
    able = torch.stack([table.any(-1) for table in tables], dim=-1) | ~RELEVANT
    operation = able.all(-1) & (torch.rand(rows, 4, generator=rng) < 0.7)
    operation[:, 0] |= ~operation.any(-1)
    return torch.cat([operation, *(table.flatten(1) for table in tables)], dim=1)


def parts(row: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return row[:4], row[4:16].view(4, 3), row[16:].view(4, 2)


def joint(logits: Tensor, legal: Tensor) -> dict[tuple[int, int, int], float]:
    """The probability of each action of one row, from the definition; heads that do not matter are 0."""
    (o, *tables), (may, *allowed) = parts(logits), parts(legal.double())
    softmax = o.exp() * may / (o.exp() * may).sum()
    mixed = (1 - HEADS.floor) * softmax + HEADS.floor * may / may.sum()
    found = {}
    for op in range(4):
        ranges = [range(c) if matters else range(1) for c, matters in zip(HEADS.choices, RELEVANT[op], strict=True)]
        for choices in product(*ranges):
            p = float(mixed[op])
            for matters, table, fine, choice in zip(RELEVANT[op], tables, allowed, choices, strict=True):
                if matters and p:
                    weights = table[op].exp() * fine[op]
                    p *= float(weights[choice] / weights.sum())
            found[op, *choices] = p
    return found


@given(seed=st.integers(0, 500))
def test_probabilities_are_those_of_the_definition_and_sum_to_one(seed: int) -> None:
    logits, legal = logits_of(1, seed), legality(1, seed)
    expected = joint(logits[0], legal[0])
    assert sum(expected.values()) == pytest.approx(1)
    actions = torch.tensor(list(expected))
    many = len(actions)
    log_prob = judge(HEADS, logits.expand(many, -1), legal.expand(many, -1), actions).log_prob
    assert log_prob.exp().tolist() == pytest.approx(list(expected.values()), abs=1e-12)


@given(seed=st.integers(0, 500))
def test_the_entropys_expectation_is_the_entropy_of_the_joint_action(seed: int) -> None:
    logits, legal = logits_of(1, seed), legality(1, seed)
    p = joint(logits[0], legal[0])
    actions, weights = torch.tensor(list(p)), torch.tensor(list(p.values()), dtype=torch.float64)
    many = len(actions)
    told = judge(HEADS, logits.expand(many, -1), legal.expand(many, -1), actions).entropy
    assert float((told * weights).sum()) == pytest.approx(float(-torch.xlogy(weights, weights).sum()), abs=1e-9)


def test_heads_that_do_not_matter_get_a_gradient_of_exactly_zero() -> None:
    """And so does everything illegal, and every operation's table but the chosen one's: in value and entropy."""
    logits, legal = logits_of(64).requires_grad_(), legality(64)
    action = sample(HEADS, logits.detach(), legal, torch.Generator().manual_seed(0))
    seen = judge(HEADS, logits, legal, action)
    for value in (seen.log_prob, seen.entropy):
        (slope,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
        assert slope.isfinite().all()
        assert (slope[~legal] == 0).all()
        steep = set()
        for row, (op, *_) in zip(slope, action.tolist(), strict=True):
            for h, table in enumerate(parts(row)[1:]):
                others = [o for o in range(4) if o != op]
                assert (table[others] == 0).all()
                if not RELEVANT[op, h]:
                    assert (table == 0).all()
                elif table[op].abs().max() > 0:
                    steep.add((op, h))
        assert steep == {(1, 0), (1, 1), (2, 0), (3, 1)}, "the heads that matter learn"


def test_no_illegal_action_in_100_000_draws() -> None:
    rows = 100_000
    logits, legal = 10 * logits_of(rows).float(), legality(rows)
    drawn = sample(HEADS, logits, legal, torch.Generator().manual_seed(1))
    for action in (drawn, likeliest(HEADS, logits, legal)):
        operation = action[:, 0]
        assert legal[:, :4].gather(1, action[:, :1]).all()
        at = torch.arange(rows)
        for h, table in enumerate((legal[:, 4:16].view(-1, 4, 3), legal[:, 16:].view(-1, 4, 2)), start=1):
            matters = RELEVANT[operation, h - 1]
            assert table[at, operation, action[:, h]][matters].all()
            assert (action[~matters, h] == 0).all()
        assert {*operation.tolist()} == {0, 1, 2, 3}


def test_draws_come_with_their_probabilities() -> None:
    """Chi-squared over all actions of one row: 100,000 draws, .999 quantile."""
    legal, rows = torch.ones(1, HEADS.outputs, dtype=torch.bool), 100_000
    logits = logits_of(1)
    action = sample(HEADS, logits.expand(rows, -1), legal.expand(rows, -1), torch.Generator().manual_seed(2))
    expected = joint(logits[0], legal[0])
    assert len(expected) == 1 + 3 * 2 + 3 + 2
    counts = dict.fromkeys(expected, 0)
    for found in action.tolist():
        counts[tuple(found)] += 1
    chi = sum((counts[a] - rows * p) ** 2 / (rows * p) for a, p in expected.items())
    assert chi < 31.26  # 11 degrees of freedom


def test_no_legal_operation_falls_below_the_floor_however_sure_the_policy_is() -> None:
    logits = torch.zeros(1, HEADS.outputs)
    logits[0, 0] = 1e4
    legal = torch.ones_like(logits, dtype=torch.bool)
    legal[0, 3] = False
    actions = torch.tensor([[op, 0, 0] for op in range(3)])
    seen = judge(HEADS, logits.expand(3, -1), legal.expand(3, -1), actions)
    operation = seen.log_prob.exp() * torch.tensor([1.0, 3 * 2, 3])  # times the choices below, all alike
    assert operation.tolist() == pytest.approx([0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3], rel=1e-5)
    drawn = sample(HEADS, logits.expand(9000, -1), legal.expand(9000, -1), torch.Generator().manual_seed(0))
    assert 1000 < int((drawn[:, 0] > 0).sum()) < 1400  # 1,200 expected, deviation 32


@given(seed=st.integers(0, 500))
def test_the_likeliest_action_is_the_likeliest_operation_and_then_the_likeliest_choices(seed: int) -> None:
    logits, legal = logits_of(1, seed), legality(1, seed)
    p = joint(logits[0], legal[0])
    found = likeliest(HEADS, logits, legal)[0].tolist()
    of_operation = [sum(p[a] for a in p if a[0] == op) for op in range(4)]
    assert of_operation[found[0]] == pytest.approx(max(of_operation))
    assert p[tuple(found)] == pytest.approx(max(p[a] for a in p if a[0] == found[0]))


def test_the_floor_may_be_none() -> None:
    heads = Heads(choices=(3, 2), relevant=RELEVANT, floor=0.0)
    logits, legal = logits_of(8), legality(8)
    action = sample(heads, logits, legal, torch.Generator().manual_seed(0))
    logits.requires_grad_()
    seen = judge(heads, logits, legal, action)
    (slope,) = torch.autograd.grad((seen.log_prob + seen.entropy).sum(), logits)
    assert slope.isfinite().all()
    chosen = logits[:, :4].masked_fill(~legal[:, :4], -torch.inf).log_softmax(1).gather(1, action[:, :1]).squeeze(1)
    alone = ~RELEVANT[action[:, 0]].any(1)
    torch.testing.assert_close(seen.log_prob[alone], chosen[alone])


POLICY = RecurrentPolicy(obs=5, hidden=8, cells=6, heads=HEADS)


def weights_of(seed: int = 0) -> dict[str, Tensor]:
    block = torch.empty(1, POLICY.layout.size, dtype=torch.float64)
    init_(block, POLICY.layout, torch.Generator().manual_seed(seed))
    return POLICY.weights(block)


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

    def ordered(columns: Tensor) -> Tensor:
        take, keep, show, new = columns.chunk(4, dim=-1)
        return torch.cat([take, keep, new, show], dim=-1)

    with torch.no_grad():
        lstm.weight_ih_l0.copy_(ordered(weights["gates.seen"]).T)
        lstm.weight_hh_l0.copy_(ordered(weights["gates.remembered"]).T)
        lstm.bias_ih_l0.copy_(ordered(weights["gates.bias"]))
        lstm.bias_hh_l0.zero_()[6:12] = 1.0
        seen = torch.tanh(obs @ weights["encoder.weight"] + weights["encoder.bias"])
        _, (output, cell) = lstm(seen)
    ours = POLICY(weights, obs, torch.zeros(2, 3, 6, dtype=torch.float64)).memory
    torch.testing.assert_close(ours, torch.cat([output, cell]), rtol=0, atol=1e-12)


def test_the_first_policy_is_nearly_uniform_over_what_is_legal() -> None:
    obs = torch.randn(1, 50, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    logits = POLICY(weights_of(), obs, torch.zeros(2, 50, 6, dtype=torch.float64)).logits
    assert 0 < logits.abs().max() < 0.05


def test_the_normaliser_holds_mean_and_variance_of_all_batches_together() -> None:
    rng = torch.Generator().manual_seed(0)
    batches = [3 + 2 * torch.randn(n, 4, 5, generator=rng) * torch.arange(1, 6) for n in (1, 7, 30)]
    normaliser = build_normaliser(5, CPU)
    home = normaliser.mean.data_ptr(), normaliser.variance.data_ptr()
    for batch in batches:
        absorb_(normaliser, batch)
    rows = torch.cat(batches).flatten(0, 1)
    assert normaliser.count == len(rows)
    torch.testing.assert_close(normaliser.mean, rows.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normaliser.variance, rows.var(0, correction=0), rtol=1e-5, atol=1e-5)
    assert (normaliser.mean.data_ptr(), normaliser.variance.data_ptr()) == home
    scaled = normalise(normaliser, rows)
    torch.testing.assert_close(
        scaled.clamp(-3, 3), ((rows - rows.mean(0)) / rows.std(0)).clamp(-3, 3), atol=0.02, rtol=0
    )


def test_a_new_normaliser_changes_nothing_and_a_constant_column_stays_harmless() -> None:
    normaliser, obs = build_normaliser(2, CPU), torch.tensor([[0.5, -1.5]])
    torch.testing.assert_close(normalise(normaliser, obs), obs, rtol=1e-4, atol=0)
    absorb_(normaliser, obs.expand(100, -1))
    absorb_(normaliser, obs.expand(100, -1))
    assert normalise(normaliser, obs + 1000).tolist() == [[CLIP, CLIP]]
    assert normalise(normaliser, obs).abs().max() < 1e-3


@pytest.mark.parametrize(("field", "wrong"), [("hidden", 0), ("memory", 0), ("floor", 1.0), ("floor", -0.1)])
def test_settings_out_of_range_are_named(field: str, wrong: float) -> None:
    with pytest.raises(ConfigError, match=f"policy.{field} = {wrong}"):
        PolicyConfig(**{field: wrong})
