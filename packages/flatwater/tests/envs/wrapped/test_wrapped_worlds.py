"""Observations become tokens or vectors, agents that leave see padding, and what cannot be used is refused by name."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces as gym
from parting import Parting
from poisoned import begun, play, row_of

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.kinds import KindRows
from flatwater.envs.world import Spaces, Teacher, World, describe_spaces
from flatwater.envs.worlds import build_teacher, build_world
from flatwater.envs.wrapped.actions import make_action_spec
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.native_spaces import native_spaces
from flatwater.envs.wrapped.own_world import OwnTeacher
from flatwater.envs.wrapped.pettingzoo_world import PettingZooWorld
from flatwater.envs.wrapped.spaces import BESIDE_POSITION, make_reader
from flatwater_watch.errors import ConfigError, UserCodeError


def build(name: str, envs: int = 2, steps: int = 200) -> World:
    return build_world(name, envs=envs, foraging=ForagingConfig(), wrapped=WrappedConfig(steps=steps))


def write_observation(space: gym.Space[Any], observation: object) -> tuple[str, list[Any]]:
    reader = make_reader(space, "one")
    out = np.full(reader.shape, 77, np.float32 if reader.form == "vector" else np.uint8)
    reader.write(observation, out)
    return reader.form, out.tolist()


def test_a_minigrid_view_is_a_token_for_each_channel_of_each_pixel_and_one_for_the_direction() -> None:
    world = build("gymnasium:MiniGrid-Empty-5x5-v0")
    assert isinstance(world, GymnasiumWorld)
    obs = begun(world, [1, 2]).obs[1, 0]
    seen = world.copies[1].unwrapped.gen_obs()  # type: ignore[attr-defined]
    assert world.spaces.obs == (7 * 7 * 3 + 1, 3)
    for row, column, channel in np.ndindex(7, 7, 3):
        position = row * 7 + column
        token = obs[position * 3 + channel]
        assert token.tolist() == [position, channel, seen["image"][row, column, channel]]
    assert obs[-1].tolist() == [BESIDE_POSITION, 3, seen["direction"]]
    assert world.spaces.actions == ("left", "right", "forward", "pickup", "drop", "toggle", "done")


@pytest.mark.parametrize(
    ("space", "observation", "wanted"),
    [
        (gym.Box(0, 9, (2,), np.uint8), np.array([4, 5], np.uint8), ("vector", [4, 5])),
        (gym.Box(0, 9, (1, 2), np.uint8), np.array([[4, 5]], np.uint8), ("image", [[4, 5]])),
        (gym.Box(0, 9, (1, 1, 2), np.uint8), np.array([[[4, 5]]], np.uint8), ("image", [[[4, 5]]])),
        (gym.Box(0, 1, (2, 1)), np.array([[0.5], [1]], np.float32), ("vector", [0.5, 1])),
        (gym.Discrete(3, start=2), 3, ("vector", [0, 1, 0])),
        (
            gym.Dict({"a": gym.Discrete(2), "b": gym.Box(0, 1, (1,))}),
            {"a": 1, "b": np.array([0.5])},
            ("vector", [0, 1, 0.5]),
        ),
        (gym.MultiBinary(2), np.array([1, 0], np.int8), ("vector", [1, 0])),
    ],
)
def test_an_observation_is_written_as_its_space_says(
    space: gym.Space[Any], observation: object, wanted: tuple[str, list[Any]]
) -> None:
    assert write_observation(space, observation) == wanted


@pytest.mark.parametrize(
    ("space", "measures"),
    [
        (gym.Box(0, 1, (2, 1)), (0, 1)),
        (gym.Dict({"a": gym.Discrete(2), "b": gym.Box(0, 1, (1,)), "c": gym.Box(0, 1, (1,), np.int8)}), (2,)),
        (gym.Tuple([gym.Box(0, 1, (1,)), gym.Dict({"x": gym.MultiBinary(2), "y": gym.Box(0, 1, (2,))})]), (0, 3, 4)),
        (gym.MultiDiscrete([2, 3]), ()),
        (gym.Box(0, 255, (2,), np.uint8), ()),
    ],
)
def test_measured_are_the_floats_of_a_box(space: gym.Space[Any], measures: tuple[int, ...]) -> None:
    assert make_reader(space, "it", "vector").measures == measures


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (gym.Text(5), "Text"),
        (gym.Dict({"said": gym.Tuple([gym.Text(5)]), "seen": gym.Box(0, 1, (2,))}), "Text"),
        (gym.Sequence(gym.Discrete(2)), "Sequence"),
        (gym.Dict({"seen": gym.Box(0, 255, (9, 9), np.uint8), "so": gym.Sequence(gym.Discrete(2))}), "Sequence"),
    ],
)
def test_observations_that_cannot_be_used_are_refused_with_their_space(space: gym.Space[Any], told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_reader(space, "one")
    assert told in str(refused.value)
    assert "wrappers" in str(refused.value)


@pytest.mark.parametrize("space", [gym.Box(-np.inf, 1, (1,)), gym.Box(-1, 1, (2, 2)), gym.MultiBinary((2, 2))])
def test_actions_of_another_kind_are_refused_with_their_space(
    space: gym.Space[Any],
) -> None:
    with pytest.raises(ConfigError, match=r"actions.* (Box|MultiBinary)\(.*gymnasium\.wrappers\.TransformAction"):
        make_action_spec(space, None, "one")


def test_several_choices_are_given_as_the_space_has_them() -> None:
    for space in (gym.MultiDiscrete([2, 3], start=[5, -1]), gym.MultiBinary(2)):
        actions = make_action_spec(space, None, "one")
        assert actions.names == ("0", "1")
        (given,) = actions.to_env_actions(np.array([[1, 0]]))
        assert space.contains(given)
    assert make_action_spec(gym.MultiDiscrete([2, 3], start=[5, -1]), None, "one").choices == (2, 3)
    assert make_action_spec(gym.MultiBinary(2), None, "one").choices == (2, 2)


def test_continuous_actions_are_given_within_their_bounds() -> None:
    world = build("gymnasium:Pendulum-v1")
    assert world.spaces.bounds == ((-2.0, 2.0),)
    assert world.spaces.action_shape == (1,)
    given = make_action_spec(gym.Box(-2, 2, (1,)), None, "one").to_env_actions(np.array([[7.5]], np.float32))
    assert np.array(given).tolist() == [[2.0]]


@pytest.mark.parametrize("drawn", [7.5, -7.5, 1.6])
@pytest.mark.parametrize(
    "space",
    [gym.Box(-0.1, 0.1, (1,), np.float64), gym.Box(-0.1, 0.1, (1,), np.float16), gym.Box(0, 5, (1,), np.int64)],
)
def test_actions_are_members_of_their_box_in_training_and_in_use(space: gym.Box, drawn: float) -> None:
    """In training, a Box of doubles got float32's 0.1, which lies above its bound, and whole numbers got fractions."""
    numbers = np.array([[drawn]], np.float32)
    (in_training,) = make_action_spec(space, None, "one").to_env_actions(numbers)
    (in_use,) = native_spaces(gym.Discrete(2), space, "auto", "one").to_env(numbers)
    assert space.contains(in_training)
    assert space.contains(in_use)
    assert in_training.tolist() == in_use.tolist()


