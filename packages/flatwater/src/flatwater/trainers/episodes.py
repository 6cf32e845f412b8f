"""The running episodes of a world, recorded so that they can be played again.

A simulator's content cannot be saved. But an environment's state follows from the seed of its episode and the actions
since (`envs.world`), and so does a teacher's, so these are kept in the state tree. A run that goes on from a checkpoint
plays them again, up to where they were, in a fraction of the time: nothing is learned on the way.

A world that keeps something over episodes, such as running statistics, and can save it, has it in the state tree as
well, as it was when the episodes began. Where a world does not come to where it was, the run goes on with new episodes,
and says so.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from flatwater.envs.kept_state import ReplayableWorld, StateKeeper, encode_state, read_state, write_state_
from flatwater.envs.world import Array, MaskedWorld, Spaces, Teacher, World, any_legal, check_legal
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import ConfigError, RunError


@state
class Episodes:
    """Episodes of E environments with A agents each; arrays of the CPU, where worlds are."""

    seeds: Int[Tensor, "E"]
    steps: Int[Tensor, "E"]
    """Steps taken so far."""
    actions: Tensor
    """Actions executed in each of these steps, [L, E, A, *action], int16 or float32."""
    over: Bool[Tensor, "E A"]
    """Agents that have finished before their episode has."""
    returns: Float[Tensor, "E A"]
    """Rewards so far, summed."""
    kept: dict[str, UInt8[Tensor, "K"]]
    """State that the world keeps over episodes, as `envs.kept_state` writes it; no entry where there is none."""


KEPT = "world"
"""The only key of `Episodes.kept`."""
POISON = -(1 << 40)
"""Mark in every slot of the teacher's actions before it is asked: a slot that it does not write shows it."""
ReportEnded = Callable[[Array, Episodes, Array], None]
"""Called before new episodes begin, with a mask of ended episodes, bool [E], all episodes, and their observations."""


def build_episodes(spaces: Spaces, device: torch.device) -> Episodes:
    """Return episodes of which none has begun. On the meta device this is the plan."""
    zeros = partial(filled_tensor, 0, device=device)
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
        returns=zeros(envs, agents),
        kept={KEPT: zeros(spaces.kept, dtype=torch.uint8)} if spaces.kept else {},
    )


def save_world_state_(world: World, episodes: Episodes) -> str:
    """Write the state that the world keeps over episodes; return why that cannot be, empty if it is done."""
    if not episodes.kept:
        return ""
    state = world.beginnings.states() if isinstance(world, ReplayableWorld) else _keeper(world).state_dict()
    return write_state_(episodes.kept[KEPT].numpy(), state)


def is_begun(episodes: Episodes) -> bool:
    """Return whether a world that keeps something has begun: then it must come back, also between two evaluations."""
    return bool(episodes.kept) and read_state(episodes.kept[KEPT].numpy()) != []


def restore_kept_state_(world: World, episodes: Episodes) -> None:
    """Give a world its kept state as far as possible, where it begins new episodes instead of coming back."""
    state = read_state(episodes.kept[KEPT].numpy()) if episodes.kept else None
    if not state:
        return
    with suppress(Exception):  # a class of the user's that is another by now: it was told, and the run goes on
        if isinstance(world, ReplayableWorld):
            world.beginnings.load_(np.ones(len(episodes.seeds), np.bool_), state)
        else:
            _keeper(world).load_state_dict(state)


def _keeper(world: World) -> StateKeeper:
    """Return the world as an object that keeps state.

    Raises:
        ConfigError: a world of the user's announces `kept`, and lacks one of both methods.
    """
    if not isinstance(world, StateKeeper):
        raise ConfigError(
            f"{type(world).__name__}: its spaces have kept = {world.spaces.kept}: give it "
            "state_dict and load_state_dict"
        )
    return world


