"""The comparison of what a user names: runs and groups of runs, or folders that an installed package knows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import ascii_uppercase
from typing import Any, cast

from flatwater.comparisons.page import comparison_page
from flatwater.comparisons.side_by_side import (
    Rows,
    check_run_names,
    comparison_json,
    differences_from_first,
    number_rows,
    read_named_runs,
    setting_notes,
    setting_rows,
)
from flatwater.plugins import group_rows, load_row
from flatwater.rundir.plugin_folders import plugin_folder_kind
from flatwater.storage.objects import is_url
from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.events.background import ShowLine

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
        compare = load_row("comparisons", kind, place)
        folder_by_letter = dict(zip(ascii_uppercase, map(Path, names), strict=False))  # there are more letters
        return cast("NamedComparison", compare(folder_by_letter))
    runs = read_named_runs(names, say)
    return NamedComparison(
        settings=setting_rows(runs),
        numbers=number_rows(runs),
        sentences=[*setting_notes(runs), *(difference.sentence for difference in differences_from_first(runs))],
        values=comparison_json(runs),
        draw_page=lambda written: comparison_page(runs, written),
    )
