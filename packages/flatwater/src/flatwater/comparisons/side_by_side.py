"""A comparison of two to eight sides, each a run or a group of runs with several seeds, or a report on one group.

It reads run folders alone. Two numbers do not show whether one side is better: groups are compared over seeds, and for
single runs a recipe may give an interval of the difference; that of traders is over the days that both traded.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
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
from flatwater.config.mappings import flat_settings, to_mapping
from flatwater.mirror.download import open_run_folder
from flatwater.recipe import Difference, NoDifferenceError, Number, find_installed_recipe
from flatwater.reports.records import RunRecords, read_run
from flatwater.rundir.seeds import begun_runs
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.json_values import is_number, plain_json_value
from flatwater_watch.format_strings import write_value
from flatwater_watch.phrases import count_phrase
from flatwater_watch.units import format_bytes, format_duration

MAXIMUM_RUNS = 8
"""Most runs of a comparison: a page has that many colours for curves."""
PACE_ROUNDS = 8
"""Number of last rounds whose median duration is shown."""
MACHINE_METRICS = ("time/", "memory/", "mirror/", "system/", "profile/", "train/sps")
"""Beginnings of the names of metrics that depend on the machine."""
SEEDS_UNIT = "seeds"
"""Units over which groups are compared, as days are for runs of traders."""
EMPTY_CELL = "-"
"""Cell of a number that a run does not have."""

RECIPE_TITLE, TRAINED_ON_TITLE = "recipe", "trained on"
"""Rows of the recipe, which the configuration file calls `trainer`, and of the environment or data of each run."""
PARTIAL_SETTINGS_NOTE = "Settings that only some of the recipes have are left out."
"""Note on a table of settings of several recipes."""

Rows = list[tuple[str, list[str]]]
"""Name of each row, and its cell for each run."""


@dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison: a run, or a group of runs that differ in their seeds."""

    letter: str
    """Letter by which tables and charts name it."""
    source: str
    """Folder or URL by which the user named it."""
    run: RunRecords
    """The run; of a group, its first run."""
    group: tuple[RunRecords, ...] = ()
    """All runs of a group, one for each seed; empty for a single run."""

    @property
    def members(self) -> tuple[RunRecords, ...]:
        """The runs of the group, or the single run."""
        return self.group or (self.run,)

    @property
    def result_numbers(self) -> Mapping[str, float | None]:
        """Numbers of the trained policy by name; of a group, means over seeds; empty if there is no result."""
        return self.player_numbers(self.run.recipe.trained)

    def player_numbers(self, player: str) -> Mapping[str, float | None]:
        """Return a player's numbers by name; of a group, means over seeds; empty if there is no result."""
        rows = [run.result[run.recipe.players].get(player, {}) for run in self.members if run.result is not None]
        keys = rows[0].keys() if rows else ()
        values_by_key = {key: [row[key] for row in rows if is_number(row.get(key))] for key in keys}
        return {key: fmean(values) if values else None for key, values in values_by_key.items()}

    def has_curve(self, title: str, metric: str) -> bool:
        """Return whether the recipe draws this metric under this title."""
        return self.run.recipe.curves.get(title) == metric

    @property
    def scores(self) -> list[float]:
        """Headline number of each run of the group that has a result; empty for a single run."""
        recipe = self.run.recipe
        key = recipe.headline.key
        rows = [run.result[recipe.players].get(recipe.trained, {}) for run in self.group if run.result is not None]
        return [float(row[key]) for row in rows if is_number(row.get(key))]

    @property
    def statistics(self) -> SeedStatistics | None:
        """Statistics of `scores` over seeds; None for a single run, and for fewer than two results."""
        return seed_statistics(self.scores) if len(self.scores) >= MINIMUM_SEEDS else None

    @property
    def sentence(self) -> str:
        """Sentence about a group: number of seeds, means of the headline number, and the interval."""
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
    """Difference of one run from the first run of the comparison."""

    letter: str
    """Letter of the run."""
    first: str
    """Letter of the first run."""
    difference: Difference | None
    """Difference and its interval; None if the runs cannot be compared."""
    reason: str = ""
    """Reason why there is no difference; empty if there is one."""
    is_identical: bool = False
    """Whether both have the same settings and all the same numbers, times and memory left out."""

    @property
    def sentence(self) -> str:
        """Sentence about the difference."""
        if self.is_identical:
            return (
                f"{self.letter} is identical to {self.first}: all settings, and every number of the training and the "
                "result but times and memory, are the same."
            )
        if self.difference is None:
            return f"{self.letter} and {self.first}: no interval, {self.reason}."
        same_words = "" if self.difference.units == SEEDS_UNIT else "the same "
        periods = f"{same_words}{self.difference.count} {self.difference.units}"
        sentence = f"{self.letter} {self.difference.comparison_phrase(self.first)}, over {periods}."
        return f"{sentence} {self.difference.note}".rstrip()


