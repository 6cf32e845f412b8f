"""The running episodes of a world, recorded so that they can be played again.

A simulator's state cannot be saved. But it follows from the seed of the episode and the actions since (`envs.world`),
and so does a teacher's state, so seeds and actions are kept in the state tree. A resumed run plays the running episodes
again, in a fraction of the time, because nothing is learned on the way.

A world may keep state over episodes, such as running statistics. If it can save this state, the state tree has it as it
was when the episodes began. If a world does not come back to where it was, the run goes on with new episodes, and says
so.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from flatwater.envs.kept_state import (
    ReplayableWorld,
    StateKeeper,
    encode_state,
    read_state,
    require_keeper,
    write_state_,
)
from flatwater.envs.world import (
    Array,
    MaskedWorld,
    Outcome,
    Spaces,
    Teacher,
    World,
    build_masks,
    build_outcome,
    check_legal,
    first_legal_actions,
)
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater_watch.errors import RunError


@state
class Episodes:
    """Episodes of E environments with A agents each; arrays of the CPU, where worlds are."""

    seeds: Int[Tensor, "E"]
    steps: Int[Tensor, "E"]
    """Steps taken so far."""
    actions: Tensor
    """Actions executed in each of these steps, [L, E, A, *action], int16 or float32."""
    over: Bool[Tensor, "E A"]
    """Agents that have finished their part of the episode, which may go on for others."""
    returns: Float[Tensor, "E A"]
    """Sum of the rewards so far."""
    kept: dict[str, UInt8[Tensor, "K"]]
    """State that the world keeps over episodes, as `envs.kept_state` writes it; no entry where there is none."""


KEPT = "world"
"""The only key of `Episodes.kept`."""
POISON = -(1 << 40)
"""Value of every action before a teacher writes its own, by which an action that it left unwritten is found."""
ReportEnded = Callable[[Array, Episodes, Array], None]
"""Called before new episodes begin, with a mask of ended episodes, bool [E], all episodes, and their observations."""


def build_episodes(spaces: Spaces, device: torch.device) -> Episodes:
    """Return the state of episodes before the first, all zeros.

    On the meta device it has shapes alone, for a memory plan.
    """
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
            # A choice is the number of an action, which 16 bits hold.
            dtype=torch.int16 if spaces.bounds is None else spaces.action_dtype,
        ),
        over=zeros(envs, agents, dtype=torch.bool),
        returns=zeros(envs, agents),
        kept={KEPT: zeros(spaces.kept, dtype=torch.uint8)} if spaces.kept else {},
    )


def save_world_state_(world: World, episodes: Episodes) -> str:
    """Write the state that the world keeps over episodes into the state tree; return the reason of a failure, or ''."""
    if not episodes.kept:  # the world keeps nothing
        return ""
    # Copies of an environment recorded their state at each episode's beginning; a user's world has its present state.
    state = world.episode_starts.states() if isinstance(world, ReplayableWorld) else _keeper(world).state_dict()
    return write_state_(episodes.kept[KEPT].numpy(), state)


def has_kept_state(episodes: Episodes) -> bool:
    """Return whether the state tree holds a world's state, which a resumed run must restore even between episodes."""
    # An empty list was saved before the first episode of a world whose wrappers keep state: it restores nothing.
    return bool(episodes.kept) and read_state(episodes.kept[KEPT].numpy()) != []


def restore_kept_state_(world: World, episodes: Episodes) -> None:
    """Give a world its kept state, if any, as far as possible, before it begins new episodes."""
    state = read_state(episodes.kept[KEPT].numpy()) if episodes.kept else None
    if not state:  # nothing is kept, or no episode had begun when it was saved
        return
    # A user's class may have changed and refuse the state. That was reported before, and the run goes on.
    with suppress(Exception):
        if isinstance(world, ReplayableWorld):
            all_envs = np.ones(len(episodes.seeds), np.bool_)
            world.episode_starts.load_(all_envs, state)
        else:
            _keeper(world).load_state_dict(state)


def _keeper(world: World) -> StateKeeper:
    """Return the world as an object with `state_dict` and `load_state_dict`, which its spaces say that it has."""
    return require_keeper(world, world.spaces.kept)