def begin_(
    world: World, episodes: Episodes, which: Array, seeds: Array, obs: Array, *, legal: Array | None = None
) -> None:
    """Begin episodes in some environments, and reset their records in the state tree.

    E environments, A agents, R actions of a mask.

    Args:
        world: the world of the episodes.
        episodes: state tree of its running episodes; the rows of `which` are updated.
        which: bool [E], environments where an episode begins.
        seeds: int64 [E]; only those of `which` are read.
        obs: [E, A, *obs], rows of `which` overwritten with the first observations.
        legal: bool [E, A, R], rows of `which` overwritten with the mask of legal actions; None in a world without
            masks.
    """
    _begin_(world, which, seeds, obs, legal)
    # `numpy()` is a view of the tensor: the state tree is written.
    episodes.seeds.numpy()[which] = seeds[which]
    for leaf in (episodes.steps, episodes.over, episodes.returns):
        leaf.numpy()[which] = 0


def _begin_(world: World, which: Array, seeds: Array, obs: Array, legal: Array | None) -> None:
    """Begin episodes in the world alone, and check the masks that it writes; the state tree is not touched.

    Args:
        world: the world of the episodes.
        which: bool [E], environments where an episode begins.
        seeds: int64 [E]; only those of `which` are read.
        obs: [E, A, *obs], rows of `which` overwritten.
        legal: bool [E, A, R], rows of `which` overwritten; None in a world without masks.
    """
    if legal is None:
        world.begin_(which, seeds, obs)
    else:
        masked_world: MaskedWorld = cast("Any", world)
        masked_world.begin_(which, seeds, obs, legal)
        check_legal(world.spaces, legal[which])


def _step_(world: World, actions: Array, obs: Array, outcome: "Outcome", legal: Array | None) -> None:
    """Step the world alone, and check the masks that it writes; the state tree is not touched.

    Args:
        world: the world to step.
        actions: actions of every agent, [E, A, *action].
        obs: [E, A, *obs], overwritten.
        outcome: reward, terminated and truncated, [E, A] each, overwritten.
        legal: bool [E, A, R], overwritten with the mask of the next step; None in a world without masks.
    """
    if legal is None:
        world.step_(actions, obs, *outcome)
    else:
        masked_world: MaskedWorld = cast("Any", world)
        masked_world.step_(actions, obs, *outcome, legal)
        check_legal(world.spaces, legal)


def show_teacher_(teacher: Teacher, obs: Array, actions: Array, legal: Array | None) -> None:
    """Have a teacher write its actions.

    Args:
        teacher: the teacher to ask.
        obs: [E, A, *obs], what the agents observe.
        actions: [E, A, *action], overwritten.
        legal: bool [E, A, R], mask of legal actions; None in a world without masks.
    """
    mask = () if legal is None else (legal,)
    cast("Any", teacher).step_batch(obs, actions, *mask)


def ask_teacher_(teacher: Teacher, obs: Array, actions: Tensor, *, legal: Array | None = None) -> Tensor:
    """Write a teacher's actions into `actions`, and refuse a teacher that leaves slots unwritten.

    Args:
        teacher: the teacher to ask.
        obs: [E, A, *obs], what the agents observe.
        actions: [E, A, *action], overwritten: first with POISON, then by the teacher.
        legal: bool [E, A, R], mask of legal actions; None in a world without masks.

    Returns:
        `actions`.

    Raises:
        RunError: the teacher left slots unwritten; an array that is used again would show an older action there.
    """
    actions.fill_(POISON)
    show_teacher_(teacher, obs, actions.numpy(), legal)
    if int(actions.min()) == POISON:
        holes = (actions == POISON).nonzero().tolist()
        env, agent = holes[0]
        raise RunError(
            f"the teacher left {len(holes)} of {actions.numel()} actions unwritten, the first of environment {env}, "
            f"agent {agent}: step_batch must write every slot of actions_out"
        )
    return actions


Outcome = tuple[Array, Array, Array]
"""Arrays that a world writes besides observations: reward, terminated, truncated, [E, A] each."""


def build_outcome(envs: int, agents: int) -> Outcome:
    """Return arrays for an outcome that is not kept."""
    shape = (envs, agents)
    return np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)