def read_named_runs(runs: Sequence[str], say: ShowLine) -> list[ComparedRun]:
    """Return the runs that a user names, with letters, in the same order.

    Args:
        runs: the runs' folders, or the URLs at which they are mirrored.
        say: is called with lines about what is downloaded.

    Raises:
        RunError: the name is not that of a run, or the run is damaged.
    """
    folders: dict[str, Path] = {}
    with ExitStack() as downloads:  # deletes what was downloaded, once the runs have been read
        for run in runs:
            is_group = "://" not in run and begun_runs(Path(run))
            run_folder = None if is_group else downloads.enter_context(open_run_folder(run, say, with_shards=False))
            folders[run] = Path(run) if run_folder is None else run_folder.path
        return read_compared_runs(folders)


def check_run_names(runs: Sequence[str]) -> None:
    """Refuse runs that cannot be put side by side.

    Raises:
        ConfigError: too few runs are named, too many, or one twice.
    """
    is_group_alone = len(runs) == 1 and "://" not in runs[0] and bool(begun_runs(Path(runs[0])))
    if not is_group_alone and not 2 <= len(runs) <= MAXIMUM_RUNS:  # noqa: PLR2004  (two sides)
        raise ConfigError(
            f"compare: expected 2 to {MAXIMUM_RUNS} folders of runs or studies, or the folder of a group of seeds, "
            f"got {len(runs)}. Name those to compare."
        )
    # Resolved, as two paths may lead to one folder.
    resolved = [run if "://" in run else str(Path(run).resolve()) for run in runs]
    repeated = next((run for index, run in enumerate(runs) if resolved[index] in resolved[:index]), None)
    if repeated is not None:
        raise ConfigError(f"compare: {repeated} is given twice. Name each once.")


def read_compared_runs(folders: Mapping[str, Path]) -> list[ComparedRun]:
    """Return the runs or groups in `folders`, by the names that the user gave, with letters in the same order."""
    compared_runs = list[ComparedRun]()
    for letter, (name, path) in zip(ascii_uppercase, folders.items(), strict=False):
        is_group = bool(begun_runs(path))
        # A group is read without a letter, and with its path as its source: both are set below.
        side = read_group(path) if is_group else ComparedRun(letter, name, read_run(path))
        compared_runs.append(replace(side, letter=letter, source=name))
    return compared_runs


def read_group(path: Path) -> ComparedRun:
    """Return the group of the runs in a folder that have begun, as one side of a comparison without a letter."""
    runs = tuple(map(read_run, begun_runs(path)))
    return ComparedRun(letter="", source=str(path), run=runs[0], group=runs)


def list_curves(runs: Sequence[ComparedRun]) -> list[tuple[str, str]]:
    """Return title and metric of the curves of all recipes, each pair once.

    Recipes that give one metric different titles have a curve each: `champion` is a score, `champion, bps` a growth.
    """
    return [*dict.fromkeys(curve for run in runs for curve in run.run.recipe.curves.items())]


