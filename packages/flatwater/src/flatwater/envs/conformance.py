"""A conformance suite for any environment: it tests what a long run relies on and Gymnasium's checker leaves out.

    assert check_env_conformance(lambda: MyEnv()) == []

It takes a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, a parallel environment of PettingZoo, or a `World`; the last
three are played as one env whose episode is over when every environment, or agent, has come to its end.

It plays episodes in both orders, which must agree to the bit, as the start of a run does (`flatwater.envs.exact`); and
again and again, which must not grow. Observations are compared by digest, so a large one costs no memory here. The
tests of the suite hold an env for each finding.
"""

import gc
import hashlib
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
import torch

from flatwater.envs.exact import Shown, try_exactness
from flatwater.envs.kept_state import keeps_state, load_state_, read_env_state
from flatwater.envs.makers import ParallelLike, WorldLike
from flatwater.envs.world import Array, Spaces, split_legal
from flatwater_watch.errors import ConfigError

Env = Any
"""A `gymnasium.Env`, or an adapter that plays another kind as one: rewards are summed, and it ends when all have."""
_STEP_PARTS = 5
_MASK_KEY = "action_mask"
"""Key of an info that says which actions are legal, where some are not."""
_RESET_PARTS = 2
SECONDS, STEPS = 60.0, 256
"""Limits of the test whether episodes can be played again."""
_SMALL_BLOCK = 128
"""Bytes. Smaller blocks are ignored, because torch 2.13 keeps some for each address at which it made a tensor. A
leak of small things shows in the list or dict that grows to hold them."""


@dataclass
class _EnvRecord:
    """Record of the calls, one entry each, and of the findings as sentences."""

    calls: list[tuple[str, float, bool, bool]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def find(self, sentence: str) -> None:
        if sentence not in self.findings:
            self.findings.append(sentence)


def check_env_conformance(
    make_env: Callable[[], object], *, episodes: int = 3, seed: int = 0, max_steps: int = 10_000
) -> list[str]:
    """Play episodes and report what would break a long run.

    Args:
        make_env: called several times; the envs must behave alike. A world gets its number: `lambda: MyWorld(4)`.
        episodes: for each of the comparisons; at least 2.
        seed: seed of the resets and of the actions, which are drawn from the action space.
        max_steps: an episode that is longer counts as one that does not end.

    Returns:
        Sentences, one for each kind of finding; empty if the env conforms.

    Raises:
        ConfigError: `make_env` gave no environment of these kinds.
    """
    env = _as_single_env(make_env())
    record = _play_episodes(env, episodes, seed, max_steps)
    findings = record.findings
    if not record.calls:
        return findings
    verdict = try_exactness(lambda _: _EnvPlayer(make_env), seconds=SECONDS, steps=min(max_steps, STEPS))
    if verdict.tested and verdict.why:
        findings.append(f"{verdict.why[0].upper()}{verdict.why[1:]}.")
    generators = _global_generators_used(env, seed, max_steps)
    if generators and "global generator" not in verdict.why:
        findings.append(
            f"The global generator of {' and '.join(generators)} was used or seeded: draw from self.np_random instead."
        )
    return findings + _find_growth(env, episodes, seed, max_steps)


def _as_single_env(env: object) -> Env:
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, gymnasium.vector.VectorEnv):
        return _SingleVectorEnv(env)
    if isinstance(env, WorldLike):
        return _SingleWorld(env)
    if isinstance(env, ParallelLike):
        return _SingleParallelEnv(env)
    raise ConfigError(
        "make_env(): expected a gymnasium.Env, a gymnasium.vector.VectorEnv, a parallel environment of PettingZoo, "
        f"or a world with begin_ and step_, got a {type(env).__name__}"
    )


