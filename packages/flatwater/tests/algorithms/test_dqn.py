"""The stacked update of DQN against members trained one by one in plain torch, its switches, its random actions."""

from copy import deepcopy

import pytest
import torch
from choices import CHOICES, CPU, HIDDEN, OBS, B, OneNetwork, assert_same_weights, batch_of, members_of
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from flatwater.algorithms.adam import Span
from flatwater.algorithms.api import Members, Networks, Setting, Update, find_algorithm
from flatwater.algorithms.dqn import random_share
from flatwater.config.mappings import from_mapping
from flatwater.nets.mlp import MLPValues
from flatwater.nets.stack import views
from flatwater.recipes.evolve.agents import DqnConfig
from flatwater.replay.batch import Batch
from flatwater.state.tree import nbytes
from flatwater_watch.errors import ConfigError

SWITCHES: list[dict[str, object]] = [
    {"target_every": 3, "tau": 1.0},
    {"double": True, "target_every": 4, "grad_clip": 0.5},
    {"duelling": True, "tau": 0.1, "target_every": 1},
    {"double": True, "duelling": True, "micro_batches": 2},
]


def population(groups: list[Span] | None = None, **settings: object) -> tuple[DqnConfig, Networks, Members, Update]:
    config = from_mapping(DqnConfig, {"lr": 1e-3, "target_every": 2, **settings}, "test")
    values = MLPValues(OBS, CHOICES, HIDDEN, duelling=config.duelling)
    algorithm, nets = find_algorithm(config), Networks(values, values)
    members = algorithm.build(config, nets, Setting(members=3, seed=0, device=CPU, dtype=torch.float64))
    return config, nets, members, algorithm.make_update(config, nets, members, groups or [(0, 3)])


class OneDqn:
    """One member, written the usual way."""

    def __init__(self, config: DqnConfig, values: MLPValues, row: Tensor) -> None:
        self.config, self.net = config, OneNetwork(values, row)
        self.target = deepcopy(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=config.lr, weight_decay=0)
        self.updates = 0

    def update(self, batches: list[Batch]) -> Tensor:
        errors = []
        for batch in batches:
            with torch.no_grad():
                ahead = self.target(batch.next_obs)
                choice = (self.net if self.config.double else self.target)(batch.next_obs).argmax(1)
                wanted = batch.reward + self.config.gamma * batch.discount * ahead[range(B), choice]
            value = self.net(batch.obs)[range(B), batch.action]
            loss = (batch.weight * huber_loss(value, wanted, reduction="none")).mean()
            (loss / len(batches)).backward()
            errors.append((value - wanted).detach().abs())
        nn.utils.clip_grad_norm_(self.net.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.updates += 1
        if self.updates % self.config.target_every == 0:
            with torch.no_grad():
                for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
                    slow.lerp_(fast, self.config.tau)
        return torch.stack(errors)


@pytest.mark.few(3)
@pytest.mark.parametrize("switches", SWITCHES, ids=" ".join)
@pytest.mark.parametrize("groups", [[(0, 3)], [(0, 1), (1, 3)]], ids=["together", "in groups"])
def test_equals_members_trained_one_by_one(switches: dict[str, object], groups: list[Span]) -> None:
    """40 updates in float64 agree to 1e-12 with torch's modules and optimisers."""
    config, nets, members, update_ = population(groups, **switches)
    ones = [OneDqn(config, nets.actor, members.actor[p]) for p in range(3)]
    rng = torch.Generator().manual_seed(1)
    for _ in range(40):
        batches = [batch_of(rng) for _ in range(config.micro_batches)]

        errors = update_([lambda low, high, batch=batch: members_of(batch, low, high) for batch in batches])

        assert errors is not None
        for p, one in enumerate(ones):
            own = [Batch(**{name: part[p] for name, part in vars(batch).items()}) for batch in batches]
            torch.testing.assert_close(errors[p], one.update(own), rtol=0, atol=1e-12)
    for p, one in enumerate(ones):
        for rows, net in zip(members.inherited, (one.net, one.target), strict=True):
            assert_same_weights(net, rows[p], nets.actor.layout, atol=1e-12)


def test_what_is_planned_is_held_and_the_champion_is_not_trained() -> None:
    config, nets, members, update_ = population()
    planned = find_algorithm(config).build(
        config, nets, Setting(members=3, seed=0, device=torch.device("meta"), dtype=torch.float64)
    )
    champion = members.actor[-1].clone()
    batch = batch_of(torch.Generator().manual_seed(1))
    for _ in range(3):
        update_([lambda low, high: members_of(batch, low, high)])
    assert nbytes(members) == nbytes(planned)
    assert torch.equal(members.actor[-1], champion)
    assert torch.equal(members.actor_target[-1], champion)  # type: ignore[attr-defined]  # of its members


def test_the_share_of_random_actions_falls_by_steps_and_not_by_updates() -> None:
    """Two updates after every eighth step: 100 updates are 400 steps."""
    ramp = {"first": 1.0, "last": 0.2, "ends": 800}
    config = from_mapping(DqnConfig, {"updates": 2, "train_every": 8, "epsilon": ramp}, "test")
    assert [random_share(config, updates) for updates in (0, 100, 200, 900)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_random_actions_come_as_often_as_said_and_are_any() -> None:
    config, nets, members, _ = population(epsilon={"first": 0.3, "last": 0.3})
    explore = find_algorithm(config).explorer(config, members, lambda action, _scale, _rng: action)
    obs = torch.zeros(1, 30_000, OBS, dtype=torch.float64)
    weights = views(members.actor[:1], nets.actor.layout)
    actions = explore(nets.actor, weights, obs, torch.Generator().manual_seed(0))
    shares = torch.bincount(actions.flatten(), minlength=CHOICES) / actions.numel()
    best = int(nets.actor(weights, obs[:, :1]))
    assert shares.tolist() == pytest.approx([0.8 if choice == best else 0.1 for choice in range(CHOICES)], abs=0.01)


def test_a_share_of_random_actions_above_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner\.epsilon\.first = 2\.0: .*0 to 1"):
        from_mapping(DqnConfig, {"epsilon": {"first": 2.0, "last": 0.1}}, "test")
