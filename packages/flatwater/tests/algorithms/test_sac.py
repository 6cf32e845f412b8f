"""The stacked update against members trained one by one in plain torch, the squashed normal against torch's own."""

import math
import shutil

import pytest
import torch
from populations import ACTION, CRITIC, DRAWN, OBS, batch_of, draws_of, population
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.nn.functional import linear, relu

from flatwater.algorithms.api import draw_normal, read_tally_
from flatwater.algorithms.config import SACConfig
from flatwater.algorithms.sac import LOG_DEVIATION, SacMembers, make_explorer, sample_action
from flatwater.nets.stack import Layout, views
from flatwater.replay.batch import Batch
from flatwater.state.tree import leaves, nbytes
from flatwater_trading.training.learner import LearnerConfig
from flatwater_watch.errors import ConfigError

UPDATES = 40


def by_name(row: Tensor, layout: Layout) -> dict[str, nn.Parameter]:
    """One member's weights, as parameters of their own."""
    return {name: nn.Parameter(view[0].clone()) for name, view in views(row.unsqueeze(0), layout).items()}


class OneSAC:
    """One member, written the usual way: torch.distributions, autograd and torch.optim."""

    def __init__(self, config: LearnerConfig, state: SacMembers, p: int) -> None:
        self.config, self.own = config, config.sac
        self.actor = by_name(state.actor[p], DRAWN.actor.layout)
        self.critics = [by_name(block[p], CRITIC.layout) for block in state.critics]
        self.targets = [by_name(block[p], CRITIC.layout) for block in state.critic_targets]
        self.log_temperature = nn.Parameter(state.log_temperature[p].clone())
        decay = config.weight_decay
        self.optimizers = {
            "actor": torch.optim.AdamW(self.actor.values(), lr=self.own.actor_lr, weight_decay=decay),
            "temperature": torch.optim.Adam([self.log_temperature], lr=self.own.temperature_lr),
        }
        for n, critic in enumerate(self.critics):
            self.optimizers[f"critic {n}"] = torch.optim.AdamW(
                critic.values(), lr=self.own.critic_lr, weight_decay=decay
            )

    def policy(self, obs: Tensor) -> TransformedDistribution:
        x, w = obs, self.actor
        for layer in ("0", "1"):
            x = relu(linear(x, w[f"{layer}.weight"].T, w[f"{layer}.bias"]))
        mean = linear(x, w["2.weight"].T, w["2.bias"])
        deviation = linear(x, w["deviation.weight"].T, w["deviation.bias"]).clamp(*LOG_DEVIATION).exp()
        return TransformedDistribution(Independent(Normal(mean, deviation), 1), [TanhTransform(cache_size=1)])

    def draw_action(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        policy = self.policy(obs)
        normal = policy.base_dist.base_dist
        action = torch.tanh(normal.loc + normal.scale * noise)
        return action, policy.log_prob(action)

    @staticmethod
    def value(w: dict[str, nn.Parameter], obs: Tensor, action: Tensor) -> Tensor:
        x = relu(torch.cat([obs, action], 1) @ torch.cat([w["0.weight"], w["0.action"]]) + w["0.bias"])
        x = relu(x @ w["1.weight"] + w["1.bias"])
        return (x @ w["2.weight"] + w["2.bias"]).squeeze(1)

    def update(self, batch: dict[str, Tensor], following: Tensor, noise: Tensor) -> Tensor:
        with torch.no_grad():
            action, log_prob = self.draw_action(batch["next_obs"], following)
            values = torch.stack([self.value(w, batch["next_obs"], action) for w in self.targets]).amin(0)
            soft = values - self.log_temperature.exp() * log_prob
            target = batch["reward"] + self.own.gamma * batch["discount"] * soft
        errors = [self.value(w, batch["obs"], batch["action"]) - target for w in self.critics]
        sum((batch["weight"] * error**2).mean() for error in errors).backward()
        for n, critic in enumerate(self.critics):
            self.step(f"critic {n}", list(critic.values()))
        action, log_prob = self.draw_action(batch["obs"], noise)
        value = torch.stack([self.value(w, batch["obs"], action) for w in self.critics]).amin(0)
        (self.log_temperature.exp().detach() * log_prob - value).mean().backward()
        (-self.log_temperature * (log_prob.detach() + self.own.entropy * ACTION)).mean().backward()
        self.step("actor", list(self.actor.values()))
        self.optimizers["temperature"].step()
        self.optimizers["temperature"].zero_grad()
        with torch.no_grad():
            for slow, fast in zip(self.targets, self.critics, strict=True):
                for name, weight in slow.items():
                    weight.copy_(self.own.tau * fast[name] + (1 - self.own.tau) * weight)
            for critic in self.critics:
                for weight in critic.values():
                    weight.grad = None  # the actor's loss left gradients in the critics too
        return errors[0].detach().abs()

    def step(self, name: str, weights: list[nn.Parameter]) -> None:
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(weights, self.config.grad_clip)
        self.optimizers[name].step()
        self.optimizers[name].zero_grad()

    def distance(self, state: SacMembers, p: int) -> float:
        mine = [self.actor, *self.critics, *self.targets]
        rows = [state.actor[p], *(block[p] for block in (*state.critics, *state.critic_targets))]
        layouts = [DRAWN.actor.layout, *[CRITIC.layout] * 4]
        apart = [float(self.log_temperature.detach() - state.log_temperature[p])]
        for named, row, layout in zip(mine, rows, layouts, strict=True):
            apart += [float((named[k] - w).detach().abs().max()) for k, w in by_name(row, layout).items()]
        return max(map(abs, apart))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings",
    [{}, {"grad_clip": 0.5, "groups": [(0, 2), (2, 3)]}, {"grad_clip": 0.0, "weight_decay": 0.0, "temperature": 0.1}],
    ids=["plain", "clipped, in groups", "Adam"],
)
def test_equals_members_trained_one_by_one(settings: dict[str, object]) -> None:
    """40 updates in float64 agree to 1e-10 with torch's modules, distributions and optimisers."""
    pop = population(**{"algorithm": "sac", "micro_batches": 1, "temperature_lr": 1e-2} | settings)
    state, groups = pop.learner, settings.get("groups", [(0, 3)])
    ones = [OneSAC(pop.config, state, p) for p in range(3)]
    rng = torch.Generator().manual_seed(1)
    for _ in range(UPDATES):
        batch = batch_of(3, rng)
        following, noise = (
            torch.cat([draw_normal(state, span, batch.action[slice(*span)], consumer, 0) for span in groups])
            for consumer in ("critics", "actor")
        )

        errors = pop.update_(draws_of([batch]))

        for p, one in enumerate(ones):
            expected = one.update({k: v[p] for k, v in vars(batch).items()}, following[p], noise[p])
            torch.testing.assert_close(errors[p, 0], expected, rtol=0, atol=1e-10)
    assert max(one.distance(state, p) for p, one in enumerate(ones)) <= 1e-10
    assert not torch.equal(state.log_temperature[0], state.log_temperature[-1])


