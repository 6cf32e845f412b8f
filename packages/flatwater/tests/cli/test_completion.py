"""A shell completes what the commands take."""

import shutil
import subprocess

import pytest

from flatwater.cli.completion import Options, bash_script, find_options, fish_script, options_of_all
from flatwater.cli.main import main
from flatwater.cli.table import commands

OPTIONS = {
    ("runs",): ["--help", "--json"],
    ("train", "erl"): ["--help", "--seed", "--population.size"],
    ("train", "grow"): ["--help", "--envs"],
}


def bash_offers(*words: str) -> list[str]:
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in ("flatwater", *words))
    asked = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _flatwater; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    ended = subprocess.run(
        ["bash", "-c", bash_script(OPTIONS, "bash") + asked], capture_output=True, text=True, check=True, timeout=300
    )
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), ["runs", "train", "--help", "--version"]),
        (("r",), ["runs"]),
        (("train", ""), ["erl", "grow", "--help"]),
        (("train", "erl", "--s"), ["--seed"]),
        (("train", "erl", "--seed", "3", "--pop"), ["--population.size"]),
        (("train", "grow", "--"), ["--help", "--envs"]),
        (("runs", "some folder", "--j"), ["--json"]),
        (("unknown", "--"), []),
    ],
)
def test_bash_offers_what_may_follow(words: tuple[str, ...], offered: list[str]) -> None:
    assert bash_offers(*words) == offered


@pytest.fixture(scope="module")
def options() -> Options:
    """What the commands take: each is asked for its help."""
    return options_of_all()


def test_every_command_is_asked_for_its_options(options: Options) -> None:
    assert options.keys() == commands().keys()
    assert all("--help" in names for names in options.values())
    assert {"--seed", "--population.size", "--env.no-account-observation"} <= {*options["train", "erl"]}
    assert "--rounds" in options["resume",]


def test_options_are_read_from_a_help_text() -> None:
    assert find_options(
        "│ -h, --help    says --this │\n│ --a.b-c INT   │\n│     --not-this one │\n│ --d, --no-d │\n"
    ) == [
        "--help",
        "--a.b-c",
        "--d",
        "--no-d",
    ]


def test_fish_has_a_line_for_each_option() -> None:
    lines = fish_script(OPTIONS).splitlines()
    assert "complete -c flatwater -n __fish_use_subcommand -f -a 'runs train'" in lines
    seen = "__fish_seen_subcommand_from train; and __fish_seen_subcommand_from erl"
    assert f"complete -c flatwater -n '{seen}' -l population.size" in lines
    assert len(lines) == 1 + 1 + 1 + sum(map(len, OPTIONS.values()))


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_a_script_that_the_shell_reads(
    shell: str, options: Options, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flatwater.cli.completion.options_of_all", lambda: options)
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "population.size" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=300)


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["completion", "tcsh"])
    assert refused.value.code == 2
    assert "invalid choice 'tcsh'" in capsys.readouterr().err
