"""Sequences of a block, of which minibatches are made: U steps of one agent, with its memory before the first step."""

from collections.abc import Callable, Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from flatwater.rollouts.block import Rollout

GatherSequences = Callable[[Mapping[str, Tensor], Int[Tensor, "b"]], tuple[dict[str, Tensor], Float[Tensor, "2 b M"]]]
"""Returns the columns [U, b, ...] of b sequences, given by their numbers, and the memory before them."""
INITIAL_MEMORY = "initial_memory"
"""Key of the memory before each sequence, [C, 2, B, M], among the tensors that sequences are gathered from."""


def bind_sequences(rollout: Rollout, initial_memory: Float[Tensor, "C 2 B M"], names: Sequence[str]) -> GatherSequences:
    """Return a function that gathers sequences from columns [T * B, ...] and the initial memory, both by name.

    Args:
        rollout: the block, whose sizes and device are read here.
        initial_memory: memory before each of the block's sequences; its sizes are read here.
        names: columns to gather.
    """
    unroll = len(rollout["obs"]) // len(initial_memory)
    agents = initial_memory.shape[2]
    block_device = rollout["obs"].device
    # Made on the CPU: on the meta device `arange` would import the compiler.
    step_rows = torch.arange(unroll, device="cpu").to(block_device).unsqueeze(1) * agents

    def gather(tensors: Mapping[str, Tensor], sequences: Int[Tensor, "b"]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the columns [U, b, ...] of these sequences, and the memory [2, b, M] before each of them."""
        memory = tensors[INITIAL_MEMORY]
        chunk, agent = sequences // agents, sequences % agents
        # The row of step t and agent b is t * agents + b. The block may lie in host memory: rows are picked there, and
        # the minibatch alone goes to the learner's device.
        rows = (chunk * (unroll * agents) + agent).to(block_device) + step_rows
        batch = {}
        for name in names:
            picked_rows = tensors[name].index_select(0, rows.flatten())
            batch[name] = picked_rows.view(*rows.shape, *picked_rows.shape[1:]).to(memory.device)
        return batch, memory[chunk, :, agent].transpose(0, 1)

    return gather
