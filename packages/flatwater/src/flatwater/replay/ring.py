"""A replay for any agent of Gymnasium spaces that stores every observation once.

Each env has a ring of slots, its stream. A slot holds an observation and, once the env has acted on it, the action, the
reward and whether the episode terminated. A transition's next observation is the observation in the next slot of its
stream, so nothing is stored twice. The newest slot of a stream and the final observation of an episode hold no
transition and are never drawn, so an episode takes one slot more than it has transitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.replay.batch import Batch
from flatwater.replay.config import ReplayConfig
from flatwater.replay.priority import (
    Priorities,
    add_priorities_,
    array_module,
    build_priorities,
    device_view,
    draw_prioritised,
    host_view,
    remove_priorities_,
)
from flatwater.replay.priority import (
    set_priorities_ as set_masses_,
)
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import ConfigError, require

Structure = Any
"""A value of a Gymnasium space: a tensor or array, or a mapping of names to further values."""


class Space(Protocol):
    """The part of a Gymnasium space that is read here.

    Box, Discrete, MultiDiscrete and MultiBinary have both properties; a Dict is a mapping.
    """

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Shape of one value."""

    @property
    def dtype(self) -> Any:  # noqa: ANN401  (NumPy's, or None)
        """Type of one value."""


@state
class Ring:
    """E streams of L slots, allocated whole by `build_ring`; slot s of env e has the index e * L + s."""

    observation: Structure
    """Observations, [E * L, ...] for each part of the observation space."""
    action: Structure
    reward: Float[Tensor, "S"]
    terminated: Bool[Tensor, "S"]
    """Whether the transition terminated its episode, so that its discount is 0; of a truncated episode it is 1."""
    priorities: Priorities
    """Masses of the slots, to which the probability of a draw is proportional: 0 without a transition."""
    head: Int[Tensor, "E"]
    """The slot of each env's newest observation; -1 before its first."""
    ended: Bool[Tensor, "E"]
    """Whether `head` is the final observation of an episode."""


@dataclass(frozen=True)
class Drawn:
    """Result of a draw: the slots of transitions, and their importance weights."""

    index: Int[Tensor, "P B"]
    weight: Float[Tensor, "P B"] | None
    """Importance weights; None for a uniform draw."""