def setting_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return a row for each setting that is not the same in all runs, in the order of the configuration file.

    If the runs have several recipes, only settings that all of them have get a row, as the others differ anyway, and
    one says what each was trained on, which has another setting in each recipe.
    """
    rows = [(RECIPE_TITLE if name == "trainer" else name, cells) for name, cells in different_settings(runs)]
    trained_on = [run.run.recipe.trained_on for run in runs]
    if _have_several_recipes(runs) and len({*trained_on}) > 1:
        rows.insert(1, (TRAINED_ON_TITLE, trained_on))  # below the recipe
    return rows


def _have_several_recipes(runs: Sequence[ComparedRun]) -> bool:
    return len({run.run.recipe.name for run in runs}) > 1


def different_settings(runs: Sequence[ComparedRun]) -> Rows:
    """Return a row for each setting, by its name in the configuration file, that `setting_rows` compares."""
    settings_of_runs = [_settings_by_name(run) for run in runs]
    names = dict.fromkeys(name for run in runs for name in flat_settings(run.run.config))
    shared_names = [name for name in names if all(name in settings for settings in settings_of_runs)]
    return differing_rows(shared_names if _have_several_recipes(runs) else [*names], settings_of_runs)


def setting_notes(runs: Sequence[ComparedRun]) -> list[str]:
    """Return a sentence on the settings that `setting_rows` leaves out; none if all runs have the same recipe."""
    return [PARTIAL_SETTINGS_NOTE] if _have_several_recipes(runs) else []


def differing_rows(names: Sequence[str], settings_of_sides: Sequence[Mapping[str, Any]]) -> Rows:
    """Return a row for each of the named settings that is not the same on all sides; a side without it has a dash."""
    rows = [
        (name, [_setting_cell(settings[name]) if name in settings else EMPTY_CELL for settings in settings_of_sides])
        for name in names
    ]
    return [(name, cells) for name, cells in rows if len({*cells}) > 1]


def _settings_by_name(compared_run: ComparedRun) -> dict[str, Any]:
    """Return the settings of a run by dotted name; a group has a list of the seeds of all its runs.

    A setting that the run's version did not have yet has the value that a resume gives it. A recipe that is not
    installed has no defaults here: its code is not imported, and its folders have every setting.
    """
    installed_recipe = find_installed_recipe(compared_run.run.recipe.name)
    written_settings: Mapping[str, Any] = compared_run.run.config
    defaults: Mapping[str, Any] = {}
    if installed_recipe is not None:
        # `former_tables` has what files of earlier versions mean where they lack a table.
        written_settings = {**installed_recipe.config.former_tables, **written_settings}
        defaults = to_mapping(installed_recipe.config())
    settings = flat_settings(defaults) | flat_settings(written_settings)
    if compared_run.group:
        settings["seed"] = [member.config.get("seed") for member in compared_run.group]
    return settings


def _setting_cell(value: object) -> str:
    """Return a setting as a cell of a table: an empty list is `none`, and an empty text `""`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value) or '""'


def number_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return rows of numbers: progress, the last value of each curve, the result, and its reference's headline.

    Rows that no run has a value for are left out.
    """
    rows: Rows = [
        ("seeds", [str(len(run.group)) if run.group else EMPTY_CELL for run in runs]),
        ("state", [_state_cell(run) for run in runs]),
        ("rounds", [f"{min(member.done for member in run.members)}/{run.run.rounds}" for run in runs]),
        ("time a round", [_pace_cell(run) for run in runs]),
        ("resident", [_resident_cell(run) for run in runs]),
    ]
    rows += [
        (title, [_format_last(run, metric) if run.has_curve(title, metric) else EMPTY_CELL for run in runs])
        for title, metric in list_curves(runs)
    ]
    numbers = {number.key: number for run in runs for number in run.run.recipe.numbers}
    suffix = ", mean" if any(run.group for run in runs) else ""
    titles = _distinct_titles(runs, numbers)
    for key, number in numbers.items():
        rows.append((titles[key] + suffix, [_format_value(run.result_numbers.get(key), number.form) for run in runs]))
    rows += _statistics_rows(runs)
    # A reference is the player that the trained policy is judged against, such as buy and hold.
    headline_by_reference = {run.run.recipe.headline.against: run.run.recipe.headline for run in runs}
    for reference, headline in headline_by_reference.items():
        title = numbers[headline.key].title if headline.key in numbers else headline.title
        values = [run.player_numbers(reference).get(headline.key) for run in runs]
        rows.append((f"{reference}: {title}{suffix}", [_format_value(value, headline.form) for value in values]))
    return [(name, cells) for name, cells in rows if {*cells} != {EMPTY_CELL}]


def _distinct_titles(runs: Sequence[ComparedRun], numbers: Mapping[str, Number]) -> dict[str, str]:
    """Return the title of each number by its key, with its recipe where another number has the same title."""
    count_by_title = Counter(number.title for number in numbers.values())
    titles = {}
    for key, number in numbers.items():
        recipes = dict.fromkeys(
            run.run.recipe.name for run in runs if any(each.key == key for each in run.run.recipe.numbers)
        )
        titles[key] = f"{number.title} ({', '.join(recipes)})" if count_by_title[number.title] > 1 else number.title
    return titles


def _statistics_rows(runs: Sequence[ComparedRun]) -> Rows:
    """Return two rows about the headline number over seeds: its interquartile mean, and this mean's interval."""
    means, intervals = list[str](), list[str]()
    for run in runs:
        statistics, write = run.statistics, run.run.recipe.headline.write
        means.append(EMPTY_CELL if statistics is None else write(statistics.interquartile_mean))
        intervals.append(EMPTY_CELL if statistics is None else f"{write(statistics.low)} to {write(statistics.high)}")
    title = _score_title(runs[0])
    return [(f"{title}, interquartile mean", means), (f"{title}, {INTERVAL_LEVEL:.0%} interval", intervals)]