def begin_(
    world: World, episodes: Episodes, env_mask: Array, seeds: Array, obs: Array, *, legal: Array | None = None
) -> None:
    """Begin episodes in some environments, and reset their records in the state tree.

    E environments, A agents, R actions of a mask.

    Args:
        world: the world of the episodes.
        episodes: state tree of its running episodes; the rows of `env_mask` are updated.
        env_mask: bool [E], environments where an episode begins.
        seeds: int64 [E]; only those of `env_mask` are read.
        obs: [E, A, *obs], rows of `env_mask` overwritten with the first observations.
        legal: bool [E, A, R], rows of `env_mask` overwritten with the mask of legal actions; None in a world without
            masks.
    """
    _begin_world_(world, env_mask, seeds, obs, legal)
    # `numpy()` is a view of the tensor: the state tree is written.
    episodes.seeds.numpy()[env_mask] = seeds[env_mask]
    for leaf in (episodes.steps, episodes.over, episodes.returns):
        leaf.numpy()[env_mask] = 0


def _mask_argument(legal: Array | None) -> tuple[Any, ...]:
    """Return the further argument of a teacher's `step_batch` where there are masks; none in a world without."""
    return () if legal is None else (legal,)


def _begin_world_(world: World, env_mask: Array, seeds: Array, obs: Array, legal: Array | None) -> None:
    """Begin episodes as `begin_` does, without a record in the state tree, and check the masks that are written."""
    if legal is None:
        world.begin_(env_mask, seeds, obs)
    else:  # in a world with masks `begin_` has one argument more
        masked_world: MaskedWorld = cast("Any", world)
        masked_world.begin_(env_mask, seeds, obs, legal)
        check_legal(world.spaces, legal[env_mask])


def _step_world_(world: World, actions: Array, obs: Array, outcome: Outcome, legal: Array | None) -> None:
    """Step the world as `step_` does, without a record in the state tree, and check the masks that are written."""
    if legal is None:
        world.step_(actions, obs, *outcome)
    else:  # in a world with masks `step_` has one argument more
        masked_world: MaskedWorld = cast("Any", world)
        masked_world.step_(actions, obs, *outcome, legal)
        check_legal(world.spaces, legal)


def ask_teacher_(teacher: Teacher, obs: Array, actions: Tensor, *, legal: Array | None = None) -> Tensor:
    """Write a teacher's actions into `actions`, and refuse a teacher that leaves an action unwritten.

    Args:
        teacher: the teacher to ask.
        obs: the agents' observations, [E, A, *obs].
        actions: [E, A, *action], overwritten: first with POISON, then by the teacher.
        legal: bool [E, A, R], mask of legal actions; None in a world without masks.

    Returns:
        `actions`.

    Raises:
        RunError: the teacher left actions unwritten.
    """
    actions.fill_(POISON)
    teacher.step_batch(obs, actions.numpy(), *_mask_argument(legal))
    if int(actions.min()) == POISON:
        unwritten = (actions == POISON).nonzero().tolist()
        env, agent = unwritten[0]
        raise RunError(
            f"the teacher left {len(unwritten)} of {actions.numel()} actions unwritten, the first of environment "
            f"{env}, agent {agent}: step_batch must write every slot of actions_out"
        )
    return actions


class EpisodeArrays(NamedTuple):
    """NumPy views of `Episodes`, made once, because making a view takes as long as a step's change of it."""

    steps: Array
    """[E]."""
    actions: Array
    """[L, E, A, *action]."""
    over: Array
    """[E, A]."""
    returns: Array
    """[E, A]."""
    env_indices: Array
    """0 ... E - 1."""


