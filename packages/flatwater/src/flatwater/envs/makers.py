"""Makers of a world's environments: an ID of Gymnasium, or a class, a function or an object of the user's."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import gymnasium
from gymnasium.envs.registration import EnvSpec

from flatwater.config.arguments import call_arguments, write_arguments
from flatwater.config.code import OBJECT
from flatwater.config.convert import did_you_mean
from flatwater.envs.names import ENVIRONMENT_NAMES
from flatwater.envs.world import Array
from flatwater.named_imports import find_object
from flatwater.sources import module_place
from flatwater.user_code import CallGuard
from flatwater_watch.errors import ConfigError
from flatwater_watch.sanitize import short_repr

_env_object: ContextVar[Any] = ContextVar("given_environment", default=None)
"""Environment that the user has handed over as an object, during the call that it was given to; else None."""
FORMS = (
    "an environment of Gymnasium or PettingZoo, a class or a function of one, or, called with a number of "
    "environments, of a gymnasium.vector.VectorEnv or of your world"
)


ENV, ENV_KWARGS = "env", "env_kwargs"
"""Names of settings in Python."""
NUMBER = "num_envs"
"""Name of the argument that Gymnasium's vector environments have for their number."""


@runtime_checkable
class WorldLike(Protocol):
    """Methods of a `World`, for `isinstance` and `issubclass`, which refuses protocols with a property."""

    def begin_(self, env_mask: Array, seeds: Array, obs: Array) -> None:
        """Start episodes."""

    def step_(self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array) -> None:
        """Step every environment."""


@runtime_checkable
class ParallelLike(Protocol):
    """Members by which a parallel environment of PettingZoo is recognised."""

    possible_agents: list[Any]

    def observation_space(self, agent: Any) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return an agent's observation space."""

    def action_space(self, agent: Any) -> Any:  # noqa: ANN401  (a space of Gymnasium's)
        """Return an agent's action space."""


@runtime_checkable
class TurnsLike(Protocol):
    """A member by which an environment of PettingZoo is recognised whose agents act one after another."""

    def agent_iter(self) -> Any:  # noqa: ANN401  (agents of any kind)
        """Return the agents in the order in which they act."""


@dataclass(frozen=True)
class EnvMaker:
    """A function that makes an environment, or a number of environments at once."""

    title: str
    """Name for messages: `boat:Boat`."""
    make: Callable[..., Any]
    takes_number: bool = False
    """Whether `make` is called with a number of environments."""


@contextmanager
def hand_over_env(env: object) -> Iterator[None]:
    """Let names that begin with `object:` stand for `env` within the block; None leaves the present object there."""
    block_env = _env_object.get() if env is None else env
    token = _env_object.set(block_env)
    try:
        yield
    finally:
        _env_object.reset(token)


def name_object(env: object) -> str:
    """Return the name of an environment for a run's configuration.

    Returns:
        The ID of a specification that Gymnasium has registered; `module:Name` where a new process finds the same class
        or function there; else `object:NAME`, which stands for an object that is handed over each time.
    """
    if isinstance(env, EnvSpec):  # not registered where its arguments or wrappers are others
        return env.id if is_registered(env) else f"{OBJECT}:{env.id}"
    is_code = isinstance(env, type) or inspect.isroutine(env)
    code: Any = env if is_code else type(env)
    module_name, name = str(code.__module__), str(code.__name__)
    # A module named `__main__`, or without a file on the search path, is another one in a new process.
    if is_code and module_name != "__main__" and module_place(module_name):
        module = inspect.getmodule(env)
        if module is not None and vars(module).get(name) is env:
            return f"{module_name}:{name}"
    return f"{OBJECT}:{name}"


def find_env_object(settings: Mapping[str, Any]) -> Any:  # noqa: ANN401  (what the user has)
    """Return the setting `env` if it is an object; None if it is left out, has a name, or is a table of settings."""
    env = settings.get(ENV)
    if is_registered(env):
        return None  # by its ID
    # Recipes on a market have a table of settings there.
    return None if isinstance(env, (str, Mapping)) else env


