"""Two to eight runs beside each other, read from their folders alone.

Whether one is better than another is not seen from two numbers. A recipe may say how sure a difference is: that of
traders resamples the days that both have traded.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from string import ascii_uppercase
from typing import Any, cast

from flatwater.config.toml import flat_settings, to_mapping
from flatwater.mirror.download import open_run_folder
from flatwater.recipe import Difference, NoDifferenceError, find_installed
from flatwater.reports.records import RunRecords, read_run
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.content import plain_json_value
from flatwater_watch.forms import write_value
from flatwater_watch.units import format_bytes, format_duration

MOST_RUNS = 8
"""Most runs of a comparison: a page has that many colours for curves."""
ROUNDS_OF_PACE = 8
NOTHING = "-"
"""Cell of a number that a run does not have."""

Rows = list[tuple[str, list[str]]]
"""Name of each row, and its cell for each run."""


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    letter: str
    """Letter by which tables and charts name it."""
    named: str
    """Name by which the user named it."""
    run: RunRecords

    @property
    def result_numbers(self) -> Mapping[str, Any]:
        """Numbers of the trained policy; empty where the run has no result."""
        recipe, result = self.run.recipe, self.run.result
        numbers: Mapping[str, Any] = {} if result is None else result[recipe.players].get(recipe.trained, {})
        return numbers


@dataclass(frozen=True)
class RunDifference:
    """Difference of one run from the first."""

    letter: str
    first: str
    difference: Difference | None
    """Difference and its interval; None where they cannot be compared."""
    reason: str = ""
    """Reason why there is no difference; empty where there is one."""

    @property
    def sentence(self) -> str:
        """Sentence about the difference."""
        if self.difference is None:
            return f"{self.letter} and {self.first}: no interval, {self.reason}."
        periods = f"the same {self.difference.count} {self.difference.units}"
        return f"{self.letter} {self.difference.told(self.first)}, over {periods}."


def read_named(runs: Sequence[str], say: Callable[[str], None]) -> list[ComparedRun]:
    """Return runs that a user names, with their letters, in that order.

    Args:
        runs: their folders, or the URLs at which they are mirrored.
        say: gets lines about what is downloaded.

    Raises:
        ConfigError: too few runs are named, too many, or one twice.
        RunError: what is named is no run, or is damaged.
    """
    check_named(runs)  # before runs at a URL are downloaded
    with ExitStack() as copies:  # copies of runs at a URL go away when all is read
        return read_compared({run: copies.enter_context(open_run_folder(run, say, shards=False)).path for run in runs})


def check_named(runs: Sequence[str]) -> None:
    """Refuse runs that cannot be put beside each other.

    Raises:
        ConfigError: too few runs are named, too many, or one twice.
    """
    if not 2 <= len(runs) <= MOST_RUNS:  # noqa: PLR2004  (two sides)
        raise ConfigError(f"compare: expected 2 to {MOST_RUNS} run folders, got {len(runs)}. Name the runs to compare.")
    resolved = [run if "://" in run else str(Path(run).resolve()) for run in runs]  # one folder by two paths is one run
    twice = next((run for index, run in enumerate(runs) if resolved[index] in resolved[:index]), None)
    if twice is not None:
        raise ConfigError(f"compare: {twice} is given twice. Name each run once.")


def read_compared(folders: Mapping[str, Path]) -> list[ComparedRun]:
    """Return the runs with their letters, in the order in which they are named."""
    letters = zip(ascii_uppercase, folders.items(), strict=False)
    return [ComparedRun(letter, name, read_run(path)) for letter, (name, path) in letters]


def setting_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return rows of the settings that are not the same in all runs, in the order of the file."""
    flat = [_settings(run.run) for run in runs]
    names = dict.fromkeys(name for run in runs for name in flat_settings(run.run.config))
    rows = [(name, [_setting(settings[name]) if name in settings else NOTHING for settings in flat]) for name in names]
    return [(name, cells) for name, cells in rows if len({*cells}) > 1]


def _settings(run: RunRecords) -> dict[str, Any]:
    """Return the settings by name; one that the run's version did not have has its default, with which it is resumed.

    A recipe that does not ship is not imported for its defaults: its folders have every setting.
    """
    shipped = find_installed(run.recipe.name)
    return flat_settings({} if shipped is None else to_mapping(shipped.config())) | flat_settings(run.config)


