"""Whatever a user gets wrong: exit code 2, and a message that names the field, what was given, what is wanted and how.

Nothing is trained, no folder is made, and no traceback is shown.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from flatwater.cli.main import main

SMALL = [
    "--env.episode.context",
    "20",
    "--env.episode.trading-days",
    "15",
    "--env.episode.settlement-days",
    "5",
    "--splits.holdout-days",
    "40",
    "--splits.validation-days",
    "40",
    "--run",
    "made",
]
HEAD = "symbol,date,open,high,low,close\n"


@pytest.fixture(autouse=True)
def _empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def refusal_text(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the user reads, with the frames of boxes and line breaks taken out."""
    try:
        code: object = main(words)
    except SystemExit as ended:
        code = ended.code
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.out == ""
    assert "Traceback" not in said.err
    assert not Path("made").exists()
    assert not Path("runs").exists()
    return " ".join(said.err.translate(dict.fromkeys(map(ord, "│╭╮╰╯─|+-"), " ")).split())


def without_boxes(sentence: str) -> str:
    """The sentence as `refusal_text` gives it back."""
    return " ".join(sentence.translate(dict.fromkeys(map(ord, "│╭╮╰╯─|+-"), " ")).split())


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ("--sed 3", ["Unrecognized options: --sed", "--seed INT"]),
        ("--seed x", ["--seed: 'x'", "whole number", "--seed INT"]),
        ("--seed 1.5", ["--seed: '1.5'", "whole number"]),
        ("--learner.ddpg.gamma much", ["--learner.ddpg.gamma: 'much'", "number"]),
        ("--learner.ddpg.gamma 1.5", ["learner.ddpg.gamma = 1.5: ", "above 0 and at most 1"]),
        ("--learner.algorithm reinforce", ["learner.algorithm = 'reinforce': ", '"ddpg", "td3"']),
        ("--rounds 0", ["rounds = 0: ", "1 to 1,099,511,627,776"]),
        ("--rounds", ["Missing value for argument '--rounds'"]),
        ("--population.size 1", ["population.size = 1: ", "2 to 65,536"]),
        ("--observation-features", ["observation_features = (): ", "one or more names"]),
        ("--observation-features close closer", ["'closer'", ": open, close"]),
        ("--observation-features close close", ["observation_features", "each once"]),
        ("--replay.generations 0", ["replay.generations = 0: ", "1 to 1,099,511,627,776"]),
        (
            "--learner.algorithm ddpg --replay.warmup 60000",
            ["replay.warmup = 60000", "1 to 6400", "replay.generations = 4"],
        ),
        ("--evaluation.lowest 4", ["evaluation.lowest = 4: ", "1 to 3"]),
        ("--device abacus", ["device = 'abacus': ", "cpu, cuda or cuda:N"]),
        ("--panel nowhere.parquet", ["nowhere.parquet", "No such file"]),
        ("--panel synthetic:6", ["'synthetic:6'", "synthetic:INSTRUMENTSxDAYS"]),
        ("--panel synthetic:6x260:sygnal=1", ["'sygnal'", "signal"]),
        ("--panel synthetic:6x90", ["90 rows", "100 or more", "splits.holdout_days"]),
        ("--panel synthetic:6x110", ["training split", "11 rows", " 20"]),
        ("--config nowhere.toml", ["nowhere.toml: ", "path of a TOML file"]),
    ],
)
def test_options_of_a_run(options: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    small = [*SMALL, "--panel", "synthetic:6x260"]
    said = refusal_text(["train", "erl", *small, *options.split()], capsys)
    for part in parts:
        assert without_boxes(part) in said


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ("mirror run file:///there", ["flatwater mirror: expected RUN", "`--to file:///there`"]),
        ("export run policy.onnx", ["flatwater export: expected RUN", "`--to policy.onnx`"]),
        ("report run page.html", ["flatwater report: expected RUN", "`--out page.html`"]),
        ("train ppo CartPole-v1 --rounds 3", ["'CartPole-v1'", "`--env CartPole-v1`"]),
        ("train teach ppo", ["'ppo'", "`--world ppo`"]),
        ("plan evolve Pendulum-v1", ["'Pendulum-v1'", "`--env Pendulum-v1`"]),
        ("evaluate run again", ["expected RUN", "'again'", "flatwater evaluate --help"]),
        (
            "train ppo --learner.algorithm reinforce:REINFORCE --learner.clip 0.1",
            ["--learner.clip: learner.algorithm = 'reinforce:REINFORCE'", "--learner.own.gamma, "],
        ),
        (
            "train ppo --preset zoo --learner.algorithm=reinforce:REINFORCE",
            ["preset = 'zoo': ", "learner.algorithm = 'reinforce:REINFORCE'", "Leave the preset out"],
        ),
    ],
)
def test_a_word_without_its_option_and_a_setting_of_another_algorithm_are_named(
    words: str, parts: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "runs"))
    said = refusal_text(words.split(), capsys)
    for part in parts:
        assert without_boxes(part) in said


