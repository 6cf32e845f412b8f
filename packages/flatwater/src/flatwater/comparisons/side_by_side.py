"""A comparison of two to eight sides, each a run or a group of runs with several seeds, or a report on one group.

A recipe is a way to train, such as `ppo`; its headline is the number by which results are judged. The comparison reads
run folders alone. Two numbers do not show whether one side is better: groups are compared over seeds, and for
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
from typing import Any

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
from flatwater.rundir.results import ROUND
from flatwater.rundir.seeds import begun_runs
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.json_values import is_number
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
class ComparedSide:
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
        """Return a player's numbers by name; of a group, means over seeds; empty if there is no result.

        Players are the policies in a run's result: the trained policy, and references such as `buy and hold`.
        """
        rows = [run.result[run.recipe.players].get(player, {}) for run in self.members if run.result is not None]
        if not rows:
            return {}
        means: dict[str, float | None] = {}
        for key in rows[0]:
            values = [row[key] for row in rows if is_number(row.get(key))]
            means[key] = fmean(values) if values else None
        return means

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
        """Sentence about the difference, such as `B is above A in return (...), over 10 seeds.`."""
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


def read_named_runs(runs: Sequence[str], say: ShowLine) -> list[ComparedSide]:
    """Return the runs or groups that a user names, with letters, in the same order.

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
            if is_group:
                folders[run] = Path(run)
            else:
                folders[run] = downloads.enter_context(open_run_folder(run, say, with_shards=False)).path
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
    places = set[str]()
    for run in runs:
        place = run if "://" in run else str(Path(run).resolve())  # as two paths may lead to one folder
        if place in places:
            raise ConfigError(f"compare: {run} is given twice. Name each once.")
        places.add(place)


def read_compared_runs(folders: Mapping[str, Path]) -> list[ComparedSide]:
    """Return the runs or groups in `folders`, by the names that the user gave, with letters in the same order."""
    sides = list[ComparedSide]()
    for letter, (name, path) in zip(ascii_uppercase, folders.items(), strict=False):
        is_group = bool(begun_runs(path))
        # A group is read without a letter, and with its path as its source: both are replaced here.
        side = read_group(path) if is_group else ComparedSide(letter, name, read_run(path))
        sides.append(replace(side, letter=letter, source=name))
    return sides


def read_group(path: Path) -> ComparedSide:
    """Return the group of the runs in a folder that have begun, as one side of a comparison without a letter."""
    runs = tuple(map(read_run, begun_runs(path)))
    return ComparedSide(letter="", source=str(path), run=runs[0], group=runs)


def list_curves(sides: Sequence[ComparedSide]) -> list[tuple[str, str]]:
    """Return title and metric of the curves of all recipes, each pair once.

    Recipes that give one metric different titles have a curve each: `champion` is a score, `champion, bps` a growth.
    """
    return [*dict.fromkeys(curve for side in sides for curve in side.run.recipe.curves.items())]


def setting_rows(sides: Sequence[ComparedSide]) -> Rows:
    """Return a row for each setting that is not the same in all runs, in the order of the configuration file.

    If the runs have several recipes, only settings that all of them have get a row, as the others differ anyway. A
    further row then says what each run was trained on, which has another setting in each recipe.
    """
    rows = [(RECIPE_TITLE if name == "trainer" else name, cells) for name, cells in different_settings(sides)]
    trained_on = [side.run.recipe.trained_on for side in sides]
    if _have_several_recipes(sides) and len({*trained_on}) > 1:
        rows.insert(1, (TRAINED_ON_TITLE, trained_on))  # below the recipe
    return rows


def _have_several_recipes(sides: Sequence[ComparedSide]) -> bool:
    return len({side.run.recipe.name for side in sides}) > 1


def different_settings(sides: Sequence[ComparedSide]) -> Rows:
    """Return a row for each setting that differs, by its dotted name in the configuration file, such as `learner.lr`.

    If the sides have several recipes, only settings that all of them have are compared.
    """
    settings_of_sides = [settings_by_name(side) for side in sides]
    names = [*dict.fromkeys(name for side in sides for name in flat_settings(side.run.config))]
    if _have_several_recipes(sides):
        names = [name for name in names if all(name in settings for settings in settings_of_sides)]
    return differing_rows(names, settings_of_sides)


def setting_notes(sides: Sequence[ComparedSide]) -> list[str]:
    """Return a sentence on the settings that `setting_rows` leaves out; none if all runs have the same recipe."""
    return [PARTIAL_SETTINGS_NOTE] if _have_several_recipes(sides) else []