class EpisodeArrays(NamedTuple):
    """Records that a step changes: views of the state tree, made once, as each takes as long as the change."""

    steps: Array
    """[E]."""
    actions: Array
    """[L, E, A, *action]."""
    over: Array
    """[E, A]."""
    returns: Array
    """[E, A]."""
    places: Array
    """Numbers of the environments, [E]."""


def view_episodes(episodes: Episodes) -> EpisodeArrays:
    """Return the views by which `step_` writes into these episodes."""
    return EpisodeArrays(
        steps=episodes.steps.numpy(),
        actions=episodes.actions.numpy(),
        over=episodes.over.numpy(),
        returns=episodes.returns.numpy(),
        places=np.arange(len(episodes.steps)),
    )


def step_(
    world: World, episodes: EpisodeArrays, actions: Array, obs: Array, outcome: Outcome, *, legal: Array | None = None
) -> Array:
    """Step every environment, and record the step in the state tree.

    Args:
        world: the world to step.
        episodes: records of its running episodes, updated.
        actions: actions of every agent, [E, A, *action].
        obs: [E, A, *obs], overwritten.
        outcome: reward, terminated and truncated, [E, A] each, overwritten.
        legal: bool [E, A, R], overwritten with the mask of the next step; None in a world without masks.

    Returns:
        bool [E]: where the episode ended with this step.
    """
    _step_(world, actions, obs, outcome, legal)
    reward, terminated, truncated = outcome
    steps, log, over, returns, places = episodes
    # Each environment at its own step, as episodes begin at different times.
    log[steps, places] = actions
    steps += 1  # in place, in the state tree
    returns += reward
    over |= terminated
    over |= truncated
    return np.asarray(np.logical_and.reduce(over, 1))


