"""Whose fault it is: an error of a user's environment, by its signature too, is told as theirs; none is silent."""

import itertools
import runpy
import sys
from pathlib import Path

import pytest

from flatwater.cli.main import main

TINY = ("--envs", "2", "--block", "8", "--evaluation.envs", "2", "--wrapped.steps", "9", "--threads", "1", "--rounds")
TINY += ("1", "--trackers", "--policy.hidden", "4", "--learner.minibatches", "1", "--learner.epochs", "1")
FILE = Path(__file__).with_name("odd_envs.py")
EXPECTED: dict[str, str] = runpy.run_path(str(FILE))["EXPECTED"]
ALWAYS = {"Fine", "Sized", "Unseeded", "FourValues", "InfoOfStepIsNone", "Pipe_Stepping", "ExitZero_Stepping"}
ALWAYS |= {"ExitThree_Made", "Interrupt_Resetting", "Pygame", "ActionsOfNothing", "SeesAnEmptyDict", "ScalarMidway"}
ALWAYS |= {
    "WorldExits",
    "WorldPaysNan",
    "NanMidway",
    "NanOfAKey",
    "KeysSwapped",
    "SeesALeaf",
    "PaysNan",
    "PaysMuch",
    "PaysAllThereIs",
    "EndsByText",
}
ALWAYS |= {"OtherActionsInEachEpisode", "SeesADictInADict", "BelowDiscrete", "AsksALibrary", "Value_Resetting"}
NAMES = [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow) for name in EXPECTED]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, FILE.stem, raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())


def test_there_are_more_than_a_hundred() -> None:
    assert len(EXPECTED) > 100
    assert EXPECTED.keys() > ALWAYS


@pytest.mark.few(10)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NAMES)
def test_what_an_environment_does_wrong_is_told_as_its_own(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    expected = EXPECTED[name]
    code = main(["train", "ppo", "--env", f"odd_envs:{name}", *TINY, "--run", "run"])
    shown, said = capfd.readouterr()
    said = " ".join(said.split())
    assert "fault of Flatwater" not in said
    assert not any(word in text for word in ("Traceback", "Warning") for text in (shown, said)), said
    assert code == (2 if expected else 0), said
    assert expected in said
    if expected:
        assert name in said
        assert FILE.name in said or "env = " in said
        assert len(said) < 1000
    if (Path("run") / "config.toml").exists() and expected:
        assert list(Path("run/checkpoints").glob("*.json")), "what was learned before is kept"
        assert "flatwater resume run" in shown


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Still", ""),
        ("StillExits", "teacher odd_envs:StillExits: step_batch() raised SystemExit"),  # ": 0" where W&B has been
        ("StillAsksTheWorld", "begin_() raised AttributeError: 'OddWorld' object has no attribute 'position'"),
        ("StillTakesMore", "step_batch() raised TypeError"),
    ],
)
def test_what_a_teacher_does_wrong_is_told_as_its_own(
    name: str, expected: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ("--world", "odd_envs:OddWorld", "--teacher", f"odd_envs:{name}", "--learner.unroll", "4", "--run", "run")
    code = main(["train", "teach", *TINY, *given])
    said = " ".join(capfd.readouterr().err.split())
    assert code == (2 if expected else 0), said
    assert expected in said
    assert FILE.name in said or not expected


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["NanMidway", "NanOfAKey", "PaysNan", "PaysMuch", "InfinityMidway"])
def test_numbers_that_are_none_are_allowed_where_that_is_asked_for(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ppo", "--env", f"odd_envs:{name}", *TINY, "--allow-nan", "--run", "run"]) == 0
    assert "Traceback" not in "".join(itertools.chain(capfd.readouterr()))
