"""A test whether an episode depends on its seed and its actions alone, so that it can be played again.

Two short episodes are played in both orders, in two new players: A, B, A in one, B, A in the other. Everything that
must not matter differs each time: episodes before, simultaneous episodes, the global generators, the clock. If
something is kept over episodes and can be saved, the second player begins B with the state that the first one had then,
as a resume does.

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
from flatwater.envs.world import Array, Spaces, Teacher, UnseededError, World, split_legal
from flatwater_watch.meters.proc import queued_seconds

STEPS = 16
"""Steps of each of the episodes, at most."""
SECONDS = 0.5
"""CPU time that the test may take. Building the first player is not counted: its time is known only afterwards."""
PLAYS = 5
"""Episodes of the test."""
A, B = 11, 23
"""Seeds of the two episodes."""
Shown = Mapping[str, Array]
"""Result of one call, by name: observations, rewards, ends, and masks where there are any."""


class EpisodePlayer(Protocol):
    """An environment in which one episode is played, and others may be played next to it."""

    @property
    def can_save(self) -> bool:
        """Whether the environment can save its state over episodes."""

    def begin(self, seed: int) -> Shown:
        """Begin the episode."""

    def sample_action(self, rng: np.random.Generator) -> Any:  # noqa: ANN401  (an action, of whatever kind)
        """Return any action that is legal now."""

    def step(self, action: Any) -> tuple[Shown, bool]:  # noqa: ANN401  (whatever the space of actions holds)
        """Act; return the result, and whether the episode is over."""

    def save(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return its state over episodes."""

    def load(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        """Take a saved state back."""

    def close(self) -> None:
        """Close the environment."""


Make = Callable[[int], EpisodePlayer]


@dataclass(frozen=True)
class ExactnessVerdict:
    """Result of the test."""

    tested: bool
    """False if the test would have taken too long, or an error came between: the run itself reports the error."""
    why: str = ""
    """The difference, as a sentence without its subject; empty if there is none."""


@dataclass
class _RecordedEpisode:
    """An episode: its actions, and the results of its calls."""

    seed: int
    frames: list[Shown]
    actions: list[Any] = field(default_factory=list)
    kept: bytes = b""
    """State kept over episodes when this episode began."""


GENERATORS: dict[str, Callable[[int], object]] = {
    "random": random.seed,
    "numpy.random": np.random.seed,  # noqa: TID251  (whether it is used is the question)
    "torch": torch.default_generator.manual_seed,
}
"""The global generators: name -> the function that seeds it."""


@contextmanager
def generators_set(seeds: Mapping[str, int]) -> Iterator[None]:
    """Seed the global generators, and restore them at the end."""
    python, numpy = random.getstate(), np.random.get_state(legacy=False)  # noqa: NPY002  (the state of NumPy's global generator)
    tensors = torch.default_generator.get_state()
    try:
        for name, seed in seeds.items():
            GENERATORS[name](seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002  (the state of NumPy's global generator)
        torch.default_generator.set_state(tensors)


def _all(seed: int) -> dict[str, int]:
    return dict.fromkeys(GENERATORS, seed)


def try_exactness(make: Make, *, seconds: float = SECONDS, steps: int = STEPS) -> ExactnessVerdict:
    """Play two short episodes in both orders.

    Args:
        make: returns a new player, whose other episodes follow from the given number. It is called twice, and more
            often where a difference is to be explained.
        seconds: CPU time that may be used, apart from making the first player.
        steps: steps of an episode, at most.
    """
    try:
        return _try(make, seconds, steps)
    except UnseededError as error:
        return ExactnessVerdict(tested=True, why=str(error))
    except (Exception, SystemExit):  # noqa: BLE001  (of a class of the user's: the run comes to it, and says whose it is)
        return ExactnessVerdict(tested=False)


def _try(make: Make, seconds: float, steps: int) -> ExactnessVerdict:
    """Play the test as far as `seconds` of CPU time allow; errors of the user's class pass through.

    It plays A, B, A in one player and B, A in another, with as many steps as fit; not tested where not even one does.
    """
    watch = CountedTime()
    player = make(0)
    building = watch.elapsed_seconds()
    try:
        watch = CountedTime()
        # One step, which is not compared: its time says how many fit.
        _record(player, A, 1, circumstance=1)
        step_seconds = watch.elapsed_seconds()
        # A clock of coarse ticks may show 0 seconds.
        fitting_steps = int((seconds - building) / PLAYS / max(step_seconds, 1e-9))
        if fitting_steps < 1:
            return ExactnessVerdict(
                tested=False, why=f"a step takes {step_seconds:.2g} s, and building an environment {building:.2g} s"
            )
        saves, steps = player.can_save, min(steps, fitting_steps)
        first_record = _record(player, A, steps, circumstance=2)
        second_record = _record(player, B, steps, circumstance=3, save=saves)
        third_record = _record(player, A, steps, circumstance=4)
    finally:
        player.close()
    # With a state kept over episodes, the third may rightly differ from the first.
    differs = "" if saves else _difference(first_record, third_record)
    differs = differs or _check_replays(make(1), [second_record, third_record], _all(5))
    if not differs:
        return ExactnessVerdict(tested=True)
    cause = "after its state was saved and given back" if saves else _find_cause(make, first_record, seconds)
    quantity, _, values = differs.partition(": ")
    return ExactnessVerdict(tested=True, why=f"{quantity} of the same episode differ {cause}: {values}")


def try_whole_episode(
    make: Make, seed: int, actions: Array, end: Shown, *, state: object = None, seconds: float = SECONDS
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
    watch = CountedTime()
    try:
        with generators_set(_all(5)):
            player = make(4)
            try:
                if state is not None:
                    player.load(state)
                observations = player.begin(seed)
                is_over = False
                returns = np.zeros_like(end["returns"])
                step = 0
                for action in actions:
                    observations, is_over = player.step(action)
                    returns += observations["rewards"]
                    step += 1
                    if is_over or watch.elapsed_seconds() > seconds:
                        break
            finally:
                player.close()
    except (Exception, SystemExit):  # noqa: BLE001  (as in `try_exactness`)
        return ExactnessVerdict(tested=False)
    whole = step == len(actions)
    if not (whole or is_over):
        return ExactnessVerdict(tested=False)
    differs = _first_difference(end, {**observations, "returns": returns}, step)
    if whole != is_over:
        differs = f"ends: at step {step}, {whole} and {is_over}"
    quantity, _, values = differs.partition(": ")
    why = f"{quantity} of an episode differ when it is played again in a new environment: {values}"
    return ExactnessVerdict(tested=True, why=why if differs else "")


class CountedTime:
    """Time that counts: the processor's, or a quarter of the clock's, for a simulator that waits on another process.

    Time in which this thread waits for a core is not the simulator's, and does not count.
    """

    def __init__(self) -> None:
        self._cpu, self._all, self._queued = time.process_time(), time.monotonic(), queued_seconds()

    def elapsed_seconds(self) -> float:
        """Return the seconds since it was made."""
        cpu, clock = time.process_time() - self._cpu, time.monotonic() - self._all
        if clock / 4 > cpu:
            clock -= queued_seconds() - self._queued
        return max(cpu, clock / 4)


def _record(player: EpisodePlayer, seed: int, steps: int, *, circumstance: int, save: bool = False) -> _RecordedEpisode:
    """Play an episode with actions that follow from its seed.

    Args:
        player: the environment.
        seed: seed of the episode, and of the actions.
        steps: steps to be played, unless the episode ends before.
        circumstance: seed of the global generators meanwhile, on which nothing may depend.
        save: whether to save first, in the result's `kept`, the state that `player` keeps over episodes.
    """
    rng = np.random.default_rng(seed)
    with generators_set(_all(circumstance)):
        saved_state = encode_state(player.save()) if save else b""
        episode = _RecordedEpisode(seed, [player.begin(seed)], kept=saved_state)
        for _ in range(steps):
            episode.actions.append(player.sample_action(rng))
            result, is_over = player.step(episode.actions[-1])
            episode.frames.append(result)
            if is_over:
                break
    return episode


def _check_replays(player: EpisodePlayer, episodes: Sequence[_RecordedEpisode], seeds: Mapping[str, int]) -> str:
    """Return the first difference where a new player plays these episodes; empty if there is none.

    Args:
        player: a new player; it is closed.
        episodes: records, played again in this order with their own actions.
        seeds: seed of each global generator, by name, at the beginning of each episode.
    """
    try:
        for episode in episodes:
            with generators_set(seeds):
                if differs := _replay(player, episode):
                    return differs
    finally:
        player.close()
    return ""


def _replay(player: EpisodePlayer, episode: _RecordedEpisode) -> str:
    """Return the first difference where this player plays an episode again, or its error; empty if there is none."""
    if episode.kept:
        player.load(decode_state(episode.kept))
    for step, recorded in enumerate(episode.frames):
        try:
            result = player.begin(episode.seed) if step == 0 else player.step(episode.actions[step - 1])[0]
        except Exception as error:  # noqa: BLE001  (it took that before: a difference like any other)
            return f"ends: at step {step}, {type(error).__name__}: {error}"
        if differs := _first_difference(recorded, result, step):
            return differs
    return ""


def _difference(one: _RecordedEpisode, other: _RecordedEpisode) -> str:
    """Return the first difference between two records of one episode; empty if there is none."""
    pairs = enumerate(zip(one.frames, other.frames, strict=False))
    return next((found for step, (a, b) in pairs if (found := _first_difference(a, b, step))), "")


def _first_difference(then: Shown, now: Shown, step: int) -> str:
    """Return the first difference, such as `rewards: at step 3, 0.12 and 0.15`, bit for bit; empty if none is.

    Args:
        then: recorded arrays by name.
        now: arrays by name when the episode was played again; names that are in `now` alone are not compared.
        step: number of the step for the sentence; 0 is the reset.
    """
    for name, recorded in then.items():
        value = now.get(name)
        if value is None or value.dtype != recorded.dtype or value.shape != recorded.shape:
            return f"{name}: at step {step}, of another shape or type"
        if value.tobytes() != recorded.tobytes():
            # Bytes may differ where no number does: -0.0 equals 0.0. The first number stands for them.
            different = recorded.ravel() != value.ravel()
            position = int(np.flatnonzero(different)[0]) if different.any() else 0
            return f"{name}: at step {step}, {recorded.ravel()[position]} and {value.ravel()[position]}"
    return ""


def _find_cause(make: Make, episode: _RecordedEpisode, seconds: float) -> str:
    """Return the cause of a difference, found by changing one thing at a time between two new players.

    Args:
        make: returns a new player, whose other episodes follow from the given number.
        episode: record of the episode that differed; its seed is played again for as many steps.
        seconds: time after which no further cause is tried, counted from here on.
    """
    watch = CountedTime()
    with suppress(Exception):  # of the user's class: then it is not found
        player = make(2)
        seeds = _all(7)
        try:
            episode_again = _record(player, episode.seed, len(episode.actions), circumstance=7)
        finally:
            player.close()
        if _check_replays(make(2), [episode_again], seeds):
            return (
                "between two new environments (the clock, a generator that reset(seed=...) does not seed, or something "
                "that all of them share)"
            )
        causes = [
            n
            for n in GENERATORS
            if watch.elapsed_seconds() < seconds and _check_replays(make(2), [episode_again], seeds | {n: 8})
        ]
        if causes:
            return f"when the global generator of {' and '.join(causes)} is in another state (draw from self.np_random)"
        if watch.elapsed_seconds() < seconds and _check_replays(make(3), [episode_again], seeds):
            return "when others are played beside it"
    return "after another episode was played"


class WorldPlayer:
    """The first environment of a world of two; other episodes are played in the second."""

    def __init__(self, world: World, other_seed: int, teacher: Teacher | None = None) -> None:
        """Allocate the arrays that the world writes into.

        Args:
            world: just built, with two environments.
            other_seed: seed of the episodes in the second environment.
            teacher: a teacher whose actions are compared as well; None without one.
        """
        self._teacher: Any = teacher
        self._world: Any = world
        self._spaces: Spaces = world.spaces
        shape = (world.spaces.envs, world.spaces.agents)
        spaces = world.spaces
        self._obs = np.zeros((*shape, *spaces.obs), spaces.obs_type)
        self._legal = [np.ones((*shape, spaces.legal), np.bool_)] if spaces.masked else []
        self._outcome = (np.zeros(shape, np.float32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))
        self._waits, self._beside = np.ones(shape[0], np.bool_), np.random.default_rng(other_seed)

    @property
    def can_save(self) -> bool:
        """Whether the world's spaces say that it keeps something."""
        return bool(self._spaces.kept)

    def begin(self, seed: int) -> Shown:
        """Begin the episode, and another in the second environment where the last is over."""
        self._waits[0] = True
        self._begin_(seed)
        return self._observe_and_ask_teacher()

    def _begin_(self, seed: int) -> None:
        """Begin an episode in each environment that waits: of `seed` in the first, of a random seed in the second."""
        seeds = self._beside.integers(1 << 30, size=len(self._waits))
        seeds[0] = seed
        self._world.begin_(self._waits, seeds, self._obs, *self._legal)
        if self._teacher is not None:
            self._teacher.begin_(self._waits.copy())
        self._waits[:] = False

    def sample_action(self, rng: np.random.Generator) -> Array:
        """An action for each agent of the first environment."""
        return self._any(rng, 0)

    def _any(self, rng: np.random.Generator, env: int) -> Array:
        """Return a random legal action of each agent of one environment, [agents, *action_shape]."""
        spaces, agents = self._spaces, self._spaces.agents
        if spaces.bounds is not None:
            low, high = np.array(spaces.bounds, np.float32).T
            return rng.uniform(low, high, (agents, len(low))).astype(np.float32)
        sizes = spaces.lists
        if self._legal:
            parts = split_legal(spaces, self._legal[0][env])
            choices = [(rng.random(part.shape) * part).argmax(-1) for part in parts]
        else:
            choices = [rng.integers(size, size=agents) for size in sizes]
        return np.stack(choices, -1).reshape(agents, *spaces.action_shape)

    def step(self, action: Array) -> tuple[Shown, bool]:
        """Step the first environment with `action`, the second with a random action; it restarts when it is done.

        Args:
            action: [agents, *action_shape], as of `sample_action`.

        Returns:
            What the first environment gave, by name: observations, rewards [agents], ends [2, agents] (terminated,
            truncated), masks and the teacher's actions if any; and whether all of its agents are done.
        """
        random_actions = [self._any(self._beside, env) for env in range(1, len(self._waits))]
        self._world.step_(np.stack([action, *random_actions]), self._obs, *self._outcome, *self._legal)
        reward, terminated, truncated = self._outcome
        done = np.asarray((terminated | truncated).all(1))
        # Copies: the world writes into the same arrays at the next step.
        ends = {"rewards": reward[0].copy(), "ends": np.stack([terminated[0], truncated[0]])}
        self._waits[1:] = done[1:]
        if self._waits.any():
            # Seed 0 is not used: the first environment does not wait here.
            self._begin_(0)
        return self._observe_and_ask_teacher(is_over=bool(done[0])) | ends, bool(done[0])

    def _observe_and_ask_teacher(self, *, is_over: bool = False) -> dict[str, Array]:
        """Return copies of the first environment's observations and masks; ask the teacher for its actions.

        Once a step: the teacher has a state, which moves. After the end of the episode it has none to ask for.
        """
        arrays = {"observations": self._obs[0].copy()} | ({"masks": self._legal[0][0].copy()} if self._legal else {})
        if self._teacher is None or is_over:
            return arrays
        actions = np.zeros(self._obs.shape[:2], np.int64)
        self._teacher.step_batch(self._obs, actions, *self._legal)
        return arrays | {"actions of the teacher": actions[0]}

    def save(self) -> Any:  # noqa: ANN401  (a state of any form)
        """Return the state of the first copy, or of the whole world."""
        if isinstance(self._world, ReplayableWorld):
            return read_env_state(self._world.beginnings.copies[0])
        return self._world.state_dict()

    def load(self, state: Any) -> None:  # noqa: ANN401  (a state of any form)
        """Give a state to the first copy, or to the whole world."""
        if isinstance(self._world, ReplayableWorld):
            load_state_(self._world.beginnings.copies[0], state)
        else:
            self._world.load_state_dict(state)

    def close(self) -> None:
        """Close the world."""
        self._world.close()
