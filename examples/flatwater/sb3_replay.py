"""Stable-Baselines3 on Flatwater's replay: every observation is stored once, and a checkpoint holds all of it.

    model = SAC("MlpPolicy", "Pendulum-v1", replay_buffer_class=RingBuffer)

A part of a checkpoint like any other: `fw.save_checkpoint(folder, {"replay": model.replay_buffer.ring, ...}, step)`.
"""

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

import flatwater as fw


class RingBuffer(ReplayBuffer):  # type: ignore[misc]  # theirs is not typed here
    """Their interface over our ring."""

    def __init__(self, buffer_size: int, *spaces: Any, device: Any = "cpu", n_envs: int = 1, **_: Any) -> None:  # noqa: ANN401
        """Allocate room for `buffer_size` transitions, whole."""
        super().__init__(1, *spaces, device=device, n_envs=n_envs)
        self.ring = fw.ring.build_ring(
            fw.ReplayConfig(capacity=buffer_size), *spaces, envs=n_envs, device=torch.device(self.device)
        )
        self.rng = torch.Generator(self.device).manual_seed(0)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:  # noqa: ANN401, PLR0917
        """One step of all environments."""
        begun = self.ring.ended.nonzero().squeeze(1)
        fw.ring.start_(self.ring, begun, obs[begun.cpu().numpy()])
        cut = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        ends = {"terminated": done & ~cut, "truncated": done & cut}
        fw.ring.append_(self.ring, action=action, reward=reward, **ends, next_obs=next_obs)

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:  # noqa: ANN401, ARG002
        """Transitions with replacement."""
        batch = fw.ring.gather(self.ring, fw.ring.draw(self.ring, (batch_size,), self.rng).index)
        numbers = (1 - batch.discount)[:, None], batch.reward[:, None]
        return ReplayBufferSamples(batch.obs, batch.action, batch.next_obs, *numbers)
