"""Two to eight runs, or groups of runs with several seeds, side by side, read from their folders alone; or one group.

Whether one is better than another is not seen from two numbers. Groups are compared over their seeds. Of single runs a
recipe may say how sure a difference is: that of traders resamples the days that both have traded.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from string import ascii_uppercase
from typing import Any, cast

from flatwater.comparisons.seed_statistics import (
    INTERVAL_LEVEL,
    MINIMUM_SEEDS,
    SeedStatistics,
    seed_difference,
    seed_statistics,
)
from flatwater.config.toml import flat_settings, to_mapping
from flatwater.mirror.download import open_run_folder
from flatwater.recipe import Difference, NoDifferenceError, find_installed
from flatwater.reports.records import RunRecords, read_run
from flatwater.rundir.seeds import begun_runs
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.content import is_number, plain_json_value
from flatwater_watch.forms import count_phrase, write_value
from flatwater_watch.units import format_bytes, format_duration

MAXIMUM_RUNS = 8
"""Most runs of a comparison: a page has that many colours for curves."""
PACE_ROUNDS = 8
SEEDS_UNIT = "seeds"
"""Units of a difference between groups."""
EMPTY_CELL = "-"
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
    """The run; of a group the first run."""
    group: tuple[RunRecords, ...] = ()
    """All runs of a group, one for each seed; empty for a single run."""

    @property
    def members(self) -> tuple[RunRecords, ...]:
        """The runs of the group, or the single run."""
        return self.group or (self.run,)

    @property
    def result_numbers(self) -> Mapping[str, float | None]:
        """Numbers of the trained policy, of a group their means over seeds; empty if there is no result."""
        return self.player_numbers(self.run.recipe.trained)

    def player_numbers(self, player: str) -> Mapping[str, float | None]:
        """Return the numbers of a player, of a group their means over seeds; empty if there is no result."""
        rows = [run.result[run.recipe.players].get(player, {}) for run in self.members if run.result is not None]
        columns = {key: [row[key] for row in rows if is_number(row.get(key))] for key in (rows[0] if rows else ())}
        return {key: fmean(values) if values else None for key, values in columns.items()}

    @property
    def scores(self) -> list[float]:
        """The number that results are judged by, of each run that has a result."""
        key, recipe = self.run.recipe.headline.key, self.run.recipe
        rows = [run.result[recipe.players].get(recipe.trained, {}) for run in self.group if run.result is not None]
        return [float(row[key]) for row in rows if is_number(row.get(key))]

    @property
    def statistics(self) -> SeedStatistics | None:
        """Statistics of that number over seeds; None for a single run, and for fewer than two results."""
        return seed_statistics(self.scores) if len(self.scores) >= MINIMUM_SEEDS else None

    @property
    def sentence(self) -> str:
        """Sentence about a group."""
        statistics, write = self.statistics, self.run.recipe.headline.write
        seeds = count_phrase(len(self.group), "seed")
        if statistics is None:
            return f"{seeds}: an interval needs the results of {MINIMUM_SEEDS} or more"
        return (
            f"{seeds}: {self.run.recipe.headline.title} {write(statistics.mean)} mean, "
            f"{write(statistics.interquartile_mean)} interquartile mean, {INTERVAL_LEVEL:.0%} interval "
            f"{write(statistics.low)} to {write(statistics.high)}"
        )


@dataclass(frozen=True)
class RunDifference:
    """Difference of one run from the first."""

    letter: str
    first: str
    difference: Difference | None
    """Difference and its interval; None if they cannot be compared."""
    reason: str = ""
    """Reason why there is no difference; empty if there is one."""

    @property
    def sentence(self) -> str:
        """Sentence about the difference."""
        if self.difference is None:
            return f"{self.letter} and {self.first}: no interval, {self.reason}."
        same = "" if self.difference.units == SEEDS_UNIT else "the same "
        periods = f"{same}{self.difference.count} {self.difference.units}"
        return f"{self.letter} {self.difference.told(self.first)}, over {periods}."


def read_named(runs: Sequence[str], say: Callable[[str], None]) -> list[ComparedRun]:
    """Return runs that a user names, with their letters, in that order.

    Args:
        runs: their folders, or the URLs at which they are mirrored.
        say: gets lines about what is downloaded.

    Raises:
        ConfigError: too few runs are named, too many, or one twice.
        RunError: the name is not that of a run, or the run is damaged.
    """
    check_named(runs)  # before runs at a URL are downloaded
    with ExitStack() as copies:  # copies of runs at a URL go away when all is read
        return read_compared(
            {
                run: Path(run)
                if "://" not in run and begun_runs(Path(run))
                else copies.enter_context(open_run_folder(run, say, shards=False)).path
                for run in runs
            }
        )


def check_named(runs: Sequence[str]) -> None:
    """Refuse runs that cannot be put side by side.

    Raises:
        ConfigError: too few runs are named, too many, or one twice.
    """
    is_group_alone = len(runs) == 1 and "://" not in runs[0] and bool(begun_runs(Path(runs[0])))
    if not is_group_alone and not 2 <= len(runs) <= MAXIMUM_RUNS:  # noqa: PLR2004  (two sides)
        raise ConfigError(
            f"compare: expected 2 to {MAXIMUM_RUNS} run folders, or the folder of a group of seeds, got {len(runs)}. "
            "Name the runs to compare."
        )
    resolved = [run if "://" in run else str(Path(run).resolve()) for run in runs]  # one folder by two paths is one run
    twice = next((run for index, run in enumerate(runs) if resolved[index] in resolved[:index]), None)
    if twice is not None:
        raise ConfigError(f"compare: {twice} is given twice. Name each run once.")


def read_compared(folders: Mapping[str, Path]) -> list[ComparedRun]:
    """Return the runs with their letters, in the order in which they are named."""
    letters = zip(ascii_uppercase, folders.items(), strict=False)
    return [
        replace(read_group(path), letter=letter, named=name)
        if begun_runs(path)
        else ComparedRun(letter, name, read_run(path))
        for letter, (name, path) in letters
    ]


def read_group(path: Path) -> ComparedRun:
    """Return the runs of a group that have begun, as one side of a comparison."""
    runs = tuple(map(read_run, begun_runs(path)))
    return ComparedRun("", str(path), runs[0], runs)


def setting_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return rows of the settings that are not the same in all runs, in the order of the file."""
    flat = [_settings_by_name(run) for run in runs]
    names = dict.fromkeys(name for run in runs for name in flat_settings(run.run.config))
    rows = [
        (name, [_setting_cell(settings[name]) if name in settings else EMPTY_CELL for settings in flat])
        for name in names
    ]
    return [(name, cells) for name, cells in rows if len({*cells}) > 1]


