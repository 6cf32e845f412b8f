"""Allocation of tensors whose memory is taken at once."""

import torch
from torch import Tensor


def filled_tensor(value: float, *shape: int, dtype: torch.dtype = torch.float32, device: torch.device) -> Tensor:
    """Return a tensor with `value` everywhere; on the meta device this is the plan.

    Its pages are written here. Those of `torch.zeros` are only mapped when first written, long after the plan was
    checked, and resident memory would creep.
    """
    return torch.empty(shape, dtype=dtype, device=device).fill_(value)
