"""The loop of `flatwater train teach` as it is often written: lists of what each step had, stacked when a block ends.

The world, the teacher, the network's formulas and the loss are the same. What differs is how experience is held (lists
of copies, `np.stack`, `torch.stack`) and how the network is stepped (a parameter for each weight, `torch.optim.Adam`).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatwater.algorithms.on_policy import minibatch_numbers
from flatwater.algorithms.on_policy_algorithm import UPDATE_COLUMNS
from flatwater.algorithms.on_policy_config import TeachingConfig
from flatwater.algorithms.ppo import ppo_loss
from flatwater.algorithms.returns import gae
from flatwater.envs.world import Array, Teacher, World
from flatwater.nets.actor_critic import ActorCritic
from flatwater.nets.policy import PolicyOutput
from flatwater.nets.stack import views

EPSILON = 1e-8
READ = [name for name in UPDATE_COLUMNS if name != "legal"]


class ListedTeaching:
    """One world, one teacher and one student; `round` collects a block and learns from it."""

    def __init__(
        self, config: TeachingConfig, network: ActorCritic, block: Tensor, world: World, teacher: Teacher
    ) -> None:
        """Take over the weights of `block`, [1, n]."""
        self.config, self.network, self.world, self.teacher = config, network, world, teacher
        views_of = views(block, network.layout)
        self.weights = {name: torch.nn.Parameter(view[0].clone()) for name, view in views_of.items()}
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=config.lr)
        self.rng = torch.Generator().manual_seed(0)
        spaces = world.spaces
        self.agents = spaces.envs * spaces.agents
        self.obs = np.zeros((spaces.envs, spaces.agents, *spaces.obs), np.uint8)
        self.memory = torch.zeros(2, self.agents, network.config.memory)
        self.starts = torch.ones(self.agents, dtype=torch.bool)
        self.begin(np.ones(spaces.envs, np.bool_))

    def begin(self, env_mask: Array) -> None:
        """New episodes."""
        seeds = torch.randint(1 << 30, (len(env_mask),), generator=self.rng).numpy()
        self.world.begin_(env_mask, seeds, self.obs)
        self.teacher.begin_(env_mask)
        self.starts = torch.from_numpy(env_mask).repeat_interleave(self.world.spaces.agents)

    def round(self, steps: int) -> None:
        """Collect, and learn."""
        self.learn(self.collect(steps))

    @torch.no_grad()
    def collect(self, steps: int) -> dict[str, Tensor]:
        """Columns of so many steps, [T, B, ...], and `begun`, [C, 2, B, M]."""
        rows: dict[str, list[Any]] = {name: [] for name in (*READ, "reward", "terminated", "truncated")}
        begun, values = [], []
        led = torch.rand(self.agents, generator=self.rng) < self.config.lead.scheduled_value(0)
        for t in range(steps):
            if t % self.config.unroll == 0:
                begun.append(self.memory.clone())
            step = self.act(led)
            values.append(step["value"])
            for name, value in step.items():
                rows[name].append(value)
        begun_ = torch.stack(begun)
        seen = self.look()
        columns = {
            name: torch.from_numpy(np.stack(found)) if isinstance(found[0], np.ndarray) else torch.stack(found)
            for name, found in rows.items()
            if found
        }
        estimated = gae(
            reward=columns["reward"],
            discount=torch.where(columns["terminated"], 0.0, self.config.gamma),
            value=columns["value"],
            next_value=torch.stack([*values[1:], seen.value[0]]),
            continues=~(columns["terminated"] | columns["truncated"]),
            lam=self.config.lam,
        )
        columns["returns"] = estimated + columns["value"]
        columns["advantage"] = (estimated - estimated.mean()) / (estimated.std() + EPSILON)
        return columns | {"begun": begun_}

    def look(self) -> PolicyOutput:
        """Return the student's output for the current observations."""
        shown = torch.from_numpy(self.obs.reshape(self.agents, *self.obs.shape[2:]).copy())
        return self.network(self.weights, shown.unsqueeze(0), self.memory, self.starts.unsqueeze(0))

    def act(self, led: Tensor) -> dict[str, Any]:
        """One step of all, as new arrays."""
        spaces = self.world.spaces
        shape = (spaces.envs, spaces.agents)
        shown, starts = self.obs.reshape(self.agents, *self.obs.shape[2:]).copy(), self.starts.clone()
        taught = np.zeros(shape, np.int64)
        self.teacher.step_batch(self.obs, taught)
        seen = self.look()
        choice = self.network.actions.distribution(seen.logits[0])
        self.memory = seen.memory
        noise = self.network.actions.noise_(torch.empty_like(seen.logits[0]), self.rng)
        told = torch.from_numpy(taught).flatten()
        action = torch.where(led, told, choice.sample(noise))
        reward, over = np.zeros(shape, np.float32), np.zeros((2, *shape), np.bool_)
        self.world.step_(action.view(shape).numpy(), self.obs, reward, *over)
        self.starts = torch.zeros_like(self.starts)
        if (ended := (over[0] | over[1]).all(1)).any():
            self.begin(ended)
        return {
            "obs": shown,
            "taught": told,
            "action": action,
            "led": led,
            "alive": torch.ones_like(led),
            "starts": starts,
            "log_prob": choice.log_prob(action),
            "value": seen.value[0],
            "reward": reward.ravel().copy(),
            "terminated": over[0].ravel().copy(),
            "truncated": over[1].ravel().copy(),
        }

    def learn(self, columns: dict[str, Tensor]) -> None:
        """The epochs over a block."""
        config, begun = self.config, columns.pop("begun")
        cut = {name: columns[name].view(-1, config.unroll, *columns[name].shape[1:]) for name in READ}
        count = begun.shape[0] * self.agents
        for _ in range(config.epochs):
            for part in torch.randperm(count, generator=self.rng).chunk(config.minibatches):
                place, agent = part // self.agents, part % self.agents
                batch = {name: column[place, :, agent].transpose(0, 1) for name, column in cut.items()}
                memory = begun[place, :, agent].transpose(0, 1)
                seen = self.network(self.weights, batch["obs"], memory, batch["starts"])
                batch |= {"supervision": torch.ones(()), "reinforcement": torch.zeros(())}
                loss = minibatch_numbers(ppo_loss, config, self.network, seen, batch)["loss"]
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(self.weights.values(), config.grad_clip)
                self.optimizer.step()
