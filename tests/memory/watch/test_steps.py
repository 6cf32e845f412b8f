"""Wrapped environments are called as before, are counted once, and may be pickled into other processes."""

import inspect
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import pytest

from flatwater.memory.watch.steps import find_steps, lose_steps

Counted = Counter[str]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    kinds: Counted = Counter()
    find_steps(lambda kind: kinds.update([kind]))
    yield kinds
    lose_steps()


class OneAction(gymnasium.Env[Any, Any]):
    """Takes what most environments take."""

    def step(self, act: Any) -> Any:
        return act, 0.0, False, False, {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return seed, {"options": options}


class Below(OneAction):
    """Calls the method that it hides, and takes more."""

    def step(self, act: Any, *more: Any, scale: int = 1) -> Any:
        return super().step((act, more, scale))


def test_a_step_takes_its_argument_by_position_and_by_its_own_name(counted: Counted) -> None:
    env = OneAction()
    assert env.step(3)[0] == env.step(act=3)[0] == 3
    assert counted == {"step": 2}
    assert list(inspect.signature(OneAction.step).parameters) == ["self", "act"]
    with pytest.raises(TypeError, match=r"step\(\) got an unexpected keyword argument 'action'"):
        env.step(action=3)


def test_a_step_that_takes_more_gets_it_and_counts_once(counted: Counted) -> None:
    assert Below().step(3, 4, scale=5)[0] == (3, (4,), 5)
    assert counted == {"step": 1}


def test_a_reset_gets_what_it_is_given_by_name(counted: Counted) -> None:
    assert OneAction().reset(seed=7, options={"a": 1}) == (7, {"options": {"a": 1}})
    assert counted == {"episode": 1}


def test_a_wrapped_class_is_pickled_without_the_one_who_counts(counted: Counted, tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        pickled = tmp_path / "env.pkl"
        pickled.write_bytes(cloudpickle.dumps(OneAction()))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    script = f"import pickle, pathlib; print(pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes()).step(3)[0])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "3\n"
    assert not counted
    assert pickle.loads(pickled.read_bytes()).step(4)[0] == 4
    assert counted == {"step": 1}
