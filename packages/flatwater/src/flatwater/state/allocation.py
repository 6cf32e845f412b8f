"""Allocation of tensors whose memory is taken at once."""

import torch
from torch import Tensor


def filled_tensor(value: float, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> Tensor:
    """Return a tensor with `value` everywhere; on the meta device it has a size and no memory.

    Its pages are resident at once. Those of `torch.zeros` become resident when they are first written, so resident
    memory would grow long after the plan was checked.
    """
    return torch.empty(shape, dtype=dtype, device=device).fill_(value)
