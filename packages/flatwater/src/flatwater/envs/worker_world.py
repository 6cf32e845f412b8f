"""A world whose environments are stepped by processes of Gymnasium's `AsyncVectorEnv`, with the same bits as in one.

Each process has a world of its own, of some of the environments, and answers calls by name. In a step only arrays of
the world's own form go between them: whatever an environment gives is read, and checked, where it is stepped. The info
of an episode's last step is sent where it is asked for.
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
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv

from flatwater.envs.kept_state import ReplayableWorld
from flatwater.envs.open_envs import Closing
from flatwater.envs.world import Array, Spaces, World
from flatwater.envs.wrapped.infos import InfosByNumber, find_informing
from flatwater.envs.wrapped.native import NativeSpaces, find_native, native_spaces
from flatwater_watch.errors import RunError

BuildWorld = Callable[[int], World]
UNSENDABLE_ERRORS = (pickle.PicklingError, TypeError, AttributeError)
"""Errors of pickle for values that it cannot send to another process, such as a lambda or an open file."""


class _Part(gymnasium.Env[Any, Any]):
    """Some of the environments. It is an environment for Gymnasium's sake alone; its calls are those below."""

    observation_space = action_space = gymnasium.spaces.Discrete(1)

    def __init__(self, build: BuildWorld, span: slice) -> None:
        self._build, self._span = build, span
        self._world: Any = None  # until it is built, which may fail

    def open(self) -> tuple[Spaces, bool, bool, Any]:
        """Build the world.

        Returns:
            its spaces, whether it is a `ReplayableWorld`, whether it has infos, and its environment's own spaces.
        """
        span = self._span
        self._world = self._build(span.stop - span.start)
        spaces = self._world.spaces
        shape = (spaces.envs, spaces.agents)
        self._obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
        self._legal = [np.ones((*shape, spaces.legal), np.bool_)] if spaces.masked else []
        self._outcome = (np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))
        native = find_native(self._world)
        # Without the reader, whose functions cannot be sent.
        native_values = None if native is None else (native.observation, native.action, native.form)
        self._source: Any = find_informing(self._world)
        return spaces, isinstance(self._world, ReplayableWorld), self._source is not None, native_values

    def begin(self, which: Array, seeds: Array) -> Sequence[Array]:
        """Begin episodes; the arguments are those of all environments."""
        if which[self._span].any():
            self._world.begin_(which[self._span], seeds[self._span], self._obs, *self._legal)
        return self._obs, *self._legal

    def advance(self, actions: Array) -> Sequence[Array]:
        """Step; the actions are those of all environments."""
        self._world.step_(actions[self._span], self._obs, *self._outcome, *self._legal)
        return self._obs, *self._outcome, *self._legal

    def info(self, env: int) -> Any:  # noqa: ANN401  (of the environment)
        """Return the info of an environment's last step; None if another process steps the environment."""
        span = self._span
        return self._source.infos[env - span.start] if span.start <= env < span.stop else None

    def states(self) -> Any:  # noqa: ANN401  (of the environments)
        """Return the states that the environments kept when their episodes began, or that of the world."""
        is_replayable = isinstance(self._world, ReplayableWorld)
        return self._world.beginnings.states() if is_replayable else self._world.state_dict()

    def load_starts(self, which: Array, states: Sequence[Any]) -> None:
        """Give environments back the state that they kept when their episodes began."""
        self._world.beginnings.load_(which[self._span], states[self._span])

    def load_part(self, states: Sequence[Any], number: int) -> None:
        """Give the world back the state that it keeps."""
        self._world.load_state_dict(states[number])

    def end(self) -> None:
        """Close the environments, if they were built."""
        if self._world is not None:
            self._world.close()


def _serve(index: int, make: Any, pipe: Any, parent_pipe: Any, *_: Any) -> None:  # noqa: ANN401  (as Gymnasium calls it)
    """Answer calls until the run ends. It runs in a fork: signals are the run's to handle, and so are errors."""
    # A fork has the handlers of the run, and none of torch's threads: a kernel that waits for these waits forever.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    gc.freeze()  # objects of the run are the run's to finalize, such as another world's processes
    parent_pipe.close()
    part = make()
    command = ""
    with suppress(EOFError, OSError):  # the run was killed
        while command != "close":
            command, data = pipe.recv()
            answer = _answer(part, index, *data) if command == "_call" else (True, True)
            try:
                pipe.send((answer, True))
            except UNSENDABLE_ERRORS as error:  # it is pickled whole before any byte is sent
                pipe.send((_unsent_error(data[0], error), True))


def _unsent_error(name: str, error: Exception) -> RunError:
    return RunError(
        f"{name}: an environment's value cannot be sent from its process ({type(error).__name__}: {error}). Leave it "
        "out, or give --env-workers 0"
    )


