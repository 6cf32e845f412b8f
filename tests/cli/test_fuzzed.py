"""Every command, with whatever values: it is done or it is refused, in words, and never with a traceback.

What would train is held back by a budget that no run fits, or by a space that no sweep can search.
"""

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from fuzzed import TOMLS, make_place, options_of, required, value_for
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatwater.cli.main import COMMANDS, main

SMALL = ["--panel", "synthetic:4x260", "--env.episode.context", "20", "--env.episode.trading-days", "15"]
SMALL += ["--env.episode.settlement-days", "5", "--splits.holdout-days", "40", "--splits.validation-days", "40"]
TINY = {"erl": [*SMALL, "--population.size", "2"], "grow": ["--envs", "2"], "teach": [], "ppo": []}
TINY["study"] = TINY["erl"]
HELD_BACK = {"train": ["--budget", "1KiB"], "study": ["--budget", "1KiB"], "sweep": ["--space", "space.toml"]}
SOUND_CODES = {0, 2, 3}


@pytest.fixture(scope="module", autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.chdir(place)
        make_place(place)
        yield


def run(words: list[str]) -> tuple[int, str]:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(words)
        except SystemExit as ended:
            code = ended.code or 0
    out.seek(0)
    err.seek(0)
    return code, out.read() + err.read()


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(sorted(COMMANDS)))
    options = options_of(command)
    words = [*command]
    if command[-1] in TINY:
        words += [*TINY[command[-1]], *HELD_BACK.get(command[0], [])]
        if draw(st.integers(0, 4)) == 0:
            words += ["--config", draw(st.sampled_from(TOMLS))]
    held = {"--budget"} if command[0] in {"train", "study"} else {"--seconds"} if command == ("watch",) else set()
    chosen = draw(st.lists(st.sampled_from(sorted(options.keys() - held)), max_size=3, unique=True))
    for option in dict.fromkeys([*required(command), *chosen]):
        value = draw(value_for(option, options[option]))
        words += value if option.isupper() else [option, *value]
    return words


def check(words: list[str]) -> None:
    code, said = run(words)
    kept = "".join(path.read_text() for path in Path(".flatwater").glob("fault-*")) if code == 70 else ""
    assert code in SOUND_CODES, f"{words}: {code}: {said}{kept}"
    assert "Traceback" not in said
    assert not set(said) & set("\x1b\x07\x9b\0"), words


@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines())
def test_whatever_is_written_after_a_command_is_done_or_refused(words: list[str]) -> None:
    check(words)


@pytest.mark.slow
@settings(max_examples=4000, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines())
def test_thousands_of_command_lines_are_done_or_refused(words: list[str]) -> None:
    check(words)
