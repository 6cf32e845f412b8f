"""A test whether an episode depends on its seed and its actions alone, so that it can be played again.

Two short episodes are played in both orders, in two new players: A, B, A in one, B, A in the other. Everything that
must not matter differs each time: earlier episodes, simultaneous episodes, the global generators, the clock. If an
environment keeps a state over episodes and can save it, the second player begins B with the state that the first player
had at that moment, as a resume does.

Sixteen steps do not show everything, so a run plays whole episodes of its training again as well, now and then.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from flatwater.envs.kept_state import ReplayableWorld, decode_state, encode_state, load_state_, read_env_state
from flatwater.envs.world import Array, Spaces, Teacher, UnseededError, World, build_masks, build_outcome, split_legal
from flatwater_watch.meters.proc import queued_seconds

TEST_STEPS = 16
"""Most steps of each episode of the test."""
TEST_SECONDS = 0.5
"""CPU time that the test may take. Building the first player is not counted: its time is known only afterwards."""
PLAYS = 5
"""Episodes of the test."""
SEED_A, SEED_B = 11, 23
"""Seeds of the two episodes."""
CallResult = Mapping[str, Array]
"""Arrays that a reset or a step gave, by name: observations, rewards, ends, and masks where there are any."""


class EpisodePlayer(Protocol):
    """An environment in which one episode is played, and others may be played next to it."""

    @property
    def can_save(self) -> bool:
        """Whether the environment can save its state over episodes."""

    def begin(self, seed: int) -> CallResult:
        """Begin the episode."""

    def sample_action(self, rng: np.random.Generator) -> Any:  # noqa: ANN401  (an action, of whatever kind)
        """Return a random action that is legal now."""

    def step(self, action: Any) -> tuple[CallResult, bool]:  # noqa: ANN401  (whatever the space of actions holds)
        """Act; return the arrays of the result, and whether the episode is over."""

    def read_kept_state(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return the state that the environment keeps over episodes."""

    def load_kept_state_(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        """Take back a state from `read_kept_state`."""

    def close(self) -> None:
        """Close the environment."""


MakePlayer = Callable[[int], EpisodePlayer]
"""Returns a new player, whose simultaneous episodes follow from the given number."""


@dataclass(frozen=True)
class ExactnessVerdict:
    """Result of the test."""

    tested: bool
    """False if the test would have taken too long, or an error interrupted it: the run itself reports the error."""
    why: str = ""
    """The difference, as a sentence without its subject; empty if there is none."""


@dataclass
class _RecordedEpisode:
    """An episode: its actions, and the results of its reset and of its steps."""

    seed: int
    results: list[CallResult]
    """Result of the reset, and then of each step."""
    actions: list[Any] = field(default_factory=list)
    kept_state: bytes = b""
    """State over episodes when this episode began, encoded; empty if it was not saved."""


GENERATORS: dict[str, Callable[[int], object]] = {
    "random": random.seed,
    "numpy.random": np.random.seed,  # noqa: TID251  (whether it is used is the question)
    "torch": torch.default_generator.manual_seed,
}
"""The global generators: name -> the function that seeds it."""


@contextmanager
def temporary_generator_seeds(seeds: Mapping[str, int]) -> Iterator[None]:
    """Seed the global generators of these names for the block, and restore the states of all of them at its end."""
    python_state, numpy_state = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002  (the state of NumPy's global generator)
    torch_state = torch.default_generator.get_state()
    try:
        for name, seed in seeds.items():
            GENERATORS[name](seed)
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002  (the state of NumPy's global generator)
        torch.default_generator.set_state(torch_state)


def _same_seed(seed: int) -> dict[str, int]:
    """Return the same seed for each global generator, by its name."""
    return dict.fromkeys(GENERATORS, seed)


def try_exactness(make: MakePlayer, *, seconds: float = TEST_SECONDS, steps: int = TEST_STEPS) -> ExactnessVerdict:
    """Play two short episodes in both orders, and return whether each episode gives the same results every time.

    Args:
        make: returns a new player. It is called twice, and more often to find the cause of a difference.
        seconds: CPU time that may be used, apart from making the first player.
        steps: steps of an episode, at most.
    """
    try:
        return _compare_orders(make, seconds, steps)
    except UnseededError as error:
        return ExactnessVerdict(tested=True, why=str(error))
    except (Exception, SystemExit):  # noqa: BLE001  (of the user's class: the run meets the same error, and reports it)
        return ExactnessVerdict(tested=False)


def _compare_orders(make: MakePlayer, seconds: float, steps: int) -> ExactnessVerdict:
    """Play two episodes, A and B, as A, B, A in one player and as B, A in another; compare those that must be equal.

    The verdict has the first difference, with its cause.

    Episodes have as many steps as `seconds` of CPU time allow, at most `steps`; not tested where not even one fits.
    Errors of the user's class pass through.
    """
    timer = CountedTime()
    player = make(0)
    build_seconds = timer.elapsed_seconds()
    try:
        timer = CountedTime()
        # One step, which is not compared: its time says how many fit. The global generators are seeded differently for
        # each episode, which must not matter.
        _record_episode(player, SEED_A, 1, generator_seed=1)
        step_seconds = timer.elapsed_seconds()
        # The second player takes as long to build as the first. A clock of coarse ticks may show 0 seconds for a step.
        fitting_steps = int((seconds - build_seconds) / PLAYS / max(step_seconds, 1e-9))
        if fitting_steps < 1:
            why = f"a step takes {step_seconds:.2g} s, and building an environment {build_seconds:.2g} s"
            return ExactnessVerdict(tested=False, why=why)
        can_save = player.can_save  # whether the environment keeps a state over episodes that it can save and load
        steps = min(steps, fitting_steps)
        first_a = _record_episode(player, SEED_A, steps, generator_seed=2)
        episode_b = _record_episode(player, SEED_B, steps, generator_seed=3, save_first=can_save)
        second_a = _record_episode(player, SEED_A, steps, generator_seed=4)
    finally:
        player.close()
    # An environment that keeps a state over episodes may rightly play the second A in another way than the first.
    difference = "" if can_save else _record_difference(first_a, second_a)
    # B and the second A once more, in a new player. Player 1 has other simultaneous episodes than player 0, and the
    # global generators another seed, 5, than before.
    difference = difference or _first_replay_difference(make(1), [episode_b, second_a], _same_seed(5))
    if not difference:
        return ExactnessVerdict(tested=True)
    cause = "after its state was saved and given back" if can_save else _find_cause(make, first_a, seconds)
    quantity, _, values = difference.partition(": ")  # `rewards: at step 3, 0.12 and 0.15`
    return ExactnessVerdict(tested=True, why=f"{quantity} of the same episode differ {cause}: {values}")


def try_whole_episode(
    make: MakePlayer, seed: int, actions: Array, end: CallResult, *, state: object = None, seconds: float = TEST_SECONDS
) -> ExactnessVerdict:
    """Play an episode of a run again in a new player, and compare its end.

    Args:
        make: returns a new player, as in `try_exactness`.
        seed: seed of the episode.
        actions: all actions of the episode.
        end: last observations of the episode, and `returns`, the sum of its rewards.
        state: state over episodes with which the episode began; None if nothing is kept.
        seconds: CPU time that may be used; not tested where it takes more.
    """
    timer = CountedTime()
    try:
        # 5 and 4 stand for any numbers: neither the global generators nor simultaneous episodes may matter.
        with temporary_generator_seeds(_same_seed(5)):
            player = make(4)
            try:
                if state is not None:
                    player.load_kept_state_(state)
                result = player.begin(seed)
                is_over = False
                returns = np.zeros_like(end["returns"])
                step = 0
                for action in actions:
                    result, is_over = player.step(action)
                    returns += result["rewards"]
                    step += 1
                    if is_over or timer.elapsed_seconds() > seconds:
                        break
            finally:
                player.close()
    except (Exception, SystemExit):  # noqa: BLE001  (as in `try_exactness`)
        return ExactnessVerdict(tested=False)
    all_played = step == len(actions)
    if not (all_played or is_over):  # the loop stopped because the time was over: there is no end to compare
        return ExactnessVerdict(tested=False)
    difference = _first_difference(end, {**result, "returns": returns}, step)
    # The run's episode ended with its last action; here it did not end with it, or it ended before.
    if all_played != is_over:
        difference = f"ends: at step {step}, {all_played} and {is_over}"
    if not difference:
        return ExactnessVerdict(tested=True)
    quantity, _, values = difference.partition(": ")  # `rewards: at step 3, 0.12 and 0.15`
    why = f"{quantity} of an episode differ when it is played again in a new environment: {values}"
    return ExactnessVerdict(tested=True, why=why)


class CountedTime:
    """A timer of an environment's cost: CPU time, or a quarter of wall time where an environment waits for a process.

    Time in which this thread waits for a core is not the environment's, and does not count.
    """

    def __init__(self) -> None:
        self._cpu_start, self._clock_start = time.process_time(), time.monotonic()
        self._queued_start = queued_seconds()

    def elapsed_seconds(self) -> float:
        """Return the CPU seconds since the timer was made or, if more, a quarter of wall time without core waits."""
        cpu, clock = time.process_time() - self._cpu_start, time.monotonic() - self._clock_start
        # CPU time has no waits for a core, so they are read only where wall time may count.
        if clock / 4 > cpu:
            clock -= queued_seconds() - self._queued_start
        return max(cpu, clock / 4)


def _record_episode(
    player: EpisodePlayer, seed: int, steps: int, *, generator_seed: int, save_first: bool = False
) -> _RecordedEpisode:
    """Play an episode with actions that follow from its seed, and return the record of it.

    Args:
        player: the environment.
        seed: seed of the episode, and of the actions.
        steps: steps to be played, unless the episode ends before.
        generator_seed: seed of the global generators meanwhile, on which nothing may depend.
        save_first: whether to save first, in the record's `kept_state`, the state that `player` keeps over episodes.
    """
    rng = np.random.default_rng(seed)  # of the actions alone
    with temporary_generator_seeds(_same_seed(generator_seed)):
        # Encoded at once, as the episode changes the state.
        saved_state = encode_state(player.read_kept_state()) if save_first else b""
        episode = _RecordedEpisode(seed, [player.begin(seed)], kept_state=saved_state)
        for _ in range(steps):
            episode.actions.append(player.sample_action(rng))
            result, is_over = player.step(episode.actions[-1])
            episode.results.append(result)
            if is_over:
                break
    return episode


def _first_replay_difference(
    player: EpisodePlayer, episodes: Sequence[_RecordedEpisode], seeds: Mapping[str, int]
) -> str:
    """Play recorded episodes again in a new player, and return the first difference; empty if there is none.

    Args:
        player: a new player; it is closed.
        episodes: records, played again in this order with their own actions.
        seeds: seed of each global generator, by name, at the beginning of each episode.
    """
    try:
        for episode in episodes:
            with temporary_generator_seeds(seeds):
                if difference := _replay_difference(player, episode):
                    return difference
    finally:
        player.close()
    return ""


def _replay_difference(player: EpisodePlayer, episode: _RecordedEpisode) -> str:
    """Play an episode again, and return the first difference from its record, or an error; empty if there is none."""
    if episode.kept_state:
        player.load_kept_state_(decode_state(episode.kept_state))
    # Result 0 is that of the reset, result n that of action n - 1.
    for step, recorded_result in enumerate(episode.results):
        try:
            result = player.begin(episode.seed) if step == 0 else player.step(episode.actions[step - 1])[0]
        except Exception as error:  # noqa: BLE001  (the recorded call succeeded: an error is a difference like any other)
            return f"ends: at step {step}, {type(error).__name__}: {error}"
        if difference := _first_difference(recorded_result, result, step):
            return difference
    return ""


def _record_difference(first: _RecordedEpisode, second: _RecordedEpisode) -> str:
    """Return the first difference between two records of one episode; empty if there is none."""
    # A record that ends earlier than the other differs in its last `ends`.
    for step, (recorded_result, result) in enumerate(zip(first.results, second.results, strict=False)):
        if difference := _first_difference(recorded_result, result, step):
            return difference
    return ""


def _first_difference(recorded_result: CallResult, repeated_result: CallResult, step: int) -> str:
    """Compare two results bit for bit; return the first difference, `rewards: at step 3, 0.12 and 0.15`, or no text.

    Args:
        recorded_result: arrays by name.
        repeated_result: arrays by name when the episode was played again; names of its own are not compared.
        step: number of the step for the sentence; 0 is the reset.
    """
    for name, recorded_array in recorded_result.items():
        repeated_array = repeated_result.get(name)
        if (
            repeated_array is None
            or repeated_array.dtype != recorded_array.dtype
            or repeated_array.shape != recorded_array.shape
        ):
            return f"{name}: at step {step}, of another shape or type"
        if repeated_array.tobytes() != recorded_array.tobytes():
            # Bytes may differ where no number does, as in -0.0 and 0.0: then the first number is quoted.
            is_different = recorded_array.ravel() != repeated_array.ravel()
            position = int(np.flatnonzero(is_different)[0]) if is_different.any() else 0
            return f"{name}: at step {step}, {recorded_array.ravel()[position]} and {repeated_array.ravel()[position]}"
    return ""


def _find_cause(make: MakePlayer, episode: _RecordedEpisode, seconds: float) -> str:
    """Return the cause of a difference in words: change one thing at a time between two new players, and compare.

    Args:
        make: returns a new player.
        episode: record of the episode that differed; its seed is played again for as many steps.
        seconds: time after which no further cause is tried, counted from here on.
    """
    timer = CountedTime()
    with suppress(Exception):  # of the user's class: then the cause is not found
        # Players of one number have the same simultaneous episodes. All numbers and seeds are any that differ.
        number, other_number = 2, 3
        generator_seed, other_seed = 7, 8
        player = make(number)
        seeds = _same_seed(generator_seed)
        try:
            episode_again = _record_episode(player, episode.seed, len(episode.actions), generator_seed=generator_seed)
        finally:
            player.close()
        # Nothing has changed but the environment's object.
        if _first_replay_difference(make(number), [episode_again], seeds):
            return (
                "between two new environments (the clock, a generator that reset(seed=...) does not seed, or something "
                "that all of them share)"
            )
        # One global generator after another gets another seed.
        causes = [
            name
            for name in GENERATORS
            if timer.elapsed_seconds() < seconds
            and _first_replay_difference(make(number), [episode_again], seeds | {name: other_seed})
        ]
        if causes:
            return f"when the global generator of {' and '.join(causes)} is in another state (draw from self.np_random)"
        # Only the simultaneous episodes are others.
        if timer.elapsed_seconds() < seconds and _first_replay_difference(make(other_number), [episode_again], seeds):
            return "when others are played beside it"
    # No other cause was found.
    return "after another episode was played"


class WorldPlayer:
    """An `EpisodePlayer` in a world of two environments: the first is tested, the second plays other episodes."""

    def __init__(self, world: World, other_seed: int, teacher: Teacher | None = None) -> None:
        """Allocate the arrays that the world writes into.

        Args:
            world: just built, with two environments.
            other_seed: seed of the episodes in the second environment.
            teacher: a teacher whose actions are compared as well, if there is one.
        """
        self._teacher: Any = teacher
        self._world: Any = world
        self._spaces: Spaces = world.spaces
        spaces = world.spaces
        shape = (spaces.envs, spaces.agents)
        self._obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
        self._legal_masks = build_masks(spaces)
        """One array of masks of legal actions, bool [2, A, R]; empty in a world without masks."""
        self._outcome = build_outcome(*shape)
        self._awaits_reset = np.ones(spaces.envs, np.bool_)
        self._other_rng = np.random.default_rng(other_seed)
        """Generator of the second environment's seeds and actions."""

    @property
    def can_save(self) -> bool:
        """Whether the world keeps a state over episodes, as its spaces say."""
        return bool(self._spaces.kept)

    def begin(self, seed: int) -> CallResult:
        """Begin the episode, and another in the second environment if its last is over; return the first's arrays."""
        self._awaits_reset[0] = True
        self._begin_(seed)
        return self._observe_and_ask_teacher()

    def _begin_(self, seed: int) -> None:
        """Begin an episode in each environment that awaits one, in the first from `seed`, else from a random seed."""
        seeds = self._other_rng.integers(1 << 30, size=len(self._awaits_reset))
        seeds[0] = seed
        self._world.begin_(self._awaits_reset, seeds, self._obs, *self._legal_masks)
        if self._teacher is not None:
            self._teacher.begin_(self._awaits_reset.copy())  # a copy, which the teacher may keep
        self._awaits_reset[:] = False

    def sample_action(self, rng: np.random.Generator) -> Array:
        """Return a random action for each agent of the first environment."""
        return self._random_actions(rng, 0)

    def _random_actions(self, rng: np.random.Generator, env: int) -> Array:
        """Return a random legal action of each agent of one environment, [agents, *action_shape]."""
        spaces, agents = self._spaces, self._spaces.agents
        if spaces.bounds is not None:
            low, high = spaces.agent_bounds
            return np.asarray(rng.uniform(low, high), np.float32)
        if self._legal_masks:
            masks = split_legal(spaces, self._legal_masks[0][env])
            # The largest of random numbers, of which those of illegal actions are 0.
            choices = [(rng.random(mask.shape) * mask).argmax(-1) for mask in masks]
        else:
            choices = [rng.integers(size, size=agents) for size in spaces.lists]
        return np.stack(choices, -1).reshape(agents, *spaces.action_shape)

    def step(self, action: Array) -> tuple[CallResult, bool]:
        """Step the first environment with `action`, the second with a random action; begin the second again if it ends.

        Args:
            action: [agents, *action_shape], as of `sample_action`.

        Returns:
            The first environment's arrays by name: observations, rewards [agents], ends [2, agents] (terminated,
            truncated), masks and the teacher's actions if any; and whether all of its agents are done.
        """
        other_actions = [self._random_actions(self._other_rng, env) for env in range(1, len(self._awaits_reset))]
        # The world writes all arrays after the actions.
        self._world.step_(np.stack([action, *other_actions]), self._obs, *self._outcome, *self._legal_masks)
        reward, terminated, truncated = self._outcome
        is_done = np.asarray((terminated | truncated).all(1))
        # Copies: the world writes into the same arrays at the next step.
        ends = {"rewards": reward[0].copy(), "ends": np.stack([terminated[0], truncated[0]])}
        self._awaits_reset[1:] = is_done[1:]
        if self._awaits_reset.any():
            # Seed 0 is not used: the first environment is never begun again here.
            self._begin_(0)
        return self._observe_and_ask_teacher(is_over=bool(is_done[0])) | ends, bool(is_done[0])

    def _observe_and_ask_teacher(self, *, is_over: bool = False) -> dict[str, Array]:
        """Return copies of the first environment's observations and masks, and the teacher's actions if there is one.

        It is called once in each step, as every call moves the teacher's state on. After the end of the episode the
        teacher is not asked.
        """
        arrays = {"observations": self._obs[0].copy()}
        if self._legal_masks:
            arrays["masks"] = self._legal_masks[0][0].copy()
        if self._teacher is None or is_over:
            return arrays
        actions = np.zeros(self._obs.shape[:2], np.int64)
        self._teacher.step_batch(self._obs, actions, *self._legal_masks)
        return arrays | {"actions of the teacher": actions[0]}

    def read_kept_state(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return the state that is kept over episodes: the first copy's, or the whole world's if it has no copies."""
        # The copies of a world are held where the states of their episodes' beginnings are recorded.
        if isinstance(self._world, ReplayableWorld):
            return read_env_state(self._world.episode_starts.copies[0])
        return self._world.state_dict()

    def load_kept_state_(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        """Give a kept state to the first copy, or to the whole world if it has no copies."""
        if isinstance(self._world, ReplayableWorld):
            load_state_(self._world.episode_starts.copies[0], state)
        else:
            self._world.load_state_dict(state)

    def close(self) -> None:
        """Close the world."""
        self._world.close()
