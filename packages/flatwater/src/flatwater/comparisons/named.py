"""The comparison of what a user names: runs and groups of runs, or folders that an installed package knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from string import ascii_uppercase
from typing import Any, cast

from flatwater.comparisons.page import comparison_page
from flatwater.comparisons.side_by_side import (
    ComparedSide,
    Rows,
    RunDifference,
    check_run_names,
    differences_from_first,
    different_settings,
    number_rows,
    read_named_runs,
    setting_notes,
    setting_rows,
    settings_by_name,
    state_cell,
)
from flatwater.plugins import group_rows, load_row
from flatwater.rundir.plugin_folders import plugin_folder_kind
from flatwater.rundir.results import result_round
from flatwater.storage.objects import is_url
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.json_values import plain_json_value

RUN_KIND = "run"


@dataclass(frozen=True, kw_only=True)
class NamedComparison:
    """Two to eight runs, groups or folders of one kind, side by side."""

    settings: Rows
    """The settings that differ."""
    numbers: Rows
    """Numbers of each side."""
    sentences: Sequence[str]
    """Sentence about the difference of each side from the first, and how sure it is."""
    values: Mapping[str, Any]
    """All of it as values that JSON has."""
    draw_page: Callable[[datetime], str]
    """Function from the time in the footer to the page's HTML."""


def compare_named(names: Sequence[str], say: ShowLine) -> NamedComparison:
    """Compare the runs, groups or folders that a user names.

    Args:
        names: folders, or URLs at which runs are mirrored.
        say: is called with lines about what is downloaded.

    Raises:
        ConfigError: too few are named, too many, one twice, or folders of several kinds.
        RunError: a name is not that of a run, or a folder cannot be read.
    """
    check_run_names(names)  # before runs at a URL are downloaded
    for name in names:  # before the kinds: a folder that is not there would be taken for a run
        if not is_url(name) and not Path(name).exists():
            raise RunError(f"{name}: there is no such folder. See `flatwater runs` for the runs in ./runs.")
    # A folder that no plug-in compares is that of a run.
    kinds = {name: plugin_folder_kind("comparisons", Path(name)) or RUN_KIND for name in names}
    (first, kind), *others = kinds.items()
    for name, other_kind in others:
        if other_kind != kind:
            raise ConfigError(
                f"compare: expected folders of one kind, got {first}, a {kind}, and {name}, a {other_kind}. "
                "Compare each kind for itself."
            )
    if kind != RUN_KIND:
        _, place = group_rows("comparisons")[kind]
        compare = load_row("comparisons", kind, place)  # the plug-in's function
        folder_by_letter = dict(zip(ascii_uppercase, map(Path, names), strict=False))  # there are more letters
        return cast("NamedComparison", compare(folder_by_letter))
    sides = read_named_runs(names, say)
    return NamedComparison(
        settings=setting_rows(sides),
        numbers=number_rows(sides),
        sentences=[*setting_notes(sides), *(difference.sentence for difference in differences_from_first(sides))],
        values=_comparison_json(sides),
        draw_page=lambda written: comparison_page(sides, written),
    )


def _comparison_json(sides: Sequence[ComparedSide]) -> dict[str, Any]:
    """Return the whole comparison as plain values: the runs, and the difference of each from the first."""
    setting_names = [name for name, _ in different_settings(sides)]
    comparison = {
        "runs": [_run_json(side, setting_names) for side in sides],
        "differences": [_difference_json(difference) for difference in differences_from_first(sides)],
    }
    return cast("dict[str, Any]", plain_json_value(comparison))  # JSON has no NaN


def _run_json(side: ComparedSide, setting_names: Sequence[str]) -> dict[str, Any]:
    """Return one side as values, with the last value of each metric; of a group, means over its runs."""
    settings, statistics = settings_by_name(side), side.statistics
    return {
        "letter": side.letter,
        "run": side.source,
        "state": state_cell(side),
        "done": min(member.done for member in side.members),
        "rounds": side.run.rounds,
        "settings": {name: settings.get(name) for name in setting_names},
        "metrics": {
            name: fmean(member.metrics[name][-1] for member in side.members if member.metrics.get(name))
            for name, column in side.run.metrics.items()
            if column
        },
        "result": dict(side.result_numbers) or None,
        "result_round": None if side.group else result_round(side.run.result),
        "seeds": None if statistics is None else {"scores": side.scores, **asdict(statistics)},
    }


def _difference_json(compared: RunDifference) -> dict[str, Any]:
    """Return a difference as values; if there is none, its count is 0 and the other figures are None."""
    difference = compared.difference
    return {
        "run": compared.letter,
        "against": compared.first,
        "count": 0 if difference is None else difference.count,
        "units": None if difference is None else difference.units,
        "reason": compared.reason or None,
        "note": None if difference is None else difference.note or None,
        "interval": None if difference is None else difference.values,
    }
