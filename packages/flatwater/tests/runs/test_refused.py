"""What `train` refuses, `plan` and `sweep` refuse as well, with the same message: a plan that fits can be trained."""

from pathlib import Path

import pytest
from small_runs import OPTIONS

from flatwater.cli.main import main

HEAD = "date,AA,BB\n"
FILES = {
    "empty.csv": "",
    "ragged.csv": f"{HEAD}2000-01-01,1,2\n2000-01-02,1\n",
    "beyond.csv": f"{HEAD}2000-01-01,1,1e300\n2000-01-02,1,2\n",
    "short.csv": HEAD + "".join(f"2000-01-{day:02},1,2\n" for day in range(1, 32)),
    "none.safetensors": "something else",
    "unknown.toml": "sead = 4",
    "wrong.toml": "[learner]\ngrad_clip = -7",
    "broken.toml": "seed = \n",
}
SHARED = {
    "an unknown option": "--roundz 3",
    "no number": "--seed x",
    "a number beyond all": "--rounds 99999999999999999999",
    "a rate that is none": "--learner.grad-clip nan",
    "a budget that is none": "--budget 0",
    "a device that is none": "--device abacus",
    "a device that is not here": "--device cuda:99",
    "threads without end": "--threads 1000000000",
    "a tracker twice": "--trackers tensorboard tensorboard",
    "a tracker that nobody is logged in to": "--trackers wandb",
    "a mirror that is no URL": "--mirror somewhere",
    "a mirror of no kind of store": "--mirror http://box/runs",
    "a mirror without a bucket": "--mirror s3://",
    "a mirror at another machine": "--mirror file://box/runs",
    "a mirror in a file": "--mirror file:///dev/null/runs",
    "a file that is not there": "--config nowhere.toml",
    "a file with a setting that is none": "--config unknown.toml",
    "a file with a value out of range": "--config wrong.toml",
    "a file that is no TOML": "--config broken.toml",
}
"""Of any trainer. Half of them no configuration, and half what the machine or a store refuses."""
OWN = {
    "erl": {
        "a feature that is none": "--observation-features close closer",
        "a panel that is not there": "--panel nowhere.parquet",
        "a panel that is none": "--panel none.safetensors",
        "no prices": "--panel empty.csv",
        "a row cut short": "--panel ragged.csv",
        "prices beyond float32": "--panel beyond.csv",
        "a month of prices": "--panel short.csv",
        "a market without a size": "--panel synthetic:6",
        "a market beyond all": "--panel synthetic:1000000000x1000000000",
        "a field that a market has not": "--panel synthetic:6x260:sygnal=1",
        "too few days to split": "--panel synthetic:6x90",
        "too few days to train on": "--panel synthetic:6x110",
        "a window of a prime length": "--env.episode.context 23",
        "a replay of nothing": "--learner.algorithm ddpg --replay.generations 0",
        "a replay that warms up too long": "--learner.algorithm ddpg --replay.warmup 60000",
        "too many of the lowest": "--evaluation.lowest 4",
    },
    "grow": {
        "environments that cannot be dealt": "--learner.minibatches 3",
        "odd channels": "--env.host.channels 3 4 5",
        "a host that has no colon": "--host conv",
        "a host that cannot be imported": "--host nowhere:Net",
        "a class that is no network": "--host collections:OrderedDict",
        "a setting of shipped hosts": "--host nowhere:Net --env.host.channels 2 2 2",
        "a rank wider than the host": "--env.host.kind mlp --env.host.hidden 4 4 4 --env.host.rank 5",
    },
    "ppo": {
        "an environment that is none": "--env nowhere",
        "an environment that gymnasium does not know": "--env gymnasium:Nowhere-v0",
        "an environment that cannot be imported": "--env nowhere:Env",
        "a class that is no environment": "--env collections:OrderedDict",
        "samples that cannot be dealt": "--learner.minibatches 3",
        "a layer of nothing": "--policy.layers 64 0",
    },
    "teach": {
        "a world that is none": "--world nowhere",
        "a world that lacks its name": "--world gymnasium:",
        "a world that gymnasium does not know": "--world gymnasium:Nowhere-v0",
        "a teacher that is none": "--teacher nobody",
        "a teacher that cannot be imported": "--teacher nowhere:Nobody",
        "a world of no module": "--world pettingzoo:..a",
        "a teacher that is no teacher": "--teacher collections:OrderedDict",
        "a teacher of no module": "--teacher :Nobody",
        "a teacher of another world": "--world gymnasium:CartPole-v1 --teacher babyai",
        "a run for a teacher that is not there": "--teacher run:nowhere",
        "agents that cannot be dealt": "--learner.minibatches 3",
        "a block that cannot be unrolled": "--learner.unroll 3",
        "rows that are no power of two": "--policy.rows 63",
    },
}
CASES = [(kind, name) for kind in OPTIONS for name in (*SHARED, *OWN[kind])]
SWEPT = ("teach", "a run for a teacher that is not there")
"""A sweep starts a process that tries its settings: seconds each, so the other cases are slow tests."""


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", "no.netrc")
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("space.toml").write_text("[learner.grad_clip]\nlow = 0.9\nhigh = 0.99\n")


def refusal_text(command: str, kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of the case, and only that; the name of the command itself is left out."""
    options = {**SHARED, **OWN[kind]}[name].split()
    searched = ["--space", "space.toml"] if command == "sweep" else []
    before = {*Path.cwd().rglob("*")}
    try:
        code: object = main([command, kind, *OPTIONS[kind], *options, *searched])
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.out == ""
    assert {*Path.cwd().rglob("*")} == before, "nothing is made"
    return " ".join(said.err.replace(f"flatwater {command}", "flatwater").split())  # boxes are as wide as the name


@pytest.mark.parametrize(
    ("kind", "name"),
    [case if n % 3 == 0 else pytest.param(*case, marks=pytest.mark.slow) for n, case in enumerate(CASES)],
)
def test_plan_refuses_what_train_refuses(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal_text("plan", kind, name, capsys) == refusal_text("train", kind, name, capsys)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name"), [case if case == SWEPT else pytest.param(*case, marks=pytest.mark.slow) for case in CASES]
)
def test_a_sweep_refuses_what_train_refuses(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal_text("sweep", kind, name, capsys) == refusal_text("train", kind, name, capsys)


@pytest.mark.parametrize("kind", ["ppo", "td3", "erl"])
def test_a_run_to_be_compiled_is_refused_without_a_compiler_and_can_be_planned(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = OPTIONS.get(kind, ["--env", "Pendulum-v1", "--rounds", "1", "--replay.capacity", "1000"])
    monkeypatch.setenv("CXX", "no-such-compiler")
    before = {*Path.cwd().rglob("*")}
    assert main(["train", kind, *options, "--learner.compile"]) == 2
    assert "learner.compile" in capsys.readouterr().err
    assert {*Path.cwd().rglob("*")} == before, "nothing is made"
    assert main(["plan", kind, *options, "--learner.compile"]) == 0


def test_a_compiled_run_is_not_resumed_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "ppo", *OPTIONS["ppo"], "--rounds", "1", "--run", "run", "--learner.no-compile"]) == 0
    config = Path("run", "config.toml")
    config.write_text(config.read_text().replace("compile = false", "compile = true"))
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.is_file()}
    monkeypatch.setenv("CXX", "no-such-compiler")
    capsys.readouterr()
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert "flatwater fork RUN --learner.no-compile" in " ".join(capsys.readouterr().err.split())
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*") if path.is_file()} == before
