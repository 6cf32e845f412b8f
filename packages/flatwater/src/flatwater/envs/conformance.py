"""A conformance suite for environments: properties that a long run needs and Gymnasium's checker leaves out.

    assert check_env_conformance(lambda: MyEnv()) == []

It takes a `gymnasium.Env`, a `gymnasium.vector.VectorEnv`, an environment of PettingZoo, or a `World`. All but the
first are played as one env, whose episode is over when that of every environment, or agent, is.

It plays episodes in both orders, which must agree to the bit, as the start of a run does (`envs.exactness`); and again
and again, during which memory must not grow. Observations are compared by digest, so a large one costs no memory
here. The tests of the suite hold an env for each finding.
"""

import gc
import hashlib
import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from flatwater.envs.exactness import CallResult, try_exactness
from flatwater.envs.kept_state import keeps_state, load_state_, read_env_state
from flatwater.envs.single_env import STEP_PARTS, Env, SingleWorld, as_single_env
from flatwater.envs.world import Array
from flatwater.envs.wrapped.checks import RESET_PARTS
from flatwater.envs.wrapped.masks import MASK_KEY, find_mask, mask_flags, sample_mask

SECONDS, STEPS = 60.0, 256
"""CPU time, and steps of an episode, that the test whether episodes can be played again may take."""
_SMALL_BLOCK = 128
"""Bytes. Smaller blocks are ignored, because torch 2.13 keeps some for each address at which it made a tensor. A
leak of small things shows in the list or dict that grows to hold them."""


@dataclass
class _EnvRecord:
    """Count of an environment's valid results, and list of its faults."""

    valid_results: int = 0
    """Number of resets and steps that returned a tuple of the right length."""
    findings: list[str] = field(default_factory=list)
    """A sentence for each kind of fault."""

    def add_finding(self, sentence: str) -> None:
        if sentence not in self.findings:
            self.findings.append(sentence)


def check_env_conformance(
    make_env: Callable[[], object], *, episodes: int = 3, seed: int = 0, max_steps: int = 10_000
) -> list[str]:
    """Play episodes and report faults that would break a long run.

    Args:
        make_env: called several times; the envs must behave alike. A world gets its number of envs: `lambda:
            MyWorld(4)`.
        episodes: number of episodes that each check plays; at least 2.
        seed: seed of the resets and of the actions, which are drawn from the action space.
        max_steps: number of steps after which an episode counts as endless.

    Returns:
        Sentences, one for each kind of finding; empty if the env conforms.

    Raises:
        ConfigError: the object that `make_env` returned is no environment that Flatwater knows.
    """
    env = as_single_env(make_env())
    record = _play_episodes(env, episodes, seed, max_steps)
    findings = record.findings
    if not record.valid_results:  # no reset has worked, so no episode can be played again
        return findings
    # The number of a player, by which its simultaneous episodes differ, is left out: theirs follow from its `begin`.
    verdict = try_exactness(lambda _: _EnvPlayer(make_env), seconds=SECONDS, steps=min(max_steps, STEPS))
    if verdict.tested and verdict.why:
        findings.append(f"{verdict.why[0].upper()}{verdict.why[1:]}.")
    generators = _find_used_generators(env, seed, max_steps)
    # The verdict may name a global generator as the cause already.
    if generators and "global generator" not in verdict.why:
        findings.append(
            f"The global generator of {' and '.join(generators)} was used or seeded: draw from self.np_random instead."
        )
    return findings + _find_growth(env, episodes, seed, max_steps)


