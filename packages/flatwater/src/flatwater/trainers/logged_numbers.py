"""A user's own numbers of finished episodes: values in their last info, and numbers that `on_episode` logs.

A round's numbers are means over its episodes. Their sums are in the state tree, so a resumed run has them; names are
not known before they are logged, so there is space for a fixed number of names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from flatwater.envs.world import Array, World
from flatwater.envs.wrapped.infos import find_infos_world
from flatwater.own_numbers import MAXIMUM_NAME, as_number, check_name, logged_number
from flatwater.state.allocation import filled_tensor
from flatwater.state.tree import state
from flatwater.trainers.episodes import Episodes
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.sanitize import short_repr

OWN = "own"
"""The only key of a state's `logged`, which is empty if nothing is logged."""
MAXIMUM_NAMES = 64
"""Largest number of names in a round."""


@state
class LoggedNumbers:
    """Sums over the episodes that have finished since the last reading; a row for each name."""

    names: UInt8[Tensor, "N L"]
    """Names in UTF-8, padded with zeros; a free row is zeros."""
    sums: Float[Tensor, "N"]
    counts: Float[Tensor, "N"]


def build_logged_numbers(device: torch.device) -> LoggedNumbers:
    """Return sums of no numbers yet: all rows are free. On the meta device they are shapes alone, for a memory plan."""
    return LoggedNumbers(
        names=filled_tensor(0, MAXIMUM_NAMES, MAXIMUM_NAME, dtype=torch.uint8, device=device),
        sums=filled_tensor(0, MAXIMUM_NAMES, dtype=torch.float64, device=device),
        counts=filled_tensor(0, MAXIMUM_NAMES, dtype=torch.float64, device=device),
    )


def add_number_(numbers: LoggedNumbers, name: str, value: float) -> None:
    """Add one episode's number to the sum of its name.

    Raises:
        ConfigError: there is no space for another name.
    """
    # Views: what is written into them is in the state tree.
    names, sums, counts = numbers.names.numpy(), numbers.sums.numpy(), numbers.counts.numpy()
    text = np.frombuffer(name.encode(errors="replace").ljust(MAXIMUM_NAME, b"\0"), np.uint8)
    has_name, is_free = (names == text).all(1), ~names.any(1)  # masks of rows; a free row is all zeros
    (rows,) = np.nonzero(has_name | is_free)
    if not len(rows):
        raise ConfigError(f"log({short_repr(name)}, ...): a round has room for {MAXIMUM_NAMES} names of your own")
    # Used rows come before free rows, so the first is the name's row if it has one.
    row = rows[0]
    names[row] = text
    sums[row] += value
    counts[row] += 1


def take_numbers_(logged_numbers: LoggedNumbers) -> dict[str, float]:
    """Return the mean of each name's numbers, and free all rows."""
    # Names are padded with zeros, so a free row becomes an empty name.
    names = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in logged_numbers.names.numpy()]
    means = (logged_numbers.sums / logged_numbers.counts).tolist()
    # Free rows are left out: their mean is 0 / 0.
    numbers = {name: mean for name, mean in zip(names, means, strict=True) if name}
    for leaf in (logged_numbers.names, logged_numbers.sums, logged_numbers.counts):
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
    """Info of the last step; with several agents, a dict of infos by agent. Empty if the environment has no infos."""
    log: Callable[[str, Any], None]
    """Logs a number by name; the round's number is the mean over the episodes that logged it."""

    @property
    def mean_return(self) -> float:
        """Mean return of its agents."""
        return sum(self.returns) / len(self.returns)


OnEpisode = Callable[[FinishedEpisode], object]


class EpisodeReporter:
    """Calls the user's function with finished episodes, and sums the values of the user's keys in their infos."""

    def __init__(
        self, world: World, logged: LoggedNumbers, keys: Sequence[str], on_episode: OnEpisode | None, *, name: str
    ) -> None:
        """Keep the source of the world's infos, the sums in the state tree, and the user's function.

        Args:
            world: the world of the episodes.
            logged: sums of the episodes' numbers, in the state tree.
            keys: keys of infos whose values are summed.
            on_episode: the user's function; None without one.
            name: name of the environment, for messages.

        Raises:
            ConfigError: keys are asked for where the world has no infos.
        """
        # The world, or the user's world within it, that has infos; None if neither has.
        self._source = find_infos_world(world)
        self._logged, self._keys, self._on_episode, self._name = logged, keys, on_episode, name
        if keys and self._source is None:
            raise ConfigError(
                f"info_keys = {short_repr([*keys])}: environment {name} says nothing of its steps. A world of your own "
                "does by a property `infos`, a dict for each environment"
            )

    def report_(self, ended: Array, episodes: Episodes, _observations: Array) -> None:
        """Report the episodes of the environments in `ended`, bool [E], before new episodes begin there.

        Observations are not reported; they are an argument because this is a `ReportEnded`.
        """
        infos = None if self._source is None else self._source.infos
        for env in np.flatnonzero(ended).tolist():
            info: Mapping[str, Any] = {} if infos is None else infos[env]
            for key in self._keys:
                add_number_(self._logged, f"info/{key}", self._info_value(info, key, agents=episodes.over.shape[1]))
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
        """Add a number that the user's function logs."""
        add_number_(self._logged, check_name(name), logged_number(name, value))

    def _info_value(self, info: Mapping[str, Any], key: str, *, agents: int) -> float:
        """Return the number of a key in an info; with several agents, the mean over the agents that have the key.

        Raises:
            RunError: the key is missing, or has no number.
        """
        infos = [info]
        if agents > 1:  # then the info has an info for each agent, and may have other entries
            infos = [agent_info for agent_info in info.values() if isinstance(agent_info, Mapping)]
        values = [agent_info[key] for agent_info in infos if key in agent_info]
        numbers = [number for value in values if (number := as_number(value)) is not None]
        if values and len(numbers) == len(values):
            return sum(numbers) / len(numbers)
        raise RunError(
            f"info_keys: environment {self._name}: expected a number as {key!r} in the info of an episode's last step, "
            f"got {_found_text(infos, values)}. Change it, or leave {key!r} out of info_keys"
        )


def _found_text(infos: Sequence[Mapping[str, Any]], values: Sequence[Any]) -> str:
    """Return what was found in place of a number: the first value that is no number, or without values the keys."""
    if values:
        wrong_value = next((value for value in values if as_number(value) is None), None)
        return f"{short_repr(wrong_value)}, a {type(wrong_value).__name__}"
    known_keys = sorted({repr(str(name)) for info in infos for name in info})
    # 20 keys at most, so that the message stays short.
    return ", ".join(known_keys[:20]) or "no key at all"