def test_two_micro_batches_are_averaged() -> None:
    """Where nothing follows, critics learn from the reward alone, whatever is drawn: the batch twice is the batch."""
    once, twice = (population(algorithm="sac", micro_batches=n, seed=3) for n in (1, 2))
    batch = batch_of(3, torch.Generator().manual_seed(2))
    batch.discount.zero_()
    once.update_(draws_of([batch]))
    twice.update_(draws_of([batch, batch]))
    torch.testing.assert_close(twice.learner.critics[0], once.learner.critics[0], rtol=0, atol=1e-9)


def test_log_probability_is_that_of_torchs_squashed_normal() -> None:
    rng = torch.Generator().manual_seed(0)
    mean, spread, noise = (torch.randn(2, 50, 3, generator=rng, dtype=torch.float64) for _ in range(3))
    spread.clamp_(-2, 1)
    policy = TransformedDistribution(Independent(Normal(mean, spread.exp()), 1), [TanhTransform(cache_size=1)])

    action, log_prob, drawn = sample_action(mean, spread, noise)

    torch.testing.assert_close(action, torch.tanh(mean + spread.exp() * noise))
    torch.testing.assert_close(log_prob, policy.log_prob(action), rtol=1e-6, atol=1e-6)
    assert (drawn == 3).all()


def test_far_from_zero_the_log_probability_keeps_its_digits() -> None:
    """At raw = 20 in float32 tanh is exactly 1: log(1 - 1) would be -inf; the density there is e^(2 raw) / 4 wide."""
    mean = torch.full((1, 1, 1), 20.0)
    _, log_prob, _ = sample_action(mean, torch.zeros_like(mean), torch.zeros_like(mean))
    assert float(log_prob) == pytest.approx(-math.log(2 * math.pi) / 2 + 40 - math.log(4), rel=1e-5)


def test_a_part_that_is_not_drawn_counts_nothing_and_has_no_gradient() -> None:
    mean = torch.tensor([[[0.3, -torch.inf, 0.7]]], requires_grad=True)
    spread = torch.tensor([[[0.1, -torch.inf, -torch.inf]]], requires_grad=True)
    noise = torch.tensor([[[0.5, 2.0, -1.0]]])

    action, log_prob, drawn = sample_action(mean, spread, noise)
    alone, log_prob_alone, _ = sample_action(mean[..., :1], spread[..., :1], noise[..., :1])
    (action.sum() + log_prob.sum()).backward()

    assert action[0, 0].tolist() == pytest.approx([float(alone.detach()), -1.0, math.tanh(0.7)], abs=1e-6)
    assert float(log_prob.detach()) == float(log_prob_alone.detach())
    assert drawn.tolist() == [[1]]
    assert mean.grad is not None
    assert spread.grad is not None
    assert mean.grad[0, 0, 1] == spread.grad[0, 0, 1] == spread.grad[0, 0, 2] == 0
    assert mean.grad.isfinite().all()


