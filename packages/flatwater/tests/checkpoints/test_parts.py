# ruff: noqa: NPY002, TID251  (loops that draw from the global generators are the subject)
"""Checkpoints of other people's loops: what is restored is what was saved, to the bit, or it is refused in words."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import flatwater as fw
from flatwater.checkpoints.manifest import encode_manifest, read_manifest
from flatwater.checkpoints.parts import flatten_state, unflatten_state
from flatwater_watch.errors import CheckpointError, ConfigError

EXAMPLE = Path(__file__).parents[4] / "examples" / "flatwater" / "resumable_ppo.py"
PROGRAM = Path(__file__).with_name("killed_loop.py")

numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
arrays = st.lists(st.floats(width=32), max_size=4).map(lambda values: np.array(values, np.float32))
leaves = numbers | arrays | arrays.map(torch.from_numpy) | st.floats(width=32).map(np.float32)
keys = st.text("abc", min_size=1, max_size=3) | st.integers(-3, 300)  # 1 and "1" would have the same path
states = st.recursive(
    leaves,
    lambda below: st.dictionaries(keys, below, max_size=3) | st.lists(below, max_size=3) | st.tuples(below, below),
    max_leaves=12,
)


def text(value: Any) -> str:
    """All of a nested value, types included."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {text(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list | tuple):
        return type(value).__name__ + "(" + ", ".join(map(text, value)) + ")"
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{type(value).__name__} {value.dtype} {value.tolist()}"
    return f"{type(value).__name__} {value!r}"


@given(states)
def test_whatever_is_taken_apart_is_put_together_again(state: Any) -> None:
    parts, form = flatten_state(state, "part")
    assert text(unflatten_state(json.loads(json.dumps(form)), parts, "part")) == text(state)


class Loop:
    """A small supervised loop with everything that such a loop may keep."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.draws, self.seen = np.random.default_rng(3), torch.zeros(5, 3)
        self.own = torch.Generator().manual_seed(1)
        space = gymnasium.spaces.Box(-1, 1, (3,))
        self.ring = fw.ring.build_ring(
            fw.ReplayConfig(capacity=20, warmup=1), space, space, envs=5, device=torch.device("cpu")
        )
        fw.ring.start_(self.ring, torch.arange(5), self.seen)
        self.parts: dict[str, Any] = {
            name: getattr(self, name) for name in ("net", "optimizer", "schedule", "draws", "seen", "own", "ring")
        } | {"losses": [0.0] * 4, "episodes": 0}

    def step(self) -> None:
        """Every kind of draw is used: the global ones too."""
        no = torch.zeros(5, dtype=torch.bool)
        self.seen.copy_(torch.from_numpy(self.draws.normal(size=(5, 3)).astype(np.float32)))
        self.seen += torch.randn(5, 3, generator=self.own) + torch.randn(5, 3) + random.random() + np.random.rand()
        fw.ring.append_(
            self.ring, action=self.seen, reward=self.seen[:, 0], terminated=no, truncated=no, next_obs=self.seen
        )
        loss = (self.net(self.seen) - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.parts["losses"][self.parts["episodes"] % 4] = loss.item()
        self.parts["episodes"] += 1

    def __str__(self) -> str:
        states = {name: getattr(self, name).state_dict() for name in ("net", "optimizer", "schedule")}
        kept = {name: self.parts[name] for name in ("seen", "losses", "episodes")}
        return text(states | kept | {"ring": [self.ring.observation, self.ring.reward, self.ring.head]})


@pytest.fixture(autouse=True)
def _global_draws() -> Any:
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(0)
    np.random.seed(0)
    torch.set_rng_state(torch.Generator().manual_seed(0).get_state())
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])
    torch.set_rng_state(before[2])


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_loop_that_was_restored_ends_where_the_other_one_does(at: int, tmp_path: Path) -> None:
    whole = Loop()
    for step in range(6):
        if step == at:
            fw.save_checkpoint(tmp_path, whole.parts, step)
        whole.step()
    other = Loop()
    for _ in range(2):  # what it is at before does not matter
        other.step()
    places = other.seen.data_ptr(), other.ring.reward.data_ptr()
    assert fw.restore_checkpoint(tmp_path, other.parts) == at
    for _ in range(at, 6):
        other.step()
    assert str(other) == str(whole)
    assert (other.seen.data_ptr(), other.ring.reward.data_ptr()) == places


def test_where_there_is_no_checkpoint_the_loop_begins(tmp_path: Path) -> None:
    assert fw.restore_checkpoint(tmp_path / "none", {"seen": torch.zeros(1)}) == 0


def test_older_checkpoints_go_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    parts = {"seen": torch.zeros(3)}
    for step in range(1, 6):
        parts["seen"].fill_(step)
        fw.save_checkpoint(tmp_path, parts, step, keep=2)
    assert [file.name[:6] for file in sorted(tmp_path.glob("*.json"))] == ["000004", "000005"]
    (tmp_path / "000005.000000.json").write_text("{}")
    with pytest.warns(UserWarning, match=r"00000[45]\.000000\.json"):
        assert fw.restore_checkpoint(tmp_path, parts) == 4
    assert parts["seen"].tolist() == [4, 4, 4]


def test_other_parts_are_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    fw.save_checkpoint(tmp_path, {"net": nn.Linear(2, 2), "obs": torch.ones(3)}, 7)
    obs = torch.zeros(3)
    with pytest.raises(CheckpointError, match=r"net: in the checkpoint.*\n  seen: given"):
        fw.restore_checkpoint(tmp_path, {"obs": obs, "seen": 1})
    with pytest.raises(CheckpointError, match=r"net: .*state_dict\(\)"):
        fw.restore_checkpoint(tmp_path, {"net": torch.zeros(2), "obs": obs})
    with pytest.raises(CheckpointError, match=r"obs: tensor float32 \[3\] in the checkpoint"):
        fw.restore_checkpoint(tmp_path, {"net": nn.Linear(2, 2), "obs": torch.zeros(4)})
    assert obs.tolist() == [0, 0, 0]


def test_two_keys_of_one_path_are_refused() -> None:
    with pytest.raises(TypeError, match=r"part\.1: two"):
        flatten_state({1: 2, "1": 3}, "part")


def test_what_cannot_be_saved_exactly_is_named(tmp_path: Path) -> None:
    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"inner": {"call": print}}

        def load_state_dict(self, state: object) -> None:
            raise AssertionError(state)

    with pytest.raises(TypeError, match=r"odd\.inner\.call: .*builtin_function_or_method"):
        fw.save_checkpoint(tmp_path, {"odd": Odd()}, 1)
    with pytest.raises(TypeError, match=r"env: .*state tree"):
        fw.save_checkpoint(tmp_path, {"env": gymnasium.make("CartPole-v1")}, 1)
    with pytest.raises(ConfigError, match="step = -1"):
        fw.save_checkpoint(tmp_path, {}, -1)
    assert fw.restore_checkpoint(tmp_path, {}) == 0


@pytest.mark.parametrize("form", ["x", {"dict": [["a", "b"]]}, {"dict": 3}, {"set": ["0"]}, [], {"number": "0"}])
def test_a_forged_form_is_refused(form: Any, tmp_path: Path) -> None:
    fw.save_checkpoint(tmp_path, {"net": nn.Linear(2, 2)}, 1)
    file = tmp_path / "000001.000000.json"
    manifest = read_manifest(file)
    assert isinstance(manifest.facts["parts"], dict)
    manifest.facts["parts"]["net"] = form
    file.write_bytes(encode_manifest(manifest))
    with pytest.raises(CheckpointError, match=r"net: .*how its state is put together"):
        fw.restore_checkpoint(tmp_path, {"net": nn.Linear(2, 2)})


@pytest.mark.long
def test_a_run_is_not_resumed_by_this(tmp_path: Path) -> None:
    fw.train("ppo", run=tmp_path / "run", rounds=1, envs=2, block=16, evaluation={"envs": 2}, threads=1, quiet=True)
    with pytest.raises(CheckpointError, match=r"save_checkpoint.*flatwater resume"):
        fw.restore_checkpoint(tmp_path / "run" / "checkpoints", {})


def normal(env: str) -> Any:
    """In wrappers that keep something over episodes, and one that holds what they made of it."""
    inner = gymnasium.wrappers.NormalizeReward(gymnasium.wrappers.NormalizeObservation(gymnasium.make(env)))
    return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.wrappers.FrameStackObservation(inner, 3))


@pytest.mark.parametrize(
    ("env", "make"),
    [
        ("CartPole-v1", gymnasium.make),
        ("Pendulum-v1", gymnasium.make),
        ("FrozenLake-v1", gymnasium.make),
        ("CartPole-v1", normal),
    ],
)
@pytest.mark.parametrize("steps", [0, 5, 41])
def test_an_environment_goes_on_where_it_was(env: str, make: Any, steps: int, tmp_path: Path) -> None:
    def play(env: Any, steps: int, actions: Any) -> list[str]:
        seen = []
        for _ in range(steps):
            now, reward, terminated, truncated, _ = env.step(actions.sample())
            seen.append(f"{now} {reward}")
            if terminated or truncated:
                seen.append(str(env.reset()[0]))
        return seen

    first, second = (fw.Resumable(make(env), seed=3) for _ in range(2))
    first.action_space.seed(1)
    first.reset()
    play(first, steps, first.action_space)
    fw.save_checkpoint(tmp_path, {"env": first}, 1)
    first.action_space.seed(2)
    after = play(first, 60, first.action_space)
    assert fw.restore_checkpoint(tmp_path, {"env": second}) == 1
    second.action_space.seed(2)
    assert play(second, 60, second.action_space) == after


def test_an_environment_that_does_not_repeat_itself_is_told(tmp_path: Path) -> None:
    class Dice(gymnasium.Env[Any, Any]):
        observation_space = action_space = gymnasium.spaces.Discrete(1000)

        def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
            return random.randrange(1000), {}

        def step(self, _: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            return random.randrange(1000), 0.0, False, False, {}

    env = fw.Resumable(Dice())
    env.reset()
    fw.save_checkpoint(tmp_path, {"env": env}, 1)
    random.seed(99)
    with pytest.raises(CheckpointError, match="does not come to "):
        fw.restore_checkpoint(tmp_path, {"env": env})
    with pytest.raises(ValueError, match="options = "):
        env.reset(options={"at": 3})


@pytest.mark.slow
def test_a_loop_killed_at_any_moment_ends_with_the_same_weights(tmp_path: Path) -> None:
    """The example: killed three times, at moments that are not chosen."""
    command = [sys.executable, str(PROGRAM), str(EXAMPLE), str(tmp_path)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    whole, killed = json.loads(ended.stdout)
    assert not killed[0].startswith("update   1 ")
    assert killed[-1] == whole[-1]
