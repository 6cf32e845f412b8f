"""Commands that compose a run: code that its folder names is run for the user who began it here, or who says so."""

import contextlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hostile_runs import NAMED, Trap, foreign_runs, foreign_weights, set_trap
from small_runs import TINY, TINY_PPO

import flatwater as fw
from flatwater.cli.main import main
from flatwater.config.code import code_fields
from flatwater.named_imports import SHIPPED_PERMIT
from flatwater.recipe import find_recipe, recipe_names
from flatwater.runs import started_runs
from flatwater_watch.errors import FlatwaterError, TrustError

COMMANDS = {
    "resume": lambda run: ["resume", run, "--rounds", "3"],
    "resume, quietly": lambda run: ["resume", run, "--json"],
    "fork": lambda run: ["fork", run, "--rounds", "3"],
    "evaluate": lambda run: ["evaluate", run],
    "evaluate, holdout": lambda run: ["evaluate", run, "--holdout", "--json"],
    "orders": lambda run: ["orders", run],
    "backtest": lambda run: ["backtest", run],
    "export": lambda run: ["export", run, "--to", "out.safetensors"],
}
FUNCTIONS = {
    "load": fw.load,
    "resume": lambda run: fw.resume(run, quiet=True),
    "fork": lambda run: fw.fork(run, rounds=3, quiet=True),
    "evaluate": fw.evaluate,
    "export": lambda run: fw.export(run, "out.safetensors"),
    "a run's recipe": lambda run: fw.TrainedRun(Path(run)).recipe,
}
USED = [
    name
    for name in NAMED
    if name
    in {
        "a recipe here",
        "a recipe in a package",
        "a recipe that runs a program",
        "a function of the system",
        "a program of ours",
        "orders for a terminal",
        "an environment of ppo",
        "an environment that gymnasium imports",
        "an environment of evolve",
        "a world and a teacher",
        "a task and a host",
        "an algorithm",
        "an algorithm of ppo",
    }
]
"""Of what a run names, that which each of the commands would import."""

pytestmark = pytest.mark.usefixtures("_nothing_is_touched")


@pytest.fixture
def _nothing_is_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The search path and the loaded modules are those of before, and nothing was begun by this user yet."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    _forget({"payload", "runs", "mine", "rewards"})  # other tests have modules of these names
    loaded = {*sys.modules}
    yield
    _forget({"payload", "runs", "mine", "rewards"} | ({"unittest"} - loaded))


def _forget(packages: set[str]) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]


@pytest.fixture
def trap(_nothing_is_touched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    found = set_trap(tmp_path / "home")
    monkeypatch.chdir(found.folder)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_what_a_folder_that_was_sent_names(
    trap: Trap, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, run in zip(NAMED, foreign_runs(trap), strict=True):
        assert main(COMMANDS[command](f"runs/{run.name}")) == 2, name
        said = capsys.readouterr().err
        assert "Traceback" not in said, name
        if name in USED:
            assert "no record" in said, name
            assert "--trust" in said, name
        assert trap.executed() == [], name


@pytest.mark.long
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_function_does(trap: Trap, function: str) -> None:
    for name, run in zip(NAMED, foreign_runs(trap), strict=True):
        with pytest.raises(FlatwaterError) if function != "a run's recipe" else contextlib.suppress(FlatwaterError):
            FUNCTIONS[function](str(run))
        assert trap.executed() == [], name


def test_no_function_runs_what_a_weights_file_names(trap: Trap) -> None:
    for file in foreign_weights(trap):
        for use in (fw.load, lambda file: fw.export(file, "out.pt2")):
            with pytest.raises(FlatwaterError):
                use(file)
            assert trap.executed() == [], file.read_bytes()
        for words in (["orders", str(file), "--prices", "synthetic:4x200"], ["backtest", str(file), "--prices", "x"]):
            assert main(words) == 2
            assert trap.executed() == [], file.read_bytes()


@pytest.mark.long
def test_what_is_named_in_a_bucket_is_not_run(trap: Trap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--rounds", "1", "--quiet", "--trackers", "--run", "first", "--mirror", (tmp_path / "bucket").as_uri()]
    assert main(["train", "ppo", *TINY_PPO, *words]) == 0
    file = tmp_path / "bucket" / "first" / "config.toml"
    told = file.read_text()
    url = (tmp_path / "bucket" / "first").as_uri()
    for setting, other in (("env", "payload:R"), ("env", "gymnasium:payload:R-v0"), ("trainer", "payload:R")):
        file.write_text(re.sub(rf"^{setting} = .*$", f'{setting} = "{other}"', told, flags=re.MULTILINE))
        for number, command in enumerate((["resume", url, "--into", f"{setting}{other}"], ["evaluate", url])):
            capsys.readouterr()
            assert main(command) == 2
            assert f"{setting} = '{other}'" in capsys.readouterr().err, number
            assert trap.executed() == []


@pytest.mark.long
def test_a_run_that_another_begins_from_is_asked_for_as_well(
    trap: Trap, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sent = foreign_runs(trap)[0]
    words = ["train", "erl", *TINY, "--rounds", "1", "--quiet", "--trackers", "--from-run", str(sent), "--run"]
    assert main([*words, "first"]) == 2
    assert "trainer = 'payload:R'" in capsys.readouterr().err
    assert trap.executed() == []
    assert main([*words, "second", "--trust"]) == 2
    assert trap.executed()[:1] == ["payload"]


@pytest.mark.parametrize("command", ["resume", "evaluate", "orders", "export"])
def test_a_user_who_trusts_a_run_has_its_code_run(trap: Trap, command: str) -> None:
    foreign_runs(trap)
    assert main([*COMMANDS[command]("runs/foreign00"), "--trust"]) == 2, "it is no recipe"
    assert trap.executed()[:1] == ["payload"]


def test_code_below_a_run_is_not_run_for_a_user_who_trusts_it(trap: Trap, capsys: pytest.CaptureFixture[str]) -> None:
    at = [*NAMED].index("a recipe in its own folder")
    run = foreign_runs(trap)[at]
    for command in COMMANDS.values():
        assert main([*command(str(run)), "--trust"]) == 2
        assert "lies in the folder of a run" in capsys.readouterr().err
    os.chdir(run)  # where its `payload` would come first
    assert main(["train", "payload:R"]) == 2
    assert "lies in the folder of a run" in capsys.readouterr().err
    assert trap.executed() == []


ENV = """
import gymnasium, numpy
from rewards import REWARD

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        self.at += 1
        return numpy.full(2, self.at / 9, numpy.float32), REWARD, self.at > 5, False, {}
"""


@pytest.fixture
def project(_nothing_is_touched: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with an environment, and a run in it that he has begun."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "mine.py").write_text(ENV)
    (folder / "rewards.py").write_text("REWARD = 1.0\n")
    words = ["--env", "mine:Env", "--rounds", "1", "--quiet", "--trackers", "--run", "runs/own"]
    assert main(["train", "ppo", *TINY_PPO, *words]) == 0
    return folder


def forget_modules() -> None:
    """As another process."""
    for name in ("mine", "rewards"):
        sys.modules.pop(name, None)


def test_a_run_of_one_s_own_needs_no_word(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_modules()
    assert main(["resume", "runs/own", "--rounds", "2", "--quiet"]) == 0
    assert main(["evaluate", "runs/own"]) == 0
    fw.load("runs/own")
    shutil.copytree("runs/own", "elsewhere")
    assert main(["evaluate", "elsewhere"]) == 0, "a copy is the same run"
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "another"))
    with pytest.raises(TrustError, match="mine:Env"):
        fw.load("runs/own")
    fw.load("runs/own", trust=True)
    with pytest.raises(TrustError):
        fw.load("runs/own")
    fw.resume("runs/own", 3, quiet=True, trust=True)
    fw.load("runs/own")


def test_code_that_lies_elsewhere_is_another_s(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(project, other)
    monkeypatch.chdir(other)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(project)])
    forget_modules()
    assert main(["resume", "runs/own", "--rounds", "2"]) == 2
    assert "env = 'mine:Env'" in capsys.readouterr().err
    assert "mine" not in sys.modules


def test_settings_that_were_changed_by_hand_are_another_s(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project / "runs" / "own" / "config.toml"
    file.write_text(file.read_text().replace("gamma = 0.99", "gamma = 0.98"))
    assert main(["evaluate", "runs/own"]) == 2
    assert "no record" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("module", ["mine", "rewards"])
def test_a_change_of_one_s_own_code_is_told(project: Path, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    forget_modules()
    file = project / f"{module}.py"
    file.write_text(file.read_text() + "\nOTHER = 2\n")
    capsys.readouterr()
    assert main(["resume", "runs/own", "--rounds", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"the text of {module} (" in said
    assert main(["resume", "runs/own", "--rounds", "3"]) == 0
    assert "the text of" not in capsys.readouterr().out


@pytest.mark.long
def test_what_the_user_gives_now_stands_in_place_of_what_the_folder_names(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--rounds", "1", "--quiet", "--trackers", "--on-event", "touch called", "--run", "runs/told"]
    assert main(["train", "ppo", *TINY_PPO, *words]) == 0
    file = project / "runs" / "told" / "config.toml"
    file.write_text(file.read_text().replace("touch called", "touch other"))
    again = ["resume", "runs/told", "--rounds", "2", "--quiet"]
    assert main(again) == 2
    assert "on_event = 'touch other'" in capsys.readouterr().err
    assert main(["evaluate", "runs/told"]) == 0, "it calls no command"
    assert main([*again, "--on-event", ""]) == 0
    assert not Path("other").exists()


def lay_search(trap: Trap) -> dict[str, list[str]]:
    """Folders of a sweep and of a study that somebody sends, and the commands that go on with each."""
    sweep, study = trap.folder / "sent", trap.folder / "studied"
    (sweep / "trial-0000").mkdir(parents=True)
    study.mkdir()
    (sweep / "base.toml").write_text('trainer = "ppo"\nenv = "payload:R"\n')
    (sweep / "space.toml").write_text("[learner.lr]\nlow = 1e-4\nhigh = 1e-3\n")
    (study / "base.toml").write_text('trainer = "erl"\n[learner]\nalgorithm = "payload:R"\n')
    (study / "study.toml").write_text('folds = 1\nseeds = [0]\ndays = ""\ndata = ""\n')
    spaced = trap.folder / "spaced"
    shutil.copytree(sweep, spaced)
    (spaced / "base.toml").write_text('trainer = "evolve"\n')
    (spaced / "space.toml").write_text('[learner.algorithm]\nchoices = ["payload:R"]\n')
    kept = trap.runs / "kept"
    shutil.copytree(sweep, kept)
    (kept / "config.toml").write_text('trainer = "ppo"\ntrackers = ["payload:R"]\n')
    return {
        "sweep": ["sweep", "ppo", "--trials", "1", "--run", str(sweep)],
        "space": ["sweep", "evolve", "--trials", "1", "--run", str(spaced)],
        "study": ["study", "--run", str(study)],
        "train": ["train", "ppo", "--config", str(sweep / "base.toml")],
        "train again": ["train", "ppo", "--config", str(kept / "config.toml")],
        "plan": ["plan", "erl", "--config", str(study / "base.toml")],
    }


@pytest.mark.parametrize("search", ["sweep", "space", "study", "train", "train again", "plan"])
def test_the_folder_of_a_search_brings_no_code(trap: Trap, search: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = lay_search(trap)[search]
    assert main(words) == 2
    assert "payload:R" in capsys.readouterr().err
    assert trap.executed() == []
    assert main([*words, "--trust"]) != 0
    assert trap.executed()[:1] == ["payload"]


def test_settings_from_python_are_those_of_a_run_as_well(trap: Trap) -> None:
    lay_search(trap)
    with pytest.raises(TrustError, match="payload:R"):
        fw.plan("ppo", config="sent/base.toml")
    assert trap.executed() == []


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_a_sweep_of_one_s_own_goes_on() -> None:
    Path("space.toml").write_text("[learner.lr]\nlow = 1e-4\nhigh = 1e-3\n")
    words = ["sweep", "ppo", "--run", "swept", "--quiet"]
    own = [*TINY_PPO, "--env", "mine:Env", "--rounds", "2", "--trackers", "--space", "space.toml", "--trials", "1"]
    assert main([*words, *own]) == 0
    assert main([*words, "--trials", "2"]) == 0
    assert main(["train", "ppo", "--config", "swept/best.toml", "--run", "best", "--quiet"]) == 0


PLAIN = {
    *(
        "device",
        "budget",
        "mirror",
        "tag",
        "panel",
        "from_run",
        "benchmark",
        "observation_features",
        "info_keys",
        "preset",
    ),
    *("wandb.project", "wandb.entity"),
}
"""Texts of a configuration that name no code."""


@pytest.mark.parametrize("recipe", recipe_names())
def test_each_text_of_a_configuration_is_known_to_name_code_or_not(recipe: str) -> None:
    def walk(cls: Any, above: str) -> Iterator[str]:
        coded = code_fields(cls)
        for name, hint in get_type_hints(cls).items():
            path = f"{above}{name}"
            if isinstance(hint, type) and is_dataclass(hint):
                yield from walk(hint, f"{path}.")
            elif name in {f.name for f in fields(cls)} and name not in coded and str in parts(hint):
                yield path

    def parts(hint: object) -> list[object]:
        return [hint, *(part for each in get_args(hint) for part in parts(each))]

    assert {*walk(find_recipe(recipe, SHIPPED_PERMIT).config, "")} <= PLAIN


class TestRecords:
    """The folder of the records is the user's alone."""

    def test_it_is_private(self, tmp_path: Path) -> None:
        started_runs.record_run("a", {})
        folder = tmp_path / "state" / "flatwater" / "begun"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]
        assert started_runs.is_run_recorded("a")
        assert not started_runs.is_run_recorded("b")

    def test_links_and_what_others_may_write_count_for_nothing(self, tmp_path: Path) -> None:
        started_runs.record_run("a", {})
        folder = started_runs.state_folder()
        (folder / "b.json").symlink_to(folder / "a.json")
        (folder / "c.json").write_text("{}")
        (folder / "c.json").chmod(0o666)
        (folder / "d.json").mkdir()
        assert [key for key in "abcd" if started_runs.is_run_recorded(key)] == ["a"]
        folder.chmod(0o777)
        assert not started_runs.is_run_recorded("a")
        with pytest.raises(PermissionError):
            started_runs.record_run("e", {})
        folder.chmod(0o700)
        folder.rename(tmp_path / "moved")
        folder.symlink_to(tmp_path / "moved")
        assert not started_runs.is_run_recorded("a")

    def test_the_oldest_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(started_runs, "MAXIMUM_RECORDS", 8)
        for number in range(20):
            started_runs.record_run(f"{number:02}", {})
            os.utime(started_runs.state_folder() / f"{number:02}.json", (number, number))
        kept = sorted(file.stem for file in started_runs.state_folder().iterdir())
        assert len(kept) <= 8
        assert kept == [f"{number:02}" for number in range(20 - len(kept), 20)]

    @pytest.mark.few(1)
    @pytest.mark.parametrize("home", ["a file", "nothing that can be made", "relative"])
    def test_without_it_a_run_says_so_and_asks_later(
        self, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("")
        (tmp_path / "mine.py").write_text(ENV)
        (tmp_path / "rewards.py").write_text("REWARD = 1.0\n")
        monkeypatch.setenv("HOME", str(tmp_path / "file"))
        places = {"a file": str(tmp_path / "file"), "relative": "state", "nothing that can be made": "/proc/none"}
        monkeypatch.setenv("XDG_STATE_HOME", places[home])
        words = [*TINY_PPO, "--env", "mine:Env", "--rounds", "1", "--trackers", "--run", "own"]
        assert main(["train", "ppo", *words]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert said.count("give --trust") == 1
        assert not Path("state").exists()
        assert main(["evaluate", "own"]) == 2
        assert main(["evaluate", "own", "--trust"]) == 0