class _SingleVectorEnv:
    """All environments of a vector env as one; each begins a new episode by itself where one has ended."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a VectorEnv)
        self._env, self.action_space, self.observation_space = env, env.action_space, env.observation_space

    def reset(self, **seed: int) -> Any:  # noqa: ANN401  (whatever it gives)
        self._over = np.zeros(self._env.num_envs, np.bool_)
        return self._env.reset(**seed)

    def step(self, action: Any) -> Any:  # noqa: ANN401
        step: Any = self._env.step(action)
        if not isinstance(step, tuple) or len(step) != _STEP_PARTS:
            return step  # as it is: the player of episodes reports it
        reward, done = np.asarray(step[1]), np.asarray(step[2]) | np.asarray(step[3])
        if reward.shape != self._over.shape or done.shape != self._over.shape:
            return step
        self._over |= done.astype(np.bool_)
        return step[0], float(reward.sum()), bool(self._over.all()), False, step[4]


class _SingleParallelEnv:
    """All agents of a parallel environment as one; it is its own space of actions and of observations."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  (a ParallelEnv)
        self._env = env
        self.action_space = self.observation_space = self

    def seed(self, seed: int) -> None:
        for number, agent in enumerate(self._env.possible_agents):
            self._env.action_space(agent).seed(seed + number)

    def sample(self) -> dict[Any, Any]:
        return {agent: self._env.action_space(agent).sample() for agent in self._env.agents}

    def contains(self, seen: Any) -> bool:  # noqa: ANN401
        return isinstance(seen, dict) and all(self._env.observation_space(each).contains(seen[each]) for each in seen)

    def reset(self, **seed: int) -> Any:  # noqa: ANN401
        return self._env.reset(**seed)

    def step(self, action: Any) -> Any:  # noqa: ANN401
        step: Any = self._env.step(action)
        if not isinstance(step, tuple) or len(step) != _STEP_PARTS or not all(isinstance(part, dict) for part in step):
            return step
        observations, rewards, terminated, truncated, infos = step
        # A wrong reward is handed on as it is: a sum would hide its value and its type from the message.
        faulty = [each for each in rewards.values() if not isinstance(each, Real) or not np.isfinite(float(each))]
        over = all(terminated[agent] or truncated[agent] for agent in terminated) or not self._env.agents
        return observations, faulty[0] if faulty else float(sum(rewards.values())), over, False, infos