def _score_title(compared_run: ComparedRun) -> str:
    """Return the title of the headline number in the result table; the headline's own if the table lacks the number."""
    recipe = compared_run.run.recipe
    return next((number.title for number in recipe.numbers if number.key == recipe.headline.key), recipe.headline.title)


def _state_cell(compared_run: ComparedRun) -> str:
    """Return the state of a run, or of all runs of a group; if they differ, how many have finished."""
    states = [run.state for run in compared_run.members]
    are_equal = len({*states}) == 1
    return states[0] if are_equal else f"{states.count('finished')} finished"


def _resident_cell(compared_run: ComparedRun) -> str:
    """Return the resident memory after a run's last round; of a group, the largest over its runs."""
    last_lines = [run.ledger[-1] for run in compared_run.members if run.ledger]
    return format_bytes(max(line.resident for line in last_lines)) if last_lines else EMPTY_CELL


def _format_last(compared_run: ComparedRun, metric: str) -> str:
    """Return the last finite value of a metric; of a group, the mean over its runs."""
    columns = [[value for value in run.metrics.get(metric, []) if isfinite(value)] for run in compared_run.members]
    last_values = [column[-1] for column in columns if column]
    return f"{fmean(last_values):.4g}" if last_values else EMPTY_CELL


def _format_value(value: float | None, form: str) -> str:
    return EMPTY_CELL if value is None else write_value(form, value)


def _pace_cell(compared_run: ComparedRun) -> str:
    """Return the median duration of the last rounds, of all runs of a group; a dash if no round has ended."""
    durations = list[float]()
    for run in compared_run.members:
        # A round's duration is the sum over its phases, each of which has a metric `time/...`.
        phases = [run.metrics[name][-PACE_ROUNDS:] for name in run.metrics if name.startswith("time/")]
        rounds = zip(*phases, strict=True)
        durations += [sum(seconds for seconds in round_ if isfinite(seconds)) for round_ in rounds]
    return format_duration(median(durations)) if durations else EMPTY_CELL


def differences_from_first(runs: Sequence[ComparedRun]) -> list[RunDifference]:
    """Return the difference of each run from the first."""
    first, *later_runs = runs
    differences = [_compare_to_first(run, first) for run in later_runs]
    return [
        replace(difference, is_identical=_are_identical(run, first, difference.difference))
        for run, difference in zip(later_runs, differences, strict=True)
    ]


def _are_identical(run: ComparedRun, first: ComparedRun, difference: Difference | None) -> bool:
    """Return whether two sides have the same settings, metrics and results, as a run and its resumed copy do."""
    if different_settings([run, first]) or len(run.members) != len(first.members):
        return False
    recipe = find_installed_recipe(first.run.recipe.name)
    # A recipe that compares two runs reads more of them than their numbers.
    compares_runs = not first.group and recipe is not None and recipe.difference is not None
    if compares_runs and (difference is None or any(difference.values.values())):
        return False
    return all(
        member.result is not None and _exact_numbers(member) == _exact_numbers(other)
        for member, other in zip(run.members, first.members, strict=True)
    )


