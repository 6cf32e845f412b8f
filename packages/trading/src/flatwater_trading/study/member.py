"""A run of a study, in its own process: trained like a trial of a sweep, then played on its fold's test days.

The order has `config`, the settings of the run, and `run`, its folder. If `run` is null, the settings are those that
all runs share, and are checked against the order's number of `folds`: nothing is trained.
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
from flatwater_trading.panel.oddities import oddity_lines, splits_note
from flatwater_trading.recipe.panel_settings import PanelSettings
from flatwater_trading.recipe.run_panel import read_run_panel
from flatwater_trading.study.config import DEFAULT_FOLDS
from flatwater_trading.study.folds import Fold, choose_folds, find_folds, fold_config


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
    config = check_settings(
        from_mapping(find_recipe(settings["trainer"], GIVEN_PERMIT).config, settings, "the study")
    ).config
    panel = read_run_panel(config)
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
        "oddities": oddity_lines(panel),
        "splits_note": splits_note(panel),
        "data": panel.fingerprint,
        "days": days,
        "first_day": str(panel.dates[folds[0].test.first]),
        "last_day": str(panel.dates[-1]),
        "needed_bytes": plan.needed_bytes,
        "limit_bytes": plan.limit_bytes,
    }


def plan_largest_run(base: PanelSettings, folds: int | None) -> tuple[Plan, int]:
    """Plan the memory of the largest run of a study; return the plan and the number of folds, chosen for None."""
    config = check_settings(base).config
    days = len(read_run_panel(config).dates)
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
