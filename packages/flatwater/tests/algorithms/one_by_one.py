"""DDPG and TD3 for one member, written the usual way: torch modules, torch.optim.AdamW, clip_grad_norm_.

Shares no code with flatwater but the names and places of the weights.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from flatwater.nets.stack import Layout, views
from flatwater_trading.training.learner import LearnerConfig


class Layers(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = relu(layer(x))
        return self.layers[-1](x)

    def load(self, row: Tensor, layout: Layout) -> None:
        """Weights from one member's row of a stacked block."""
        with torch.no_grad():
            for mine, given in zip(self.parameters(), self.split_row(row, layout), strict=True):
                mine.copy_(given)

    def distance(self, row: Tensor, layout: Layout) -> float:
        """Largest difference to one member's row."""
        named = self.split_row(row, layout)
        return max(
            float((mine.detach() - given).abs().max()) for mine, given in zip(self.parameters(), named, strict=True)
        )

    def split_row(self, row: Tensor, layout: Layout) -> list[Tensor]:
        """In the order of `parameters`. A critic's first matrix is in two parts, for observation and action."""
        parts = {name: view[0] for name, view in views(row.unsqueeze(0), layout).items()}
        if "0.action" in parts:
            parts["0.weight"] = torch.cat([parts["0.weight"], parts["0.action"]])
        layers = range(len(self.layers))
        return [part for n in layers for part in (parts[f"{n}.weight"].T, parts[f"{n}.bias"])]


@dataclass
class Transitions:
    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    weight: Tensor | None = None


Spec = tuple[tuple[int, ...], Layout]
"""Widths of the layers, and where their weights lie in a row."""


class OneLearner:
    """One member. `update` takes its micro-batches, and the target noise of each for TD3."""

    def __init__(self, config: LearnerConfig, actor: Spec, critic: Spec, rows: list[Tensor]) -> None:
        self.config = config
        dtype = rows[0].dtype
        self.actor, self.actor_target = (Layers(actor[0]).to(dtype) for _ in range(2))
        self.critics = [Layers(critic[0]).to(dtype) for _ in rows[1:]]
        self.critic_targets = [Layers(critic[0]).to(dtype) for _ in rows[1:]]
        for net in (self.actor, self.actor_target):
            net.load(rows[0], actor[1])
        for nets in (self.critics, self.critic_targets):
            for net, row in zip(nets, rows[1:], strict=True):
                net.load(row, critic[1])
        decay = config.weight_decay
        self.actor_optimizer = torch.optim.AdamW(self.actor.parameters(), lr=config.own.actor_lr, weight_decay=decay)
        self.critic_optimizers = [
            torch.optim.AdamW(net.parameters(), lr=config.own.critic_lr, weight_decay=decay) for net in self.critics
        ]
        self.updates = 0

    @staticmethod
    def value(net: Layers, obs: Tensor, action: Tensor) -> Tensor:
        return net(torch.cat([obs, action], dim=1)).squeeze(1)

    def update(self, batches: list[Transitions], noises: list[Tensor | None]) -> list[Tensor]:
        errors = [self._learn_values(batch, noise) for batch, noise in zip(batches, noises, strict=True)]
        for net, optimizer in zip(self.critics, self.critic_optimizers, strict=True):
            self._step(net, optimizer)
        self.updates += 1
        if self.config.algorithm == "ddpg" or self.updates % self.config.own.policy_delay == 0:
            for batch in batches:
                value = self.value(self.critics[0], batch.obs, torch.tanh(self.actor(batch.obs)))
                (-value.mean() / len(batches)).backward()
            self._step(self.actor, self.actor_optimizer)
            for net in self.critics:
                net.zero_grad()  # the actor's loss left gradients in the critic too
            self._follow()
        return errors

    def _learn_values(self, batch: Transitions, noise: Tensor | None) -> Tensor:
        config = self.config
        with torch.no_grad():
            action = torch.tanh(self.actor_target(batch.next_obs))
            if noise is not None:
                clip = config.own.target_noise_clip
                action = (action + (noise * config.own.target_noise).clamp(-clip, clip)).clamp(-1, 1)
            values = [self.value(net, batch.next_obs, action) for net in self.critic_targets]
            target = batch.reward + config.own.gamma * batch.discount * torch.stack(values).amin(0)
        errors = [self.value(net, batch.obs, batch.action) - target for net in self.critics]
        weight = 1.0 if batch.weight is None else batch.weight
        loss = sum((weight * error**2).mean() for error in errors)
        (loss / config.micro_batches).backward()
        return errors[0].detach().abs()

    def _step(self, net: Layers, optimizer: torch.optim.Optimizer) -> None:
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(net.parameters(), self.config.grad_clip)
        optimizer.step()
        optimizer.zero_grad()

    def _follow(self) -> None:
        pairs = [(self.actor_target, self.actor), *zip(self.critic_targets, self.critics, strict=True)]
        with torch.no_grad():
            for target, online in pairs:
                for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                    slow.copy_(self.config.own.tau * fast + (1 - self.config.own.tau) * slow)
