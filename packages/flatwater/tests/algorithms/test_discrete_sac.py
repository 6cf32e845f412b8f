"""Soft Actor-Critic with choices: its stacked update against members trained one by one in plain torch, its draws."""

from math import log

import pytest
import torch
from choices import CHOICES, CPU, HIDDEN, OBS, B, OneNetwork, assert_same_weights, batch_of, members_of
from torch import Tensor

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Networks, Setting, choose_algorithm, read_tally_
from flatwater.algorithms.discrete_sac import draw_choice, soft_value
from flatwater.config.mappings import from_mapping
from flatwater.nets.mlp import MLPValues
from flatwater.recipes.evolve.agents import SacConfig
from flatwater.replay.batch import Batch

VALUES = MLPValues(OBS, CHOICES, HIDDEN)
RATES = {"actor_lr": 1e-3, "critic_lr": 2e-3, "temperature_lr": 3e-3}


class OneSac:
    """One member, written the usual way."""

    def __init__(self, config: SacConfig, rows: list[Tensor]) -> None:
        self.config = config
        self.actor, *self.critics = (OneNetwork(VALUES, row) for row in rows)
        self.targets = [OneNetwork(VALUES, row) for row in rows[1:]]
        self.log_temperature = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        critics = [weight for critic in self.critics for weight in critic.parameters()]
        parts = (self.actor.parameters(), critics, [self.log_temperature])
        self.steps = [torch.optim.Adam(part, lr=lr, eps=1e-8) for part, lr in zip(parts, RATES.values(), strict=True)]

    def update(self, batch: Batch) -> None:
        for_actor, for_critics, for_temperature = self.steps
        with torch.no_grad():
            log_probs = self.actor(batch.next_obs).log_softmax(1)
            ahead = torch.stack([target(batch.next_obs) for target in self.targets]).amin(0)
            soft = (log_probs.exp() * (ahead - self.log_temperature.exp() * log_probs)).sum(1)
            wanted = batch.reward + self.config.gamma * batch.discount * soft
        values = [critic(batch.obs)[range(B), batch.action] for critic in self.critics]
        sum((batch.weight * (value - wanted) ** 2).mean() for value in values).backward()  # type: ignore[union-attr]
        for_critics.step()
        log_probs = self.actor(batch.obs).log_softmax(1)
        value = torch.stack([critic(batch.obs) for critic in self.critics]).amin(0).detach()
        temperature = self.log_temperature.exp().detach()
        for_actor.zero_grad()
        (log_probs.exp() * (temperature * log_probs - value)).sum(1).mean().backward()
        entropy = -(log_probs.exp() * log_probs).sum(1).mean().item()
        for_temperature.zero_grad()
        (self.log_temperature * (entropy - self.config.choice_entropy * log(CHOICES))).backward()
        for_actor.step()
        for_temperature.step()
        for_critics.zero_grad()
        with torch.no_grad():
            for target, critic in zip(self.targets, self.critics, strict=True):
                for slow, fast in zip(target.parameters(), critic.parameters(), strict=True):
                    slow.lerp_(fast, self.config.tau)


@pytest.mark.parametrize("groups", [[(0, 3)], [(0, 1), (1, 3)]], ids=["together", "in groups"])
def test_equals_members_trained_one_by_one(groups: list[Span]) -> None:
    """20 updates in float64 agree to 1e-10 with torch's modules and optimisers."""
    config = from_mapping(SacConfig, {"tau": 0.1, **RATES}, "test")
    algorithm, nets = choose_algorithm(config, chooses=True), Networks(VALUES, VALUES)
    members = algorithm.build(config, nets, Setting(members=3, seed=0, device=CPU, dtype=torch.float64))
    update_ = algorithm.make_update(config, nets, members, groups)
    ones = [
        OneSac(config, [members.actor[p], *(critic[p] for critic in members.critics)])  # type: ignore[attr-defined]
        for p in range(3)
    ]
    rng = torch.Generator().manual_seed(1)
    for _ in range(20):
        batch = batch_of(rng)
        update_([lambda low, high, batch=batch: members_of(batch, low, high)])
        for p, one in enumerate(ones):
            one.update(Batch(**{name: part[p] for name, part in vars(batch).items()}))
    for p, one in enumerate(ones):
        rows = [members.actor, *members.critics, *members.critic_targets]  # type: ignore[attr-defined]
        for row, net in zip(rows, (one.actor, *one.critics, *one.targets), strict=True):
            assert_same_weights(net, row[p], VALUES.layout, atol=1e-10)
        temperature = members.log_temperature[p]  # type: ignore[attr-defined]
        torch.testing.assert_close(temperature, one.log_temperature.detach(), rtol=0, atol=1e-10)
    assert read_tally_(members.tally)["train/entropy"] <= log(CHOICES)


def test_a_soft_value_is_largest_at_the_softmax_of_values_over_the_temperature() -> None:
    """There it is temperature * log sum exp(Q / temperature) (Haarnoja et al. 2017, theorem 1)."""
    rng = torch.Generator().manual_seed(0)
    values, temperature = torch.randn(2, 4, CHOICES, generator=rng), torch.tensor([[0.3], [2.0]])
    best = (values / temperature.unsqueeze(-1)).log_softmax(-1)
    found = soft_value(values, best, temperature)
    torch.testing.assert_close(found, temperature * (values / temperature.unsqueeze(-1)).logsumexp(-1))
    other = torch.randn(2, 4, CHOICES, generator=rng).log_softmax(-1)
    assert (soft_value(values, other, temperature) < found).all()


def test_choices_are_drawn_by_their_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0]).expand(20_000, 3)
    drawn = draw_choice(logits, torch.Generator().manual_seed(0))
    shares = drawn.bincount(minlength=3) / len(drawn)
    torch.testing.assert_close(shares, logits[0].softmax(0), rtol=0, atol=0.01)