@pytest.mark.parametrize(("deviation", "rises"), [(-4.0, True), (-0.3, False)])
def test_the_temperature_rises_where_entropy_is_missing(deviation: float, rises: object) -> None:
    pop = population(algorithm="sac", micro_batches=1, actor_lr=1e-30, weight_decay=0.0)
    weights = views(pop.learner.actor, DRAWN.actor.layout)
    weights["deviation.weight"].zero_()
    weights["deviation.bias"].fill_(deviation)
    before = pop.learner.log_temperature.clone()
    pop.update_(draws_of([batch_of(3, torch.Generator().manual_seed(1))]))
    assert ((pop.learner.log_temperature > before)[:3] == rises).all()
    assert pop.learner.log_temperature[3] == before[3]


def test_exploring_draws_around_the_mean() -> None:
    pop = population(algorithm="sac", members=1)
    params = views(pop.learner.actor[:1], DRAWN.actor.layout)
    obs = torch.randn(1, 1, OBS, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(1, 20_000, OBS)
    explore = make_explorer(pop.config, pop.learner, lambda action, _scale, _rng: action)

    raw = explore(DRAWN.actor, params, obs, torch.Generator().manual_seed(1)).atanh()

    mean, spread = DRAWN.actor.gaussian(params, obs[:, :1])
    torch.testing.assert_close(raw.mean(1, keepdim=True), mean, rtol=0, atol=0.03)
    torch.testing.assert_close(raw.std(1, keepdim=True), spread.exp(), rtol=0.03, atol=0)


def test_the_plan_is_what_is_held_and_nothing_moves() -> None:
    pop = population(algorithm="sac", micro_batches=1)
    home = {leaf.path: leaf.value.data_ptr() for leaf in leaves(pop.learner) if isinstance(leaf.value, Tensor)}
    champion = [rows[-1].clone() for rows in pop.learner.inherited]
    held = nbytes(pop.learner)
    for seed in range(3):
        pop.update_(draws_of([batch_of(3, torch.Generator().manual_seed(seed))]))
    losses = read_tally_(pop.learner.tally)
    assert nbytes(pop.learner) == held
    assert home == {leaf.path: leaf.value.data_ptr() for leaf in leaves(pop.learner) if isinstance(leaf.value, Tensor)}
    assert all(torch.equal(rows[-1], kept) for rows, kept in zip(pop.learner.inherited, champion, strict=True))
    assert losses.keys() >= {"train/critic_loss", "train/actor_loss", "train/entropy", "train/q", "train/skipped"}


@pytest.mark.slow
def test_learns_the_best_action_of_a_bandit() -> None:
    """Reward -(a - s)^2 and no future: the mean comes to s, and the entropy to the one that is wanted."""
    own = {"actor_lr": 3e-3, "critic_lr": 3e-3, "temperature_lr": 1e-2, "temperature": 0.1, "entropy": -1.0}
    pop = population(algorithm="sac", micro_batches=1, dtype=torch.float32, weight_decay=0.0, **own)
    rng = torch.Generator().manual_seed(1)
    for _ in range(1000):
        batch = batch_of(3, rng, dtype=torch.float32, weighted=False)
        batch.obs[..., 0].clamp_(-0.8, 0.8)
        batch.action.uniform_(-1, 1, generator=rng)
        batch.reward.copy_(-(batch.action - batch.obs[..., :1]).square().sum(-1))
        batch.discount.zero_()
        pop.update_(draws_of([batch]))

    seen = batch_of(3, rng, dtype=torch.float32).obs
    seen[..., 0].clamp_(-0.8, 0.8)
    params = {name: view[:3] for name, view in views(pop.learner.actor, DRAWN.actor.layout).items()}
    missed = (DRAWN.actor(params, seen)[..., 0] - seen[..., 0]).square().mean(1)
    assert (missed < 0.15 * seen[..., 0].square().mean(1)).all(), missed
    mean, spread = DRAWN.actor.gaussian(params, seen)
    _, log_prob, _ = sample_action(mean, spread, torch.randn(mean.shape, generator=rng))
    assert float(-log_prob.mean()) == pytest.approx(-1.0 * ACTION, abs=0.7)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="compiling needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it loads its compiler
def test_compiled_equals_eager_to_float_tolerance() -> None:
    settings = {"algorithm": "sac", "micro_batches": 1, "dtype": torch.float32, "members": 4}
    eager, compiled = (population(**settings, compile=compile_) for compile_ in (False, True))
    rng = torch.Generator().manual_seed(1)
    for _ in range(8):
        batch: Batch = batch_of(4, rng, dtype=torch.float32)
        for pop in (eager, compiled):
            pop.update_(draws_of([batch]))
    for mine, other in zip(compiled.learner.inherited, eager.learner.inherited, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)


def test_an_entropy_that_no_action_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"learner\.sac\.entropy = 0\.7"):
        SACConfig(entropy=0.7)