class _EnvPlayer:
    """A `flatwater.envs.exactness.EpisodePlayer` of an environment, next to which a second is played step by step."""

    def __init__(self, make_env: Callable[[], object]) -> None:
        """Make the environment, and a second to play next to it."""
        pair = [make_env(), make_env()]
        self._first = pair[0]
        """The first environment itself, whose state is saved; `_envs` has both as single environments."""
        self._envs = [as_single_env(env) for env in pair]
        self._infos: list[dict[str, Any]] = [{}, {}]
        self._is_over = [True, True]
        """Whether each environment awaits a reset."""
        self._has_masks = False

    @property
    def can_save(self) -> bool:
        return isinstance(self._first, gymnasium.Env | gymnasium.vector.VectorEnv) and keeps_state(self._first)

    def read_kept_state(self) -> Any:  # noqa: ANN401  (a state of any form)
        return read_env_state(self._first)

    def load_kept_state_(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        load_state_(self._first, state)

    def begin(self, seed: int) -> CallResult:
        """Begin the episode, and another in the second environment if its last is over; return the first's arrays."""
        arrays = self._begin(0, seed)
        if self._is_over[1]:
            self._begin(1, seed + 1)
        return arrays

    def _begin(self, index: int, seed: int) -> CallResult:
        """Reset environment `index`, 0 or 1, seed its action space too, and return copies of its arrays by name."""
        self._envs[index].action_space.seed(seed)
        observation, info = self._envs[index].reset(seed=seed)
        self._infos[index] = _info_with_mask(observation, info)
        self._is_over[index] = False
        self._has_masks = MASK_KEY in self._infos[0]
        return self._named_arrays(observation, self._infos[index])

    def sample_action(self, rng: np.random.Generator) -> Any:  # noqa: ANN401  (whatever the space of actions holds)
        """Return a legal action of the first environment's space."""
        env = self._envs[0]
        env.action_space.seed(int(rng.integers(1 << 30)))  # an action follows from `rng` alone
        # A record that nobody reads: `_play_episodes` has reported faulty masks.
        return _sample_legal(env, self._infos[0], _EnvRecord(), has_masks=self._has_masks)

    def step(self, action: Any) -> tuple[CallResult, bool]:  # noqa: ANN401  (whatever the space of actions holds)
        """Step the first environment with `action`, and the second with a random action unless its episode is over.

        Returns:
            The first environment's arrays by name, and whether its episode is over.
        """
        observation, reward, terminated, truncated, info = self._envs[0].step(action)
        self._infos[0] = _info_with_mask(observation, info)
        outcome = {"rewards": np.asarray(float(reward)), "ends": np.array([terminated, truncated], np.bool_)}
        # The second environment only plays along: nothing of its results is compared.
        if not self._is_over[1]:
            other_action = _sample_legal(self._envs[1], self._infos[1], _EnvRecord(), has_masks=self._has_masks)
            other_observation, _, other_terminated, other_truncated, info = self._envs[1].step(other_action)
            self._infos[1] = _info_with_mask(other_observation, info)
            self._is_over[1] = bool(other_terminated or other_truncated)
        return {**self._named_arrays(observation, self._infos[0]), **outcome}, bool(terminated or truncated)

    def _named_arrays(self, observation: Any, info: dict[str, Any]) -> dict[str, Array]:  # noqa: ANN401  (whatever the space holds)
        """Return copies of the observation's parts and of the masks in `info`, by name."""
        # Copies: the environment may reuse its arrays.
        parts = {f"observations{path}": np.array(part) for path, part in _nested_parts(observation)}
        parts |= {f"masks{path}": np.array(part) for path, part in _nested_parts(info.get(MASK_KEY, ()))}
        # The bytes of an array of objects are addresses, which differ in every process.
        return {name: np.array(repr(part)) if part.dtype.hasobject else part for name, part in parts.items()}

    def close(self) -> None:
        """Do nothing: the environments are the caller's."""


def _play_episodes(env: Env, episodes: int, seed: int, max_steps: int) -> _EnvRecord:
    """Play episodes of at most `max_steps` steps; return the number of valid results, and the faults.

    The first result of a wrong form ends the test. `seed` seeds the actions and the first reset; later resets have no
    seed.
    """
    record = _EnvRecord()
    env.action_space.seed(seed)
    last_observation: _ReturnedObservation | None = None
    for episode in range(episodes):
        answer: Any = env.reset(seed=seed) if episode == 0 else env.reset()
        if not (isinstance(answer, tuple) and len(answer) == RESET_PARTS and isinstance(answer[1], dict)):
            record.add_finding(f"reset() returned {_type_name(answer)}: expected an observation and an info dict.")
            return record
        # This call may have overwritten the array that the call before it returned.
        _check_kept_observation(last_observation, record)
        observation, info = answer[0], _info_with_mask(*answer)
        last_observation = _check_observation(env, observation, "reset()", record)
        has_masks = MASK_KEY in info
        record.valid_results += 1
        for _ in range(max_steps):
            step: Any = env.step(_sample_legal(env, info, record, has_masks=has_masks))
            if not (isinstance(step, tuple) and len(step) == STEP_PARTS and isinstance(step[4], dict)):
                record.add_finding(
                    f"step() returned {_type_name(step)}: expected observation, reward, terminated, truncated and info."
                )
                return record
            _check_kept_observation(last_observation, record)
            observation, reward, terminated, truncated, _ = step
            info = _info_with_mask(observation, step[4])
            last_observation = _check_observation(env, observation, "step()", record)
            _check_outcome(reward, terminated, truncated, record)
            record.valid_results += 1
            if terminated or truncated:
                break
        else:  # no step has ended the episode
            record.add_finding(
                f"An episode was not over after {max_steps} steps: terminated or truncated must become True."
            )
            return record
    return record


class _ReturnedObservation(NamedTuple):
    """An observation that an environment has returned, and must not change any more."""

    observation: Any
    digest: str
    call: str
    """`reset()` or `step()`, for messages."""


def _check_observation(env: Env, observation: Any, call: str, record: _EnvRecord) -> _ReturnedObservation:  # noqa: ANN401  (whatever the space holds)
    """Record the faults in an observation that `call`, `reset()` or `step()`, returned; return it with its digest."""
    # `contains` of a world looks at masks alone: the arrays of its observations are always of its space.
    if isinstance(env, SingleWorld) and not env.contains(observation):
        record.add_finding(f"{call} left an agent nothing to choose: expected a legal action in each list.")
    elif not env.observation_space.contains(observation):
        record.add_finding(
            f"{call} returned an observation that is not in the observation space: {_observation_summary(observation)}."
        )
    for path, part in _nested_parts(observation):
        if isinstance(part, np.ndarray) and part.dtype.kind == "f" and not np.isfinite(part).all():
            record.add_finding(
                f"{call} returned an observation{path} with NaN or infinity: a network cannot learn from it."
            )
    return _ReturnedObservation(observation, _observation_digest(observation), call)


def _info_with_mask(observation: Any, info: Any) -> Any:  # noqa: ANN401  (whatever an environment gives)
    """Return the info with the mask of legal actions under the key `MASK_KEY`; unchanged if there is no mask.

    The environment may give the mask in the info or in a Dict observation.
    """
    mask = find_mask(observation, info) if isinstance(info, dict) else None  # what is no dict is a finding
    return info if mask is None else {**info, MASK_KEY: mask}


def _sample_legal(env: Env, info: dict[str, Any], record: _EnvRecord, *, has_masks: bool) -> Any:  # noqa: ANN401  (whatever the space holds)
    """Return a random action that the mask of `info` marks as legal, or any action where the environment has no masks.

    Args:
        env: environment whose space of actions is drawn from.
        info: info of the last reset or step; its entry `action_mask` is read.
        record: gets a finding if the mask is missing or wrong; the action may then be illegal.
        has_masks: whether the last reset gave a mask, so that each step must give one, too.
    """
    space = env.action_space
    sizes: list[int] = []
    if isinstance(space, gymnasium.spaces.Discrete):
        sizes = [int(space.n)]
    elif isinstance(space, gymnasium.spaces.MultiDiscrete):
        sizes = [int(size) for size in space.nvec.ravel()]
    if not has_masks or not sizes:
        return space.sample()
    mask = info.get(MASK_KEY)
    flags = mask_flags(mask)  # 0 or 1 for each action; several lists of actions follow one another
    fault = ""
    if mask is None:
        fault = (
            "is missing from the observation and info of a step that did not end the episode, where reset() gave one"
        )
    elif len(flags) != sum(sizes):
        fault = f"has {len(flags)} numbers: expected {sum(sizes)}, one for each action"
    elif not np.isin(flags, (0, 1)).all():
        fault = "has other numbers than 0 (illegal) and 1 (legal)"
    # Split where the lists of actions end: each must have a legal action.
    elif not all(list_flags.any() for list_flags in np.split(flags, np.cumsum(sizes)[:-1])):
        fault = "leaves nothing to choose in an episode that goes on"
    if fault:
        record.add_finding(f"The {MASK_KEY} {fault}.")
        return space.sample()
    return space.sample(sample_mask(space, flags))


def _check_kept_observation(observation: _ReturnedObservation | None, record: _EnvRecord) -> None:
    """Record a fault if an observation, where there is one, has changed since the environment returned it."""
    if observation is not None and _observation_digest(observation.observation) != observation.digest:
        record.add_finding(
            f"An observation returned by {observation.call} was changed by the next call, so it cannot be stored. "
            "Return a copy, or a view of an array that is never overwritten."
        )


def _check_outcome(reward: object, terminated: object, truncated: object, record: _EnvRecord) -> None:
    """Record a reward, `terminated` or `truncated` of a wrong type, or a reward that is not finite."""
    if not isinstance(reward, Real) or not np.isfinite(float(reward)):
        record.add_finding(f"step() returned the reward {reward!r} ({_type_name(reward)}): expected a finite number.")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):
            record.add_finding(f"step() returned {name} = {flag!r} ({_type_name(flag)}): expected a bool.")