def rows(space: gym.Space[Any], form: str, observation: object) -> list[Any]:
    reader = make_reader(space, "one", form)  # type: ignore[arg-type]
    out = np.zeros(reader.shape, np.float32 if reader.form == "vector" else np.uint8)
    reader.write(observation, out)
    return [reader.form, *out.tolist()]


def test_three_bytes_a_row_are_read_as_is_said() -> None:
    space, seen = gym.Box(0, 255, (2, 3), np.uint8), np.array([[4, 1, 9], [255, 0, 0]], np.uint8)
    assert rows(space, "tokens", seen) == ["tokens", [4, 1, 9], [255, 0, 0]]
    assert rows(space, "vector", seen) == ["vector", 4, 1, 9, 255, 0, 0]
    assert rows(space, "image", seen) == ["image", [4, 1, 9], [255, 0, 0]]
    with pytest.raises(ConfigError, match=r'wrapped\.form = "tokens"'):
        make_reader(space, "one")
    for form, other in (("tokens", gym.Box(0, 255, (4,), np.uint8)), ("image", gym.Box(0, 1, (3,)))):
        with pytest.raises(ConfigError, match=f"{form}.*Box of uint8|Box of uint8.*{form}"):
            make_reader(other, "one", form)  # type: ignore[arg-type]


