"""A PPO loop of the usual kind, made resumable bit for bit: the lines with `fw.` are all that was added.

    python examples/flatwater/resumable_ppo.py [--updates 20] [--folder checkpoints]

Kill it at any moment and start it again: it goes on from its newest checkpoint, and ends with the same weights.
"""

import argparse
import hashlib
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import flatwater as fw

ENVS, STEPS = 4, 64


def network(outputs: int) -> nn.Sequential:
    """Of CartPole's four numbers."""
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, outputs))


def policy_of(logits: Tensor) -> Any:  # noqa: ANN401  (torch's distributions are not typed)
    """What actions are drawn from."""
    return Categorical(logits=logits)


def collect(agent: nn.ModuleDict, envs: list[fw.Resumable], obs: Tensor) -> tuple[Tensor, ...]:
    """STEPS steps in every environment; `obs` [ENVS, 4] is what is seen now, and is written in place."""
    seen, actions = torch.empty(STEPS, ENVS, 4), torch.empty(STEPS, ENVS, dtype=torch.int64)
    rewards, ends = torch.empty(STEPS, ENVS), torch.empty(STEPS, ENVS)
    for t in range(STEPS):
        seen[t] = obs
        with torch.no_grad():
            actions[t] = policy_of(agent["actor"](obs)).sample()
        for e, env in enumerate(envs):
            now, rewards[t, e], terminated, truncated, _ = env.step(int(actions[t, e]))
            ends[t, e] = terminated or truncated
            obs[e] = torch.from_numpy(env.reset()[0] if ends[t, e] else now)
    return seen, actions, rewards, ends


def update_(agent: nn.ModuleDict, optimizer: torch.optim.Adam, batch: tuple[Tensor, ...], obs: Tensor) -> None:
    """Four epochs of PPO on one collection."""
    seen, actions, rewards, ends = batch
    with torch.no_grad():
        before = policy_of(agent["actor"](seen)).log_prob(actions)
        values = torch.cat([agent["critic"](seen), agent["critic"](obs)[None]]).squeeze(-1)
        advantages, last = torch.empty_like(rewards), torch.zeros(ENVS)
        for t in reversed(range(STEPS)):
            delta = rewards[t] + 0.99 * (1 - ends[t]) * values[t + 1] - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * (1 - ends[t]) * last
    for _ in range(4):
        for rows in torch.from_numpy(np.random.permutation(STEPS * ENVS)).chunk(4):  # noqa: NPY002
            policy = policy_of(agent["actor"](seen.flatten(0, 1)[rows]))
            gain = advantages.flatten()[rows]
            ratio = (policy.log_prob(actions.flatten()[rows]) - before.flatten()[rows]).exp()
            value = agent["critic"](seen.flatten(0, 1)[rows]).squeeze(-1)
            wanted = (advantages + values[:-1]).flatten()[rows]
            shares = (gain - gain.mean()) / (gain.std() + 1e-8)
            loss = -torch.min(ratio * shares, ratio.clamp(0.8, 1.2) * shares).mean()
            loss = loss + 0.5 * (value - wanted).square().mean() - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def main() -> None:
    """Train, and print the hash of the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--folder", default="checkpoints")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # noqa: TID251  (a loop of the usual kind draws from the global generators)
    np.random.seed(0)  # noqa: NPY002, TID251
    agent = nn.ModuleDict({"actor": network(2), "critic": network(1)})
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3)
    envs = [fw.Resumable(gymnasium.make("CartPole-v1"), seed) for seed in range(ENVS)]
    obs = torch.stack([torch.from_numpy(env.reset()[0]) for env in envs])

    parts = {"agent": agent, "optimizer": optimizer, "envs": envs, "obs": obs}
    for update in range(fw.restore_checkpoint(options.folder, parts), options.updates):
        batch = collect(agent, envs, obs)
        update_(agent, optimizer, batch, obs)
        fw.save_checkpoint(options.folder, parts, update + 1)
        print(f"update {update + 1:>3}  steps an episode {STEPS * ENVS / max(1, int(batch[3].sum())):6.1f}", flush=True)

    weights = torch.cat([parameter.detach().flatten() for parameter in agent.parameters()])
    print("weights", hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