def _exact_numbers(run: RunRecords) -> str:
    """Return the numbers of a run that follow from its settings alone, as text, in which a NaN equals itself."""
    metrics = {name: values for name, values in run.metrics.items() if not name.startswith(MACHINE_METRICS)}
    return repr((sorted(metrics.items()), run.result))


def _compare_to_first(run: ComparedRun, first: ComparedRun) -> RunDifference:
    """Return a run's difference from the first: over seeds for groups, else as the first run's recipe computes it."""
    if run.group or first.group:
        return _compare_seeds(run, first)
    recipe = find_installed_recipe(first.run.recipe.name)
    if recipe is None or recipe.difference is None:
        reason = "one seed each does not tell a difference from chance. Train groups with `train --seeds 5`"
        return RunDifference(run.letter, first.letter, difference=None, reason=reason)
    try:
        difference: Difference = recipe.difference({run.letter: run.run, first.letter: first.run})
    except NoDifferenceError as error:
        return RunDifference(run.letter, first.letter, difference=None, reason=str(error))
    return RunDifference(run.letter, first.letter, difference=difference)


def _compare_seeds(group: ComparedRun, first: ComparedRun) -> RunDifference:
    """Return a group's difference from the first in the headline number over seeds, or the reason if there is none."""
    if group.run.recipe.headline.key != first.run.recipe.headline.key:
        return RunDifference(
            group.letter, first.letter, difference=None, reason="their results are judged by different numbers"
        )
    for member in (group, first):
        if len(member.scores) < MINIMUM_SEEDS:
            reason = (
                f"{member.letter} has fewer than {MINIMUM_SEEDS} seeds with a result. Train more with `train --seeds`"
            )
            return RunDifference(group.letter, first.letter, difference=None, reason=reason)
    statistics = seed_difference(group.scores, first.scores)
    # `{}` takes the first run's letter, once `comparison_phrase` is called with it.
    if statistics.low > 0:
        verdict = "is above {}"
    else:
        verdict = "is below {}" if statistics.high < 0 else "cannot be told from {}"
    write = group.run.recipe.headline.write
    interval = f"{INTERVAL_LEVEL:.0%} interval {write(statistics.low)} to {write(statistics.high)}"
    numbers = f"{write(statistics.interquartile_mean)}, {interval}"
    sentence = f"{verdict} in {_score_title(group)} (interquartile mean {numbers})"
    difference = Difference(
        values=asdict(statistics),
        count=len(group.scores) + len(first.scores),
        units=SEEDS_UNIT,
        comparison_phrase=sentence.format,
    )
    return RunDifference(group.letter, first.letter, difference=difference)


def comparison_json(runs: Sequence[ComparedRun]) -> dict[str, Any]:
    """Return the whole comparison as plain values; `count` of a difference is 0 if there is none."""
    settings_of_runs = [_settings_by_name(run) for run in runs]
    setting_names = [name for name, _ in different_settings(runs)]
    comparison = {
        "runs": [
            {
                "letter": run.letter,
                "run": run.source,
                "state": _state_cell(run),
                "done": min(member.done for member in run.members),
                "rounds": run.run.rounds,
                "settings": {name: settings.get(name) for name in setting_names},
                "metrics": {
                    name: fmean(member.metrics[name][-1] for member in run.members if member.metrics.get(name))
                    for name, column in run.run.metrics.items()
                    if column
                },
                "result": dict(run.result_numbers) or None,
                "seeds": None if (seeds := run.statistics) is None else {"scores": run.scores, **asdict(seeds)},
            }
            for run, settings in zip(runs, settings_of_runs, strict=True)
        ],
        "differences": [
            {
                "run": difference.letter,
                "against": difference.first,
                "count": 0 if difference.difference is None else difference.difference.count,
                "units": None if difference.difference is None else difference.difference.units,
                "reason": difference.reason or None,
                "note": None if difference.difference is None else difference.difference.note or None,
                "interval": None if difference.difference is None else difference.difference.values,
            }
            for difference in differences_from_first(runs)
        ],
    }
    return cast("dict[str, Any]", plain_json_value(comparison))  # JSON has no NaN
