"""Sequences of a block, as they are dealt into minibatches: U steps of one agent, with its memory before the first."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.rollouts.block import Rollout

GatherSequences = Callable[[Mapping[str, Tensor], Int[Tensor, "b"]], tuple[dict[str, Tensor], Float[Tensor, "2 b M"]]]
"""Gives columns [U, b, ...] of some sequences, by their numbers, and the memory before them."""


def bind_sequences(rollout: Rollout, begun: Float[Tensor, "C 2 B M"], names: Sequence[str]) -> GatherSequences:
    """Bind the gathering of sequences from columns [T * B, ...] and `begun`."""
    unroll = len(rollout["obs"]) // len(begun)
    agents = begun.shape[2]
    home = rollout["obs"].device
    # Made on the CPU: on the meta device `arange` would import the compiler.
    steps = torch.arange(unroll, device="cpu").to(home).unsqueeze(1) * agents

    def deal(read: Mapping[str, Tensor], sequences: Int[Tensor, "b"]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the columns [U, b, ...] of these sequences, and the memory before each, on the device of `begun`."""
        memories = read["begun"]
        chunk, agent = sequences // agents, sequences % agents
        # The block may lie in host memory: rows are picked there, and the minibatch alone goes to the learner's device.
        rows = (chunk * (unroll * agents) + agent).to(home) + steps
        batch = {
            name: read[name]
            .index_select(0, rows.flatten())
            .view(*rows.shape, *read[name].shape[1:])
            .to(memories.device)
            for name in names
        }
        return batch, memories[chunk, :, agent].transpose(0, 1)

    return deal
