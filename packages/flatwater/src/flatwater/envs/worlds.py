"""Builds the world and the teacher that settings name: shipped ones, Gymnasium's, PettingZoo's or the user's."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import gymnasium
import torch

from flatwater.config.arguments import read_arguments
from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.foraging.search import SearchTeacher
from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.makers import (
    FORMS,
    EnvMaker,
    ParallelLike,
    TurnsLike,
    WorldLike,
    describe_other,
    find_maker,
    wrapped_maker,
)
from flatwater.envs.names import FORAGE, PETTINGZOO, gymnasium_id, resolve_alias, unknown_name
from flatwater.envs.random_teacher import RandomTeacher
from flatwater.envs.worker_world import WorkerWorld
from flatwater.envs.world import Teacher, World
from flatwater.envs.wrapped.cartpole_world import CARTPOLE_IDS, CartPoleWorld
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.method_masks import with_method_masks
from flatwater.envs.wrapped.named_env import make_named_env
from flatwater.envs.wrapped.own_world import OwnTeacher, OwnWorld
from flatwater.envs.wrapped.pettingzoo_world import PettingZooWorld, pettingzoo_maker
from flatwater.envs.wrapped.tuple_agents import TupleAgents, may_have_agents, pays_each_agent
from flatwater.envs.wrapped.turns_world import TurnsWorld
from flatwater.envs.wrapped.vector_world import VectorWorld
from flatwater.named_imports import find_object
from flatwater_watch.errors import ConfigError, require

TEACHER_NAMES = "search, babyai, random, or package.module:Class of your teacher"


@runtime_checkable
class _TeacherClass(Teacher, Protocol):
    """A `Teacher` for `issubclass`."""


def build_world(
    name: str,
    *,
    envs: int,
    foraging: ForagingConfig,
    wrapped: WrappedConfig,
    allow_nan: bool = False,
    arguments: Sequence[str] = (),
    workers: int = 0,
) -> World:
    """Build the world, E environments of one kind, that a name stands for.

    Args:
        name: a name that `envs.names.ENVIRONMENT_NAMES` lists, or that an installed package has (`plugins.py`).
        envs: number of environments, E.
        foraging: settings of the world `forage`.
        wrapped: settings of all other worlds.
        allow_nan: whether NaN and infinities of an environment are passed on; else they end the run.
        arguments: arguments of what makes the environments, each as `NAME=VALUE`.
        workers: number of processes that step the environments; 0 steps them here.

    Raises:
        ConfigError: `name` names no world, its package is missing, or the environment cannot be used.
    """
    if workers:
        # Each process builds the world of its part of the environments, and steps it itself.
        build = partial(build_world, name, foraging=foraging, wrapped=wrapped, allow_nan=allow_nan, arguments=arguments)
        return WorkerWorld(lambda count: _refuse_turns(build(envs=count)), title=name, envs=envs, workers=workers)
    name = resolve_alias(name)
    keywords = read_arguments(arguments, "env_args")
    if name == FORAGE:
        require(not keywords, "env_args", " ".join(arguments), "none, as `forage` has settings: --foraging.players 2")
        return ForagingWorld(foraging, envs)
    env_id = gymnasium_id(name)  # None if the name is not one of Gymnasium's
    # CartPoleWorld shows vectors alone; tokens of CartPole are refused by GymnasiumWorld.
    if env_id in CARTPOLE_IDS and wrapped.form in {"auto", "vector"} and not (keywords or wrapped.wrappers):
        return CartPoleWorld(env_id, wrapped, envs)
    maker = wrapped_maker(_find_maker(name, env_id, keywords), wrapped.wrappers)
    return _wrapped_world(maker, wrapped, envs, allow_nan=allow_nan)


def _find_maker(name: str, env_id: str | None, arguments: Mapping[str, Any]) -> EnvMaker:
    """Return the maker of the environments of a name; `env_id` is Gymnasium's ID, if the name has one.

    Raises:
        ConfigError: no environment has this name.
    """
    if env_id is not None:
        return EnvMaker(env_id, lambda: make_named_env(env_id, arguments))
    kind, _, rest = name.partition(":")
    # A part is missing, or the name is `forage:Name`, and `forage` contains no names.
    if not (kind and rest) or kind == FORAGE:
        raise unknown_name(name)
    if kind == PETTINGZOO:
        return EnvMaker(name, pettingzoo_maker(rest, arguments))
    return find_maker(name, arguments)


def _wrapped_world(maker: EnvMaker, config: WrappedConfig, envs: int, *, allow_nan: bool) -> World:
    """Make an environment to see its class, and return the world that plays copies of it.

    Args:
        maker: makes one environment, or all `envs` at once.
        config: settings of the copies.
        envs: number of environments, E.
        allow_nan: whether NaN and infinities are passed on; else they end the run.

    Raises:
        ConfigError: the maker makes something else than environments.
    """
    first_env = maker.make(envs) if maker.takes_number else maker.make()
    # The environment that was made to see its kind becomes the first copy.
    unused_envs = [first_env]

    def make() -> Any:  # noqa: ANN401  (an environment)
        """Return the first environment, and in later calls a new one."""
        env = unused_envs.pop() if unused_envs else maker.make()
        return with_method_masks(env) if isinstance(env, gymnasium.Env) else env

    if isinstance(first_env, gymnasium.vector.VectorEnv):
        if first_env.num_envs != envs:
            raise ConfigError(
                f"expected a vector environment of {envs} environments, got one of {first_env.num_envs}. Give a "
                "function of their number: env=lambda num_envs: gymnasium.make_vec(ID, num_envs=num_envs)"
            )
        return VectorWorld(first_env, maker.title, config, allow_nan=allow_nan)
    # A call with a number must give all environments at once: a single environment is refused below.
    if isinstance(first_env, WorldLike):
        return OwnWorld(cast("World", first_env), maker.title, envs, allow_nan=allow_nan)
    if not maker.takes_number and isinstance(first_env, gymnasium.Env):
        if may_have_agents(first_env) and _has_several_agents(maker):
            return PettingZooWorld(lambda: TupleAgents(make()), maker.title, config, envs, allow_nan=allow_nan)
        return GymnasiumWorld(make, maker.title, config, envs, allow_nan=allow_nan)
    if not maker.takes_number and isinstance(first_env, TurnsLike):  # before ParallelLike, whose members it has as well
        return TurnsWorld(make, maker.title, config, envs, allow_nan=allow_nan)
    if not maker.takes_number and isinstance(first_env, ParallelLike):
        return PettingZooWorld(make, maker.title, config, envs, allow_nan=allow_nan)
    argument_text = (
        f" for {envs}, a number of environments; give other arguments as env_args" if maker.takes_number else ""
    )
    raise ConfigError(f"expected {FORMS}, got {describe_other(first_env)}{argument_text}")


def _has_several_agents(maker: EnvMaker) -> bool:
    """Return whether an environment pays several agents each; another is tried, as a step may change its state."""
    env = maker.make()
    try:
        return pays_each_agent(env, maker.title)
    finally:
        env.close()


def _refuse_turns(world: World) -> World:
    """Return the world unchanged, unless it is a game in turns, which other processes cannot step.

    Raises:
        ConfigError: its opponents are policies of the run, which other processes do not have.
    """
    if isinstance(world, TurnsWorld):
        raise ConfigError(
            "env_workers: expected 0 for a game in turns, whose opponents are earlier policies of the run"
        )
    return world


def build_teacher(name: str, world: World, rng: torch.Generator) -> Teacher:
    """Build the teacher that a name stands for, for the agents of a world.

    Args:
        name: one of `TEACHER_NAMES`. A class of the user's is called with the world.
        world: the world of the agents.
        rng: a CPU generator, for `random`.

    Raises:
        ConfigError: `name` names no teacher, or the teacher does not teach in this world.
    """
    if name == "random":
        return RandomTeacher(world, rng)
    if isinstance(world, WorkerWorld):
        raise ConfigError("env_workers: expected 0, as a teacher looks into environments of its own process")
    if name == "search":
        if not isinstance(world, ForagingWorld):
            raise ConfigError("the teacher `search` teaches in the world `forage` only")
        return SearchTeacher(world)
    if name == "babyai":
        return _build_babyai_teacher(world)
    if ":" in name:
        return _load_teacher(name, world)
    raise ConfigError(f"teacher = {name!r}: no teacher has this name: expected {TEACHER_NAMES}.")


def _build_babyai_teacher(world: World) -> Teacher:
    """Return MiniGrid's bot as a teacher.

    Raises:
        ConfigError: MiniGrid is not installed.
    """
    try:
        from flatwater.envs.wrapped.babyai import BabyAITeacher  # noqa: PLC0415  (imports minigrid: an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the teacher `babyai` needs {error.name}, which is not installed: pip install 'flatwater[teach]'"
        ) from error
    return BabyAITeacher(world)


def _load_teacher(name: str, world: World) -> Teacher:
    """Return a teacher made by the user's class that `package.module:Class` names.

    Raises:
        ConfigError: the object is not a class with a teacher's methods, or cannot be made with a world alone.
    """
    target = find_object(name, setting=f"teacher = {name!r}: it", expected="package.module:Class")
    if not isinstance(target, type) or not issubclass(target, _TeacherClass):
        raise ConfigError(f"teacher = {name!r}: expected a class with the methods begin_ and step_batch")
    build: Callable[[World], Teacher] = target
    try:
        inspect.signature(build).bind(world)
    except TypeError as error:
        raise ConfigError(f"teacher = {name!r}: the class cannot be called with a world alone: {error}") from error
    return OwnTeacher(build, world)
