"""Numbers that a user asks for of finished episodes: keys of their last info, and numbers by a function of the user's.

A round's numbers are means over its episodes. Their sums are in the state tree, so a run that is killed within a round
has them again; names are not known before they are logged, so there is space for a fixed number of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from flatwater.envs.world import Array, World
from flatwater.envs.wrapped.infos import find_informing
from flatwater.own_numbers import MAXIMUM_NAME, as_number, check_name, logged_number
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater.trainers.episodes import Episodes
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.sanitize import short_repr

OWN = "own"
"""The one key of a state's `logged`, which has no entry where nothing is logged."""
MAXIMUM_NAMES = 64
"""Most names of a round."""


@state
class LoggedNumbers:
    """Sums over the episodes that have finished since the last reading, in the order in which names were first met."""

    names: UInt8[Tensor, "N L"]
    """UTF-8, with zeros behind it; rows that are not used yet are zeros."""
    sums: Float[Tensor, "N"]
    counts: Float[Tensor, "N"]


def build_logged(device: torch.device) -> LoggedNumbers:
    """Return empty names and sums, allocated. On the meta device this is the plan."""
    return LoggedNumbers(
        names=filled_tensor(0, MAXIMUM_NAMES, MAXIMUM_NAME, dtype=torch.uint8, device=device),
        sums=filled_tensor(0, MAXIMUM_NAMES, dtype=torch.float64, device=device),
        counts=filled_tensor(0, MAXIMUM_NAMES, dtype=torch.float64, device=device),
    )


def add_number_(logged: LoggedNumbers, name: str, value: float) -> None:
    """Add a number of one episode.

    Raises:
        ConfigError: there is no space for another name.
    """
    names, sums, counts = (leaf.numpy() for leaf in (logged.names, logged.sums, logged.counts))
    text = np.frombuffer(name.encode(errors="replace").ljust(MAXIMUM_NAME, b"\0"), np.uint8)
    (rows,) = np.nonzero((names == text).all(1) | ~names.any(1))
    if not len(rows):
        raise ConfigError(f"log({short_repr(name)}, ...): a round has room for {MAXIMUM_NAMES} names of your own")
    # The row of the name stands before the first that is free.
    names[rows[0]] = text
    sums[rows[0]] += value
    counts[rows[0]] += 1


def take_numbers_(logged: LoggedNumbers) -> dict[str, float]:
    """Return means by name, and reset them."""
    names = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in logged.names.numpy()]
    means = (logged.sums / logged.counts).tolist()
    numbers = {name: mean for name, mean in zip(names, means, strict=True) if name}
    for leaf in (logged.names, logged.sums, logged.counts):
        leaf.zero_()
    return numbers


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """An episode of training that has ended: the argument of `on_episode`."""

    env: int
    """Number of the environment that it was played in."""
    seed: int
    length: int
    """Number of steps of the episode."""
    returns: tuple[float, ...]
    """Sum of rewards of each agent."""
    info: Mapping[str, Any]
    """Info of the last step; of several agents by agent. Empty if the environment gives none."""
    log: Callable[[str, Any], None]
    """Log a number: the round's is the mean over the episodes that have logged it."""

    @property
    def mean_return(self) -> float:
        """Mean return of its agents."""
        return sum(self.returns) / len(self.returns)


OnEpisode = Callable[[FinishedEpisode], object]


class EpisodeReporter:
    """Tells the user's function of finished episodes, and sums the keys of their infos that the user asks for."""

    def __init__(
        self, world: World, logged: LoggedNumbers, keys: Sequence[str], on_episode: OnEpisode | None, *, name: str
    ) -> None:
        """Keep the numbers to report, and the function that gets them.

        Args:
            world: the world of the episodes.
            logged: their sums.
            keys: keys of infos.
            on_episode: the user's function.
            name: name of the environment, for messages.

        Raises:
            ConfigError: keys are asked for where the world has no infos.
        """
        self._source = find_informing(world)
        self._logged, self._keys, self._on_episode, self._name = logged, keys, on_episode, name
        if keys and self._source is None:
            raise ConfigError(
                f"info_keys = {short_repr([*keys])}: environment {name} says nothing of its steps. A world of your own "
                "does by a property `infos`, a dict for each environment"
            )

    def report_(self, ended: Array, episodes: Episodes, _seen: Array) -> None:
        """Report the episodes of the environments in `ended`, bool [E], before new episodes begin there."""
        infos = None if self._source is None else self._source.infos
        for env in np.flatnonzero(ended).tolist():
            info: Mapping[str, Any] = {} if infos is None else infos[env]
            for key in self._keys:
                add_number_(self._logged, f"info/{key}", self._value(info, key, episodes.over.shape[1]))
            if self._on_episode is not None:
                self._on_episode(
                    FinishedEpisode(
                        env=env,
                        seed=int(episodes.seeds[env]),
                        length=int(episodes.steps[env]),
                        returns=tuple(episodes.returns[env].tolist()),
                        info=info,
                        log=self._log,
                    )
                )

    def _log(self, name: str, value: object) -> None:
        """Take a number of the user's."""
        add_number_(self._logged, check_name(name), logged_number(name, value))

    def _value(self, info: Mapping[str, Any], key: str, agents: int) -> float:
        """Return a key's number of one info; of several agents' infos, the mean of those that have the key.

        Raises:
            RunError: the key is missing, or has no number.
        """
        parts = [part for part in info.values() if isinstance(part, Mapping)] if agents > 1 else [info]
        values = [part[key] for part in parts if key in part]
        numbers = [number for value in values if (number := as_number(value)) is not None]
        if values and len(numbers) == len(values):
            return sum(numbers) / len(numbers)
        wrong = next((value for value in values if as_number(value) is None), None)
        known = ", ".join(sorted({repr(str(name)) for part in parts for name in part})[:20]) or "no key at all"
        got = f"{short_repr(wrong)}, a {type(wrong).__name__}" if values else known
        raise RunError(
            f"info_keys: environment {self._name}: expected a number as {key!r} in the info of an episode's last step, "
            f"got {got}. Change it, or leave {key!r} out of info_keys"
        )