def _find_growth(env: Env, episodes: int, seed: int, max_steps: int) -> list[str]:
    """Play the same episodes in several rounds; return a sentence on each kind of memory that grows in every round.

    A cache that fills once is therefore not reported.
    """
    memory_sizes, tensor_sizes = [], []
    with _trace_memory():
        # Each round is compared with the round before; the first, which may fill caches, has none before it.
        for _ in range(episodes + 1):
            _play_episodes(env, episodes, seed, max_steps)
            gc.collect()
            memory_sizes.append(_traced_bytes())
            tensor_sizes.append(_tensor_bytes())
    findings = []
    for subject, sizes in (("Python and NumPy memory", memory_sizes), ("tensors", tensor_sizes)):
        growth = np.diff(sizes)  # bytes from each round to the next
        if (growth > 0).all():
            findings.append(
                f"{int(np.median(growth))} bytes more of {subject} are in use after each round of {episodes} episodes: "
                "a reset does not free all memory of an episode."
            )
    return findings


@contextmanager
def _trace_memory() -> Iterator[None]:
    """Trace allocations within the block, and hide earlier objects from `gc.get_objects`, for `_tensor_bytes`."""
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
    """Return the bytes of the blocks that were allocated since tracing began and are still held."""
    return sum(trace.size for trace in tracemalloc.take_snapshot().traces if trace.size > _SMALL_BLOCK)