def differing_rows(names: Sequence[str], settings_of_sides: Sequence[Mapping[str, Any]]) -> Rows:
    """Return a row for each of the named settings that is not the same on all sides; a side without it has a dash."""
    rows: Rows = []
    for name in names:
        cells = [_setting_cell(settings[name]) if name in settings else EMPTY_CELL for settings in settings_of_sides]
        if len({*cells}) > 1:
            rows.append((name, cells))
    return rows


def settings_by_name(side: ComparedSide) -> dict[str, Any]:
    """Return the settings of a run by dotted name; a group has a list of the seeds of all its runs.

    A setting that the run's version did not have yet has the value that a resume gives it. A recipe that is not
    installed has no defaults here: its code is not imported, and its folders have every setting.
    """
    installed_recipe = find_installed_recipe(side.run.recipe.name)
    written_settings: Mapping[str, Any] = side.run.config
    defaults: Mapping[str, Any] = {}
    if installed_recipe is not None:
        # `former_tables` has what files of earlier versions mean where they lack a table.
        written_settings = {**installed_recipe.config.former_tables, **written_settings}
        defaults = to_mapping(installed_recipe.config())
    settings = flat_settings(defaults) | flat_settings(written_settings)
    if side.group:
        settings["seed"] = [member.config.get("seed") for member in side.group]
    return settings


def _setting_cell(value: object) -> str:
    """Return a setting as a cell of a table: an empty list is `none`, and an empty text `""`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value) or '""'


def number_rows(sides: Sequence[ComparedSide]) -> Rows:
    """Return rows of numbers: progress, the last value of each curve, the result, and the references' headlines.

    Rows that no run has a value for are left out.
    """
    rows: Rows = [
        ("seeds", [str(len(side.group)) if side.group else EMPTY_CELL for side in sides]),
        ("state", [state_cell(side) for side in sides]),
        ("rounds", [f"{min(member.done for member in side.members)}/{side.run.rounds}" for side in sides]),
        ("time a round", [_pace_cell(side) for side in sides]),
        ("resident", [_resident_cell(side) for side in sides]),
        ("result of an earlier round", [_earlier_result_cell(side) for side in sides]),
    ]
    rows += [
        (title, [_format_last(side, metric) if side.has_curve(title, metric) else EMPTY_CELL for side in sides])
        for title, metric in list_curves(sides)
    ]
    rows += _result_rows(sides)
    return [(name, cells) for name, cells in rows if {*cells} != {EMPTY_CELL}]


def _result_rows(sides: Sequence[ComparedSide]) -> Rows:
    """Return a row for each number of the result, rows on seeds, and the headline of each reference.

    A reference is the player that the trained policy is judged against, such as buy and hold.
    """
    rows: Rows = []
    numbers = {number.key: number for side in sides for number in side.run.recipe.numbers}
    suffix = ", mean" if any(side.group for side in sides) else ""
    titles = _distinct_titles(sides, numbers)
    for key, number in numbers.items():
        rows.append(
            (titles[key] + suffix, [_format_value(side.result_numbers.get(key), number.form) for side in sides])
        )
    rows += _statistics_rows(sides)
    headline_by_reference = {side.run.recipe.headline.against: side.run.recipe.headline for side in sides}
    for reference, headline in headline_by_reference.items():
        title = numbers[headline.key].title if headline.key in numbers else headline.title
        values = [side.player_numbers(reference).get(headline.key) for side in sides]
        rows.append((f"{reference}: {title}{suffix}", [_format_value(value, headline.form) for value in values]))
    return rows


def _distinct_titles(sides: Sequence[ComparedSide], numbers: Mapping[str, Number]) -> dict[str, str]:
    """Return the title of each number by its key, with its recipes if another number has the same title."""
    count_by_title = Counter(number.title for number in numbers.values())
    titles = {}
    for key, number in numbers.items():
        titles[key] = number.title
        if count_by_title[number.title] > 1:
            recipes = [side.run.recipe for side in sides]
            names = dict.fromkeys(recipe.name for recipe in recipes if any(key == each.key for each in recipe.numbers))
            titles[key] = f"{number.title} ({', '.join(names)})"
    return titles


def _statistics_rows(sides: Sequence[ComparedSide]) -> Rows:
    """Return two rows about the headline number over seeds: its interquartile mean, and this mean's interval."""
    means, intervals = list[str](), list[str]()
    for side in sides:
        statistics, write = side.statistics, side.run.recipe.headline.write
        means.append(EMPTY_CELL if statistics is None else write(statistics.interquartile_mean))
        intervals.append(EMPTY_CELL if statistics is None else f"{write(statistics.low)} to {write(statistics.high)}")
    title = _score_title(sides[0])
    return [(f"{title}, interquartile mean", means), (f"{title}, {INTERVAL_LEVEL:.0%} interval", intervals)]


def _score_title(side: ComparedSide) -> str:
    """Return the title of the headline number in the result table; the headline's own if the table lacks the number."""
    recipe = side.run.recipe
    return next((number.title for number in recipe.numbers if number.key == recipe.headline.key), recipe.headline.title)


