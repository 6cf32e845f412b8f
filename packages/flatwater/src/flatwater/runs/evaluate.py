"""Scores a trained run again, on its validation or its holdout; every use of the holdout is logged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from flatwater.envs.open_envs import close_open_envs
from flatwater.envs.split_seeds import FIRST_SEEDS
from flatwater.memory.planner import Plan, require_fit
from flatwater.mirror.download import open_run_folder, send_back
from flatwater.recipe import recipe_of_config
from flatwater.rundir.holdout_looks import log_look
from flatwater.rundir.layout import RunFolder
from flatwater.runs.machine import use_threads
from flatwater.runs.run import Run
from flatwater.runs.session import read_config, restore_run
from flatwater.runs.settings_checks import with_changes
from flatwater.runs.video import Video, check_video, open_video, plan_with_video
from flatwater.storage.objects import is_url
from flatwater_watch.errors import RunError, require
from flatwater_watch.events.background import ShowLine
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular


@close_open_envs()
def evaluate(
    run: Path | str,
    *,
    holdout: bool,
    say: ShowLine,
    video: Path | None = None,
    video_episodes: int = 1,
    **changes: Any,  # noqa: ANN401  (settings of a recipe)
) -> dict[str, Any]:
    """Return the score of the policy in a run's newest intact checkpoint beside the baselines, as JSON values.

    Args:
        run: the run's folder, or the URL at which it is mirrored.
        holdout: whether to score on the holdout instead of the validation; the use is logged before.
        say: shows lines about damaged checkpoints and earlier uses of the holdout.
        video: file for a video of the first episodes; their returns are then in the result as `video`.
        video_episodes: number of episodes in the video.
        changes: values of settings such as `panel`, for this evaluation only; None leaves a setting as it is.

    Raises:
        RunError: the run has nothing that can be scored yet.
    """
    if video is not None:
        require(video_episodes > 0, "--video-episodes", video_episodes, "1 or more")
        check_video(video)
    with open_run_folder(run, say, with_shards=True) as folder:
        config = with_changes(read_config(folder, where=run), changes)
        use_threads(config.threads)
        composed_run, manifest = restore_run(config, folder, say)
        if reason := composed_run.reason_against_scoring():  # empty if the run can be scored
            raise RunError(f"{run}: {reason}. Resume the run first.")
        # The video is prepared before anything is played, so that a refusal costs no time and no use of the holdout.
        recorder = None if video is None else _prepare_video(composed_run, folder, video)
        result = (
            _play_holdout(run, composed_run, folder, manifest.round, say)
            if holdout
            else _score_and_write(composed_run, folder, say)
        )
        if recorder is not None:
            first_seed = FIRST_SEEDS["holdout" if holdout else "held-out"]
            recorder.record(range(first_seed, first_seed + video_episodes))
            result["video"] = recorder.returns
        return {"trainer": config.trainer} | result


def _prepare_video(composed_run: Run, folder: RunFolder, file: Path) -> Video:
    """Return a video of a restored run, before its first frame.

    Raises:
        ConfigError: the run's environments cannot be drawn.
        MemoryLimitError: the video does not fit in addition to the run.
    """
    # The plan is refused before the environment is made, which would stay open.
    require_fit(plan_with_video(composed_run.plan))
    policy = recipe_of_config(composed_run.config).policy
    return open_video(composed_run, None if policy is None else policy(composed_run, folder), file)


@close_open_envs()
def plan_evaluation(
    run: Path | str,
    say: ShowLine,
    *,
    video: Path | None = None,
    **changes: Any,  # noqa: ANN401  (settings of a recipe)
) -> Plan:
    """Return the memory plan of `evaluate`, which builds the whole run; with `video`, its memory is added."""
    if video is not None:
        check_video(video)
    with open_run_folder(run, say, with_shards=False) as folder:
        config = with_changes(read_config(folder, where=run), changes)
        plan = replace(recipe_of_config(config).plan(config), what="evaluation")
        return plan if video is None else plan_with_video(plan)


def _play_holdout(run: Path | str, composed_run: Run, folder: RunFolder, round_: int, say: ShowLine) -> dict[str, Any]:
    """Log a use of the holdout, and score the run on it. The new files of a run at a URL are sent there.

    Args:
        run: the run's folder or URL as the user gave it.
        composed_run: the run, restored.
        folder: the run's folder on this disk; a temporary folder for a URL.
        round_: number of the restored checkpoint's round.
        say: shows a line about earlier uses.
    """
    # Logged before the run plays: a user who stops it half-way has still seen a part of the holdout.
    look_sentence = log_look(folder, round_)
    if is_url(run):  # the temporary folder of a run at a URL is removed at the end
        send_back(str(run), folder, folder.looks)
    say(look_sentence)
    result = composed_run.write_holdout(folder)
    if is_url(run):
        other_files = [
            file for file in sorted(folder.root.glob("holdout*")) if file not in {folder.holdout, folder.looks}
        ]
        # What the recipe wrote besides comes first: a reader who finds the result then finds the other files.
        for file in (*other_files, folder.holdout):
            if file.is_file():
                send_back(str(run), folder, file)
    return result


def _score_and_write(composed_run: Run, folder: RunFolder, say: ShowLine) -> dict[str, Any]:
    """Score a run, and write the result into its folder, unless the folder is read-only. Returns the result."""
    try:
        composed_run.write_result(folder)
    except RunError as error:
        say(f"the result was not saved: {error}")
        # `write_result` returns nothing, so the episodes are played once more.
        return composed_run.with_round(composed_run.score(holdout=False))
    # Read from the file, so that the printed result is the written one.
    result: dict[str, Any] = json.loads(read_regular(folder.result, RESULT_BYTES, follow_links=False))
    return result
