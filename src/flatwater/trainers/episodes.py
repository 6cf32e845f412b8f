"""The episodes that a world is in, written down so that they can be played again.

What a simulator holds cannot be saved. But an environment's state follows from the seed of its episode and the actions
since (`envs.world`), and so does a teacher's, so these are kept in the state tree. A run that goes on from a checkpoint
plays them again, up to where they were, in a fraction of the time: nothing is learned on the way.
"""

from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from flatwater.envs.world import Array, MaskedWorld, Spaces, Teacher, World, any_legal, check_legal
from flatwater.errors import CheckpointError
from flatwater.state.tree import state


@state
class Episodes:
    """Of E environments with A agents each; arrays of the CPU, where worlds are."""

    seeds: Int[Tensor, "E"]
    steps: Int[Tensor, "E"]
    """Taken so far."""
    actions: Tensor
    """[L, E, A, *action]: executed in each of these steps, int16 or float32."""
    over: Bool[Tensor, "E A"]
    """Agents that are over, before their episode is."""
    returns: Float[Tensor, "E A"]
    """Paid so far."""


def build_episodes(spaces: Spaces, device: torch.device) -> Episodes:
    """None begun. On the meta device this is the plan."""

    def zeros(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device).fill_(0)

    envs, agents = spaces.envs, spaces.agents
    return Episodes(
        seeds=zeros(envs, dtype=torch.int64),
        steps=zeros(envs, dtype=torch.int64),
        actions=zeros(
            spaces.steps,
            envs,
            agents,
            *spaces.action_shape,
            dtype=torch.int16 if spaces.bounds is None else spaces.action_dtype,
        ),
        over=zeros(envs, agents, dtype=torch.bool),
        returns=zeros(envs, agents, dtype=torch.float32),
    )


def begin_(
    world: World, episodes: Episodes, which: Array, seeds: Array, obs: Array, *, legal: Array | None = None
) -> None:
    """Begin episodes in the environments of `which`, bool [E]; others as of `World.begin_` or `MaskedWorld.begin_`."""
    _begin_(world, which, seeds, obs, legal)
    episodes.seeds.numpy()[which] = seeds[which]
    for leaf in (episodes.steps, episodes.over, episodes.returns):
        leaf.numpy()[which] = 0


def _begin_(world: World, which: Array, seeds: Array, obs: Array, legal: Array | None) -> None:
    if legal is None:
        world.begin_(which, seeds, obs)
    else:
        masked: MaskedWorld = cast("Any", world)
        masked.begin_(which, seeds, obs, legal)
        check_legal(world.spaces, legal[which])


def _step_(world: World, actions: Array, obs: Array, outcome: "Outcome", legal: Array | None) -> None:
    if legal is None:
        world.step_(actions, obs, *outcome)
    else:
        masked: MaskedWorld = cast("Any", world)
        masked.step_(actions, obs, *outcome, legal)
        check_legal(world.spaces, legal)


def show_(teacher: Teacher, obs: Array, actions: Array, legal: Array | None) -> None:
    """Have a teacher write its actions; arguments as of `Teacher.step_batch`."""
    given = () if legal is None else (legal,)
    cast("Any", teacher).step_batch(obs, actions, *given)


Outcome = tuple[Array, Array, Array]
"""What a world writes besides what is seen: reward, terminated, truncated, [E, A] each."""


def build_outcome(envs: int, agents: int) -> Outcome:
    """Arrays for an outcome that is not kept."""
    shape = (envs, agents)
    return np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)


def step_(
    world: World, episodes: Episodes, actions: Array, obs: Array, outcome: Outcome, *, legal: Array | None = None
) -> Array:
    """Step every environment; arguments as of `World.step_`, or `MaskedWorld.step_`.

    Returns:
        bool [E]: where the episode ended with it.
    """
    _step_(world, actions, obs, outcome, legal)
    reward, terminated, truncated = outcome
    steps, log = episodes.steps.numpy(), episodes.actions.numpy()
    log[steps, np.arange(len(steps))] = actions
    steps += 1
    over, paid = episodes.over.numpy(), episodes.returns.numpy()
    paid += reward
    np.logical_or(over, terminated, out=over)
    np.logical_or(over, truncated, out=over)
    return np.asarray(np.logical_and.reduce(over, 1))


