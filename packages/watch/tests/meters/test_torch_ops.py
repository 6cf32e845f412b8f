"""Seeing storages: none is missed, none is kept, and no number changes."""

import copy
import gc
import subprocess
import sys
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from flatwater_watch.meters.torch_ops import NewStorages, enter_mode_, leave_mode_, peak_bytes

FLOAT = 4


def names() -> NewStorages[str]:
    return NewStorages(lambda operation, _size: operation, lambda _record: None)


class Idle(TorchDispatchMode):
    """A mode of the program's own."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        return func(*args, **(kwargs or {}))


def test_what_deepcopy_clones_is_recorded_though_torch_copies_it_out_of_sight() -> None:
    tensor = torch.ones(10)
    with (mode := names()):
        cloned = copy.deepcopy(tensor)
    assert (mode.find_record(cloned), mode.find_record(tensor)) == ("aten::set_", None)


def test_a_storage_is_recorded_under_the_operation_that_made_it_and_forgotten_with_it() -> None:
    with (mode := names()):
        made = torch.ones(10) + 1
        view = made.view(2, 5).t()
        listed = torch.tensor([1.0, 2.0])
    assert mode.find_record(made) == "aten::add"
    assert mode.find_record(view) == "aten::add"
    assert mode.find_record(listed) == "aten::lift_fresh"
    assert len(mode.records) == 2, "the ones died"
    del made
    assert len(mode.records) == 2, "the view keeps its storage"
    del view, listed
    assert mode.records == {}


def test_what_is_older_is_not_taken_for_new() -> None:
    old = torch.ones(10)
    with (mode := names()):
        old.add_(1)
        old.view(2, 5)
        torch.add(old, 1, out=old)
        old.detach()
    assert mode.records == {}
    assert mode.find_record(old) is None


def test_nothing_is_kept_alive() -> None:
    mode = names()
    assert enter_mode_(mode)
    weight = torch.ones(4, 4, requires_grad=True)
    loss = (torch.ones(4) @ weight).sum()
    loss.backward()
    seen = [weakref.ref(tensor) for tensor in (weight, loss)]
    leave_mode_(mode)
    del weight, loss
    gc.collect()
    assert [ref() for ref in seen] == [None, None]
    assert mode.records == {}


def learn(optimizer: Callable[..., torch.optim.Optimizer], options: dict[str, bool]) -> list[Tensor]:
    """A few updates through everything that has a kernel of its own; parameters, gradients and moments."""
    generator = torch.Generator().manual_seed(5)
    net = nn.ModuleList(
        [
            nn.Conv1d(3, 8, 3, padding=1),
            nn.LSTM(8, 8, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
            nn.BatchNorm1d(8),
            nn.Linear(8, 1),
        ]
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    convolution, lstm, encoder, norm, head = net
    step = optimizer(net.parameters(), **options)
    for _ in range(3):
        x = torch.randn(4, 3, 6, generator=generator)
        hidden = checkpoint(encoder, lstm(convolution(x).transpose(1, 2))[0], use_reentrant=False)
        loss = head(norm(hidden.mean(1))).square().mean()
        step.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        step.step()
    with torch.no_grad():
        loss = loss + torch.func.vmap(torch.func.grad(lambda p: (p * p).sin().sum()))(torch.ones(3, 4)).sum()
    moments = [value for state in step.state.values() for value in state.values() if isinstance(value, Tensor)]
    gradients = [parameter.grad for parameter in net.parameters() if parameter.grad is not None]
    return [*net.parameters(), *gradients, *moments, loss]


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_no_number_changes(options: dict[str, bool]) -> None:
    alone = learn(torch.optim.Adam, options)
    with names():
        watched = learn(torch.optim.Adam, options)
    assert len(alone) == len(watched)
    assert all(torch.equal(a, b) for a, b in zip(alone, watched, strict=True))


def test_tensors_without_a_storage_pass() -> None:
    with names():
        sparse = torch.eye(3).to_sparse() * 2
    assert sparse.to_dense()[0, 0] == 2


def test_a_mode_of_the_program_is_respected() -> None:
    mode = names()
    with Idle():
        assert not enter_mode_(mode)
    assert enter_mode_(mode)
    with Idle() as own:
        leave_mode_(mode)
        assert _get_current_dispatch_mode_stack() == [own]
    assert _get_current_dispatch_mode_stack() == []


@pytest.mark.long
def test_entering_imports_no_compiler() -> None:
    program = """if True:
        import sys, torch
        from flatwater_watch.meters.torch_ops import peak_bytes
        before = set(sys.modules)
        assert peak_bytes(lambda: torch.ones(8) + 1) == 64
        assert not any(name.startswith("torch._dynamo") for name in set(sys.modules) - before)
        """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_peak_is_the_most_that_lived_at_one_time(device: str) -> None:
    def run() -> None:
        a = torch.ones(100, device=device)
        b = a + 1
        del a
        c = b * 2  # b and c, or a and b: two at a time
        c.view(10, 10)
        del b, c
        torch.ones(150, device=device)

    assert peak_bytes(run) == 2 * 100 * FLOAT


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_peak_of_a_backward_counts_what_the_graph_saves(device: str) -> None:
    """Through h = exp(x) twice, the graph saves both results; the gradients add one block at a time."""
    x = torch.ones(1000, device=device, requires_grad=True)

    def run() -> None:
        x.exp().exp().sum().backward()

    saved, scalars = 2 * 1000 * FLOAT, 2 * FLOAT
    assert saved + 1000 * FLOAT <= peak_bytes(run) <= saved + 2 * 1000 * FLOAT + scalars