def replace_env_object(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with names and texts in place of the environment's object and of its arguments.

    The number of environments of a vector environment also becomes `envs` and `evaluation.envs`, where these are unset.

    Raises:
        ConfigError: an argument is nothing that a run's configuration can hold, or the environment is None.
    """
    named_settings = dict(settings)
    if settings.get(ENV, "") is None:  # as from a function that forgot to return one
        raise ConfigError(f"{ENV}: expected {FORMS}, got None. Left out, it is the recipe's own")
    env = find_env_object(settings)
    if is_registered(settings.get(ENV)):
        named_settings[ENV] = settings[ENV].id
    elif env is not None:
        named_settings[ENV] = name_object(env)
    copies = fixed_copies(env)
    if copies is not None:
        # Evaluation episodes are played in a copy of the same vector environment. The user's own numbers come later in
        # the dicts, and so replace these.
        evaluation = {"envs": copies, **(named_settings.get("evaluation") or {})}
        named_settings = {"envs": copies, **named_settings, "evaluation": evaluation}
    arguments = named_settings.pop(ENV_KWARGS, None)
    if arguments is not None:
        named_settings["env_args"] = write_arguments(arguments, ENV_KWARGS)
    return named_settings


def is_registered(env: object) -> bool:
    """Return whether an object is the specification that Gymnasium has registered for an ID, which names it."""
    return isinstance(env, EnvSpec) and gymnasium.registry.get(env.id) == env


def fixed_copies(env: object) -> int | None:
    """Return the number of environments that an object steps at once; None if any number can be made."""
    return int(env.num_envs) if isinstance(env, gymnasium.vector.VectorEnv) else None


def refuse_fixed_number(env: object, settings: Collection[str], recipe: str) -> None:
    """Refuse a vector environment, whose number of environments is fixed, in a recipe without the setting `envs`.

    Such a recipe decides itself how many environments it needs.

    Args:
        env: the user's object.
        settings: names of the recipe's settings.
        recipe: name of the recipe, for the message.

    Raises:
        ConfigError: the object has a fixed number of environments, and the recipe needs others.
    """
    copies = fixed_copies(env)
    if copies is not None and "envs" not in settings:
        raise ConfigError(
            f"env: expected one environment, or for {recipe} a function of the number of environments, such as lambda "
            f"num_envs: gymnasium.make_vec(ID, num_envs=num_envs), got a vector environment of always {copies}"
        )


def small_world_copies(name: str, count: int) -> int:
    """Return how many environments a small test world of the environment `name` has: `count`, if that can be chosen.

    A vector environment that the user has handed over as an object always has its own number.
    """
    fixed_number = fixed_copies(_env_object.get()) if is_object(name) else None
    return fixed_number or count


def is_object(name: str) -> bool:
    """Return whether a name stands for an object that Python hands over."""
    return name.startswith(f"{OBJECT}:")


def find_maker(name: str, arguments: Mapping[str, Any]) -> EnvMaker:
    """Return a maker that calls the user's class or function, or copies the user's environment object.

    Args:
        name: `package.module:Name`, or `object:NAME` of an object that is handed over.
        arguments: arguments of the class or function, by name.

    Raises:
        ConfigError: the name stands for nothing of this kind, or it cannot be called with the arguments.
    """
    kind, _, _ = name.partition(":")
    # In messages `it` stands for the name, which the caller puts before them.
    target = _handed_env(name) if kind == OBJECT else find_object(name, setting="it", expected=ENVIRONMENT_NAMES)
    # Not a class, which has the same members and is called below.
    is_zoo_env = isinstance(target, ParallelLike | TurnsLike) and not isinstance(target, type)
    if is_zoo_env or isinstance(target, gymnasium.Env | gymnasium.vector.VectorEnv):
        if arguments:
            raise ConfigError("env_args: expected none, as the environment is made already")
        return EnvMaker(name, lambda: _copy_env(target))
    if isinstance(target, EnvSpec):
        return _called_maker(name, target.make, arguments)
    if not callable(target):
        raise ConfigError(f"expected {FORMS}, got {describe_other(target)}")
    return _called_maker(name, target, arguments)


def _handed_env(name: str) -> Any:  # noqa: ANN401  (whatever the user has)
    """Return the object that the user handed over, which must have this name.

    Raises:
        ConfigError: no object is handed over, or an object with another name, as `check_handed_env` says.
    """
    target = _env_object.get()
    if target is None:
        raise ConfigError(
            "the run was begun in Python with an environment that has no name of the form package.module:Name, and "
            "goes on there alone: flatwater.resume(RUN, env=...), and likewise evaluate and load"
        )
    check_handed_env(name)
    return target


def check_handed_env(name: object) -> None:
    """Check that the environment handed over to a run is the run's own: another one would be played in its place.

    Args:
        name: setting `env` of the run; anything but text for a run on a market.

    Raises:
        ConfigError: an environment of another name is handed over.
    """
    env = _env_object.get()
    if env is None:  # nothing is handed over
        return
    given_name = env if isinstance(env, str) else name_object(env)
    if given_name != name:
        raise ConfigError(
            f"the run was begun with {name if isinstance(name, str) else 'no environment'}: expected env = the same, "
            f"or left out, got {given_name}. flatwater.fork(RUN, env=...) trains on in another environment, and "
            "flatwater.load(RUN) acts in any"
        )


def describe_other(target: object) -> str:
    """Return the class of an object that is no environment, for a message: `a list`.

    For a `VecEnv` of Stable-Baselines3 the text also says what to give instead.
    """
    classes = {f"{cls.__module__}.{cls.__name__}" for cls in type(target).__mro__}
    text = f"a {type(target).__name__}"
    if "stable_baselines3.common.vec_env.base_vec_env.VecEnv" not in classes:
        return text
    return (
        f"{text} of Stable-Baselines3. Give what makes one of its environments, and --envs for their number; "
        "--policy.observations normalised and --rewards normalised do what VecNormalize does"
    )


def _copy_env(env: Any) -> Any:  # noqa: ANN401  (an Env or a VectorEnv)
    """Return a copy of the user's environment, which itself is never stepped.

    Raises:
        ConfigError: the environment cannot be copied.
    """
    try:
        return deepcopy(env)
    except Exception as error:
        raise ConfigError(
            f"the environment cannot be copied ({type(error).__name__}: {error}), and a run steps several. Give a "
            "function that makes one, env=lambda: YourEnv(...), or several, env=lambda num_envs: make_vec(...)"
        ) from error


def _called_maker(name: str, target: Callable[..., Any], arguments: Mapping[str, Any]) -> EnvMaker:
    """Return a maker of environments that calls the user's class or function `target`.

    It is called with a number of environments if its parameters, or its class, say that it makes several at once.

    Raises:
        ConfigError: the class or function cannot be called with the arguments, with a number or without.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):  # a class in C has no signature: its call shows whether the arguments fit
        signature = inspect.Signature([inspect.Parameter("keywords", inspect.Parameter.VAR_KEYWORD)])
    title = name.rpartition(":")[2]
    is_number_named = NUMBER in signature.parameters
    is_batch = isinstance(target, type) and issubclass(target, gymnasium.vector.VectorEnv | WorldLike)
    is_single = isinstance(target, type) and issubclass(target, gymnasium.Env)
    # The number is given where a parameter has its name, where one call makes many, or where a call without it fails.
    takes_number = is_number_named or is_batch or not (is_single or _can_bind(signature, (), arguments))

    def maker_arguments(number: int) -> tuple[tuple[int, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments of a call for `number` environments."""
        if not takes_number:
            return (), dict(arguments)
        return ((), {NUMBER: number, **arguments}) if is_number_named else ((number,), dict(arguments))

    # Tried with any number, before an environment is made.
    positional, keywords = maker_arguments(1)
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        visible_signature = signature.replace(return_annotation=inspect.Signature.empty)
        raise ConfigError(
            f"{name}{visible_signature} cannot be called: {error}. Expected {FORMS}; other arguments are given as "
            "env_args"
        ) from error

    # An error of a class is one of its `__init__`, an error of a function its own.
    method = "__init__" if isinstance(target, type) else ""

    def make(number: int = 1) -> Any:  # noqa: ANN401  (whatever it gives)
        """Call the user's class or function, with `number` environments if it takes a number; report its errors."""
        positional, keywords = maker_arguments(number)
        with CallGuard(f"environment {name}", target, method, call=f"{title}()"):
            return target(*positional, **keywords)

    return EnvMaker(name, make, takes_number=takes_number)


def _can_bind(signature: inspect.Signature, positional: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    """Return whether a call with these arguments fits the signature."""
    try:
        signature.bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def wrapped_maker(maker: EnvMaker, wrappers: Sequence[str]) -> EnvMaker:
    """Return a maker of the same environments within wrappers, the first one innermost.

    A wrapper is text: `FrameStackObservation(stack_size=4)`.

    Raises:
        ConfigError: a text names no wrapper, or has other than named arguments.
    """
    wrapper_calls = [_find_wrapper(text) for text in wrappers]

    def make(*number: int) -> Any:  # noqa: ANN401  (whatever the outermost gives)
        """Make an environment and put it into all wrappers, the first one innermost.

        `number` is empty, or the number of environments for a maker that takes it.
        """
        env = maker.make(*number)
        for text, (wrapper, arguments) in zip(wrappers, wrapper_calls, strict=True):
            # An error of the user's wrapper is reported as one of its `__init__`, or of the function itself.
            method = "__init__" if isinstance(wrapper, type) else ""
            with CallGuard(f"wrapper {text}", wrapper, method, call=text):
                env = wrapper(env, **arguments)
            if env is None:
                raise ConfigError(f"wrapped.wrappers: {text} returned None: expected an environment")
        return env

    return replace(maker, make=make) if wrappers else maker


def _find_wrapper(text: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the wrapper that a text such as `FrameStackObservation(stack_size=4)` names, and its arguments.

    Raises:
        ConfigError: there is no wrapper of this name, or the text is not a call.
    """
    name, bracket, inside = text.partition("(")  # `inside` ends with the closing bracket
    setting, expected = f"wrapped.wrappers = {short_repr(text)}", "a name of gymnasium.wrappers, or package.module:Name"
    arguments = call_arguments(inside, text, "wrapped.wrappers") if bracket else {}
    if ":" in name:
        return find_object(name, setting=f"{setting}: it", expected=expected), arguments
    known_names = [*gymnasium.wrappers.__all__]
    if name not in known_names:
        raise ConfigError(f"{setting}: expected {expected}.{did_you_mean(name, known_names)}")
    return getattr(gymnasium.wrappers, name), arguments
