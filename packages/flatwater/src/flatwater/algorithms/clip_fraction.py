"""How far a round has moved PPO's policy: the share of actions that the clipped loss would not move any further."""

import torch
from jaxtyping import Float
from torch import Tensor

from flatwater.algorithms.config import PPOConfig
from flatwater.algorithms.ppo import UPDATE_COLUMNS, Learner, bound_weights, policy_steps
from flatwater.nets.actor_critic import ActorCritic
from flatwater.rollouts.block import Rollout
from flatwater.rollouts.sequences import INITIAL_MEMORY, bind_sequences


@torch.no_grad()
def clip_fraction(
    config: PPOConfig,
    network: ActorCritic,
    learner: Learner,
    rollout: Rollout,
    initial_memory: Float[Tensor, "C 2 B M"],
    *,
    clip: float,
) -> Float[Tensor, ""]:
    """Return the share of the last minibatch's actions whose ratio of probabilities has left the clip range.

    It is computed from the state after the round's last update, so a resumed run has the same number.

    Args:
        config: number of minibatches.
        network: the policy's network.
        learner: weights, and the order in which the last epoch took the sequences.
        rollout: the block that was learned from.
        initial_memory: memory before the first step of each sequence.
        clip: clip range of the round.
    """
    columns = {name: rollout[name].flatten(0, 1) for name in UPDATE_COLUMNS if name in rollout.columns}
    minibatch_size = len(learner.order) // config.minibatches
    last_minibatch = learner.order[-minibatch_size:]
    gather_sequences = bind_sequences(rollout, initial_memory, list(columns))
    batch, memory = gather_sequences(columns | {INITIAL_MEMORY: initial_memory}, last_minibatch)
    output = network(bound_weights(network, learner), batch["obs"], memory, batch["starts"], learning=True)
    log_prob = network.actions.distribution(output.logits, batch.get("legal")).log_prob(batch["action"])
    policy_mask = policy_steps(batch)
    is_clipped = (log_prob - batch["log_prob"]).expm1().abs() > clip
    return (is_clipped & policy_mask).sum() / policy_mask.sum().clamp(min=1)
