"""The limit on steps: each agent that is left is truncated in the last step of its episode, and in no other."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater.envs.wrapped.step_limit import StepLimit


@settings(max_examples=30)
@given(limit=st.integers(1, 6), seed=st.integers(0, 99))
def test_who_is_left_is_truncated_at_the_limit(limit: int, seed: int) -> None:
    """Copies end on their own now and then, and some are not begun again where they have ended."""
    draws, envs = np.random.default_rng(seed), 3
    counter, taken = StepLimit(envs, limit), np.zeros(envs, np.int64)
    counter.begin_(np.ones(envs, np.bool_), np.arange(envs))
    for _ in range(30):
        terminated, truncated = draws.random((envs, 2)) < 0.1, np.zeros((envs, 2), np.bool_)
        counter.truncate_(terminated, truncated)
        taken += 1
        assert np.array_equal(truncated, ~terminated & (taken >= limit)[:, None])
        begins = (terminated | truncated).all(1) & (draws.random(envs) < 0.8)
        counter.begin_(begins, np.arange(envs))
        taken[begins] = 0
        assert f"in step {taken[1] + 1} of" in counter.place(1, "step")
