"""A conformance suite for environments: properties that a long run needs and Gymnasium's checker leaves out.

    assert check_env_conformance(lambda: MyEnv()) == []

It takes a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, an environment of PettingZoo, or a `World`; the last
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
from flatwater.envs.single_env import STEP_PARTS, Env, SingleWorld, as_single_env
from flatwater.envs.world import Array

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
    """Play episodes and report faults that would break a long run.

    Args:
        make_env: called several times; the envs must behave alike. A world gets its number: `lambda: MyWorld(4)`.
        episodes: for each of the comparisons; at least 2.
        seed: seed of the resets and of the actions, which are drawn from the action space.
        max_steps: steps from which an episode counts as endless.

    Returns:
        Sentences, one for each kind of finding; empty if the env conforms.

    Raises:
        ConfigError: `make_env` gave no environment of these kinds.
    """
    env = as_single_env(make_env())
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


class _EnvPlayer:
    """An environment as a `flatwater.envs.exact.EpisodePlayer`; a second is played with it, step by step."""

    def __init__(self, make_env: Callable[[], object]) -> None:
        """Make the environment, and a second to play next to it."""
        pair = [make_env(), make_env()]
        self._first = pair[0]
        self._envs = [as_single_env(env) for env in pair]
        self._infos: list[dict[str, Any]] = [{}, {}]
        self._is_over, self._masked = [True, True], False

    @property
    def can_save(self) -> bool:
        return isinstance(self._first, gymnasium.Env | gymnasium.vector.VectorEnv) and keeps_state(self._first)

    def save(self) -> Any:  # noqa: ANN401  (a state of any form)
        return read_env_state(self._first)

    def load(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        load_state_(self._first, state)

    def begin(self, seed: int) -> Shown:
        """Begin the episode, and another in the second environment if the last is over."""
        arrays = self._begin(0, seed)
        if self._is_over[1]:
            self._begin(1, seed + 1)
        return arrays

    def _begin(self, which: int, seed: int) -> Shown:
        """Reset an environment with a seed, for its space of actions as well, and return copies of its arrays."""
        self._envs[which].action_space.seed(seed)
        observation, self._infos[which] = self._envs[which].reset(seed=seed)
        self._is_over[which], self._masked = False, _MASK_KEY in self._infos[0]
        return self._named_arrays(observation, self._infos[which])

    def sample_action(self, rng: np.random.Generator) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Return a legal action of the first environment's space."""
        env = self._envs[0]
        env.action_space.seed(int(rng.integers(1 << 30)))  # an action follows from `rng` alone
        return _sample_legal(env, self._infos[0], _EnvRecord(), masked=self._masked)

    def step(self, action: Any) -> tuple[Shown, bool]:  # noqa: ANN401  (whatever the space of actions holds)
        """Step the first environment, and the second with an action of its own until it is over."""
        observation, reward, terminated, truncated, self._infos[0] = self._envs[0].step(action)
        outcome = {"rewards": np.asarray(float(reward)), "ends": np.array([terminated, truncated], np.bool_)}
        if not self._is_over[1]:
            other_action = _sample_legal(self._envs[1], self._infos[1], _EnvRecord(), masked=self._masked)
            *_, other_terminated, other_truncated, self._infos[1] = self._envs[1].step(other_action)
            self._is_over[1] = bool(other_terminated or other_truncated)
        return {**self._named_arrays(observation, self._infos[0]), **outcome}, bool(terminated or truncated)

    def _named_arrays(self, observation: Any, info: dict[str, Any]) -> dict[str, Array]:  # noqa: ANN401  (whatever the space holds)
        """Return copies of the observation's parts and of the masks in `info`, by name."""
        # Copies: the environment may reuse its arrays.
        parts = {f"observations{path}": np.array(part) for path, part in _nested_parts(observation)}
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
            if not (isinstance(step, tuple) and len(step) == STEP_PARTS and isinstance(step[4], dict)):
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


def _check_observation(env: Env, observation: Any, call: str, record: _EnvRecord) -> tuple[Any, str, str]:  # noqa: ANN401  (whatever the space holds)
    """Record the faults in a result of `call`, `reset()` or `step()`; return (observation, digest, `call`)."""
    if isinstance(env, SingleWorld) and not env.contains(observation):
        record.find(f"{call} left an agent nothing to choose: expected a legal action in each list.")
    elif not env.observation_space.contains(observation):
        record.find(
            f"{call} returned an observation that is not in the observation space: {_observation_summary(observation)}."
        )
    for path, part in _nested_parts(observation):
        if isinstance(part, np.ndarray) and part.dtype.kind == "f" and not np.isfinite(part).all():
            record.find(f"{call} returned an observation{path} with NaN or infinity: a network cannot learn from it.")
    return observation, _digest(observation), call


def _sample_legal(env: Env, info: dict[str, Any], record: _EnvRecord, *, masked: bool) -> Any:  # noqa: ANN401  (whatever the space holds)
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
    """Record a reward, `terminated` or `truncated` of a wrong type, or a reward that is not finite."""
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

    Only growth in every single round counts, so a cache that fills once is not reported.
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
    """Trace allocations, and freeze existing objects, so that the collector looks at new objects alone."""
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


def _nested_parts(observation: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (whatever the space holds)
    """Yield each array or value of a nested observation, with its path, in an order that does not depend on dicts."""
    if isinstance(observation, dict):
        for key in sorted(observation):  # in one order, however the dict was filled
            yield from _nested_parts(observation[key], f"{path}[{key!r}]")
    elif isinstance(observation, tuple | list):
        for index, part in enumerate(observation):
            yield from _nested_parts(part, f"{path}[{index}]")
    else:
        yield path, observation


def _digest(observation: Any) -> str:  # noqa: ANN401  (whatever the space holds)
    """Return a hash over all parts of an observation, with their paths, types and shapes."""
    digest = hashlib.sha256()
    for path, part in _nested_parts(observation):
        array = np.asarray(part)
        digest.update(f"{path}{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes() if array.dtype != object else repr(part).encode())
    return digest.hexdigest()


def _hexdigest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _type_name(value: Any) -> str:  # noqa: ANN401  (whatever the environment gives)
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _observation_summary(observation: Any) -> str:  # noqa: ANN401  (whatever the space holds)
    """Return an observation in a few words for a message: dtype, shape and range of each part."""
    texts = [
        f"{path} {_type_name(part)}" for path, part in _nested_parts(observation) if not isinstance(part, np.ndarray)
    ]
    texts += [
        f"{path} {part.dtype} {part.shape} from {part.min()} to {part.max()}"
        for path, part in _nested_parts(observation)
        if isinstance(part, np.ndarray) and part.size
    ]
    return ", ".join(text.strip() for text in texts)
