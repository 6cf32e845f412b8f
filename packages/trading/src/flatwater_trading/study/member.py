"""A run of a study, in its own process: trained like a trial of a sweep, then played on its fold's test days.

The order has `config`, the settings of the run, and `run`, its folder. If `run` is null, the settings are those that
all runs share, and are checked against the order's number of `folds`, and against `begun`, the setup of the study if it
goes on: nothing is trained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flatwater.config.mappings import from_mapping, to_mapping
from flatwater.memory.planner import Plan, require_fit
from flatwater.named_imports import GIVEN_PERMIT
from flatwater.recipe import find_recipe
from flatwater.rundir.holdout_looks import log_look
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import use_threads
from flatwater.runs.session import read_config, restore_run
from flatwater.runs.settings_checks import check_settings
from flatwater.sweeps.trial import answer_order_, train
from flatwater_trading.panel.extension import find_difference
from flatwater_trading.panel.locate import cached_panel
from flatwater_trading.panel.notes import held_notes
from flatwater_trading.panel.oddities import oddity_lines, oddity_texts, splits_note
from flatwater_trading.panel.panel import Panel, first_days
from flatwater_trading.recipe.panel_settings import PanelSettings
from flatwater_trading.recipe.run_panel import read_run_panel
from flatwater_trading.study.config import DEFAULT_FOLDS, StudyConfig
from flatwater_trading.study.folds import Fold, choose_folds, find_folds, fold_config
from flatwater_watch.errors import ConfigError
from flatwater_watch.phrases import count_phrase


def main() -> None:
    """Read an order from stdin and carry it out."""
    answer_order_(lambda order: run_order(order) if order["run"] else check_study(order))


def run_order(order: Mapping[str, Any]) -> dict[str, Any]:
    """Train the run of an order, or resume it; once it has finished, play its test days."""
    answer = train(order["config"], Path(order["run"]))
    # Only after the training, as a champion that is still learning must not be seen on its test days.
    if answer["finished"]:
        play_test_days(RunFolder(Path(order["run"])))
    return answer


def play_test_days(folder: RunFolder) -> None:
    """Play the champion of the newest checkpoint on the holdout days, and log that they were used (a look)."""
    config = read_config(folder)
    use_threads(config.threads)
    run, manifest = restore_run(config, folder, print)
    # Logged before the days are played, as one that is interrupted has seen them too.
    log_look(folder, manifest.round)
    run.write_holdout(folder)


def check_study(order: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to an order without a run: checked settings, panel, folds and memory of the largest run."""
    settings = order["config"]
    config: Any = from_mapping(find_recipe(settings["trainer"], GIVEN_PERMIT).config, settings, "the study")
    begun = None if order["begun"] is None else from_mapping(StudyConfig, order["begun"], "the study")
    with held_notes() as notes:
        # The panel is compared first: a panel that was shortened has too few days for the settings and folds as well.
        panel, newer_lines = read_study_panel(config, begun)
        config = check_settings(config).config
    days = len(panel.dates)
    folds = find_or_choose_folds(config, days, order["folds"])
    # The first fold has the fewest days: planning it refuses settings that cannot be trained.
    plan_of_fold(config, folds[0])
    plan = plan_of_fold(config, folds[-1])  # the last has the most, so that its run is the largest
    if not config.start_over_budget:
        require_fit(plan)  # raises only if the plan does not fit
    return {
        "config": to_mapping(config),
        "folds": len(folds),
        "about": [*_other_notes(notes, panel), *newer_lines, *oddity_lines(panel)],
        "splits_note": splits_note(panel),
        "data": panel.fingerprint,
        "days": days,
        "first_day": str(panel.dates[folds[0].test.first]),
        "last_day": str(panel.dates[-1]),
        "needed_bytes": plan.needed_bytes,
        "limit_bytes": plan.limit_bytes,
    }


def _other_notes(notes: list[str], panel: Panel) -> list[str]:
    """Return the notes about the panel's file without those that its oddities say, as an import says them too."""
    texts = oddity_texts(panel).values()
    return [note for note in notes if not any(text in note for text in texts)]


def read_study_panel(config: PanelSettings, begun: StudyConfig | None) -> tuple[Panel, list[str]]:
    """Load the panel of a study; if the study goes on, cut to the days that it was begun with.

    Args:
        config: settings that all runs share.
        begun: setup of the study that goes on; None for a new study.

    Returns:
        The panel, and a line if it has newer days, which are left out.

    Raises:
        DataError: the panel's file cannot be used.
        ConfigError: the panel has not the days and prices that the study was begun with.
    """
    panel = read_run_panel(config)
    if begun is None or panel.fingerprint == begun.data:
        return panel, []
    unit, units = panel.calendar.unit, panel.calendar.units
    first_part = first_days(panel, min(begun.days, len(panel.dates)))
    if first_part.fingerprint == begun.data:
        newer = count_phrase(len(panel.dates) - begun.days, f"newer {unit}")
        return first_part, [f"left out: {newer} of the panel, as the study was begun without"]
    begun_panel = cached_panel(begun.data)
    difference = "" if begun_panel is None else find_difference(begun_panel, first_part)
    raise ConfigError(
        f"{config.panel or 'the panel that comes with Flatwater'}: expected the {count_phrase(begun.days, unit)} that "
        f"the study was begun with, and at most newer {units} besides, got {count_phrase(len(panel.dates), unit)}: "
        f"{difference or 'days, instruments or prices differ'}. Give the panel as it was, or another folder with --run "
        "for a new study."
    )


def plan_largest_run(base: PanelSettings, folds: int | None, begun: StudyConfig | None) -> tuple[Plan, int]:
    """Plan the memory of the largest run of a study; return the plan and the number of folds, chosen for None.

    Args:
        base: settings that all runs share.
        folds: number of folds.
        begun: setup of the study that goes on; None for a new study.
    """
    days = len(read_study_panel(base, begun)[0].dates)
    config = check_settings(base).config
    all_folds = find_or_choose_folds(config, days, folds)
    return plan_of_fold(config, all_folds[-1]), len(all_folds)  # the last fold has the most days


def find_or_choose_folds(config: PanelSettings, days: int, folds: int | None) -> list[Fold]:
    """Return as many folds as the user has given; for None the default number, or as many as the days allow."""
    return choose_folds(config, days, DEFAULT_FOLDS) if folds is None else find_folds(config, days, folds)


def plan_of_fold(config: PanelSettings, fold: Fold) -> Plan:
    """Plan the memory of a run of the fold."""
    return find_recipe(config.trainer, GIVEN_PERMIT).plan(fold_config(config, fold, config.seed))


if __name__ == "__main__":
    main()
