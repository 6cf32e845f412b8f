"""Worlds and teachers by name."""

import inspect
from collections.abc import Callable
from typing import Protocol, cast, runtime_checkable

import gymnasium
import torch

from flatwater.envs.foraging.config import ForagingConfig
from flatwater.envs.foraging.search import SearchTeacher
from flatwater.envs.foraging.world import ForagingWorld
from flatwater.envs.names import FORAGE, NAMES, PETTINGZOO, gymnasium_id, resolve_alias, unknown_name
from flatwater.envs.world import Array, Teacher, World
from flatwater.envs.wrapped.cartpole_world import CARTPOLES, CartPoleWorld
from flatwater.envs.wrapped.config import WrappedConfig
from flatwater.envs.wrapped.gymnasium_world import GymnasiumWorld
from flatwater.envs.wrapped.own_world import OwnTeacher, OwnWorld
from flatwater.envs.wrapped.pettingzoo_world import PettingZooWorld
from flatwater.named_imports import find_object
from flatwater_watch.errors import ConfigError

TEACHERS = "search, babyai, random, or package.module:Class of your teacher"


@runtime_checkable
class _TeacherClass(Teacher, Protocol):
    """A `Teacher` for `issubclass`."""


@runtime_checkable
class _WorldClass(Protocol):
    """A `World` for `issubclass`, which refuses protocols with a property such as `spaces`."""

    def begin_(self, which: Array, seeds: Array, obs: Array) -> None: ...

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None: ...

    def close(self) -> None: ...


class RandomTeacher:
    """A `Teacher` of any legal action, each as likely as the others; numbers are uniform within their bounds."""

    def __init__(self, world: World, rng: torch.Generator) -> None:
        self._lists, self._rng = world.spaces.lists, rng
        bounds = world.spaces.bounds
        self._bounds = None if bounds is None else torch.tensor(bounds).T

    def begin_(self, which: Array) -> None:
        """Do nothing: there is nothing to forget."""

    def step_batch(self, obs: Array, actions_out: Array, legal: Array | None = None) -> None:  # noqa: ARG002  (it does not look)
        """Draw from the teacher's generator, on the CPU."""
        # Shares the array's memory: whatever is drawn is written for the caller.
        actions = torch.from_numpy(actions_out)
        columns = actions.view(-1, len(self._lists)).unbind(1) if self._bounds is None else ()
        if legal is not None:
            clocks = torch.empty(legal.shape).exponential_(generator=self._rng)  # a race, as in `nets.actions`
            race = (torch.from_numpy(legal) / clocks).flatten(0, 1).split_with_sizes(self._lists, 1)
            for column, part in zip(columns, race, strict=True):
                column.copy_(part.argmax(1))
        elif self._bounds is None:
            for column, size in zip(columns, self._lists, strict=True):
                column.random_(size, generator=self._rng)
        else:
            low, high = self._bounds
            actions.uniform_(generator=self._rng).mul_(high - low).add_(low)


def build_world(
    name: str, *, envs: int, foraging: ForagingConfig, wrapped: WrappedConfig, allow_nan: bool = False
) -> World:
    """Return the world of a name.

    Args:
        name: as `envs.names.NAMES` lists them, or a name that an installed package has (`plugins.py`).
        envs: number of environments, E.
        foraging: settings of the world `forage`.
        wrapped: settings of all other worlds.
        allow_nan: whether NaN and infinities of an environment are passed on; else they end the run.

    Raises:
        ConfigError: `name` names no world, its package is missing, or the environment cannot be used.
    """
    name = resolve_alias(name)
    kind, _, rest = name.partition(":")
    if name == FORAGE:
        return ForagingWorld(foraging, envs)
    if (env_id := gymnasium_id(name)) is not None:
        # CartPoleWorld shows vectors alone; tokens of CartPole are refused by GymnasiumWorld.
        if env_id in CARTPOLES and wrapped.form in {"auto", "vector"}:
            return CartPoleWorld(env_id, wrapped, envs)
        return GymnasiumWorld(env_id, wrapped, envs, allow_nan=allow_nan)
    if kind == PETTINGZOO and rest:
        return PettingZooWorld(rest, wrapped, envs, allow_nan=allow_nan)
    if rest and kind != FORAGE:
        return _own_world(name, wrapped, envs, allow_nan=allow_nan)
    raise unknown_name(name)


def _own_world(name: str, wrapped: WrappedConfig, envs: int, *, allow_nan: bool) -> World:
    """Return the world of a class of the user's, found by its place.

    Args:
        name: `package.module:Class`, of a `gymnasium.Env` or of a `World`.
        wrapped: settings of a Gymnasium environment's world; the user's own `World` does not get them.
        envs: number of environments, E.
        allow_nan: whether NaN and infinities are passed on; else they end the run.

    Raises:
        ConfigError: `name` names no such class, or the class cannot be called as it should.
    """
    target = find_object(name, given="it", wanted=NAMES)
    if isinstance(target, type) and issubclass(target, gymnasium.Env):
        return GymnasiumWorld(target, wrapped, envs, allow_nan=allow_nan)
    if not isinstance(target, type) or not issubclass(target, _WorldClass):
        raise ConfigError(
            "expected a class: a gymnasium.Env that takes no arguments, or a world that takes a number of environments "
            "and has `spaces`, `begin_`, `step_` and `close`"
        )
    build = cast("Callable[[int], World]", target)
    try:
        inspect.signature(build).bind(envs)
    except TypeError as error:
        raise ConfigError(f"the class cannot be called with a number of environments alone: {error}") from error
    return OwnWorld(build, envs, allow_nan=allow_nan)


def build_teacher(name: str, world: World, rng: torch.Generator) -> Teacher:
    """Return the teacher of a name.

    Args:
        name: one of `TEACHERS`. A class of the user's is called with the world.
        world: the world of the agents.
        rng: a CPU generator, for `random`.

    Raises:
        ConfigError: `name` names no teacher, or the teacher does not teach in this world.
    """
    if name == "random":
        return RandomTeacher(world, rng)
    if name == "search":
        if not isinstance(world, ForagingWorld):
            raise ConfigError("the teacher `search` teaches in the world `forage` only")
        return SearchTeacher(world)
    if name == "babyai":
        return _babyai(world)
    if ":" in name:
        return _load_teacher(name, world)
    raise ConfigError(f"teacher = {name!r}: no teacher has this name: expected {TEACHERS}.")


def _babyai(world: World) -> Teacher:
    """Return MiniGrid's bot as a teacher, or say which package it lacks."""
    try:
        from flatwater.envs.wrapped.babyai import BabyAITeacher  # noqa: PLC0415  (imports minigrid: an extra)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the teacher `babyai` needs {error.name}, which is not installed: pip install 'flatwater[teach]'"
        ) from error
    return BabyAITeacher(world)


def _load_teacher(name: str, world: World) -> Teacher:
    """Return a teacher of a class of the user's, found by its place."""
    target = find_object(name, given=f"teacher = {name!r}: it", wanted="package.module:Class")
    if not isinstance(target, type) or not issubclass(target, _TeacherClass):
        raise ConfigError(f"teacher = {name!r}: expected a class with the methods begin_ and step_batch")
    build: Callable[[World], Teacher] = target
    try:
        inspect.signature(build).bind(world)
    except TypeError as error:
        raise ConfigError(f"teacher = {name!r}: the class cannot be called with a world alone: {error}") from error
    return OwnTeacher(build, world)
