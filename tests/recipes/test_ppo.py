"""PPO in any environment: one that Gymnasium names, a class of a user's, a world; a choice from a list, or numbers."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import interface_of, main
from flatwater.recipes.ppo.run import compose
from flatwater.state.tree import nbytes

FILE = Path(__file__).with_name("own_world.py")
TINY = ("--envs", "4", "--block", "16", "--evaluation.envs", "3", "--evaluation.every", "2", "--threads", "1")
TINY += ("--trackers",)
ENVS = {
    "named": ("--env", "gymnasium:CartPole-v1"),
    "numbers": ("--env", "gymnasium:Pendulum-v1"),
    "own": ("--env", "own_world:Corridor"),
    "own numbers": ("--env", "own_world:Aim"),
    "own choices": ("--env", "own_world:Locks"),
    "own tokens": ("--env", "own_world:Tokens", "--wrapped.form", "tokens", "--student.rows", "64"),
    "own world": ("--env", "own_world:Pairs"),
    "with a memory": ("--env", "own_world:Pairs", "--student.memory", "8", "--learner.unroll", "4"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with the file of the environments and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_world", raising=False)
    (tmp_path / FILE.name).write_text(FILE.read_text())
    return tmp_path


def train(run: str, rounds: int, *options: str) -> dict[str, object]:
    assert main(["train", "ppo", *TINY, "--rounds", str(rounds), "--run", run, *options]) == 0
    found: dict[str, object] = json.loads(Path(run, "result.json").read_text())
    return found


QUICK = ("own choices", "own tokens", "with a memory")


@pytest.mark.parametrize(
    "env", [pytest.param(ENVS[name], id=name, marks=() if name in QUICK else pytest.mark.slow) for name in ENVS]
)
def test_resumed_it_ends_as_if_it_had_not_stopped(env: tuple[str, ...]) -> None:
    whole = train("whole", 3, *env)
    train("cut", 1, *env)
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert json.loads(Path("cut", "result.json").read_text()) == whole
    ends = [list_checkpoints(Path(run, "checkpoints"))[-1].leaves for run in ("whole", "cut")]
    assert ends[0] == ends[1]


COMPILES = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it loads its compiler
]


@pytest.mark.parametrize("env", [pytest.param(ENVS["named"], marks=COMPILES)])
def test_compiled_and_resumed_it_ends_as_if_it_had_not_stopped(env: tuple[str, ...]) -> None:
    test_resumed_it_ends_as_if_it_had_not_stopped((*env, "--learner.compile"))


@pytest.mark.parametrize("env", [pytest.param(ENVS[name], marks=COMPILES) for name in ("named", "numbers")])
def test_a_compiled_update_is_the_same_function(env: tuple[str, ...]) -> None:
    found = {}
    for name, options in {"eager": (), "compiled": ("--learner.compile",)}.items():
        train(name, 1, *env, "--learner.epochs", "1", *options)
        found[name] = json.loads(Path(name, "metrics.jsonl").read_text().splitlines()[0])
    learned = [key for key in found["eager"] if key.startswith("train/") and key != "train/sps"]
    assert [found["compiled"][key] for key in learned] == pytest.approx(
        [found["eager"][key] for key in learned], rel=1e-4
    )


@pytest.mark.parametrize("env", [ENVS["numbers"], ENVS["own tokens"], ENVS["with a memory"]])
def test_what_is_planned_is_held(env: tuple[str, ...]) -> None:
    config = interface_of(("train", "ppo")).read("train ppo", [*TINY, *env]).settings()
    run = compose(config)
    assert nbytes(run.trainer.run) == run.plan.owners


@pytest.mark.parametrize(
    ("env", "rounds", "least"),
    [
        ("own_world:Corridor", 20, 0.9),
        pytest.param("own_world:Locks", 30, 7.0, marks=pytest.mark.slow),
        pytest.param("own_world:Aim", 60, -1.5, marks=pytest.mark.slow),
        pytest.param("own_world:Pairs", 25, 4.5, marks=pytest.mark.slow),
    ],
)
def test_it_learns(env: str, rounds: int, least: float) -> None:
    learner = ("--block", "64", "--learner.lr", "3e-3", "--evaluation.envs", "16")
    players = train("run", rounds, "--env", env, *learner)["players"]
    assert isinstance(players, dict)
    assert players["policy"]["return"] > least > players["random"]["return"]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("nowhere:Env", "cannot be imported"),
        ("own_world:np", "wanted is a class"),
        ("own_world:Tokens", 'wrapped.form = "tokens"'),
        ("gymnasium:Nothing-v9", "Nothing"),
        ("elsewhere", "there is no environment of this name. Give forage, gymnasium:ID"),
    ],
)
def test_what_is_no_environment_is_refused(env: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "ppo", *TINY, "--env", env]) == 2
    assert said in capsys.readouterr().err
