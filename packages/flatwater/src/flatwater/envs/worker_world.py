"""A world whose environments are stepped by processes of Gymnasium's `AsyncVectorEnv`, with the same bits as in one.

Each process has a world of its own, a span of the environments, and answers calls by name. In a step only arrays of
the world's own form go between processes: an environment's results are read, and checked, where it is stepped. The info
of an episode's last step is sent on request.
"""

import gc
import pickle
import signal
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv

from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.open_envs import Closing
from flatwater.envs.world import Array, Spaces, World, build_masks, build_outcome
from flatwater.envs.wrapped.infos import InfosByNumber, find_infos_world
from flatwater.envs.wrapped.native_spaces import NativeSpaces, find_native_spaces, native_spaces
from flatwater_watch.errors import RunError

BuildWorld = Callable[[int], World]
UNSENDABLE_ERRORS = (pickle.PicklingError, TypeError, AttributeError)
"""Errors of pickle for values that it cannot send to another process, such as a lambda or an open file."""


class _ShareFacts(NamedTuple):
    """What the main process needs to know of the world that a process has built for its share of the environments."""

    spaces: Spaces
    is_replayable: bool
    has_infos: bool
    native: tuple[Any, ...] | None
    """Observation space, action space and form of observations, where they are Gymnasium's."""


class _WorldShare(gymnasium.Env[Any, Any]):
    """The world of one process: a span of all environments.

    It is a `gymnasium.Env` because `AsyncVectorEnv` expects one; only the methods below are called.
    """

    observation_space = action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, build: BuildWorld, span: slice) -> None:
        """Keep the function that builds a world of some environments, and this world's part of all, such as 4 to 8."""
        self._build, self._span = build, span
        self._world: Any = None  # until it is built, which may fail

    def open(self) -> _ShareFacts:
        """Build the world, allocate the arrays that it writes into, and return the facts for the main process."""
        span = self._span
        self._world = self._build(span.stop - span.start)
        spaces = self._world.spaces
        shape = (spaces.envs, spaces.agents)
        self._obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
        self._legal_masks = build_masks(spaces)  # one array, or none in a world without masks
        self._outcome = build_outcome(*shape)  # reward, terminated, truncated
        native = find_native_spaces(self._world)
        # Without `native.reader`, whose functions cannot be pickled.
        native_values = None if native is None else (native.observation, native.action, native.form)
        self._infos_world: Any = find_infos_world(self._world)  # None if the world has no infos
        return _ShareFacts(
            spaces=spaces,
            is_replayable=isinstance(self._world, ReplayableWorld),
            has_infos=self._infos_world is not None,
            native=native_values,
        )

    def begin(self, env_mask: Array, seeds: Array) -> Sequence[Array]:
        """Begin episodes in the envs of `env_mask`, bool [E]; return this span's observations, and masks if any.

        The arguments are those of all environments, of which this process has a span. The world's `begin_` writes its
        arguments after the seeds in place.
        """
        if env_mask[self._span].any():
            self._world.begin_(env_mask[self._span], seeds[self._span], self._obs, *self._legal_masks)
        return self._obs, *self._legal_masks

    def step_environments(self, actions: Array) -> Sequence[Array]:
        """Step this span with its part of all actions; return the arrays that `step_` of the world writes in place."""
        self._world.step_(actions[self._span], self._obs, *self._outcome, *self._legal_masks)
        return self._obs, *self._outcome, *self._legal_masks

    def info(self, env: int) -> Any:  # noqa: ANN401  (of the environment)
        """Return the info of environment `env`'s last step; None if another process steps it."""
        span = self._span
        return self._infos_world.infos[env - span.start] if span.start <= env < span.stop else None

    def states(self) -> Any:  # noqa: ANN401  (of the environments)
        """Return the states of the environments at their episodes' beginnings, or the state of the whole world."""
        is_replayable = isinstance(self._world, ReplayableWorld)
        return self._world.episode_starts.states() if is_replayable else self._world.state_dict()

    def load_starts(self, env_mask: Array, states: Sequence[Any]) -> None:
        """Give the environments of `env_mask` their starting states; both arguments have those of all processes."""
        self._world.episode_starts.load_(env_mask[self._span], states[self._span])

    def load_own_state(self, states: Sequence[Any], number: int) -> None:
        """Give the world its own state: item `number`, the number of this process, of the states of all processes."""
        self._world.load_state_dict(states[number])

    def end(self) -> None:
        """Close the environments, if they were built."""
        if self._world is not None:
            self._world.close()


