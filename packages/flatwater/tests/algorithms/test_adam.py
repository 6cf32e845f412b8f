"""The stacked AdamW against torch.optim's, member by member."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flatwater.algorithms.adam import Adam, bind_step, build_adam

CPU = torch.device("cpu")


def adam_of(members: int, size: int) -> Adam:
    return build_adam(members, size, torch.float64, CPU)


@given(
    clip=st.sampled_from([0.0, 0.3]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    scales=st.lists(st.sampled_from([0.0, 1e-6, 1.0, 1e6]), min_size=3, max_size=3),
    skipped=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 2))),
)
def test_each_member_steps_as_torch_optim_would_by_itself(
    clip: float, weight_decay: float, scales: list[float], skipped: set[tuple[int, int]]
) -> None:
    """With clipping by its own norm; a step whose gradient is not finite is one that was never asked for."""
    members, size, rates = 3, 7, {"lr": 1e-2, "weight_decay": weight_decay, "clip": clip}
    rng = torch.Generator().manual_seed(0)
    block, adam = torch.randn(members, size, generator=rng, dtype=torch.float64), adam_of(members, size)
    ones = [torch.nn.Parameter(row.clone()) for row in block]
    optimizers = [torch.optim.AdamW([one], lr=1e-2, weight_decay=weight_decay) for one in ones]
    step_ = bind_step(block, adam, **rates)

    for step in range(6):
        grad = torch.randn(members, size, generator=rng, dtype=torch.float64) * Tensor(scales).double().unsqueeze(1)
        for p, (one, optimizer) in enumerate(zip(ones, optimizers, strict=True)):
            if (step, p) in skipped:
                grad[p, step] = torch.inf
                continue
            one.grad = grad[p].clone()
            if clip:
                torch.nn.utils.clip_grad_norm_([one], clip)
            optimizer.step()
        adam.grad.copy_(grad)
        _, finite = step_()
        assert finite.tolist() == [(step, p) not in skipped for p in range(members)]

    torch.testing.assert_close(block, torch.stack([one.detach() for one in ones]), rtol=0, atol=1e-12)
