"""Score a run's champion again, on walk-forward or holdout days; every look at the holdout is logged."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flatwater.errors import RunError
from flatwater.runs.fetching import at_hand, send_back
from flatwater.runs.folder import RunFolder
from flatwater.runs.machine import use_threads
from flatwater.runs.session import changed, read_config, restore_run
from flatwater.storage.objects import is_url


def evaluate(
    run: Path | str,
    *,
    holdout: bool,
    say: Callable[[str], None],
    **changes: Any,  # noqa: ANN401  (settings of a recipe)
) -> dict[str, Any]:
    """The champion of the newest intact checkpoint against the baselines.

    Args:
        run: the run's folder, or the URL at which it is mirrored.
        holdout: play the holdout instead of the walk-forward days; the look is logged before the days are played.
        say: told about damaged checkpoints and earlier looks.
        changes: settings that may change, such as `panel`, for this once; None leaves one as it is.

    Raises:
        ConfigError: runs of this recipe have no such setting.
        RunError: there is no run, no champion yet, or the look cannot be logged.
        CheckpointError: no intact checkpoint fits the configuration and the data.
    """
    with at_hand(run, say, shards=True) as folder:
        config = changed(read_config(folder), changes)
        return _evaluate(run, config, folder, holdout=holdout, say=say)


def _evaluate(
    run: Path | str,
    config: Any,  # noqa: ANN401  (a RunConfig of any recipe)
    folder: RunFolder,
    *,
    holdout: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    use_threads(config.threads)
    composed, manifest = restore_run(config, folder, say)
    if why := composed.too_early():
        raise RunError(f"{run}: {why}. Resume the run first.")
    if holdout:
        looks = log_look(folder, manifest.round)
        if is_url(run):
            send_back(str(run), folder, folder.looks)
        say(f"look number {looks} at the holdout of this run, logged in {folder.looks.name}")
    return composed.score(holdout=holdout)


def log_look(folder: RunFolder, round_: int) -> int:
    """Append a line about this look. Returns how many there have been."""
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "round": round_}
    try:
        with folder.looks.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return len(folder.looks.read_text(encoding="utf-8").splitlines())
    except OSError as error:
        raise RunError(
            f"{folder.looks}: cannot be written ({error.strerror}). Make the run folder writable: the holdout is only "
            "played where the look is logged."
        ) from error
