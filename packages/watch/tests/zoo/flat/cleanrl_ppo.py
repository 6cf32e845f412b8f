"""PPO in one file, in the manner of CleanRL: storage allocated before the loop, overwritten in it."""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, GAMMA, LAMBDA, CLIP = 4, 64, 0.99, 0.95, 0.2


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))


def main(rounds: int) -> None:
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(ENVS)])
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4)
    observed = torch.zeros(STEPS, ENVS, 4)
    actions, log_probs, rewards, dones, values = torch.zeros(5, STEPS, ENVS)
    advantages = torch.zeros(STEPS, ENVS)
    first, _ = envs.reset(seed=0)
    now, done = torch.as_tensor(first), torch.zeros(ENVS)
    for _ in range(rounds):
        for t in range(STEPS):
            observed[t], dones[t] = now, done
            with torch.no_grad():
                policy = Categorical(logits=agent.actor(now))
                action = policy.sample()
                values[t] = agent.critic(now).squeeze(-1)
            actions[t], log_probs[t] = action, policy.log_prob(action)
            seen, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[t] = torch.as_tensor(reward)
            now, done = torch.as_tensor(seen), torch.as_tensor(np.logical_or(terminated, truncated)).float()
        with torch.no_grad():
            carry, after, ended = torch.zeros(ENVS), agent.critic(now).squeeze(-1), done
            for t in reversed(range(STEPS)):
                delta = rewards[t] + GAMMA * after * (1 - ended) - values[t]
                carry = delta + GAMMA * LAMBDA * (1 - ended) * carry
                advantages[t] = carry
                after, ended = values[t], dones[t]
            returns = advantages + values
        for _ in range(4):
            update(agent, optimizer, (observed, actions, log_probs, advantages, returns))
    envs.close()


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: tuple[torch.Tensor, ...]) -> None:
    observed, actions, log_probs, advantages, returns = (leaf.flatten(0, 1) for leaf in rollout)
    for rows in torch.randperm(len(actions)).split(64):
        policy = Categorical(logits=agent.actor(observed[rows]))
        ratio = (policy.log_prob(actions[rows]) - log_probs[rows]).exp()
        scaled = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
        gain = torch.minimum(scaled * ratio, scaled * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        miss = (agent.critic(observed[rows]).squeeze(-1) - returns[rows]).square().mean()
        loss = 0.5 * miss - gain - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