def step_counted_(
    world: World,
    episodes: EpisodeArrays,
    actions: Array,
    obs: Array,
    outcome: Outcome,
    *,
    done: Tensor,
    paid: Tensor,
    legal: Array | None = None,
) -> Array:
    """Step every environment, and add the rewards of its first episode alone to the sums.

    Args:
        world: the world to step.
        episodes: records of its running episodes, updated.
        actions: actions of every agent, [E, A, *action].
        obs: observations, [E, A, *obs], overwritten.
        outcome: reward, terminated and truncated, [E, A] each, overwritten.
        done: bool [E], environments whose first episode has ended: stepped but not counted; updated.
        paid: float32 [E * A], sums of rewards, updated.
        legal: mask of legal actions, bool [E, A, R], overwritten; None in a world without masks.

    Returns:
        bool [E]: where an episode ended with this step, so that it must be begun again.
    """
    ended = step_(world, episodes, actions, obs, outcome, legal=legal)
    # Before `done` is updated: the reward of an episode's last step counts.
    paid.add_(torch.from_numpy(outcome[0]).flatten() * done.logical_not().repeat_interleave(len(paid) // len(done)))
    done.logical_or_(torch.from_numpy(ended))
    return ended


def play_again_(world: World, teacher: Teacher | None, episodes: Episodes, obs: Array) -> tuple[Array, Array]:
    """Play a world and its teacher to where the episodes are.

    Environments that are further on begin earlier, so that all arrive with the last step. A waiting environment is
    stepped as well, and begins again where its episode is over.

    Args:
        world: a world that was just built, or left anywhere.
        teacher: the teacher that was asked at each of the steps, if any.
        episodes: the running episodes; not changed.
        obs: [E, A, *obs], to be written: the present observations.

    Returns:
        [E, A] each: agents that are over now, and the rewards on the way.
    """
    steps, seeds, log = (leaf.numpy() for leaf in (episodes.steps, episodes.seeds, episodes.actions))
    (envs, agents), longest, spaces = log.shape[1:3], int(steps.max()), world.spaces
    scratch = _ScratchBuffers(envs, agents, spaces)
    over, paid = np.zeros((envs, agents), np.bool_), np.zeros((envs, agents), np.float32)
    kept_state = read_state(episodes.kept[KEPT].numpy()) if episodes.kept else None

    def begin(which: Array) -> None:
        """Begin the logged episodes of these environments, with the kept state that they began with."""
        if isinstance(world, ReplayableWorld) and episodes.kept:
            world.beginnings.load_(which, kept_state or [])
        _begin_(world, which, seeds, obs, scratch.legal)
        over[which], paid[which] = False, 0
        if teacher is not None:
            teacher.begin_(which)

    begin(np.ones(envs, np.bool_))
    for steps_left in range(longest, 0, -1):
        if steps_left < longest and (starts := steps == steps_left).any():
            begin(starts)
        if teacher is not None:
            show_teacher_(teacher, obs, scratch.teacher_choices, scratch.legal)
        step, waits = np.clip(steps - steps_left, 0, None), steps < steps_left
        actions = log[step, np.arange(envs)]
        actions = actions.astype(np.int64) if actions.dtype == np.int16 else actions  # as worlds take them
        if scratch.legal is not None and waits.any():  # the first action of its episode may be illegal where it is now
            actions[waits] = any_legal(spaces, scratch.legal[waits])
        _step_(world, actions, obs, scratch.outcome, scratch.legal)
        paid += scratch.outcome[0]
        over |= scratch.ends()
        waits &= scratch.ends().all(1)
        if waits.any():
            begin(waits)
    if (unbegun := steps == 0).any():  # stepped with the others while they waited
        begin(unbegun)
    return over, paid


def replay_episodes_(world: World, teacher: Teacher | None, episodes: Episodes, saved: Array) -> str:
    """Play the running episodes again, to where `saved` is the observation.

    A world of the user's that keeps a state is given its latest one, once the episodes were played. Its observations
    and rewards on the way followed from another state, so they are not compared.

    Args:
        world: a world that was just built, or left anywhere.
        teacher: the teacher that was asked at each of the steps; None if there was none.
        episodes: the running episodes; not changed.
        saved: [E, A, *obs], the observations that must come out.

    Returns:
        Why the world is not where it was, as the end of a sentence; empty if it is, to the bit.
    """
    observations = np.empty_like(saved)
    try:
        over, returns = play_again_(world, teacher, episodes, observations)
        if episodes.kept and not isinstance(world, ReplayableWorld):
            return _given_back(_keeper(world), read_state(episodes.kept[KEPT].numpy()))
    except Exception as error:  # noqa: BLE001  (a class of the user's refuses what is another by now; the run goes on)
        return f"the episodes cannot be replayed ({type(error).__name__}: {error})"
    comparisons = [("observations", observations, saved), ("ends", over, episodes.over.numpy())]
    comparisons.append(("rewards", returns, episodes.returns.numpy()))
    for name, value, saved_value in comparisons:
        if (differ := _difference_mask(value, saved_value)).any():
            env, *position = (int(index) for index in np.argwhere(differ)[0])
            values = f"{value[(env, *position)]} and not {saved_value[(env, *position)]}"
            return f"{name} differ after the same seed and actions: in environment {env}, {values}"
    return ""


def _given_back(world: StateKeeper, kept: object) -> str:
    """Return why a world does not have its kept state back; empty if it has."""
    world.load_state_dict(kept)
    # As bytes: states may hold arrays, which `==` does not compare as a whole.
    is_same = encode_state(world.state_dict()) == encode_state(kept)
    return "" if is_same else "its load_state_dict() does not restore the state that its state_dict() returned"


def _difference_mask(now: Array, then: Array) -> Array:
    """Return where two arrays differ; NaN equals NaN."""
    differ: Array = now != then
    if now.dtype.kind == "f":
        differ &= ~(np.isnan(now) & np.isnan(then))
    return differ


class _ScratchBuffers:
    """Arrays that are written on the way, and not read."""

    def __init__(self, envs: int, agents: int, spaces: Spaces) -> None:
        self.teacher_choices = torch.zeros(envs, agents, *spaces.action_shape, dtype=spaces.action_dtype).numpy()
        self.legal = np.ones((envs, agents, spaces.legal), np.bool_) if spaces.masked else None
        self.outcome = build_outcome(envs, agents)

    def ends(self) -> Array:
        """Return a mask of the agents that ended with the last step, bool [E, A]."""
        _, terminated, truncated = self.outcome
        return np.asarray(np.logical_or(terminated, truncated))
