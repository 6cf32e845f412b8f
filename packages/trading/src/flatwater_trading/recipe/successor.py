"""Successors: runs that begin with the traders of another run, on the same instruments and newer days."""

from pathlib import Path
from typing import TYPE_CHECKING

from flatwater.algorithms.api import Members
from flatwater.rundir.layout import open_folder
from flatwater.runs.session import read_config, restore_run
from flatwater_trading.training.state import has_champion
from flatwater_watch.errors import ConfigError
from flatwater_watch.events.background import say_nothing

if TYPE_CHECKING:  # `run` imports this module
    from flatwater_trading.recipe.run import ErlRun


def take_over_(learner: Members, run: "ErlRun", path: Path) -> None:
    """Copy the weights of an elder run into a new run: its champion into slot 0, its other members into their slots.

    A slot is a row of the weights, one for each member. Slots beyond the elder's members keep their random weights.
    Optimizers and counters start from zero.

    Args:
        learner: weights of the new run; written in place.
        run: the new run.
        path: folder of the elder run.

    Raises:
        ConfigError: the elder run has another recipe or no champion yet, or has seen days that must be new here.
        FlatwaterError: the run at `path` cannot be restored.
    """
    folder = open_folder(path)
    config = read_config(folder)
    if config.trainer != run.config.trainer:
        raise _refusal_error(path, f"it trains `{config.trainer}`", f"the folder of a run of `{run.config.trainer}`")
    restored_run, _ = restore_run(config, folder, say=say_nothing)  # its notes are not of this run
    elder: ErlRun = restored_run  # type: ignore[assignment]  # what its recipe composes
    if not has_champion(elder.trainer.run):
        raise _refusal_error(path, "it has no champion yet", "a run whose first generation has ended")
    _require_alike(path, elder, run)
    _require_new_days(path, elder, run)
    shared_slots = min(config.population.size, run.config.population.size)
    # `inherited`: for each network, its weights with a row for each member.
    for own_rows, elder_rows in zip(learner.inherited, elder.trainer.run.learner.inherited, strict=True):
        own_rows[:shared_slots] = elder_rows[:shared_slots].to(own_rows.device)
        # The elder's champion is its last row, after the members.
        own_rows[0] = elder_rows[-1].to(own_rows.device)


def _require_alike(path: Path, elder: "ErlRun", run: "ErlRun") -> None:
    """Check that networks, inputs and columns of both runs are equal, as weights fit no others.

    Raises:
        ConfigError: networks, inputs or columns differ; the message names the difference.
    """
    # Numbers of weights of each network.
    elder_widths = [rows.shape[1] for rows in elder.trainer.run.learner.inherited]
    own_widths = [rows.shape[1] for rows in run.trainer.run.learner.inherited]
    for name, elder_value, own_value in (
        ("learner.algorithm", elder.config.learner.algorithm, run.config.learner.algorithm),
        ("observation_features", elder.config.observation_features, run.config.observation_features),
        ("net", elder.config.net, run.config.net),
        ("env.episode.context", elder.config.env.episode.context, run.config.env.episode.context),
        ("instruments", elder.panel.instruments, run.panel.instruments),
        ("investable", elder.panel.investable.tolist(), run.panel.investable.tolist()),
        ("weights of a member", elder_widths, own_widths),
    ):
        if elder_value != own_value:
            raise _refusal_error(
                path,
                f"its {name}: {elder_value}; of this run: {own_value}",
                "a run of the same networks, inputs and instruments",
            )


def _require_new_days(path: Path, elder: "ErlRun", run: "ErlRun") -> None:
    """Check that no training day of the elder run is a validation day here, and no validation day a holdout day.

    Raises:
        ConfigError: there is such a day.
    """
    elder_splits, own_splits = elder.setup.splits, run.setup.splits
    for use, last_row, split, first_row in (
        ("learned from", elder_splits.train.stop - 1, "validation", own_splits.validation.first),
        ("were chosen on", elder_splits.validation.stop - 1, "holdout", own_splits.holdout.first),
    ):
        day, first_day = elder.panel.dates[last_row], run.panel.dates[first_row]
        if day >= first_day:
            raise _refusal_error(
                path,
                f"its traders {use} days up to {day}, and the {split} days of this run begin on {first_day}",
                f"fewer days held back (splits.validation_days, splits.holdout_days), so that they begin after {day}",
            )


def _refusal_error(path: Path, reason: str, expected: str) -> ConfigError:
    return ConfigError(f"from_run = {str(path)!r}: {reason}. Give {expected}.")