def _answer_calls(index: int, make: Any, pipe: Any, parent_pipe: Any, *_: Any) -> None:  # noqa: ANN401  (as Gymnasium calls it)
    """Answer the run's calls through `pipe` until the run sends `close`, or its end of the pipe is gone.

    Gymnasium calls it in each process; the arguments that it passes on are not named here.

    Args:
        index: number of this process.
        make: builds the share of the environments that this process steps.
        pipe: this process's end of the pipe.
        parent_pipe: the run's end of the pipe, which is closed here.
    """
    # In a fork, which inherits the run's signal handlers. It has none of torch's threads: a parallel kernel would hang.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    gc.freeze()  # the run alone may finalize objects of the run, such as another world's processes
    parent_pipe.close()
    world_share = make()
    command = ""
    with suppress(EOFError, OSError):  # the run was killed
        while command != "close":
            command, data = pipe.recv()
            # The answer to Gymnasium's own commands: two flags for `_check_spaces`, and `close` ignores its answer. The
            # run's calls come as `_call`.
            name, answer = command, (True, True)
            if command == "_call":
                name, arguments, _keywords = data
                answer = _answer_call(world_share, index, name, arguments)
            # Gymnasium expects pairs, a result and whether the call succeeded; here an error is sent as a result.
            try:
                pipe.send((answer, True))
            except UNSENDABLE_ERRORS as error:  # nothing was sent yet: an answer is pickled whole before
                pipe.send((_unsent_error(name, error), True))


def _unsent_error(name: str, error: Exception) -> RunError:
    """Return the error for a result of the call `name` that pickle could not send, because of `error`."""
    return RunError(
        f"{name}: an environment's value cannot be sent from its process ({type(error).__name__}: {error}). Leave it "
        "out, or give --env-workers 0"
    )


def _answer_call(world_share: _WorldShare, index: int, name: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401  (whatever the method returns)
    """Return the result of the share's method `name`; if it raises, return the exception, which the run raises again.

    Args:
        world_share: world of this process.
        index: number of this process.
        name: name of the method.
        arguments: arguments of the method.
    """
    # Every process gets the states of all: its own is found by its number.
    number = [index] if name == "load_own_state" else []
    try:
        return getattr(world_share, name)(*arguments, *number)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the run raises it again)
        return error


class _RemoteEpisodeStarts:
    """The `EpisodeStarts` of the copies in all processes."""

    def __init__(self, ask: Callable[..., Sequence[Any]]) -> None:
        self._ask, self.unsaved = ask, ""

    def states(self) -> list[Any]:
        """Return the state of each copy of all processes; an empty list before the first episode."""
        return [state for part_states in self._ask("states") for state in part_states]

    def load_(self, env_mask: Array, states: Sequence[Any]) -> None:
        """Give the copies of `env_mask` their states back."""
        self._ask("load_starts", env_mask, list(states))