def _settings_by_name(compared: ComparedRun) -> dict[str, Any]:
    """Return the settings by name; a setting that the run's version did not have has its default, as in a resume.

    A group has the seeds of all its runs.

    A recipe that does not ship is not imported for its defaults: its folders have every setting.
    """
    run, shipped = compared.run, find_installed(compared.run.recipe.name)
    settings = flat_settings({} if shipped is None else to_mapping(shipped.config())) | flat_settings(run.config)
    return settings | ({"seed": [member.config.get("seed") for member in compared.group]} if compared.group else {})


def _setting_cell(value: object) -> str:
    """Return a setting as a cell of a table."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value) or '""'


def number_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return rows of how far each run is, the last value of its curves, and the numbers of its result."""
    rows: Rows = [
        ("seeds", [str(len(run.group)) if run.group else EMPTY_CELL for run in runs]),
        ("state", [_state_cell(run) for run in runs]),
        ("rounds", [f"{min(member.done for member in run.members)}/{run.run.rounds}" for run in runs]),
        ("time a round", [_pace_cell(run) for run in runs]),
        ("resident", [_resident_cell(run) for run in runs]),
    ]
    # By metric: runs of several recipes may name one curve in different ways.
    curves = {metric: title for run in runs for title, metric in run.run.recipe.curves.items()}
    rows += [(title, [_format_last(run, metric) for run in runs]) for metric, title in curves.items()]
    numbers = {number.key: number for run in runs for number in run.run.recipe.numbers}
    mean = ", mean" if any(run.group for run in runs) else ""
    for key, number in numbers.items():
        rows.append((number.title + mean, [_format_value(run.result_numbers.get(key), number.form) for run in runs]))
    rows += _statistics_rows(runs)
    against = {run.run.recipe.headline.against: run.run.recipe.headline for run in runs}
    for reference, headline in against.items():
        reference_numbers = [run.player_numbers(reference) for run in runs]
        title = numbers[headline.key].title if headline.key in numbers else headline.title
        rows.append(
            (
                f"{reference}: {title}{mean}",
                [_format_value(row.get(headline.key), headline.form) for row in reference_numbers],
            )
        )
    return [(name, cells) for name, cells in rows if {*cells} != {EMPTY_CELL}]


