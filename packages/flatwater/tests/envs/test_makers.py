"""An environment is the same world in whatever form it is brought; what cannot be used says what to bring instead."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from brought import Boat, Fleet, Late, doubled, make_boat
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation

from flatwater.config.arguments import read_arguments, write_arguments
from flatwater.config.mappings import from_mapping
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.makers import hand_over_env, name_object
from flatwater.envs.world import World
from flatwater.envs.worlds import build_world
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater_watch.errors import ConfigError, FlatwaterError

ENVS = 3


def build(env: object, *arguments: str, envs: int = ENVS, steps: int = 0) -> World:
    name = env if isinstance(env, str) else name_object(env)
    wrapped = WrappedConfig(steps=steps)
    with hand_over_env(None if isinstance(env, str) else env):
        return build_world(name, envs=envs, foraging=ForagingConfig(), wrapped=wrapped, arguments=arguments)


def play(world: Any, steps: int = 40) -> list[Any]:
    """Everything that a world shows in some steps of fixed actions, with seeds by the number of the episode."""
    rng, seeds = np.random.default_rng(0), np.arange(ENVS, dtype=np.int64)
    obs, reward = np.zeros((ENVS, 1, *world.spaces.obs), np.float32), np.zeros((ENVS, 1), np.float32)
    over = np.zeros((2, ENVS, 1), np.bool_)
    world.begin_(np.ones(ENVS, np.bool_), seeds, obs)
    shown = [obs.tolist()]
    for _ in range(steps):
        world.step_(rng.integers(2, size=(ENVS, 1)), obs, reward, *over)
        shown += [obs.tolist(), reward.tolist(), over.tolist()]
        ended = over.any(0)[:, 0]
        seeds += ENVS
        if ended.any():
            world.begin_(ended, seeds, obs)
            shown.append(obs.tolist())
    world.close()
    return shown


class Counts(Boat):
    """Its infos say how far it came; `strands` of the last step alone, and `parts` within another info."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        last = {"strands": terminated} if terminated or truncated else {}
        return obs, reward, terminated, truncated, {"steps": self.steps, "parts": {"drift": self.drift}, **last}


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_vector_environment_tells_of_each_environment_what_it_tells_alone(mode: str) -> None:
    alone: Any = build(Counts)
    together: Any = build(lambda num_envs: SyncVectorEnv([Counts] * num_envs, autoreset_mode=mode))
    told: list[Any] = []
    for world in (alone, together):
        obs, reward = np.zeros((ENVS, 1, 2), np.float32), np.zeros((ENVS, 1), np.float32)
        over = np.zeros((2, ENVS, 1), np.bool_)
        world.begin_(np.ones(ENVS, np.bool_), np.arange(ENVS), obs)
        told.append([])
        while not over.any():
            world.step_(np.zeros((ENVS, 1), np.int64), obs, reward, *over)
            told[-1].append([dict(info) for info in world.infos])
    assert told[1] == told[0]
    ended = over.any(0)[:, 0].tolist()
    assert [info.keys() == {"steps", "parts", "strands"} for info in told[1][-1]] == ended
    assert not all(ended)


class Silent(Fleet):
    """Its infos have nothing of the episodes that are over."""

    def step(self, actions: Any) -> Any:
        return *super().step(actions)[:4], {}


def test_a_last_observation_that_is_missing_is_said() -> None:
    """The first observation of the next episode was taken for it, and critics bootstrapped from that."""
    with pytest.raises(FlatwaterError, match=r"Silent\.step.*no 'final_obs'.*SAME_STEP"):
        play(build(Silent))


def vectors(mode: str) -> Callable[[int], Any]:
    return lambda num_envs: SyncVectorEnv([Boat] * num_envs, autoreset_mode=mode)


FORMS: dict[str, object] = {
    "function by name": "brought:make_boat",
    "function of a number, by name": "brought:boats",
    "class": Boat,
    "function": make_boat,
    "lambda": lambda: Boat(0.3),
    "partial": partial(Boat, push=0.3),
    "instance": Boat(),
    "vector env": SyncVectorEnv([Boat] * ENVS),
    "vector envs that reset in the same step": vectors("SameStep"),
    "vector envs that never reset": vectors("Disabled"),
    "vector envs in processes": lambda num_envs: AsyncVectorEnv([Boat] * num_envs),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_environment_is_the_same_world_in_every_form(form: str) -> None:
    assert play(build(FORMS[form])) == play(build("brought:Boat"))


def test_arguments_reach_a_class_a_function_and_an_id() -> None:
    by_class = play(build("brought:Boat", "push=0.7"))
    assert by_class == play(build("brought:make_boat", "push=0.7")) == play(build("brought:boats", "push=0.7"))
    assert by_class == play(build(lambda: Boat(0.7))) != play(build("brought:Boat"))
    lake: Any = build("FrozenLake-v1", "map_name=8x8", "is_slippery=false")
    assert lake.spaces.obs == (64,)


def test_a_class_and_a_function_have_names_and_other_objects_have_none() -> None:
    assert name_object(Boat) == "brought:Boat"
    assert name_object(make_boat) == "brought:make_boat"
    assert name_object(Boat()) == "object:Boat"
    assert name_object(lambda: Boat(0.5)) == "object:<lambda>"


@pytest.mark.parametrize(
    "value", [1, 0.5, -1e-3, True, None, "8x8", "true", "it's", [1, "a"], {"a": (1, 2)}, {1, 2}, b"x"]
)
def test_an_argument_comes_back_as_it_was_given(value: object) -> None:
    texts = write_arguments({"given": value}, "env_kwargs")
    assert read_arguments(texts, "env_args") == {"given": value}


def test_words_and_numbers_are_read_as_people_type_them() -> None:
    read = read_arguments(["a=true", "b=False", "c=none", "d=8x8", "e=1e-3", "f=", "g=a=b"], "env_args")
    assert read == {"a": True, "b": False, "c": None, "d": "8x8", "e": 1e-3, "f": "", "g": "a=b"}


@pytest.mark.parametrize("texts", [["push"], ["=1"], ["a b=1"], ["a=1", "a=2"]])
def test_arguments_of_another_form_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"env_args = .*NAME=VALUE, each name once"):
        read_arguments(texts, "env_args")


