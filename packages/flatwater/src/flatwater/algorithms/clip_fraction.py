"""How far a round has moved PPO's policy: the share of actions that the clipped loss would not move any further."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.config import PPOConfig
from flatwater.algorithms.ppo import LEARNED_FROM, Learner, bound_weights, policy_steps
from flatwater.nets.actor_critic import ActorCritic
from flatwater.rollouts.block import Rollout
from flatwater.rollouts.sequences import bind_sequences


@torch.no_grad()
def clip_fraction(
    config: PPOConfig,
    network: ActorCritic,
    learner: Learner,
    rollout: Rollout,
    begun: Float[Tensor, "C 2 B M"],
    *,
    clip: float,
) -> Float[Tensor, ""]:
    """Return the share of the last minibatch's actions whose ratio of probabilities has left the clip range.

    After the round's last update, and from the state alone: a run that is resumed within a round has the same.

    Args:
        config: number of minibatches.
        network: the policy's network.
        learner: its weights, and the order in which sequences were dealt last.
        rollout: the block that was learned from.
        begun: memory before the first step of each sequence.
        clip: clip range of the round.
    """
    columns = {name: rollout[name].flatten(0, 1) for name in LEARNED_FROM if name in rollout.columns}
    sequences = learner.order[-(len(learner.order) // config.minibatches) :]
    batch, memory = bind_sequences(rollout, begun, list(columns))(columns | {"begun": begun}, sequences)
    output = network(bound_weights(network, learner), batch["obs"], memory, batch["starts"], learning=True)
    log_prob = network.actions.distribution(output.logits, batch.get("legal")).log_prob(batch["action"])
    counted = policy_steps(batch)
    is_clipped = (log_prob - batch["log_prob"]).expm1().abs() > clip
    return (is_clipped & counted).sum() / counted.sum().clamp(min=1)