class WorkerWorld:
    """A `World` or a `MaskedWorld` whose environments are stepped by several processes."""

    infos: InfosByNumber
    """Infos of the environments, as in an `InformingWorld`; absent where the world has none."""
    episode_starts: Any
    """States of the environments where they can be saved, as in a `ReplayableWorld`; absent where they are not."""
    native: NativeSpaces
    """Spaces of the environment, as in a `NativeWorld`; absent where they are not Gymnasium's."""

    def __init__(self, build: BuildWorld, title: str, envs: int, workers: int) -> None:
        """Start the processes, among which the environments are divided evenly.

        Args:
            build: returns a world with this number of environments; called in each process.
            title: name of the environment, for messages.
            envs: number of environments, E.
            workers: number of processes; no more than environments are started.
        """
        count = min(workers, envs)
        bounds = [envs * number // count for number in range(count + 1)]
        self._spans = [slice(start, end) for start, end in pairwise(bounds)]
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork of a process with threads: `_answer_calls` needs none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pool: Any = AsyncVectorEnv(
                [partial(_WorldShare, build, span) for span in self._spans],
                shared_memory=False,
                context="fork",  # the user's classes and objects are there, whether they can be pickled or not
                worker=_answer_calls,
            )
        # Before the processes build their worlds: an environment that fails to be built leaves no process.
        self._close_envs = Closing(self._end_processes)
        shares: Sequence[_ShareFacts] = self._ask("open")
        first_share = shares[0]
        # All shares have equal spaces, but for their numbers of environments and of bytes.
        kept_bytes = sum(share.spaces.kept for share in shares)
        self._spaces: Spaces = replace(first_share.spaces, envs=envs, kept=kept_bytes)
        if first_share.native is not None:
            observation, action, form = first_share.native
            self.native = native_spaces(observation, action, form, title)
        if first_share.has_infos:
            self.infos = InfosByNumber(envs, self._read_info)
        if kept_bytes and first_share.is_replayable:
            self.episode_starts = _RemoteEpisodeStarts(self._ask)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, env_mask: Array, seeds: Array, obs: Array, *legal: Array) -> None:
        """Begin episodes with these seeds in the environments of `env_mask`, bool [E].

        Their rows of `obs` are written, and those of the masks `legal`, if the world has masks.
        """
        for span, arrays in zip(self._spans, self._ask("begin", env_mask, seeds), strict=True):
            span_begins = env_mask[span]
            # `target[span]` is a view, so the caller's array is written.
            for target, array in zip((obs, *legal), arrays, strict=True):
                target[span][span_begins] = array[span_begins]

    def step_(
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, *legal: Array
    ) -> None:
        """Step every environment; all arrays after `actions` are written, `legal` only if the world has masks."""
        targets = (obs, reward, terminated, truncated, *legal)
        for span, arrays in zip(self._spans, self._ask("step_environments", actions), strict=True):
            for target, array in zip(targets, arrays, strict=True):
                target[span] = array

    def state_dict(self) -> list[Any]:
        """Return the state that the world of each process keeps over episodes."""
        return [*self._ask("states")]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Give the world of each process its state back."""
        self._ask("load_own_state", state)

    def close(self) -> None:
        """Close the environments, and end the processes."""
        self._close_envs()

    def _end_processes(self) -> None:
        """End the processes once their environments are closed; kill them if they do not answer."""
        if self._pool.closed:  # the processes have ended already
            return
        all_answered = False
        try:
            self._ask("end")
            all_answered = True
        finally:
            self._pool.close(terminate=not all_answered)  # the answer to an earlier call may never come

    def _read_info(self, env: int) -> Any:  # noqa: ANN401  (of the environment)
        """Return the info of an environment, from the one process that steps it."""
        return next(info for info in self._ask("info", env) if info is not None)

    def _ask(self, name: str, *arguments: Any) -> Sequence[Any]:  # noqa: ANN401  (of the call)
        """Call the method `name` of `_WorldShare` in every process, and return the answers in the processes' order.

        Raises:
            RunError: a process has ended.
            FlatwaterError: an environment failed; the error is the one that its process sent.
        """
        try:
            answers: Sequence[Any] = self._pool.call(name, *arguments)
        except (EOFError, OSError) as error:
            for process in self._pool.processes:
                process.terminate()
                process.join()
            self._pool.closed = True  # Gymnasium would wait for the answer of the process that has ended
            raise RunError(
                "a process that steps environments has ended: killed, out of memory, or by its environment's own code. "
                "Fewer --env-workers need less memory"
            ) from error
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers
