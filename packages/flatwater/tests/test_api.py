"""The public face: what the commands do, from a program."""

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import flatwater as fw
from flatwater.api import resolve_config
from flatwater_watch.errors import CheckpointError, ConfigError
from flatwater_watch.files.directory import expand_home

SMALL = {"envs": 3, "block": 16, "threads": 1, "trackers": (), "evaluation": {"envs": 3, "every": 2}}
SMALL |= {"learner": {"epochs": 2, "minibatches": 1}, "wrapped": {"steps": 60}}

MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad, "inference": torch.inference_mode,
    "anomaly": partial(torch.autograd.set_detect_anomaly, mode=True),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("unpainted")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_paths_of_the_users_home_lead_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of the name `~` was made in the working folder."""
    home = folder / "home"
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    monkeypatch.setenv("HOME", str(home))
    home.mkdir()
    (home / "settings.toml").write_text("envs = 4")
    run = fw.train("ppo", rounds=1, run="~/run", config="~/settings.toml", quiet=True, **{**SMALL, "envs": 2})
    assert run.path == home / "run"
    assert fw.plan("ppo", config="~/settings.toml").owners != fw.plan("ppo").owners
    assert fw.evaluate("~/run") == fw.resume("~/run", quiet=True).result
    fork = fw.fork(Path("~/run"), run="~/fork", rounds=2, quiet=True)
    elder = {**SMALL, "from_run": "~/run"}
    assert (
        f'from_run = "{home}/run"' in (fw.train("ppo", rounds=1, quiet=True, **elder).path / "config.toml").read_text()
    )
    fw.compare("~/run", fork, page="~/compared.html")
    fork.report("~/report.html")
    fw.export("~/run", "~/policy.safetensors")
    assert fw.load("~/policy.safetensors").act(np.zeros(4)) == fw.load("~/run").act(np.zeros(4))
    fw.save_checkpoint("~/own", {"weight": torch.ones(1)}, step=3)
    assert fw.restore_checkpoint("~/own", {"weight": torch.ones(1)}) == 3
    names = {"run", "fork", "own", "settings.toml", "compared.html", "report.html", "policy.safetensors"}
    assert names <= {path.name for path in home.iterdir()}
    assert [path.name for path in Path().iterdir()] == ["runs"]
    assert expand_home("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")  # as a shell leaves it


@pytest.mark.usefixtures("painted")
def test_a_run_from_a_program_is_the_run_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    threads, rounds = torch.get_num_threads(), []
    run = fw.train("ppo", rounds=3, run="whole", on_round=rounds.append, quiet=True, **SMALL)
    assert capfd.readouterr().out == ""
    assert torch.get_num_threads() == threads
    assert [each.number for each in rounds] == [1, 2, 3]
    assert rounds[-1].rounds == 3
    assert [each.metrics["agent_steps"] for each in rounds] == run.metrics["agent_steps"]
    assert run.finished
    assert run.result == json.loads(Path("whole/result.json").read_text())
    assert Path("whole/result.png").is_file()
    assert "policy" in run._repr_html_()
    assert run.report("page.html").read_text().startswith("<!doctype html>")
    assert run.evaluate() == run.result == fw.evaluate(run)
    assert fw.export(run, "policy.safetensors") == 0
    cut = fw.train("ppo", rounds=3, run="cut", on_round=lambda each: each.stop(), quiet=True, **SMALL)
    assert not cut.finished
    assert cut.result is None
    assert fw.resume(cut, quiet=True).result == run.result


@pytest.mark.parametrize("mode", ["float64", "meta", "meta block", "no_grad", "inference", "anomaly"])
def test_a_run_has_torchs_own_modes_and_the_program_keeps_its_own(mode: str) -> None:
    """Each ended in a traceback, and what was trained before could not be loaded."""
    with ExitStack() as modes:
        if mode == "float64":
            modes.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        elif mode == "meta":
            modes.callback(torch.set_default_device, None)
            torch.set_default_device("meta")
        elif mode == "meta block":
            modes.enter_context(torch.device("meta"))
        else:
            modes.enter_context(MODES[mode]())
        run = fw.train("ppo", rounds=1, run="run", quiet=True, **SMALL)
        assert fw.load(run).act(np.zeros(4, np.float32)) in (0, 1)
        assert run.evaluate() == run.result
        assert torch.get_default_dtype() == (torch.float64 if mode == "float64" else torch.float32)
        assert torch.get_default_device().type == ("meta" if mode.startswith("meta") else "cpu")
        assert torch.is_grad_enabled() == (mode not in {"no_grad", "inference"})
        assert torch.is_anomaly_enabled() == (mode == "anomaly")
    assert torch.get_default_device().type == "cpu"


class Wanderer(gymnasium.Env[Any, Any]):
    """A simulator that works in a folder of its own."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        Path("elsewhere").mkdir(exist_ok=True)
        if Path.cwd().name != "elsewhere":
            os.chdir("elsewhere")
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return int(action), 1.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.parametrize("run", ["run", None])
def test_a_run_lies_where_it_was_begun_if_its_environment_goes_elsewhere(run: str | None, folder: Path) -> None:
    """It lay in the folder of the environment."""
    trained = fw.train("ppo", env=Wanderer, rounds=1, run=run, quiet=True, **SMALL)
    assert Path.cwd().name == "elsewhere"
    assert trained.path.parent == (folder if run else folder / "runs")
    assert trained.result is not None
    assert fw.load(trained).act(0) in (0, 1)


def test_none_is_neither_a_recipe_nor_an_environment() -> None:
    """A run of CartPole began where a function had forgotten to return its environment."""
    with pytest.raises(ConfigError, match=r"env: expected an environment of Gymnasium .* got None"):
        fw.train("ppo", env=None, quiet=True, **SMALL)
    with pytest.raises(ConfigError, match="recipe: expected the name of a recipe, got a NoneType"):
        fw.train(None, quiet=True, **SMALL)  # type: ignore[call-overload]


@pytest.mark.parametrize("use", [fw.load, fw.resume, fw.evaluate, fw.fork, lambda run: fw.export(run, "policy.pt2")])
def test_what_is_no_run_is_told(use: Callable[[Any], object]) -> None:
    Path("000001.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"000001\.json: expected the folder of a run, or a \.safetensors file"):
        fw.load("000001.json")
    with pytest.raises(ConfigError, match="run: expected a folder for the new run, got a bytes"):
        fw.train("ppo", run=b"run", quiet=True, **SMALL)  # type: ignore[call-overload]
    for other in (None, 3, [Path("run")]):
        with pytest.raises(ConfigError, match=r"run: expected .* a folder or a URL, got an? (NoneType|int|list)$"):
            use(other)


def test_an_environment_that_is_not_the_runs_is_refused() -> None:
    """It was left aside without a word, and the run's own environment was played in its place."""
    run = fw.train("ppo", rounds=1, run="run", quiet=True, **SMALL)
    for use in (fw.evaluate, fw.load, fw.resume):
        for other in (gymnasium.make("Acrobot-v1"), "Acrobot-v1", lambda: gymnasium.make("Acrobot-v1")):
            with pytest.raises(ConfigError, match=r"begun with CartPole-v1: .* got .*flatwater\.fork"):
                use(run, env=other)  # type: ignore[operator]
    assert fw.evaluate(run, env="CartPole-v1") == run.result


@pytest.mark.parametrize("callback", ["on_round", "on_episode"])
@pytest.mark.parametrize("given", [[print], lambda: None, 3])
def test_what_is_no_callback_is_refused_before_training(callback: str, given: object) -> None:
    """A list of functions, as other libraries take it, was found after the first round."""
    with pytest.raises(ConfigError, match=rf"{callback}: expected a function that takes an? (round|episode), got"):
        fw.train("ppo", run="none", quiet=True, **SMALL | {callback: given})
    assert not Path("none").exists()


def test_a_table_may_change_at_a_resume_where_its_settings_may() -> None:
    """The dict took the place of the whole table, and the run ended with an AttributeError."""
    run = fw.train("ppo", rounds=1, run="run", quiet=True, **SMALL)
    with pytest.raises(CheckpointError, match=r"learner\.lr.*\n.*flatwater fork"):
        fw.resume(run.path, 2, learner={"lr": 1e-5}, quiet=True)
    with pytest.raises(ConfigError, match=r"lrx.*lr"):
        fw.resume(run.path, 2, learner={"lrx": 1e-5}, quiet=True)
    assert fw.resume(run.path, 2, checkpoints={"keep": 1}, quiet=True).finished
    assert "keep = 1\n" in (run.path / "config.toml").read_text()


def test_settings_win_over_a_file_and_wrong_ones_are_refused() -> None:
    Path("my.toml").write_text("seed = 5\n[learner]\nlr = 0.5\nepochs = 2\n")
    found = resolve_config("ppo", "my.toml", {"learner": {"lr": 0.25}, "budget": None})
    assert (found.seed, found.learner.lr, found.learner.epochs) == (5, 0.25, 2)
    for wrong in ({"rouds": 1}, {"learner": {"lr": -1}}, {"envs": "many"}):
        with pytest.raises(ConfigError):
            fw.train("ppo", **wrong)  # type: ignore[arg-type]
    assert not Path("runs").exists()
    assert fw.plan("ppo", budget="1KiB", **SMALL).fits is False


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [0, 4])
def test_what_was_trained_acts_as_it_did_where_it_was_judged(memory: int) -> None:
    env = gymnasium.make("CartPole-v1", max_episode_steps=60)
    fw.train("ppo", rounds=2, run="run", policy={"memory": memory}, quiet=True, **SMALL)
    policy, paid = fw.load("run"), []
    for seed in range(3):
        policy.begin()
        seen, _ = env.reset(seed=2**30 + seed)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(policy.act(seen))
            total, over = total + float(reward), terminated or truncated
        paid.append(total)
    assert np.mean(paid) == fw.evaluate("run")["players"]["policy"]["return"]
    policy.begin()
    assert policy.act(np.zeros((5, 4))).shape == (5,)
    policy.begin(np.array([True, False, True, False, False]))
    with pytest.raises(ConfigError, match=r"obs is an array"):
        policy.act(np.zeros(3))
    if memory:
        with pytest.raises(ConfigError, match="Call begin"):
            policy.act(np.zeros((2, 4)))
    else:
        assert policy.act(np.zeros((2, 4))).shape == (2,)


def test_what_cannot_be_loaded_is_refused_with_what_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples" / "flatwater")
    monkeypatch.delitem(sys.modules, "cross_entropy", raising=False)
    run = fw.train("cross_entropy:SEARCH", rounds=1, candidates=3, elites=2, threads=1, trackers=(), quiet=True)
    assert run.path.parent.name == "runs"
    with pytest.raises(ConfigError, match=r"`cross_entropy:SEARCH` .*evaluate\("):
        fw.load(run.path)


def test_a_thread_that_is_not_the_main_one_can_train() -> None:
    found: list[fw.TrainedRun] = []
    worker = threading.Thread(target=lambda: found.append(fw.train("ppo", rounds=1, run="run", quiet=True, **SMALL)))
    worker.start()
    worker.join()
    assert found[0].finished


def test_every_name_is_there() -> None:
    assert {"train", "load", "recipes"} <= set(dir(fw))
    for name in dir(fw):
        assert name.startswith("__") or getattr(fw, name).__doc__