def build_ring(
    config: ReplayConfig, observation_space: Space, action_space: Space, *, envs: int, device: torch.device
) -> Ring:
    """Return an empty replay for at least `capacity` transitions of `envs` unbroken streams.

    Args:
        config: capacity and priorities.
        observation_space: space of observations, or a mapping of names to spaces.
        action_space: space of actions, or a mapping of names to spaces.
        envs: number of streams, E; each has its own slots.
        device: device of the storage.

    Raises:
        ConfigError: a space has values that are not arrays of one shape, or mappings of such.
    """
    require(envs >= 1, "envs", envs, "1 or more")
    # Each env's share of the capacity, rounded up, and one slot more: its newest observation has no transition yet.
    slots = envs * (-(-config.capacity // envs) + 1)
    alpha = config.alpha if config.prioritised else 0.0  # 0 draws all transitions alike
    return Ring(
        observation=_allocate_slots(observation_space, slots, device, "observation_space"),
        action=_allocate_slots(action_space, slots, device, "action_space"),
        reward=filled_tensor(0, slots, device=device),
        terminated=filled_tensor(0, slots, dtype=torch.bool, device=device),
        priorities=build_priorities(slots, device, alpha=alpha, beta=config.beta),
        head=filled_tensor(-1, envs, dtype=torch.int64, device=device),
        # True, as if an episode had ended: no transition begins before an env's first observation.
        ended=filled_tensor(1, envs, dtype=torch.bool, device=device),
    )


def _allocate_slots(space: Space, slots: int, device: torch.device, name: str) -> Structure:
    """Return zeros for `slots` values of a space: a tensor [slots, ...], or for a Dict a dict of such tensors.

    Args:
        space: form of a value, or a mapping of such.
        slots: number of values.
        device: device of the tensors.
        name: name of the space, for messages.

    Raises:
        ConfigError: a space has values that are not arrays of one shape.
    """
    if isinstance(space, Mapping):
        return {key: _allocate_slots(child, slots, device, f"{name}.{key}") for key, child in space.items()}
    if space.shape is None or space.dtype is None:
        raise ConfigError(
            f"{name} = {space}: expected a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict of these. "
            "Turn its values into arrays of one shape with an observation or action wrapper."
        )
    dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype  # torch's counterpart of NumPy's dtype
    return filled_tensor(0, slots, *space.shape, dtype=dtype, device=device)


def start_(ring: Ring, envs: Int[Tensor, "k"], obs: Structure) -> None:
    """Begin an episode of these envs with the observations `obs` [k, ...]; a running episode of theirs is truncated."""
    head = (ring.head[envs] + 1) % _slots_per_env(ring)  # the slot after the newest; after the last slot the first
    ring.head[envs] = head
    ring.ended[envs] = False
    slots = envs * _slots_per_env(ring) + head
    _write_rows_(ring.observation, slots, obs)
    # The old transitions of these slots cannot be drawn any more.
    remove_priorities_(ring.priorities, slots)


def append_(
    ring: Ring,
    *,
    action: Structure,
    reward: Float[Tensor, "E"],
    terminated: Bool[Tensor, "E"],
    truncated: Bool[Tensor, "E"],
    next_obs: Structure,
) -> None:
    """Append one step of all envs, in order.

    Where an episode ended with this step, `next_obs` is its final observation, and the caller should call `start_`.
    Without that call, the next step counts as Gymnasium's NEXT_STEP autoreset: its action is ignored, its `next_obs`
    begins the next episode, and no transition is kept.

    Args:
        ring: the replay.
        action: [E, ...] in the action space's structure.
        reward: reward of the step.
        terminated: the episode ended for good; nothing follows that has a value.
        truncated: the episode was cut; `next_obs` still has a value.
        next_obs: [E, ...] in the observation space's structure.
    """
    # `head` is each env's newest slot; `has_ended`, whether that holds the last observation of an episode. Both share
    # the ring's memory: what is written into them is in the ring.
    length, head, has_ended = _slots_per_env(ring), host_view(ring.head), host_view(ring.ended)
    stream_starts = _stream_starts(ring)
    # `head` is -1 before an env's first observation; its `has_ended` flag then makes the write below undrawable.
    slots = stream_starts + head * (head >= 0)
    _write_rows_(ring.action, slots, action)
    _write_rows_(ring.reward, slots, reward)
    _write_rows_(ring.terminated, slots, terminated)
    head += 1
    head %= length
    newest = stream_starts + head
    _write_rows_(ring.observation, newest, next_obs)
    # `has_ended` is still that of the step before: no transition begins at a final observation.
    add_priorities_(ring.priorities, slots, is_drawable=~has_ended, emptied_places=newest)
    has_ended[:] = _row_array(terminated, ring.ended) | _row_array(truncated, ring.ended)


def _write_rows_(stored_rows: Structure, slots: Int[Tensor, "k"], new_rows: Structure) -> None:
    """Write rows into these slots of the storage: a tensor, or nested dicts of tensors."""
    if isinstance(stored_rows, dict):
        for key, child in stored_rows.items():
            _write_rows_(child, slots, new_rows[key])
    else:
        host_view(stored_rows)[host_view(slots)] = _row_array(new_rows, stored_rows)


def _row_array(new: Any, stored_rows: Tensor) -> Any:  # noqa: ANN401  (arrays of any kind)
    """Return new rows, a tensor or array, in the form in which they can be written into the storage `stored_rows`.

    It is an array of NumPy if the storage is on the CPU, else a tensor of its type and on its device.
    """
    if not stored_rows.is_cpu:
        return torch.as_tensor(new, dtype=stored_rows.dtype, device=stored_rows.device)
    # NumPy converts its own arrays to the type of the storage as it writes; it has no bfloat16.
    return host_view(new.detach().to(stored_rows)) if isinstance(new, Tensor) else np.asarray(new)


def _read_rows(stored_rows: Structure, slots: Int[Tensor, "*batch"]) -> Structure:
    """Return copies of the rows in these slots of the storage: of a tensor, or of nested dicts of tensors."""
    if isinstance(stored_rows, dict):
        return {key: _read_rows(child, slots) for key, child in stored_rows.items()}
    return stored_rows[slots]


def _stream_starts(ring: Ring) -> Any:  # noqa: ANN401  (a tensor, or an array of NumPy)
    """Return the first slot of each env."""
    length, slots = _slots_per_env(ring), ring.reward.numel()
    if ring.reward.is_cpu:
        return np.arange(0, slots, length)
    return torch.arange(0, slots, length, device=ring.reward.device)


def _slots_per_env(ring: Ring) -> int:
    """Return the number of slots of one env's stream."""
    return ring.reward.numel() // ring.head.numel()


def drawable_count(ring: Ring) -> int:
    """Return the number of transitions that can be drawn; the call waits for the device."""
    return int((ring.priorities.mass > 0).sum())


def draw(ring: Ring, shape: tuple[int, ...], rng: torch.Generator) -> Drawn:
    """Draw transitions with replacement, uniformly or by priority; the ring must hold at least one."""
    return Drawn(*draw_prioritised(ring.priorities, shape, rng))


def gather(
    ring: Ring,
    index: Int[Tensor, "P B"],
    weight: Float[Tensor, "P B"] | None = None,
    *,
    steps: int = 1,
    gamma: float = 1.0,
) -> Batch:
    """Return the transitions that begin in the slots `index`, each of `steps` steps at most.

    Args:
        ring: the replay.
        index: slots of transitions.
        weight: importance weights of the draw.
        steps: steps of a transition (n-step returns), whose discounted rewards are summed. A transition has fewer steps
            before the end of an episode or of its stream.
        gamma: discount of each step but the first, whose discount the learner applies.
    """
    last_slot = index = host_view(index)  # `last_slot`: of the last step that was added to each transition
    all_rewards, terminated, mass = host_view(ring.reward), host_view(ring.terminated), host_view(ring.priorities.mass)
    module = array_module(index)
    reward = all_rewards[index]
    factor = module.ones_like(reward)  # discount of the last reward that was added
    is_continued = module.ones_like(index, dtype=bool)
    for _ in range(steps - 1):
        next_slot = _next_slot(ring, last_slot)
        # The final observation of an episode and the newest of a stream have no transition, and so no mass.
        is_continued = is_continued & ~terminated[last_slot] & (mass[next_slot] > 0)
        last_slot = module.where(is_continued, next_slot, last_slot)
        factor = module.where(is_continued, gamma * factor, factor)
        reward = reward + factor * all_rewards[next_slot] * is_continued
    first, following = device_view(index), device_view(_next_slot(ring, last_slot))
    return Batch(
        obs=_read_rows(ring.observation, first),
        action=_read_rows(ring.action, first),
        reward=device_view(reward),
        discount=device_view(factor * ~terminated[last_slot]),
        next_obs=_read_rows(ring.observation, following),
        weight=weight,
    )


def _next_slot(ring: Ring, index: Any) -> Any:  # noqa: ANN401  (tensors, or arrays of NumPy)
    """Return the slots that follow in the same streams; the first slot of a ring follows the last."""
    slot = index % _slots_per_env(ring)
    return index - slot + (slot + 1) % _slots_per_env(ring)


def set_priorities_(ring: Ring, index: Int[Tensor, "*batch"], td_error: Float[Tensor, "*batch"]) -> None:
    """Give drawn transitions the priority of their new TD error; do nothing if draws are uniform."""
    set_masses_(ring.priorities, index, td_error)