def test_a_value_that_no_file_can_hold_is_refused_with_what_to_give() -> None:
    with pytest.raises(ConfigError, match=r"env_kwargs: map = .*got a ndarray.*lambda: YourEnv"):
        write_arguments({"map": np.zeros(2)}, "env_kwargs")


class Handle(Boat):
    """It has something that cannot be copied."""

    def __deepcopy__(self, memo: object) -> object:
        raise TypeError("a socket")


@pytest.mark.parametrize(
    ("env", "arguments", "told"),
    [
        ("brought:Boat", ["pish=1"], r"unexpected keyword argument 'pish'"),
        ("CartPole-v1", ["pish=1"], r"env_args: .*unexpected keyword argument 'pish'"),
        ("forage", ["pish=1"], r"env_args = .*foraging"),
        (Boat(), ["pish=1"], "made already"),
        ("collections:OrderedDict", [], "expected an environment of Gymnasium or PettingZoo.*got a OrderedDict"),
        (3, [], "got a int"),
        (
            lambda push: Boat(push, most=3),
            [],
            "got a Boat for 3, a number of environments; give other arguments as env_args",
        ),
        (Handle(), [], r"cannot be copied \(TypeError: a socket\).*env=lambda: YourEnv"),
        (SyncVectorEnv([Boat] * 2), [], "of 3 environments, got one of 2.*lambda num_envs: "),
        (Late, [], "Late begins an episode in the step after"),
        (
            gymnasium.make_vec("CartPole-v1", num_envs=ENVS),
            [],
            r'Give env="CartPole-v1", or .*vectorization_mode="sync"',
        ),
        ("object:Boat", [], r"goes on there alone: flatwater\.resume\(RUN, env=\.\.\.\)"),
    ],
)
def test_what_cannot_be_used_says_what_to_bring(env: object, arguments: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        build(env, *arguments)


def test_an_object_of_another_class_is_not_taken_for_the_one_of_the_run() -> None:
    with hand_over_env(Handle()), pytest.raises(ConfigError, match=r"begun with object:Boat.*got object:Handle"):
        build_world("object:Boat", envs=1, foraging=ForagingConfig(), wrapped=WrappedConfig())


def test_episodes_that_begin_by_themselves_are_taken_as_they_begin() -> None:
    shown = play(build(Fleet))
    assert shown == play(build(Fleet))
    assert shown[:10] == play(build(Boat))[:10], "the first episodes follow from the seeds"


def test_the_object_itself_is_never_stepped() -> None:
    boat = Boat()
    play(build(boat))
    assert not hasattr(boat, "place")


def test_wrappers_are_named_with_arguments_the_innermost_first() -> None:
    wrapped = WrappedConfig(wrappers=("FrameStackObservation(stack_size=2)", "brought:doubled(by=3)"))
    world = build_world("brought:Boat", envs=ENVS, foraging=ForagingConfig(), wrapped=wrapped)
    plain = play(build("brought:Boat"))
    shown = play(world)
    assert world.spaces.obs == (4,)
    assert np.allclose(shown[2], 3 * np.array(plain[2]))


def test_wrappers_may_be_classes_and_functions() -> None:
    wrappers = from_mapping(WrappedConfig, {"wrappers": [FlattenObservation, doubled]}, "here").wrappers
    named = (f"{FlattenObservation.__module__}:FlattenObservation", "brought:doubled")
    assert wrappers == named
    world = build_world("brought:Boat", envs=ENVS, foraging=ForagingConfig(), wrapped=WrappedConfig(wrappers=wrappers))
    assert np.allclose(play(world)[2], 2 * np.array(play(build("brought:Boat"))[2]))
    with pytest.raises(ConfigError, match=r"here: wrappers\[0\] = .*Move it to the top of a module"):
        from_mapping(WrappedConfig, {"wrappers": [lambda env: env]}, "here")


@pytest.mark.parametrize(
    ("wrapper", "told"),
    [
        ("FrameStackObservations(stack_size=2)", 'Did you mean "FrameStackObservation"'),
        ("FrameStackObservation(2)", r"expected NAME, or NAME\(argument=value"),
        ("FrameStackObservation(stack_size=print())", r"expected NAME, or NAME\(argument=value"),
        ("FrameStackObservation(stack=2)", "unexpected keyword argument 'stack'"),
        ("brought:Nothing", "cannot be imported"),
    ],
)
def test_what_is_no_wrapper_is_refused(wrapper: str, told: str) -> None:
    with pytest.raises(FlatwaterError, match=told):
        build_world("brought:Boat", envs=1, foraging=ForagingConfig(), wrapped=WrappedConfig(wrappers=(wrapper,)))