def test_help_is_printed_though_a_word_has_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mirror", "run", "file:///there", "--help"])
    assert ended.value.code == 0
    assert "--to" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("recipe", "option", "expected"),
    [
        ("ppo", "--student.layers", "policy, such as policy.layers"),
        ("teach", "--student.memory", "policy"),
        ("ppo", "--learning-rate", "learner.lr"),
        ("ppo", "--total-timesteps", "total_steps"),
        ("dqn", "--buffer_size", "replay.capacity"),
        ("sac", "--envs", "population.envs"),
    ],
)
def test_a_name_of_an_earlier_version_or_another_library_is_answered_with_the_setting(
    recipe: str, option: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal_text(["train", recipe, option, "3"], capsys)
    assert without_boxes(f"{option}: ") in said
    assert without_boxes(f"expected {expected}") in said
    table, _, name = option.removeprefix("--").replace("-", "_").partition(".")
    Path("old.toml").write_text(f"[{table}]\n{name} = 3" if name else f"{table} = 3")
    assert without_boxes(f"expected {expected}") in refusal_text(["train", recipe, "--config", "old.toml"], capsys)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[population]\nsizes = 4", ["population.sizes: ", '"size"?']),
        ("sead = 4", ['"seed"?']),
        ('seed = "x"', ["seed = 'x': ", "a whole number", "text"]),
        ("seed = \nrounds = 3", ["TOML", "line 1"]),
        ("population = 3", ["population = 3: ", "a table of settings"]),
        ("[learner.td3]\ngamma = 7", ["learner.td3.gamma = 7.0: ", "above 0 and at most 1"]),
        ('[learner]\nalgorithm = "reinforce"', ["learner.algorithm = 'reinforce'", '"ddpg", "td3"']),
        ("[env.trade]\nhold_days = true", ["env.trade.hold_days = true: ", "a whole number"]),
        ("rounds = 0", ["rounds = 0: ", "1 to 1,099,511,627,776"]),
    ],
)
def test_settings_of_a_file(text: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.toml").write_text(text)
    said = refusal_text(["train", "erl", "--config", "my.toml", *SMALL], capsys)
    for part in ("my.toml", *parts):
        assert without_boxes(part) in said


def prices(days: int = 260, *, close: str = "2") -> list[str]:
    dates = [f"{2000 + n // 336}-{n % 336 // 28 + 1:02}-{n % 28 + 1:02}" for n in range(days)]
    return [f"{name},{date},1.5,3,1,{close}\n" for name in ("AA", "BB") for date in dates]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (HEAD.replace(",close", "") + "AA,2000-01-03,1,2,1\n", ["close"]),
        (HEAD + "".join(prices() + prices()[:1]), ["AA", "2000-01-01"]),
        (HEAD + "".join(prices()).replace("1.5,3,1,2", "1.5,3,1,-2", 1), ["row 2", "AA", "close = -2"]),
        (HEAD + "".join(prices()).replace("1.5,3,1,2", "0,3,1,2", 1), ["row 2", "AA", "open = 0"]),
        (HEAD + "".join(prices(close="")), ["close"]),
        (HEAD + "".join(prices(60)), ["60 rows", "100 or more"]),
        (HEAD + "".join(prices()).replace("2000-01-01", "the first", 1), ["the first"]),
        (HEAD, ["my.csv"]),
        ("", ["my.csv"]),
    ],
    ids=[
        "missing-column",
        "duplicate",
        "negative",
        "zero",
        "all-empty",
        "short",
        "no-date",
        "no-rows",
        "empty",
    ],
)
def test_prices_that_cannot_be_used(text: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.csv").write_text(text)
    said = refusal_text(["train", "erl", *SMALL, "--panel", "my.csv"], capsys)
    for part in parts:
        assert without_boxes(part) in said
    assert "my.csv" in said or "60 rows" in said


def test_a_file_that_is_no_panel(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.safetensors").write_bytes(b"something else")
    said = refusal_text(["train", "erl", *SMALL, "--panel", "my.safetensors"], capsys)
    assert without_boxes("flatwater panel import SOURCE --out FILE") in said


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            "nonsense",
            ["'nonsense'", "backtest, checkpoints, cluster check, compare, completion, evaluate"],
        ),
        ("trane erl", ["'trane'", "backtest", '"train"?']),
        ("train gro", ["'gro':", '"grow"?']),
        (
            "train nonsense",
            ["'nonsense'", "evolve, grow, ddpg, dqn, sac, td3, ppo, teach, erl, weights, or package.module:NAME"],
        ),
        ("resume", ["runs: ", "stopped", "flatwater runs FOLDER"]),
        ("resume a b", ["b"]),
        ("resume x --learner.lr 1e-4", ["--learner.lr", "flatwater fork x --learner.lr"]),
        ("evaluate", ["RUN"]),
        ("panel import x.csv", ["--out PATH"]),
        ("resume x --rounds many", ["--rounds: 'many'", "whole number"]),
    ],
)
def test_commands_that_are_not_meant(words: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal_text(words.split(), capsys)
    for part in parts:
        assert without_boxes(part) in said


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    program = [
        sys.executable,
        "-c",
        "import sys; from flatwater.cli.main import main; sys.exit(main())",
        "panel",
        "show",
    ]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.close()
        assert writing.stderr.read() == b""
    assert writing.returncode in {1, 141}  # rich's answer, and a shell's for a program that SIGPIPE ended