def _tensor_bytes() -> int:
    """Return the bytes of the tensors made since `gc.freeze` that the garbage collector knows."""
    # By type: `isinstance` would run the code of lazy objects.
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    # By address of the storage, so that several views of one storage count once.
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def _find_used_generators(env: Env, seed: int, max_steps: int) -> list[str]:
    """Play one episode; return the names of the global generators whose state a reset or a step has changed."""
    env.action_space.seed(seed)
    earlier_states = _generator_states()
    info = _info_with_mask(*env.reset(seed=seed))
    has_masks = MASK_KEY in info
    used_names = {name for name, state in _generator_states().items() if state != earlier_states[name]}
    for _ in range(max_steps):
        action = _sample_legal(env, info, _EnvRecord(), has_masks=has_masks)
        earlier_states = _generator_states()  # read after the action is drawn, which is not the environment's doing
        step = env.step(action)
        # By index: a step with another number of results was reported already, and must not end the check.
        info = _info_with_mask(step[0], step[-1])
        used_names |= {name for name, state in _generator_states().items() if state != earlier_states[name]}
        if step[2] or step[3]:  # terminated or truncated
            break
    return sorted(used_names)


def _generator_states() -> dict[str, str]:
    """Return the state of each global generator by name, as text that is equal only where the state is."""
    return {
        "random": _hexdigest(repr(random.getstate()).encode()),
        "numpy.random": repr(np.random.get_state(legacy=False)),  # noqa: NPY002  (whether it is used is the question)
        "torch": _hexdigest(torch.get_rng_state().numpy().tobytes()),
    }


def _nested_parts(observation: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (whatever the space holds)
    """Yield (path, array or value) for each part of a nested observation, such as `["camera"][0]`; keys are sorted."""
    if isinstance(observation, dict):
        for key in sorted(observation):
            yield from _nested_parts(observation[key], f"{path}[{key!r}]")
    elif isinstance(observation, tuple | list):
        for index, part in enumerate(observation):
            yield from _nested_parts(part, f"{path}[{index}]")
    else:
        yield path, observation


def _observation_digest(observation: Any) -> str:  # noqa: ANN401  (whatever the space holds)
    """Return a hash over all parts of an observation, with their paths, types and shapes."""
    digest = hashlib.sha256()
    for path, part in _nested_parts(observation):
        array = np.asarray(part)
        # The bytes of an array of objects are addresses: their text is hashed instead.
        digest.update(f"{path}{array.dtype.str}{array.shape}".encode())
        content = array.tobytes() if array.dtype != object else repr(part).encode()
        digest.update(content)
    return digest.hexdigest()


def _hexdigest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _type_name(value: Any) -> str:  # noqa: ANN401  (whatever the environment gives)
    """Return the name of a value's class for messages, of a tuple with its length: `float`, `tuple of 4`."""
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple) else type(value).__name__


def _observation_summary(observation: Any) -> str:  # noqa: ANN401  (whatever the space holds)
    """Return an observation in a few words for a message: types of plain values, and dtype, shape, range of arrays."""
    value_texts, array_texts = list[str](), list[str]()
    for path, part in _nested_parts(observation):
        if not isinstance(part, np.ndarray):
            value_texts.append(f"{path} {_type_name(part)}")
        elif part.size:  # an empty array has no minimum
            array_texts.append(f"{path} {part.dtype} {part.shape} from {part.min()} to {part.max()}")
    # `strip`, as the path of an observation without parts is empty.
    return ", ".join(text.strip() for text in value_texts + array_texts)