def _answer(part: _Part, index: int, name: str, arguments: tuple[Any, ...], _named: object) -> Any:  # noqa: ANN401  (whatever the method returns)
    """Return the answer to a call, or the error that it ends with: an exception here would end the process."""
    try:
        return getattr(part, name)(*arguments, *([index] if name == "load_part" else []))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the run raises it again)
        return error


class _PartedStarts:
    """States of the copies in all processes when their episodes began; see `EpisodeStarts`."""

    def __init__(self, ask: Callable[..., Sequence[Any]]) -> None:
        self._ask, self.unsaved = ask, ""

    def states(self) -> list[Any]:
        """Return the state of each copy; none where nothing has begun."""
        return [state for part in self._ask("states") for state in part]

    def load_(self, which: Array, states: Sequence[Any]) -> None:
        """Give the copies of `which` their states back."""
        self._ask("load_starts", which, list(states))


class WorkerWorld:
    """A `World` or a `MaskedWorld` whose environments are stepped by several processes."""

    infos: InfosByNumber
    """Infos of the environments, as in an `InformingWorld`; absent where the world has none."""
    beginnings: Any
    """States of the environments where they can be saved, as in a `ReplayableWorld`; absent where they are not."""
    native: NativeSpaces
    """Spaces of the environment, as in a `NativeWorld`; absent where the world has none of Gymnasium's."""

    def __init__(self, build: BuildWorld, title: str, envs: int, workers: int) -> None:
        """Start the processes, each with about as many environments.

        Args:
            build: returns a world with this number of environments; called in each process.
            title: name of the environment, for messages.
            envs: number of environments, E.
            workers: number of processes; no more than environments are started.
        """
        count = min(workers, envs)
        ends = [envs * part // count for part in range(count + 1)]
        self._spans = [slice(first, end) for first, end in pairwise(ends)]
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork of a process with threads: `_serve` needs none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pool: Any = AsyncVectorEnv(
                [partial(_Part, build, span) for span in self._spans],
                shared_memory=False,
                context="fork",  # the user's classes and objects are there, whether they can be pickled or not
                worker=_serve,
            )
        # Before they are asked: an environment that cannot be used leaves no process.
        self._closing = Closing(self._end_processes)
        parts = self._ask("open")
        (spaces, is_replayable, informs, native_values) = parts[0]
        kept_bytes = sum(part_spaces.kept for part_spaces, *_ in parts)
        self._spaces: Spaces = replace(spaces, envs=envs, kept=kept_bytes)
        if native_values is not None:
            observation, action, form = native_values
            self.native = native_spaces(observation, action, form, title)
        if informs:
            self.infos = InfosByNumber(envs, self._read_info)
        if kept_bytes and is_replayable:
            self.beginnings = _PartedStarts(self._ask)

    @property
    def spaces(self) -> Spaces:
        """Observations and actions of the agents."""
        return self._spaces

    def begin_(self, which: Array, seeds: Array, obs: Array, *legal: Array) -> None:
        """Begin episodes; the arguments are those of `World` and `MaskedWorld`."""
        for span, shown in zip(self._spans, self._ask("begin", which, seeds), strict=True):
            span_begins = which[span]
            for target, part in zip((obs, *legal), shown, strict=True):
                target[span][span_begins] = part[span_begins]

    def step_(
        self, actions: Array, obs: Array, reward: Array, terminated: Array, truncated: Array, *legal: Array
    ) -> None:
        """Step every environment; the arguments are those of `World` and `MaskedWorld`."""
        targets = (obs, reward, terminated, truncated, *legal)
        for span, shown in zip(self._spans, self._ask("advance", actions), strict=True):
            for target, part in zip(targets, shown, strict=True):
                target[span] = part

    def state_dict(self) -> list[Any]:
        """Return the state that the world of each process keeps over episodes."""
        return [*self._ask("states")]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Give the world of each process its state back."""
        self._ask("load_part", state)

    def close(self) -> None:
        """Close the environments, and end the processes."""
        self._closing()

    def _end_processes(self) -> None:
        """End the processes once their environments are closed; kill them if they do not answer."""
        if self._pool.closed:  # they have ended already
            return
        have_answered = False
        try:
            self._ask("end")
            have_answered = True
        finally:
            self._pool.close(terminate=not have_answered)  # the answer to an earlier call may never come

    def _read_info(self, env: int) -> Any:  # noqa: ANN401  (of the environment)
        """Return the info of an environment from its process."""
        return next(info for info in self._ask("info", env) if info is not None)

    def _ask(self, name: str, *arguments: Any) -> Sequence[Any]:  # noqa: ANN401  (of the call)
        """Return each process's answer to a call.

        Raises:
            RunError: a process has ended.
            FlatwaterError: an environment failed; the error is that of the process.
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