def test_an_image_is_tokens_where_that_is_said() -> None:
    image = np.array([[[4, 5]]], np.uint8)
    assert rows(gym.Box(0, 9, (1, 1, 2), np.uint8), "tokens", image) == ["tokens", [0, 0, 4], [0, 1, 5]]
    beside = gym.Dict(image=gym.Box(0, 9, (1, 2), np.uint8), way=gym.Discrete(3, start=1))
    seen = {"image": image[0], "way": 2}
    assert rows(beside, "tokens", seen) == ["tokens", [0, 0, 4], [1, 0, 5], [BESIDE_POSITION, 1, 1]]
    with pytest.raises(ConfigError, match=r"33600 pixels.*gymnasium\.wrappers"):
        make_reader(gym.Box(0, 255, (210, 160, 3), np.uint8), "one", "tokens")


def test_an_episode_that_ends_by_itself_is_terminated_and_one_that_is_long_truncated() -> None:
    world = build("gymnasium:CartPole-v1", steps=15)
    row = begun(world, [1, 2])
    ends = []
    for step in range(1, 16):
        actions = np.array([[1], [step % 2]])
        row = row_of(world)
        world.step_(actions, *row)
        ends.append((row.terminated[:, 0].tolist(), row.truncated[:, 0].tolist()))
        if row.terminated[0, 0]:
            world.begin_(np.array([True, False]), np.array([1, 0]), row.obs)
    assert [True, False] in [terminated for terminated, _ in ends]
    assert ends[-1][1][1]
    assert not any(truncated[1] for _, truncated in ends[:-1])


def test_an_agent_that_was_not_announced_is_refused() -> None:
    """It was left out, without a word: it was never asked for an action."""

    class Growing(Parting):
        def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
            seen, *others = super().step(actions)
            return {**seen, "stranger": next(iter(seen.values()))}, *others

    world = PettingZooWorld(Growing, "growing", WrappedConfig(), 1)
    obs, reward = np.zeros((1, 3, *world.spaces.obs), world.spaces.obs_type), np.zeros((1, 3), np.float32)
    world.begin_(np.ones(1, np.bool_), np.zeros(1, np.int64), obs)
    ends = np.zeros((2, 1, 3), np.bool_)
    with pytest.raises(UserCodeError, match=r"'stranger' is not in possible_agents, \['a', 'b', 'c'\]"):
        world.step_(np.zeros((1, 3), np.int64), obs, reward, *ends)


def test_an_agent_that_left_sees_padding_is_paid_nothing_and_stays_over() -> None:
    world = build("pettingzoo:parting", envs=4)
    assert isinstance(world, PettingZooWorld)
    rows = play(world, begun(world, [1, 2, 3, 4]), 6, lambda _, actions: actions.fill(2))
    for env, agent in np.ndindex(4, 3):
        gone = [bool((row.terminated | row.truncated)[env, agent]) for row in rows]
        left = gone.index(True)
        assert gone == [False] * left + [True] * (6 - left)
        assert left + 1 in {3, 4, 6}
        assert all(bool(row.terminated[env, agent]) == (left + 1 == 3) for row in rows[left:])
        assert [float(row.reward[env, agent]) for row in rows] == [7.0] * (left + 1) + [0.0] * (5 - left)
        assert [bool((row.obs[env, agent] == 0).all()) for row in rows] == [False] * (left + 1) + [True] * (5 - left)


class Masking(Parting):
    """Each agent is told which actions are legal: all but one, by its place and the step."""

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        return *super().step(actions)[:4], self.infos()

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return super().reset(seed)[0], self.infos()

    def infos(self) -> dict[str, Any]:
        return {each: {"action_mask": self.mask(self.possible_agents.index(each))} for each in self.agents}

    def mask(self, agent: int) -> Any:
        return (np.arange(3) != (agent + self._step) % 3).astype(np.int8)


def test_masks_of_agents_are_written_and_those_that_left_may_do_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("masking")
    monkeypatch.setattr(module, "parallel_env", Masking, raising=False)
    monkeypatch.setitem(sys.modules, "masking", module)
    world: Any = build("pettingzoo:masking", envs=2)
    assert (world.spaces.masked, world.spaces.legal) == (True, 3)
    obs, legal = np.zeros((2, 3, *world.spaces.obs), np.uint8), np.zeros((2, 3, 3), np.bool_)
    outcome = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.bool_), np.zeros((2, 3), np.bool_)
    world.begin_(np.array([False, True]), np.array([0, 1]), obs, legal)
    assert not legal[0].any(), "a row of another environment"
    world.begin_(np.array([True, False]), np.array([0, 1]), obs, legal)
    for step in range(6):
        over = outcome[1] | outcome[2]
        wanted = [[np.arange(3) != (agent + step) % 3 for agent in range(3)]] * 2
        assert (legal == (over[..., None] | np.array(wanted))).all()
        teacher = build_teacher("random", world, torch.Generator().manual_seed(step))
        actions = np.zeros((2, 3), np.int64)
        teacher.step_batch(obs, actions, legal)  # type: ignore[call-arg]
        assert np.take_along_axis(legal, actions[..., None], -1).all()
        world.step_(actions, obs, *outcome, legal)
    assert over.any()
    assert describe_spaces(world.spaces).endswith("with masks")


