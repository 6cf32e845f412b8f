"""Wrapped environments are called as before, are counted once, and may be pickled into other processes."""

import functools
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

from flatwater_watch.agent.call_counters import set_listener
from flatwater_watch.agent.step_hooks import hook_steps

Counted = Counter[str]


@pytest.fixture
def step_counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    kinds: Counted = Counter()
    hook_steps(lambda kind: kinds.update([kind]))
    yield kinds
    set_listener(None)


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


def test_a_step_takes_its_argument_by_position_and_by_its_own_name(step_counts: Counted) -> None:
    env = OneAction()
    assert env.step(3)[0] == env.step(act=3)[0] == 3
    assert step_counts == {"step": 2}
    assert list(inspect.signature(OneAction.step).parameters) == ["self", "act"]
    with pytest.raises(TypeError, match=r"step\(\) got an unexpected keyword argument 'action'"):
        env.step(action=3)


def test_a_step_that_takes_more_gets_it_and_counts_once(step_counts: Counted) -> None:
    assert Below().step(3, 4, scale=5)[0] == (3, (4,), 5)
    assert step_counts == {"step": 1}


def test_a_class_that_comes_later_and_calls_what_it_hides_counts_once(step_counts: Counted) -> None:
    """Until then the hidden method need not look whose it is."""

    class Above(gymnasium.Env[Any, Any]):
        def step(self, action: Any) -> Any:
            return action, 0.0, False, False, {}

    class Between(Above):
        pass

    above = Above()
    above.step(1)

    class Under(Between):
        def step(self, action: Any) -> Any:
            return super().step(action + 1)

    assert Under().step(1)[0] == 2
    assert Between().step(1)[0] == above.step(1)[0] == 1
    assert step_counts == {"step": 4}


def test_a_method_that_took_over_the_name_of_a_counted_one_counts_too(step_counts: Counted) -> None:
    class Decorated(OneAction):
        @functools.wraps(OneAction.step)
        def step(self, act: Any) -> Any:
            return OneAction.step(self, -act)

    assert Decorated().step(3)[0] == -3
    assert step_counts == {"step": 1}


def test_what_is_granted_is_counted_where_it_is_passed(step_counts: Counted) -> None:
    counter = hook_steps(lambda kind: step_counts.update([kind]))["step"]
    env = OneAction()
    counter.skip_next_(2)
    for _ in range(3):
        env.step(0)
    assert (counter.skip_next_(0), step_counts["step"]) == (2, 1)


def test_a_reset_gets_what_it_is_given_by_name(step_counts: Counted) -> None:
    assert OneAction().reset(seed=7, options={"a": 1}) == (7, {"options": {"a": 1}})
    assert step_counts == {"episode": 1}


def test_a_wrapped_class_is_pickled_without_the_one_who_counts(
    step_counts: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("step", "reset"):  # cloudpickle gives copies of them to the class of this process as well
        monkeypatch.setattr(OneAction, name, vars(OneAction)[name])
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        pickled = tmp_path / "env.pkl"
        pickled.write_bytes(cloudpickle.dumps(OneAction()))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    script = f"import pickle, pathlib; print(pickle.loads(pathlib.Path({str(pickled)!r}).read_bytes()).step(3)[0])"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "3\n"
    assert not step_counts
    assert pickle.loads(pickled.read_bytes()).step(4)[0] == 4
    assert step_counts == {"step": 1}