class _SingleWorld:
    """All environments of a world as one, begun again where they are over; it is its own space, too."""

    def __init__(self, world: Any) -> None:  # noqa: ANN401  (a World)
        self._world, self._next = world, 0
        self._spaces: Spaces = world.spaces
        self.action_space = self.observation_space = self
        shape = (self._spaces.envs, self._spaces.agents)
        self._obs = np.zeros((*shape, *self._spaces.obs), self._spaces.obs_type)
        self._legal = [np.ones((*shape, self._spaces.legal), np.bool_)] if self._spaces.masked else []
        """Mask of legal actions, where the world has one."""
        self._outcome = (np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))

    def seed(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def sample(self) -> Array:
        spaces = self._spaces
        shape = (spaces.envs, spaces.agents, *spaces.action_shape)
        if spaces.bounds is not None:
            low, high = np.array(spaces.bounds, np.float32).T
            return self._rng.uniform(low, high, shape).astype(np.float32)
        if not self._legal:
            return self._rng.integers(spaces.choices or len(spaces.actions), size=shape)
        lists = split_legal(spaces, self._legal[0])
        return np.stack([(self._rng.random(mask.shape) * mask).argmax(-1) for mask in lists], -1).reshape(shape)

    def contains(self, _seen: Any) -> bool:  # noqa: ANN401
        """Whether each list has something legal; shape and type are those of our array."""
        return all(part.any(-1).all() for mask in self._legal for part in split_legal(self._spaces, mask))

    def _copy_observation(self) -> Any:  # noqa: ANN401
        return (self._obs.copy(), self._legal[0].copy()) if self._legal else self._obs.copy()

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self._next = self._next if seed is None else seed
        self._over = np.zeros(self._spaces.envs, np.bool_)
        self._begin_(np.ones(self._spaces.envs, np.bool_))
        return self._copy_observation(), {}

    def step(self, action: Array) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self._outcome
        if self._obs.dtype.kind == "f":
            self._obs.fill(np.nan)  # numbers that the world leaves unwritten are found
        reward.fill(np.nan)
        self._world.step_(action, self._obs, *self._outcome, *self._legal)
        observations, done = self._copy_observation(), np.asarray((terminated | truncated).all(axis=1))
        self._over |= done
        if done.any():
            self._begin_(done)
        return observations, float(reward.sum()), bool(self._over.all()), False, {}

    def _begin_(self, which: Array) -> None:
        if self._obs.dtype.kind == "f":
            self._obs[which] = np.nan  # what is not written is found
        self._world.begin_(which, np.arange(len(which)) + self._next, self._obs, *self._legal)
        self._next += len(which)


class _EnvPlayer:
    """An environment as a `flatwater.envs.exact.EpisodePlayer`; a second one is played beside it, step by step."""

    def __init__(self, make_env: Callable[[], object]) -> None:
        pair = [make_env(), make_env()]
        self._first = pair[0]
        self._envs = [_as_single_env(env) for env in pair]
        self._infos: list[dict[str, Any]] = [{}, {}]
        self._is_over, self._masked = [True, True], False

    @property
    def can_save(self) -> bool:
        return isinstance(self._first, gymnasium.Env | gymnasium.vector.VectorEnv) and keeps_state(self._first)

    def save(self) -> Any:  # noqa: ANN401
        return read_env_state(self._first)

    def load(self, state: Any) -> None:  # noqa: ANN401
        load_state_(self._first, state)

    def begin(self, seed: int) -> Shown:
        arrays = self._begin(0, seed)
        if self._is_over[1]:
            self._begin(1, seed + 1)
        return arrays

    def _begin(self, which: int, seed: int) -> Shown:
        self._envs[which].action_space.seed(seed)
        observation, self._infos[which] = self._envs[which].reset(seed=seed)
        self._is_over[which], self._masked = False, _MASK_KEY in self._infos[0]
        return self._named_arrays(observation, self._infos[which])

    def sample_action(self, rng: np.random.Generator) -> Any:  # noqa: ANN401
        env = self._envs[0]
        env.action_space.seed(int(rng.integers(1 << 30)))  # an action follows from `rng` alone
        return _sample_legal(env, self._infos[0], _EnvRecord(), masked=self._masked)

    def step(self, action: Any) -> tuple[Shown, bool]:  # noqa: ANN401
        """Step the first environment, and the second with an action of its own until it is over."""
        observation, reward, terminated, truncated, self._infos[0] = self._envs[0].step(action)
        outcome = {"rewards": np.asarray(float(reward)), "ends": np.array([terminated, truncated], np.bool_)}
        if not self._is_over[1]:
            other_action = _sample_legal(self._envs[1], self._infos[1], _EnvRecord(), masked=self._masked)
            *_, other_terminated, other_truncated, self._infos[1] = self._envs[1].step(other_action)
            self._is_over[1] = bool(other_terminated or other_truncated)
        return {**self._named_arrays(observation, self._infos[0]), **outcome}, bool(terminated or truncated)

    def _named_arrays(self, observation: Any, info: dict[str, Any]) -> dict[str, Array]:  # noqa: ANN401
        parts = {
            f"observations{path}": np.array(part) for path, part in _nested_parts(observation)
        }  # a copy: the env may reuse it
        parts |= {f"masks{path}": np.array(part) for path, part in _nested_parts(info.get(_MASK_KEY, ()))}
        # The bytes of an array of objects are addresses, which differ in every process.
        return {name: np.array(repr(part)) if part.dtype.hasobject else part for name, part in parts.items()}

    def close(self) -> None:
        """Do nothing: the environments are the caller's."""


def _play_episodes(env: Env, episodes: int, seed: int, max_steps: int) -> _EnvRecord:
    """Play episodes of at most `max_steps` steps; `seed` is for the actions and the first reset, others have none."""
    record = _EnvRecord()
    env.action_space.seed(seed)
    last_observation: tuple[Any, str, str] | None = None
    for episode in range(episodes):
        answer: Any = env.reset(seed=seed) if episode == 0 else env.reset()
        if not (isinstance(answer, tuple) and len(answer) == _RESET_PARTS and isinstance(answer[1], dict)):
            record.find(f"reset() returned {_type_name(answer)}: expected an observation and an info dict.")
            return record
        _check_kept(last_observation, record)
        last_observation = _check_observation(env, answer[0], "reset()", record)
        info, masked = answer[1], _MASK_KEY in answer[1]
        record.calls.append((last_observation[1] + _digest(info.get(_MASK_KEY)), 0.0, False, False))
        for _ in range(max_steps):
            step: Any = env.step(_sample_legal(env, info, record, masked=masked))
            if not (isinstance(step, tuple) and len(step) == _STEP_PARTS and isinstance(step[4], dict)):
                record.find(
                    f"step() returned {_type_name(step)}: expected observation, reward, terminated, truncated and info."
                )
                return record
            _check_kept(last_observation, record)
            last_observation = _check_observation(env, step[0], "step()", record)
            info = step[4]
            record.calls.append((last_observation[1] + _digest(info.get(_MASK_KEY)), *_check_outcome(step, record)))
            if step[2] or step[3]:
                break
        else:
            record.find(f"An episode was not over after {max_steps} steps: terminated or truncated must become True.")
            return record
    return record


def _check_observation(env: Env, observation: Any, call: str, record: _EnvRecord) -> tuple[Any, str, str]:  # noqa: ANN401
    """Record what is wrong with a result of `call`, `reset()` or `step()`; return (observation, digest, `call`)."""
    if isinstance(env, _SingleWorld) and not env.contains(observation):
        record.find(f"{call} left an agent nothing to choose: expected a legal action in each list.")
    elif not env.observation_space.contains(observation):
        record.find(
            f"{call} returned an observation that is not in the observation space: {_observation_summary(observation)}."
        )
    for path, part in _nested_parts(observation):
        if isinstance(part, np.ndarray) and part.dtype.kind == "f" and not np.isfinite(part).all():
            record.find(f"{call} returned an observation{path} with NaN or infinity: a network cannot learn from it.")
    return observation, _digest(observation), call


def _sample_legal(env: Env, info: dict[str, Any], record: _EnvRecord, *, masked: bool) -> Any:  # noqa: ANN401
    """Return an action, legal by the mask of `info` if reset() gave one (`masked`); record a fault of the mask."""
    space = env.action_space
    sizes = [int(space.n)] if isinstance(space, gymnasium.spaces.Discrete) else []
    sizes = [int(size) for size in space.nvec.ravel()] if isinstance(space, gymnasium.spaces.MultiDiscrete) else sizes
    if not masked or not sizes:
        return space.sample()
    mask = info.get(_MASK_KEY)
    parts = mask if isinstance(mask, tuple | list) else (mask,)
    row = np.concatenate([np.ravel(part) for part in parts])
    fault = ""
    if mask is None:
        fault = "is missing from the info of a step that did not end the episode, where reset() gave one"
    elif len(row) != sum(sizes):
        fault = f"has {len(row)} numbers: expected {sum(sizes)}, one for each action"
    elif not np.isin(row, (0, 1)).all():
        fault = "has other numbers than 0 (illegal) and 1 (legal)"
    elif not all(part.any() for part in np.split(row, np.cumsum(sizes)[:-1])):
        fault = "leaves nothing to choose in an episode that goes on"
    if fault:
        record.find(f"The {_MASK_KEY} {fault}.")
        return space.sample()
    masks = tuple(part.astype(np.int8) for part in np.split(row, np.cumsum(sizes)[:-1]))
    return space.sample(masks[0] if isinstance(space, gymnasium.spaces.Discrete) else masks)


def _check_kept(kept_observation: tuple[Any, str, str] | None, record: _EnvRecord) -> None:
    """Report an observation whose digest has changed since it was returned: (observation, digest, name of the call)."""
    if kept_observation is not None and _digest(kept_observation[0]) != kept_observation[1]:
        record.find(
            f"An observation returned by {kept_observation[2]} was changed by the next call, so it cannot be stored. "
            "Return a copy, or a view of an array that is never overwritten."
        )


def _check_outcome(step: tuple[Any, ...], record: _EnvRecord) -> tuple[float, bool, bool]:
    _, reward, terminated, truncated, _ = step
    if not isinstance(reward, Real) or not np.isfinite(float(reward)):
        record.find(f"step() returned the reward {reward!r} ({_type_name(reward)}): expected a finite number.")
        reward = 0.0
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            record.find(f"step() returned {name} = {flag!r} ({_type_name(flag)}): expected a bool.")
    return float(reward), bool(terminated), bool(truncated)


def _find_growth(env: Env, episodes: int, seed: int, max_steps: int) -> list[str]:
    """Play rounds of the same episodes (see `_play_episodes`); return a sentence on each kind of memory that grows.

    Only growth in every single round counts, so a cache that fills once is no finding.
    """
    memory_sizes, tensor_sizes = [], []
    with _memory_traced():
        # The first round may fill caches; its end is where counting begins.
        for _ in range(episodes + 1):
            _play_episodes(env, episodes, seed, max_steps)
            gc.collect()
            memory_sizes.append(_traced_bytes())
            tensor_sizes.append(_tensor_bytes())
    findings = []
    for subject, sizes in (("Python and NumPy memory", memory_sizes), ("tensors", tensor_sizes)):
        growth = np.diff(sizes)
        if (growth > 0).all():
            findings.append(
                f"{int(np.median(growth))} bytes more of {subject} are in use after each round of {episodes} episodes: "
                "a reset does not free all memory of an episode."
            )
    return findings


@contextmanager
def _memory_traced() -> Iterator[None]:
    """Trace allocations, and freeze existing objects, so that collecting looks at new ones alone."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if not was_tracing:
            tracemalloc.stop()


def _traced_bytes() -> int:
    """Bytes of the blocks that were allocated since tracing began and are still held."""
    return sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size > _SMALL_BLOCK)


def _tensor_bytes() -> int:
    """Bytes of the tensors made since `gc.freeze` that the garbage collector knows."""
    alive = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]  # `isinstance` runs lazy objects' code
    # By address of the storage: views of one tensor are its bytes once.
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in alive}.values())


def _global_generators_used(env: Env, seed: int, max_steps: int) -> list[str]:
    """Return the global generators that move while reset and step run, in one episode."""
    env.action_space.seed(seed)
    before = _global_generators()
    _, info = env.reset(seed=seed)
    masked = _MASK_KEY in info
    moved = {name for name, state in _global_generators().items() if state != before[name]}
    for _ in range(max_steps):
        action = _sample_legal(env, info, _EnvRecord(), masked=masked)
        before = _global_generators()  # again: drawing the action above is not the env's doing
        step = env.step(action)
        info = step[-1]
        moved |= {name for name, state in _global_generators().items() if state != before[name]}
        if step[2] or step[3]:
            break
    return sorted(moved)


def _global_generators() -> dict[str, str]:
    """Return the state of each global generator by name, as text that is equal only where the state is."""
    return {
        "random": _hexdigest(repr(random.getstate()).encode()),
        "numpy.random": repr(np.random.get_state(legacy=False)),  # noqa: NPY002  (whether it is used is the question)
        "torch": _hexdigest(torch.get_rng_state().numpy().tobytes()),
    }


def _nested_parts(observation: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Yield each array or value of a nested observation, with its path, in an order that does not depend on dicts."""
    if isinstance(observation, dict):
        for key in sorted(observation):  # in one order, however the dict was filled
            yield from _nested_parts(observation[key], f"{path}[{key!r}]")
    elif isinstance(observation, tuple | list):
        for index, part in enumerate(observation):
            yield from _nested_parts(part, f"{path}[{index}]")
    else:
        yield path, observation


def _digest(observation: Any) -> str:  # noqa: ANN401
    whole = hashlib.sha256()
    for path, part in _nested_parts(observation):
        array = np.asarray(part)
        whole.update(f"{path}{array.dtype.str}{array.shape}".encode())
        whole.update(array.tobytes() if array.dtype != object else repr(part).encode())
    return whole.hexdigest()


def _hexdigest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _type_name(value: Any) -> str:  # noqa: ANN401
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _observation_summary(observation: Any) -> str:  # noqa: ANN401
    texts = [
        f"{path} {_type_name(part)}" for path, part in _nested_parts(observation) if not isinstance(part, np.ndarray)
    ]
    texts += [
        f"{path} {part.dtype} {part.shape} from {part.min()} to {part.max()}"
        for path, part in _nested_parts(observation)
        if isinstance(part, np.ndarray) and part.size
    ]
    return ", ".join(text.strip() for text in texts)