def test_agents_of_different_spaces_are_kinds_side_by_side() -> None:
    world, env = build("pettingzoo:mpe2.simple_tag_v3"), import_module("mpe2.simple_tag_v3").parallel_env()
    spaces, seen = world.spaces, env.reset(seed=3)[0]
    assert [(kind.name, kind.places) for kind in spaces.kinds] == [("adversary", (0, 1, 2)), ("agent", (3,))]
    assert "adversary (3 agents, vectors of 16, 5 actions" in describe_spaces(spaces)
    obs = np.full((spaces.envs, spaces.agents, *spaces.obs), np.nan, np.float32)
    world.begin_(np.ones(spaces.envs, np.bool_), np.full(spaces.envs, 3), obs)
    assert np.isfinite(obs).all(), "zeros are behind what is narrower"
    for kind in spaces.kinds:
        own = KindRows(kind, spaces).read_obs(obs)
        assert all(np.array_equal(own[0, place], seen[agent]) for place, agent in enumerate(kind.agents))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mettagrid", "forage, an ID of Gymnasium"),
        ("gymnasium:", "forage, an ID of Gymnasium"),
        ("cartpole", '"CartPole-v1"'),
        ("gymnasium::Nowhere", ":Nowhere: ''"),
        ("gymnasium:..a:Nowhere", r"\.\.a:Nowhere: '\.\.a'"),
        ("pettingzoo:..a", r"pettingzoo:\.\.a.*'\.\.a'"),
        ("forage:12", "forage, an ID of Gymnasium"),
        ("gymnasium:Nope-v0", "no environment has this name"),
        (
            "gymnasium:no_such_package:Nope-v0",
            "no_such_package:Nope-v0 needs no_such_package, .*: pip install no_such_package",
        ),
        ("pettingzoo:no_such_module", "pettingzoo:no_such_module.*No module named"),
        ("pettingzoo:json", "pettingzoo:json: .*parallel_env"),
    ],
)
def test_a_world_that_is_not_there_is_refused_by_name(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(name)


class Still:
    """A teacher of someone else's."""

    def __init__(self, world: World) -> None:
        self.world = world

    def begin_(self, which: object) -> None: ...

    def step_batch(self, obs: object, actions_out: object) -> None: ...


class NoTeacher:
    """Something else that takes a world."""

    def __init__(self, world: World) -> None: ...

    def begin_(self, which: object) -> None: ...


class Demanding(Still):
    """A teacher that takes more than a world."""

    def __init__(self, world: World, patience: int) -> None: ...


def teacher(name: str, world: World) -> Teacher:
    return build_teacher(name, world, torch.Generator())


def test_a_teacher_of_ones_own_is_built_with_the_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parting.Still", Still, raising=False)
    world = build("gymnasium:CartPole-v1")
    found = teacher("parting:Still", world)
    assert isinstance(found, OwnTeacher)
    assert isinstance(found.inner, Still)
    assert found.inner.world is world


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("wise", r"teacher = 'wise': .* search, babyai, random, or package\.module:Class"),
        ("search", "`search`.*`forage`"),
        ("babyai", "`babyai`.*such as BabyAI-"),
        ("no_such_module:Wise", "teacher = 'no_such_module:Wise': .*No module named"),
        ("parting:Wise", "teacher = 'parting:Wise': .*has no attribute"),
        ("parting:NoTeacher", "teacher = 'parting:NoTeacher': .*begin_ and step_batch"),
        ("os:sep", "teacher = 'os:sep': .*a class"),
        (
            "parting:Demanding",
            "teacher = 'parting:Demanding': .*missing a required argument: 'patience'",
        ),
        (":Wise", "teacher = ':Wise': .*''"),
        ("..wise:Wise", r"teacher = '\.\.wise:Wise': .*'\.\.wise'"),
    ],
)
def test_a_teacher_that_is_not_there_or_does_not_fit_is_refused(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for planted in (NoTeacher, Demanding):
        monkeypatch.setattr(f"parting.{planted.__name__}", planted, raising=False)
    world = build("gymnasium:MiniGrid-Empty-5x5-v0")
    with pytest.raises(ConfigError, match=told):
        teacher(name, world)


def test_episodes_without_steps_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"wrapped\.steps = -1: .*0 to"):
        WrappedConfig(steps=-1)


def test_a_copy_is_closed_with_its_world() -> None:
    world = build("gymnasium:Acrobot-v1", envs=1)
    assert isinstance(world, GymnasiumWorld)
    closed = []
    world.copies[0] = _Closing(world.copies[0], closed)
    world.close()
    assert closed == [True]


class _Closing(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: gymnasium.Env[Any, Any], closed: list[bool]) -> None:
        super().__init__(env)
        self.closed = closed

    def close(self) -> None:
        self.closed.append(True)


def test_numbers_have_no_masks() -> None:
    with pytest.raises(ConfigError, match=r"masked = True: .*false"):
        Spaces(1, 1, "vector", (1,), ("push",), 5, ((0.0, 1.0),), masked=True)


@pytest.mark.parametrize(
    ("form", "measures"), [("vector", (2,)), ("vector", (0, 0)), ("vector", (-1,)), ("tokens", (0,))]
)
def test_measures_are_numbers_of_a_vector(form: Literal["vector", "tokens"], measures: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"measures = .*: .*positions .*[02] "):
        Spaces(1, 1, form, (2,) if form == "vector" else (2, 3), ("a", "b"), 5, measures=measures)