def count_(
    world: World,
    episodes: Episodes,
    actions: Array,
    obs: Array,
    outcome: Outcome,
    *,
    done: Tensor,
    paid: Tensor,
    legal: Array | None = None,
) -> Array:
    """Step every environment, of which one episode each counts; other arguments as of `step_`.

    Args:
        world: to be stepped.
        episodes: in which it is.
        actions: of every agent.
        obs: to be written.
        outcome: to be written.
        done: bool [E], environments whose episode has ended before: what they do is not counted.
        paid: [E * A], to which the rewards are added.
        legal: to be written, in a world with masks.

    Returns:
        bool [E]: where an episode ended with it, so that it has to be begun again.
    """
    ended = step_(world, episodes, actions, obs, outcome, legal=legal)
    paid.add_(torch.from_numpy(outcome[0]).flatten() * done.logical_not().repeat_interleave(len(paid) // len(done)))
    done.logical_or_(torch.from_numpy(ended))
    return ended


def play_again_(world: World, teacher: Teacher | None, episodes: Episodes, obs: Array) -> None:
    """Bring a world and its teacher to where the episodes are.

    Environments that are further on begin earlier, so that all arrive with the last step. One that waits for its
    beginning is stepped as well, and begins again where it is over: what it does then is lost.

    Args:
        world: just built, or left anywhere.
        teacher: who was asked at each of the steps; None where nobody was.
        episodes: not changed.
        obs: [E, A, *obs], to be written: what is seen now.
    """
    steps, seeds, log = (leaf.numpy() for leaf in (episodes.steps, episodes.seeds, episodes.actions))
    envs, agents = log.shape[1:3]
    scratch, spaces = _Scratch(envs, agents, world.spaces), world.spaces
    longest = int(steps.max())

    def begin(which: Array) -> None:
        _begin_(world, which, seeds, obs, scratch.legal)
        if teacher is not None:
            teacher.begin_(which)

    begin(np.ones(envs, np.bool_))
    for ahead in range(longest, 0, -1):
        if ahead < longest and (starts := steps == ahead).any():
            begin(starts)
        if teacher is not None:
            show_(teacher, obs, scratch.taught, scratch.legal)
        at, waits = np.clip(steps - ahead, 0, None), steps < ahead
        taken = log[at, np.arange(envs)]
        taken = taken.astype(np.int64) if taken.dtype == np.int16 else taken
        if scratch.legal is not None and waits.any():  # the first action of its episode may be illegal where it is now
            taken[waits] = any_legal(spaces, scratch.legal[waits])
        _step_(world, taken, obs, scratch.outcome, scratch.legal)
        waits &= scratch.over()
        if waits.any():
            begin(waits)
    if (unbegun := steps == 0).any():
        begin(unbegun)


def bring_(world: World, teacher: Teacher | None, episodes: Episodes, saved: Array) -> None:
    """Play the episodes again that are under way, to where `saved` [E, A, *obs] is what is seen.

    Raises:
        CheckpointError: something else is seen there.
    """
    seen = np.empty_like(saved)
    play_again_(world, teacher, episodes, seen)
    if not np.array_equal(seen, saved):
        raise CheckpointError(
            "the world does not come to where the checkpoint has it, by the same seeds and actions: its package is "
            "another version than the one of the checkpoint, or it draws numbers that do not follow from its seed"
        )


class _Scratch:
    """What is written on the way, and not read."""

    def __init__(self, envs: int, agents: int, spaces: Spaces) -> None:
        self.taught = np.zeros((envs, agents), np.int64)
        self.legal = np.ones((envs, agents, spaces.legal), np.bool_) if spaces.masked else None
        self.outcome = build_outcome(envs, agents)

    def over(self) -> Array:
        """Where all agents ended with the last step, bool [E]."""
        _, terminated, truncated = self.outcome
        return np.asarray(np.logical_or(terminated, truncated).all(1))
