"""`flatwater evaluate RUN --video`: the judged episodes are seen, in the memory of a few frames."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from seen_env import HEIGHT, WIDTH, Long, Seen

import flatwater as fw
from flatwater.cli.main import main
from flatwater.recipe import recipe_of_config
from flatwater.rundir.layout import open_folder
from flatwater.runs.evaluate import plan_evaluation
from flatwater.runs.session import read_config, restore_run
from flatwater.runs.video import SCREEN_VARIABLES, open_video
from flatwater_watch.errors import ConfigError

SMALL: dict[str, Any] = {"rounds": 1, "threads": 1, "trackers": (), "envs": 2, "block": 16, "quiet": True}
SMALL |= {"evaluation": {"envs": 3, "every": 1}, "learner": {"minibatches": 1, "epochs": 1}, "policy": {"layers": [8]}}
SMALL |= {"wrapped": {"steps": Seen.steps}}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize(("recipe", "memory"), [("ppo", 4), ("ppo", 0), ("teach", 4)])
def test_the_video_has_the_judged_episodes(recipe: str, memory: int) -> None:
    place = {"world": "seen_env:Seen", "teacher": "random"} if recipe == "teach" else {"env": "seen_env:Seen"}
    run = fw.train(recipe, run="run", **place, **SMALL | {"policy": {"layers": [8], "memory": memory}})
    before = (run.path / "result.json").read_bytes()
    result = run.evaluate(video="out.gif", video_episodes=3)
    returns = result.pop("video")
    assert len(returns) == 3
    if recipe == "ppo":  # a student's actions are drawn where it is judged
        row = result["players"]["policy"]
        assert np.mean(returns) == pytest.approx(row["return"])
        assert (min(returns), max(returns)) == (pytest.approx(row["worst"]), pytest.approx(row["best"]))
    assert (run.path / "result.json").read_bytes() == before

    with Image.open("out.gif") as video:
        assert video.size == (WIDTH, HEIGHT)
        assert (video.info["loop"], video.info["duration"]) == (0, 50)
        assert 3 < video.n_frames <= 3 * (Seen.steps + 1)
        columns = []
        for number in range(video.n_frames):
            video.seek(number)
            columns.append(int(np.asarray(video.convert("L"))[0].argmax()))
    assert len(set(columns)) > 2, "the dot moves"


@pytest.mark.long
def test_a_machine_without_a_screen_draws_and_prints_no_error() -> None:
    """SDL, by which CartPole is drawn, looked for a screen and printed that XDG_RUNTIME_DIR is not set."""
    pytest.importorskip("pygame")
    fw.train("ppo", run="run", **SMALL)
    screenless = {
        name: value for name, value in os.environ.items() if name not in {*SCREEN_VARIABLES, "XDG_RUNTIME_DIR"}
    }
    words = [sys.executable, "-m", "flatwater", "evaluate", "run", "--video", "out.gif"]
    ended = subprocess.run(words, env=screenless, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Path("out.gif").stat().st_size > 1000


@pytest.mark.slow
def test_a_video_of_any_length_takes_what_was_planned() -> None:
    fw.train("ppo", env="seen_env:Long", run="run", **SMALL | {"wrapped": {"steps": Long.steps}})
    said: list[str] = []
    plan = plan_evaluation("run", said.append, video=Path("out.gif"))
    Long.held.clear()
    fw.evaluate("run", video="out.gif")
    assert len(Long.held) == Long.steps + 1
    frame = HEIGHT * WIDTH * 3 * 20 * 16
    assert max(Long.held) <= plan.needed_bytes
    assert max(Long.held) - Long.held[5] < 20 * frame, "301 frames were drawn"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("seen_env:Blind", r"seen_env:Blind cannot be made with render_mode='rgb_array'"),
        ("seen_env:Odd", r"render\(\) gave float64 \[3, 3\]: expected uint8 \[height, width, 3\]"),
    ],
)
def test_what_cannot_be_seen_is_refused(env: str, said: str) -> None:
    run = fw.train("ppo", env=env, run="run", **SMALL)
    with pytest.raises(ConfigError, match=said):
        run.evaluate(video="out.gif")
    with pytest.raises(ConfigError, match=r"is the folder of a run"):
        run.evaluate(video="run/checkpoints/out.gif")
    assert not Path("out.gif").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["out.mov"], "--video out.mov: expected a name that ends in .gif or .mp4"),
        (["out.mov", "--plan"], "--video out.mov: expected a name that ends in .gif or .mp4"),
        (["other.gif"], "is not a GIF, and is not replaced"),
        (["out.gif", "--video-episodes", "0"], "video_episodes = 0"),
    ],
)
def test_a_file_is_refused_before_the_run_is_read(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.gif").write_text("mine")
    assert main(["evaluate", "run", "--video", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert Path("other.gif").read_text() == "mine"


def test_a_run_without_an_environment_has_no_video() -> None:
    run: Any = SimpleNamespace(config=SimpleNamespace(trainer="grow"))
    with pytest.raises(ConfigError, match="a run of `grow` has no environment that can be seen"):
        open_video(run, None, Path("out.gif"))


def test_what_wrappers_keep_is_there_from_the_first_frame() -> None:
    """Scales of observations are a part of what was trained: with none the policy would see others than it learned."""
    run = fw.train("ppo", env="seen_env:scaled", run="run", **SMALL)
    config = read_config(open_folder(run.path))
    composed_run, _ = restore_run(config, open_folder(run.path), lambda _: None)
    make_policy = recipe_of_config(config).policy
    assert make_policy is not None
    video = open_video(composed_run, make_policy(composed_run, open_folder(run.path)), Path("out.gif"))
    world: Any = video.world
    assert world.copies[0].obs_rms.count > 10


@pytest.mark.skipif(importlib.util.find_spec("imageio_ffmpeg") is not None, reason="the extra is installed")
def test_an_mp4_without_its_package_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"flatwater\[video\]"):
        fw.evaluate("run", video="out.mp4")


@pytest.mark.skipif(importlib.util.find_spec("imageio_ffmpeg") is None, reason="needs flatwater[video]")
def test_an_mp4_has_the_frames() -> None:
    import imageio_ffmpeg

    run = fw.train("ppo", env="seen_env:Seen", run="run", **SMALL)
    run.evaluate(video="out.mp4")
    facts, *frames = imageio_ffmpeg.read_frames("out.mp4")
    assert (facts["size"], facts["fps"]) == ((WIDTH, HEIGHT), 20)
    assert 1 < len(frames) <= Seen.steps + 1
    assert sorted(path.name for path in Path().iterdir()) == ["out.mp4", "run"]
