"""What every form of action promises, with masks and without; operations against their enumeration."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal

from flatwater.nets.actions import ContinuousActions, DiscreteActions, MultiDiscreteActions, OperationActions

RELEVANT = torch.tensor([[False, False], [True, True], [True, False], [False, True]])
"""Four operations, two further lists of 3 and 2 choices: each operation needs other ones."""
HEADS = OperationActions(choices=(3, 2), relevant=RELEVANT, floor=0.2)
FORMS = {
    "a list": (DiscreteActions(5), list(range(5))),
    "lists": (MultiDiscreteActions((2, 4, 3)), [list(each) for each in product(range(2), range(4), range(3))]),
    "operations": (HEADS, [[0, 0, 0], *([1, *both] for both in product(range(3), range(2)))]),
}
FORMS["operations"][1].extend([[2, first, 0] for first in range(3)] + [[3, 0, second] for second in range(2)])
EVERY = pytest.mark.parametrize(("actions", "all_of_them"), FORMS.values(), ids=FORMS)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mask_of(actions: DiscreteActions | MultiDiscreteActions | OperationActions, rows: int, seed: int) -> Tensor:
    """At random, with one legal choice from each list at least."""
    if isinstance(actions, OperationActions):
        return legality(rows, seed)
    sizes = (actions.size,) if isinstance(actions, DiscreteActions) else actions.sizes
    parts = [torch.rand(rows, size, generator=rng(seed + at)) < 0.5 for at, size in enumerate(sizes)]
    for part in parts:
        part[:, seed % part.shape[1]] |= ~part.any(1)
    return torch.cat(parts, 1)


@EVERY
@pytest.mark.parametrize("masked", [False, True])
def test_all_actions_together_have_probability_1_and_the_entropy_of_their_enumeration(
    actions: DiscreteActions | MultiDiscreteActions | OperationActions, all_of_them: list[object], *, masked: bool
) -> None:
    every = torch.tensor(all_of_them)
    for seed in range(50):
        logits = 2 * torch.randn(1, actions.outputs, generator=rng(seed), dtype=torch.float64)
        legal = mask_of(actions, 1, seed) if masked else None
        rows = logits.expand(len(every), -1), None if legal is None else legal.expand(len(every), -1)
        p = actions.distribution(*rows).log_prob(every).exp()
        assert float(p.sum()) == pytest.approx(1)
        entropy = actions.distribution(logits, legal).entropy()
        assert float(entropy) == pytest.approx(float(-torch.xlogy(p, p).sum()), abs=1e-9)
        assert actions.distribution(logits, legal).mode()[0].tolist() in [
            all_of_them[at] for at in p.nonzero().flatten()
        ]


@EVERY
def test_what_is_illegal_is_never_drawn_and_gets_no_gradient(
    actions: DiscreteActions | MultiDiscreteActions | OperationActions, all_of_them: list[object]
) -> None:
    """Also where the policy would be sure of it, and where nothing at all is legal nothing becomes NaN."""
    rows = 20_000
    legal = mask_of(actions, rows, seed=3)
    logits = (10 * torch.randn(rows, actions.outputs, generator=rng(4)) + 60.0 * ~legal).requires_grad_()
    found = actions.distribution(logits, legal)
    drawn = found.sample(actions.noise_(torch.zeros(rows, actions.noise), rng(5)))
    for action in (drawn, found.mode()):
        assert found.log_prob(action).min() > -1e6, "the probability of what is illegal is exp of -1e9"
        assert {repr(each) for each in action.tolist()} <= {repr(each) for each in all_of_them}
    assert len({repr(each) for each in drawn.tolist()}) == len(all_of_them), "all that is legal somewhere is drawn"
    (slope,) = torch.autograd.grad((found.log_prob(drawn) + found.entropy()).sum(), logits)
    assert slope.isfinite().all()
    assert (slope[~legal] == 0).all()
    assert slope.abs().max() > 0
    nothing = actions.distribution(logits, torch.zeros_like(legal))
    (slope,) = torch.autograd.grad((nothing.log_prob(drawn) + nothing.entropy()).sum(), logits)
    assert (slope == 0).all()


@EVERY
def test_a_mask_of_all_is_no_mask(
    actions: DiscreteActions | MultiDiscreteActions | OperationActions, all_of_them: list[object]
) -> None:
    every = torch.tensor(all_of_them)
    logits = torch.randn(len(every), actions.outputs, generator=rng(0))
    free, masked = actions.distribution(logits), actions.distribution(logits, torch.ones_like(logits, dtype=torch.bool))
    assert torch.equal(free.log_prob(every), masked.log_prob(every))
    assert torch.equal(free.entropy(), masked.entropy())


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
def test_probabilities_of_operations_are_those_of_the_definition(seed: int) -> None:
    logits, legal = logits_of(1, seed), legality(1, seed)
    expected = joint(logits[0], legal[0])
    actions, many = torch.tensor(list(expected)), len(expected)
    log_prob = HEADS.distribution(logits.expand(many, -1), legal.expand(many, -1)).log_prob(actions)
    assert log_prob.exp().tolist() == pytest.approx(list(expected.values()), abs=1e-12)


def test_what_does_not_matter_for_an_operation_gets_a_gradient_of_exactly_zero() -> None:
    """Of a log-probability that is every table but those of the chosen operation."""
    logits, legal = logits_of(64).requires_grad_(), legality(64)
    found = HEADS.distribution(logits, legal)
    action = found.sample(HEADS.noise_(torch.zeros(64, HEADS.noise, dtype=torch.float64), rng(0)))
    (slope,) = torch.autograd.grad(found.log_prob(action).sum(), logits)
    steep = set()
    for row, (op, *_) in zip(slope, action.tolist(), strict=True):
        for h, table in enumerate(parts(row)[1:]):
            assert (table[[o for o in range(4) if o != op]] == 0).all()
            if not RELEVANT[op, h]:
                assert (table == 0).all()
            elif table[op].abs().max() > 0:
                steep.add((op, h))
    assert steep == {(1, 0), (1, 1), (2, 0), (3, 1)}, "the choices that matter learn"


def test_the_entropy_does_not_favour_operations_for_having_more_choices() -> None:
    """All alike: whatever an operation's choices are worth, the operations' own logits are at rest."""
    logits = torch.zeros(1, HEADS.outputs, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(HEADS.distribution(logits).entropy().sum(), logits)
    assert slope[0, :4].abs().max() < 1e-12


def test_draws_come_with_their_probabilities() -> None:
    """Chi-squared over all actions of one row: 100,000 draws, .999 quantile."""
    rows, logits = 100_000, logits_of(1)
    noise = HEADS.noise_(torch.zeros(rows, HEADS.noise, dtype=torch.float64), rng(2))
    action = HEADS.distribution(logits.expand(rows, -1)).sample(noise)
    expected = joint(logits[0], torch.ones(HEADS.outputs, dtype=torch.bool))
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
    log_prob = HEADS.distribution(logits.expand(3, -1), legal.expand(3, -1)).log_prob(actions)
    operation = log_prob.exp() * torch.tensor([1.0, 3 * 2, 3])  # times the choices below, all alike
    assert operation.tolist() == pytest.approx([0.8 + 0.2 / 3, 0.2 / 3, 0.2 / 3], rel=1e-5)
    noise = HEADS.noise_(torch.zeros(9000, HEADS.noise), rng(0))
    drawn = HEADS.distribution(logits.expand(9000, -1), legal.expand(9000, -1)).sample(noise)
    assert 1000 < int((drawn[:, 0] > 0).sum()) < 1400  # 1,200 expected, deviation 32


@given(seed=st.integers(0, 500))
def test_the_likeliest_action_is_the_likeliest_operation_and_then_the_likeliest_choices(seed: int) -> None:
    logits, legal = logits_of(1, seed), legality(1, seed)
    p = joint(logits[0], legal[0])
    found = HEADS.distribution(logits, legal).mode()[0].tolist()
    of_operation = [sum(p[a] for a in p if a[0] == op) for op in range(4)]
    assert of_operation[found[0]] == pytest.approx(max(of_operation))
    assert p[tuple(found)] == pytest.approx(max(p[a] for a in p if a[0] == found[0]))


def test_a_choice_is_that_of_torch_and_of_an_operation_that_needs_nothing() -> None:
    logits, action = torch.randn(7, 4, generator=rng(0)), torch.randint(0, 4, (7,), generator=rng(1))
    alone = OperationActions(choices=(), relevant=torch.zeros(4, 0, dtype=torch.bool))
    found, known = DiscreteActions(4).distribution(logits), alone.distribution(logits)
    assert torch.equal(found.log_prob(action), known.log_prob(action.unsqueeze(-1)))
    assert torch.equal(found.entropy(), known.entropy())
    wanted = TorchCategorical(logits=logits)
    assert torch.allclose(found.log_prob(action), wanted.log_prob(action))
    assert torch.allclose(found.entropy(), wanted.entropy())


def test_choices_at_once_are_independent_ones() -> None:
    logits, sizes = torch.randn(7, 9, generator=rng(0)), (2, 4, 3)
    actions = MultiDiscreteActions(sizes)
    found, action = (
        actions.distribution(logits),
        torch.stack([torch.randint(n, (7,), generator=rng(n)) for n in sizes], -1),
    )
    wanted = [TorchCategorical(logits=part) for part in logits.split(sizes, -1)]
    log_prob = torch.stack([each.log_prob(action[:, n]) for n, each in enumerate(wanted)]).sum(0)
    assert torch.allclose(found.log_prob(action), log_prob)
    assert torch.allclose(found.entropy(), torch.stack([each.entropy() for each in wanted]).sum(0))
    assert torch.equal(found.mode(), torch.stack([each.probs.argmax(-1) for each in wanted], -1))
    noise = torch.zeros(7, actions.noise)
    drawn = torch.stack([found.sample(actions.noise_(noise, each)) for each in [rng(2)] for _ in range(4000)])
    for n, each in enumerate(wanted):
        shares = torch.nn.functional.one_hot(drawn[..., n], sizes[n]).float().mean(0)
        assert torch.allclose(shares, each.probs, atol=0.03)


def test_numbers_are_those_of_torch() -> None:
    given, action = torch.randn(7, 4, generator=rng(0)), torch.randn(7, 2, generator=rng(1))
    actions, noise = ContinuousActions(((-1, 3), (0, 10)), torch.device("cpu")), torch.zeros(7, 2)
    found = actions.distribution(given)
    mean = torch.tensor([1.0, 5.0]) + torch.tensor([2.0, 5.0]) * given[:, :2]
    wanted = Independent(Normal(mean, given[:, 2:].clamp(-5, 2).exp() * torch.tensor([2.0, 5.0])), 1)
    assert torch.allclose(found.log_prob(action), wanted.log_prob(action), atol=1e-5)
    assert torch.allclose(found.entropy(), wanted.entropy(), atol=1e-5)
    assert torch.equal(found.mode(), mean)
    drawn = torch.stack([found.sample(actions.noise_(noise, each)) for each in [rng(2)] for _ in range(4000)])
    assert torch.allclose(drawn.mean(0), mean, atol=0.2 * float(wanted.stddev.max()))
    assert torch.allclose(drawn.std(0), wanted.stddev, rtol=0.1)
