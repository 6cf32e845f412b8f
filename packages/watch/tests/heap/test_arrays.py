"""What an autograd graph keeps for its backward."""

import torch

from flatwater_watch.heap.arrays import saved_tensors


def test_what_a_graph_saves_is_found() -> None:
    x = torch.ones(50, requires_grad=True)
    hidden = x.exp()
    loss = (hidden * hidden).sum()
    storages = {tensor.untyped_storage().data_ptr() for tensor in saved_tensors(loss)}
    assert hidden.untyped_storage().data_ptr() in storages
    loss.backward()
    assert list(saved_tensors(loss)) == []