def state_cell(side: ComparedSide) -> str:
    """Return the state of a run, or of all runs of a group; if they differ, how many have finished."""
    states = [run.state for run in side.members]
    are_equal = len({*states}) == 1
    return states[0] if are_equal else f"{states.count('finished')} finished"


def _earlier_result_cell(side: ComparedSide) -> str:
    """Return the round of the result of a run that has gone further; of a group, the earliest."""
    rounds = [round_ for run in side.members if (round_ := run.round_if_earlier(run.result)) is not None]
    return f"round {min(rounds)}" if rounds else EMPTY_CELL


def _resident_cell(side: ComparedSide) -> str:
    """Return the resident memory after a run's last round; of a group, the largest over its runs."""
    last_lines = [run.ledger[-1] for run in side.members if run.ledger]
    return format_bytes(max(line.resident for line in last_lines)) if last_lines else EMPTY_CELL


def _format_last(side: ComparedSide, metric: str) -> str:
    """Return the last finite value of a metric; of a group, the mean over its runs."""
    columns = [[value for value in run.metrics.get(metric, []) if isfinite(value)] for run in side.members]
    last_values = [column[-1] for column in columns if column]
    return f"{fmean(last_values):.4g}" if last_values else EMPTY_CELL


def _format_value(value: float | None, form: str) -> str:
    return EMPTY_CELL if value is None else write_value(form, value)


def _pace_cell(side: ComparedSide) -> str:
    """Return the median duration of the last rounds, of all runs of a group; a dash if no round has ended."""
    durations = list[float]()
    for run in side.members:
        # A round's duration is the sum over its phases, each of which has a metric `time/...`.
        phases = [run.metrics[name][-PACE_ROUNDS:] for name in run.metrics if name.startswith("time/")]
        rounds = zip(*phases, strict=True)
        durations += [sum(seconds for seconds in round_ if isfinite(seconds)) for round_ in rounds]
    return format_duration(median(durations)) if durations else EMPTY_CELL


def differences_from_first(sides: Sequence[ComparedSide]) -> list[RunDifference]:
    """Return the difference of each side from the first."""
    first, *later_sides = sides
    differences = []
    for side in later_sides:
        difference = _compare_to_first(side, first)
        is_identical = _are_identical(side, first, difference.difference)
        differences.append(replace(difference, is_identical=is_identical))
    return differences


def _are_identical(side: ComparedSide, first: ComparedSide, difference: Difference | None) -> bool:
    """Return whether two sides have the same settings, metrics and results, as a run and its resumed copy do.

    `difference` is that of the two sides as their recipe computes it; None if it computes none.
    """
    if different_settings([side, first]) or len(side.members) != len(first.members):
        return False
    recipe = find_installed_recipe(first.run.recipe.name)
    # A recipe that compares two runs reads more of them than their numbers, so its difference must be 0 as well.
    compares_runs = not first.group and recipe is not None and recipe.difference is not None
    if compares_runs and (difference is None or any(difference.values.values())):
        return False
    return all(
        member.result is not None and _exact_numbers(member) == _exact_numbers(other)
        for member, other in zip(side.members, first.members, strict=True)
    )


def _exact_numbers(run: RunRecords) -> str:
    """Return the numbers of a run that follow from its settings alone, as text, in which a NaN equals itself."""
    metrics = {name: values for name, values in run.metrics.items() if not name.startswith(MACHINE_METRICS)}
    # Without the round, which results of earlier versions lack.
    result = {name: value for name, value in (run.result or {}).items() if name != ROUND}
    return repr((sorted(metrics.items()), result))


def _compare_to_first(side: ComparedSide, first: ComparedSide) -> RunDifference:
    """Return a side's difference from the first: over seeds for groups, else as the recipe of the first computes it."""
    if side.group or first.group:
        return _compare_seeds(side, first)
    recipe = find_installed_recipe(first.run.recipe.name)
    if recipe is None or recipe.difference is None:
        reason = "one seed each does not tell a difference from chance. Train groups with `train --seeds 5`"
        return RunDifference(side.letter, first.letter, difference=None, reason=reason)
    try:
        difference: Difference = recipe.difference({side.letter: side.run, first.letter: first.run})
    except NoDifferenceError as error:
        return RunDifference(side.letter, first.letter, difference=None, reason=str(error))
    return RunDifference(side.letter, first.letter, difference=difference)


def _compare_seeds(group: ComparedSide, first: ComparedSide) -> RunDifference:
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
    verdict = "cannot be told from {}"  # the interval contains 0
    if statistics.low > 0:
        verdict = "is above {}"
    elif statistics.high < 0:
        verdict = "is below {}"
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