def _statistics_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return the interquartile mean over seeds of the number that results are judged by, and its interval."""
    statistics, writes = [run.statistics for run in runs], [run.run.recipe.headline.write for run in runs]
    cells = [
        (EMPTY_CELL, EMPTY_CELL)
        if run_statistics is None
        else (write(run_statistics.interquartile_mean), f"{write(run_statistics.low)} to {write(run_statistics.high)}")
        for run_statistics, write in zip(statistics, writes, strict=True)
    ]
    title = _score_title(runs[0])
    names = (f"{title}, interquartile mean", f"{title}, {INTERVAL_LEVEL:.0%} interval")
    return [(name, [cell[index] for cell in cells]) for index, name in enumerate(names)]


def _score_title(compared: ComparedRun) -> str:
    """Return the title of the number that results are judged by."""
    recipe = compared.run.recipe
    return next((number.title for number in recipe.numbers if number.key == recipe.headline.key), recipe.headline.title)


def _state_cell(compared: ComparedRun) -> str:
    """Return the state that all runs are in, or how many have finished."""
    states = [run.state for run in compared.members]
    return states[0] if len({*states}) == 1 else f"{states.count('finished')} finished"


def _resident_cell(compared: ComparedRun) -> str:
    """Return the memory that the last round of a run left, of a group the largest over its runs."""
    last_lines = [run.ledger[-1] for run in compared.members if run.ledger]
    return format_bytes(max(line.resident for line in last_lines)) if last_lines else EMPTY_CELL


def _format_last(compared: ComparedRun, metric: str) -> str:
    """Return the last value of a curve, of a group the mean of the last values."""
    columns = [[value for value in run.metrics.get(metric, []) if isfinite(value)] for run in compared.members]
    last_values = [column[-1] for column in columns if column]
    return f"{fmean(last_values):.4g}" if last_values else EMPTY_CELL


def _format_value(value: float | None, form: str) -> str:
    return EMPTY_CELL if value is None else write_value(form, value)


def _pace_cell(compared: ComparedRun) -> str:
    """Return the median duration of the last rounds that have ended, of all runs of a group; a dash where none has."""
    sums = list[float]()
    for run in compared.members:
        times = [run.metrics[name][-PACE_ROUNDS:] for name in run.metrics if name.startswith("time/")]
        sums += [sum(value for value in row if isfinite(value)) for row in zip(*times, strict=True)]
    return format_duration(median(sums)) if sums else EMPTY_CELL


def differences_from_first(runs: Sequence[ComparedRun]) -> list[RunDifference]:
    """Return the difference of each run from the first."""
    first, *later_runs = runs
    return [_compare_to_first(run, first) for run in later_runs]


def _compare_to_first(own: ComparedRun, first: ComparedRun) -> RunDifference:
    """Return the difference of a run from the first by its recipe's rule, or the reason why there is none."""
    if own.group or first.group:
        return _compare_seeds(own, first)
    recipe = find_installed(first.run.recipe.name)
    if recipe is None or recipe.difference is None:
        reason = "one seed each does not tell a difference from chance. Train groups with `train --seeds 5`"
        return RunDifference(own.letter, first.letter, None, reason)
    try:
        difference: Difference = recipe.difference({run.letter: run.run for run in (own, first)})
    except NoDifferenceError as error:
        return RunDifference(own.letter, first.letter, None, str(error))
    return RunDifference(own.letter, first.letter, difference)


def _compare_seeds(group: ComparedRun, first: ComparedRun) -> RunDifference:
    """Return the difference of a group of seeds from the first, or the reason why there is none."""
    if group.run.recipe.headline.key != first.run.recipe.headline.key:
        return RunDifference(group.letter, first.letter, None, "their results are judged by different numbers")
    for compared in (group, first):
        if len(compared.scores) < MINIMUM_SEEDS:
            reason = (
                f"{compared.letter} has fewer than {MINIMUM_SEEDS} seeds with a result. Train more with `train --seeds`"
            )
            return RunDifference(group.letter, first.letter, None, reason)
    statistics = seed_difference(group.scores, first.scores)
    write = group.run.recipe.headline.write
    verdict = (
        "is above {}" if statistics.low > 0 else "is below {}" if statistics.high < 0 else "cannot be told from {}"
    )
    mean, low, high = map(write, (statistics.interquartile_mean, statistics.low, statistics.high))
    numbers = f"{mean}, {INTERVAL_LEVEL:.0%} interval {low} to {high}"
    sentence = f"{verdict} in {_score_title(group)} (interquartile mean {numbers})"
    difference = Difference(asdict(statistics), len(group.scores) + len(first.scores), SEEDS_UNIT, sentence.format)
    return RunDifference(group.letter, first.letter, difference)


def as_json(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """Return the whole comparison as plain values; `count` of a difference is 0 if there is none."""
    flat, differing = [_settings_by_name(run) for run in runs], [name for name, _ in setting_rows(runs)]
    comparison = {
        "runs": [
            {
                "letter": run.letter,
                "run": run.named,
                "state": _state_cell(run),
                "done": min(member.done for member in run.members),
                "rounds": run.run.rounds,
                "settings": {name: settings.get(name) for name in differing},
                "metrics": {
                    name: fmean(member.metrics[name][-1] for member in run.members if member.metrics.get(name))
                    for name, column in run.run.metrics.items()
                    if column
                },
                "result": dict(run.result_numbers) or None,
                "seeds": None if (found := run.statistics) is None else {"scores": run.scores, **asdict(found)},
            }
            for run, settings in zip(runs, flat, strict=True)
        ],
        "differences": [
            {
                "run": difference.letter,
                "against": difference.first,
                "count": 0 if difference.difference is None else difference.difference.count,
                "units": None if difference.difference is None else difference.difference.units,
                "reason": difference.reason or None,
                "interval": None if difference.difference is None else difference.difference.values,
            }
            for difference in differences_from_first(runs)
        ],
    }
    return cast("dict[str, Any]", plain_json_value(comparison))  # JSON has no NaN
