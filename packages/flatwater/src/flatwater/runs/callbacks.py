"""The user's functions that a run calls while it trains: after each round, and after each finished episode.

A function is given in Python, or named by a setting. A function without a name must be given again at a resume.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from flatwater.named_imports import check_takes_one_argument, find_function
from flatwater.own_numbers import check_name, logged_number
from flatwater.runs.config import EpisodesRunConfig
from flatwater.trainers.logged_numbers import OnEpisode
from flatwater_watch.errors import ConfigError

PYTHON_OBJECT = "python"
"""Value of the setting `on_episode` where the function was given in Python."""


class RoundMetrics(Mapping[str, float]):
    """The metrics of a round by name, as a read-only mapping."""

    def __init__(self, numbers: Mapping[str, float]) -> None:
        """Keep the numbers; the mapping is not copied."""
        self._numbers = numbers

    def __getitem__(self, name: str) -> float:
        """Return a number.

        Raises:
            KeyError: the round has no such number, as `return/mean` where no episode ended in it.
        """
        if name not in self._numbers:
            raise KeyError(f"{name}: this round has no such number; metrics.get({name!r}) is None where it is missing")
        return self._numbers[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """Return the number of metrics."""
        return len(self._numbers)

    def __setitem__(self, name: str, value: object) -> NoReturn:
        """Refuse to set a metric, which would reach no file.

        Raises:
            ConfigError: always; the message says what to write instead.
        """
        raise ConfigError(f"round.metrics[{name!r}] = ...: metrics are read alone. Write round.log({name!r}, ...)")


@dataclass(frozen=True)
class Round:
    """A complete round, as the argument of `on_round`; it is recorded after the call."""

    number: int
    rounds: int
    """Number of the run's rounds in all."""
    metrics: Mapping[str, float]
    stop: Callable[[], None]
    """Ends the run after this round; it can be resumed."""
    logged: dict[str, float] = field(default_factory=dict)
    """Numbers given to `log`, by name."""

    def log(self, name: str, value: Any) -> None:  # noqa: ANN401  (a number of any library)
        """Add a number of your own to the round's metrics, in files, on the terminal and in trackers.

        Raises:
            ConfigError: the name is not an identifier or is one of Flatwater's, or the value is not a number.
        """
        self.logged[check_name(name)] = logged_number(name, value)


OnRound = Callable[[Round], object]


@dataclass(frozen=True)
class Callbacks:
    """The user's functions that are called while a run trains; None for none."""

    on_round: OnRound | None = None
    on_episode: OnEpisode | None = None


NO_CALLBACKS = Callbacks()


def find_callbacks(config: Any, functions: Callbacks) -> Callbacks:  # noqa: ANN401  (a RunConfig of any recipe)
    """Return the functions given in Python, and in place of each missing one the function that the settings name.

    Raises:
        ConfigError: a setting names no function, an object given in Python is no function, or the function of a resumed
            run was given in Python and is not given again.
    """
    on_round, on_episode = functions.on_round, functions.on_episode
    if on_round is not None:
        check_takes_one_argument(on_round, "on_round", "a function that takes a round")
    if on_episode is not None:
        check_takes_one_argument(on_episode, "on_episode", "a function that takes an episode")
    if on_round is None and config.on_round is not None:
        on_round = find_function(config.on_round, field="on_round", takes="a round")
    # Only runs that play episodes have the setting.
    episode_setting = config.on_episode if isinstance(config, EpisodesRunConfig) else None
    if on_episode is None and episode_setting == PYTHON_OBJECT:
        raise ConfigError(
            f"on_episode = {PYTHON_OBJECT!r}: the run was begun with a function that was given in Python, and goes on "
            "with it alone: flatwater.resume(run, on_episode=...)"
        )
    if on_episode is None and episode_setting is not None:
        on_episode = find_function(episode_setting, field="on_episode", takes="an episode")
    return Callbacks(on_round, on_episode)