def view_episodes(episodes: Episodes) -> EpisodeArrays:
    """Return the views by which `step_` writes into these episodes."""
    return EpisodeArrays(
        steps=episodes.steps.numpy(),
        actions=episodes.actions.numpy(),
        over=episodes.over.numpy(),
        returns=episodes.returns.numpy(),
        env_indices=np.arange(len(episodes.steps)),
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
        mask of the environments whose episode ended with this step, bool [E].
    """
    _step_world_(world, actions, obs, outcome, legal)
    reward, terminated, truncated = outcome
    # All are written in place, and so in the state tree. Each environment is at a step of its own.
    steps, action_log, over, returns, env_indices = episodes
    action_log[steps, env_indices] = actions
    steps += 1
    returns += reward
    over |= terminated
    over |= truncated
    # An episode has ended once it is over for all its agents.
    return np.asarray(np.logical_and.reduce(over, 1))


def step_first_episodes_(
    world: World,
    episodes: EpisodeArrays,
    actions: Array,
    obs: Array,
    outcome: Outcome,
    *,
    has_ended: Tensor,
    return_sums: Tensor,
    legal: Array | None = None,
) -> Array:
    """Step every environment, and add the rewards of its first episode to the sums; later episodes do not count.

    Args:
        world: the world to step.
        episodes: records of its running episodes, updated.
        actions: actions of every agent, [E, A, *action].
        obs: observations, [E, A, *obs], overwritten.
        outcome: reward, terminated and truncated, [E, A] each, overwritten.
        has_ended: bool [E], environments whose first episode has ended: stepped but not counted; updated.
        return_sums: float32 [E * A], sums of rewards, updated.
        legal: mask of legal actions, bool [E, A, R], overwritten; None in a world without masks.

    Returns:
        mask of the environments whose episode ended with this step, bool [E].
    """
    ended = step_(world, episodes, actions, obs, outcome, legal=legal)
    reward = torch.from_numpy(outcome[0]).flatten()
    agents = len(return_sums) // len(has_ended)
    # Read before `has_ended` is updated: the reward of an episode's last step counts.
    is_counted = has_ended.logical_not().repeat_interleave(agents)
    return_sums.add_(reward * is_counted)
    has_ended.logical_or_(torch.from_numpy(ended))
    return ended


def play_again_(world: World, teacher: Teacher | None, episodes: Episodes, obs: Array) -> tuple[Array, Array]:
    """Play the running episodes again from their seeds and actions, until each is at its present step.

    An episode begins when as many steps are left as it has, so that all arrive together. Before that its environment
    waits: a world steps all environments at once, so it plays any legal actions, and these steps do not count.

    Args:
        world: a new world, or one in any state.
        teacher: the teacher that was asked at each of the steps; None without one.
        episodes: the running episodes; not changed.
        obs: [E, A, *obs], overwritten with the present observations.

    Returns:
        agents that have finished, bool [E, A], and the sums of the running episodes' rewards, [E, A].
    """
    steps, seeds, action_log = episodes.steps.numpy(), episodes.seeds.numpy(), episodes.actions.numpy()
    (envs, agents), most_steps, spaces = action_log.shape[1:3], int(steps.max()), world.spaces
    teacher_choices = np.zeros((envs, agents, *spaces.action_shape), spaces.action_type)
    legal = next(iter(build_masks(spaces)), None)  # masks of legal actions; None in a world without masks
    outcome = reward, terminated, truncated = build_outcome(envs, agents)
    agent_done, returns = np.zeros((envs, agents), np.bool_), np.zeros((envs, agents), np.float32)
    kept_state = read_state(episodes.kept[KEPT].numpy()) if episodes.kept else None

    def begin_recorded_(env_mask: Array) -> None:
        """Begin the recorded episodes of these environments, in the world and for the teacher."""
        if isinstance(world, ReplayableWorld) and episodes.kept:  # its wrappers' states as the episodes began
            world.episode_starts.load_(env_mask, kept_state or [])
        _begin_world_(world, env_mask, seeds, obs, legal)
        agent_done[env_mask], returns[env_mask] = False, 0
        if teacher is not None:
            teacher.begin_(env_mask)

    begin_recorded_(np.ones(envs, np.bool_))
    for steps_left in range(most_steps, 0, -1):
        if steps_left < most_steps and (steps == steps_left).any():  # the longest episodes have begun above
            begin_recorded_(steps == steps_left)
        if teacher is not None:
            teacher.step_batch(obs, teacher_choices, *_mask_argument(legal))
        waits = steps < steps_left  # environments whose recorded episode begins later
        actions = _replayed_actions(spaces, action_log, steps - steps_left, legal)
        _step_world_(world, actions, obs, outcome, legal)
        returns += reward
        is_over = terminated | truncated
        agent_done |= is_over
        ended_waiting = waits & is_over.all(1)
        if ended_waiting.any():  # begun again, as a world cannot step an episode that has ended
            begin_recorded_(ended_waiting)
    if (steps == 0).any():  # episodes without a step so far
        begin_recorded_(steps == 0)
    return agent_done, returns


def _replayed_actions(spaces: Spaces, action_log: Array, present_steps: Array, legal: Array | None) -> Array:
    """Return the actions of a step of a replay, [E, A, *action].

    Args:
        spaces: spaces of the world.
        action_log: actions executed in each step of the running episodes, [L, E, A, *action].
        present_steps: number of each environment's step, [E]; below 0 in an environment whose episode begins later.
        legal: masks of legal actions, [E, A, R], of which such an environment takes any; None without masks.
    """
    waits = present_steps < 0
    actions = _logged_actions(action_log, np.clip(present_steps, 0, None))
    if legal is not None and waits.any():
        actions[waits] = first_legal_actions(spaces, legal[waits])
    return actions


def _logged_actions(action_log: Array, steps: Array) -> Array:
    """Return the actions [E, A, *action] that environment e executed in step `steps[e]`, in the type of worlds."""
    actions = action_log[steps, np.arange(len(steps))]
    # Choices are kept as int16, and worlds take int64.
    return actions.astype(np.int64) if actions.dtype == np.int16 else actions


def replay_episodes_(world: World, teacher: Teacher | None, episodes: Episodes, saved_obs: Array) -> str:
    """Play the running episodes again, and compare their observations, ends and rewards with the saved ones.

    A user's world that keeps state of its own gets its latest state after the episodes were played. It played them from
    another state, so nothing is compared.

    Args:
        world: a new world, or one in any state.
        teacher: the teacher that was asked at each of the steps; None without one.
        episodes: the running episodes; not changed.
        saved_obs: [E, A, *obs], the observations that should come out.

    Returns:
        the difference between the world and its saved state, as the end of a sentence; empty if all bits are equal.
    """
    observations = np.empty_like(saved_obs)
    try:
        agent_done, returns = play_again_(world, teacher, episodes, observations)
        if episodes.kept and not isinstance(world, ReplayableWorld):  # a user's world with state of its own
            return _reload_kept_state_(_keeper(world), read_state(episodes.kept[KEPT].numpy()))
    except Exception as error:  # noqa: BLE001  (a user's class may have changed and refuse it; the run goes on)
        return f"the episodes cannot be replayed ({type(error).__name__}: {error})"
    comparisons = [
        ("observations", observations, saved_obs),
        ("ends", agent_done, episodes.over.numpy()),
        ("rewards", returns, episodes.returns.numpy()),
    ]
    for name, value, saved_value in comparisons:
        differences = _difference_mask(value, saved_value)
        if differences.any():
            env, *position = (int(index) for index in np.argwhere(differences)[0])
            values = f"{value[(env, *position)]} and not {saved_value[(env, *position)]}"
            return f"{name} differ after the same seed and actions: in environment {env}, {values}"
    return ""


def _reload_kept_state_(world: StateKeeper, kept_state: object) -> str:
    """Load the kept state into a world; return the reason if the world then has another state, else ''."""
    world.load_state_dict(kept_state)
    # Compared as bytes: states may hold arrays, for which `==` gives no single answer.
    is_same = encode_state(world.state_dict()) == encode_state(kept_state)
    return "" if is_same else "its load_state_dict() does not restore the state that its state_dict() returned"


def _difference_mask(first: Array, second: Array) -> Array:
    """Return a mask of the elements in which two arrays differ; NaN equals NaN."""
    differences: Array = first != second
    if first.dtype.kind == "f":  # floats alone have NaN
        differences &= ~(np.isnan(first) & np.isnan(second))
    return differences