def _setting(value: object) -> str:
    """Return a setting as a cell of a table."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value) or '""'


def number_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return rows of how far each run is, the last value of its curves, and the numbers of its result."""
    rows: Rows = [
        ("state", [run.run.state for run in runs]),
        ("rounds", [f"{run.run.done}/{run.run.rounds}" for run in runs]),
        ("time a round", [_pace(run.run) for run in runs]),
        ("resident", [format_bytes(run.run.ledger[-1].resident) if run.run.ledger else NOTHING for run in runs]),
    ]
    # By metric: runs of several recipes may name one curve in different ways.
    curves = {metric: title for run in runs for title, metric in run.run.recipe.curves.items()}
    rows += [
        (title, [_format_last(run.run.metrics.get(metric, [])) for run in runs]) for metric, title in curves.items()
    ]
    numbers = {number.key: number for run in runs for number in run.run.recipe.numbers}
    for key, number in numbers.items():
        rows.append((number.title, [_format_value(run.result_numbers.get(key), number.form) for run in runs]))
    against = {run.run.recipe.headline.against: run.run.recipe.headline for run in runs}
    for reference, headline in against.items():
        reference_numbers = [(run.run.result or {}).get(run.run.recipe.players, {}).get(reference, {}) for run in runs]
        title = numbers[headline.key].title if headline.key in numbers else headline.title
        rows.append(
            (
                f"{reference}: {title}",
                [_format_value(row.get(headline.key), headline.form) for row in reference_numbers],
            )
        )
    return [(name, cells) for name, cells in rows if {*cells} != {NOTHING}]


def _format_last(values: Iterable[float]) -> str:
    finite_values = [value for value in values if isfinite(value)]
    return f"{finite_values[-1]:.4g}" if finite_values else NOTHING


def _format_value(value: float | None, form: str) -> str:
    return NOTHING if value is None else write_value(form, value)


def _pace(run: RunRecords) -> str:
    """Return the median duration of the last rounds that have ended; a dash where none has."""
    times = [run.metrics[name][-ROUNDS_OF_PACE:] for name in run.metrics if name.startswith("time/")]
    sums = [sum(value for value in row if isfinite(value)) for row in zip(*times, strict=True)]
    return format_duration(median(sums)) if sums else NOTHING


def differences_from_first(runs: Sequence[ComparedRun]) -> list[RunDifference]:
    """Return the difference of each run from the first."""
    first, *later_runs = runs
    return [_compare_to_first(run, first) for run in later_runs]


def _compare_to_first(own: ComparedRun, first: ComparedRun) -> RunDifference:
    """Return the difference of a run from the first by its recipe's rule, or the reason why there is none."""
    recipe = find_installed(first.run.recipe.name)
    if recipe is None or recipe.difference is None:
        return RunDifference(
            own.letter, first.letter, None, f"the recipe {first.run.recipe.name} does not define intervals"
        )
    try:
        difference: Difference = recipe.difference({run.letter: run.run for run in (own, first)})
    except NoDifferenceError as error:
        return RunDifference(own.letter, first.letter, None, str(error))
    return RunDifference(own.letter, first.letter, difference)


def as_json(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """Return the whole comparison as plain values; `days` of a difference are 0 where there is none."""
    flat, differing = [_settings(run.run) for run in runs], [name for name, _ in setting_rows(runs)]
    comparison = {
        "runs": [
            {
                "letter": run.letter,
                "run": run.named,
                "state": run.run.state,
                "done": run.run.done,
                "rounds": run.run.rounds,
                "settings": {name: settings.get(name) for name in differing},
                "metrics": {name: column[-1] for name, column in run.run.metrics.items() if column},
                "result": dict(run.result_numbers) or None,
            }
            for run, settings in zip(runs, flat, strict=True)
        ],
        "differences": [
            {
                "run": difference.letter,
                "against": difference.first,
                "days": 0 if difference.difference is None else difference.difference.count,
                "reason": difference.reason or None,
                "interval": None if difference.difference is None else difference.difference.values,
            }
            for difference in differences_from_first(runs)
        ],
    }
    return cast("dict[str, Any]", plain_json_value(comparison))  # JSON has no NaN
