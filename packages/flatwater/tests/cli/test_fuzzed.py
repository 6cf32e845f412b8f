"""Every command, with whatever values: it is done or it is refused, in words, and never with a traceback.

What would train is held back by a budget that no run fits, or by a space that no sweep can search.
"""

import contextlib
import io
import signal
from pathlib import Path
from typing import Any

import pytest
from fuzzed import (
    TOMLS,
    add_what_is_precious,
    contents,
    make_place,
    options_of,
    output_lines,
    price_tables,
    required_words,
    tomls,
    value_for,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatwater.cli.main import main
from flatwater.cli.table import commands

SMALL = ["--panel", "synthetic:4x260", "--env.episode.context", "20", "--env.episode.trading-days", "15"]
SMALL += ["--env.episode.settlement-days", "5", "--splits.holdout-days", "40", "--splits.validation-days", "40"]
TINY = {"erl": [*SMALL, "--population.size", "2"], "grow": ["--envs", "2"]}
TINY["study"] = TINY["erl"]
HELD_BACK = {"train": ["--budget", "1KiB"], "study": ["--budget", "1KiB"], "sweep": ["--space", "space.toml"]}
SOUND_CODES = {0, 2, 3}
ELSEWHERE = {("cluster", "check")}
"""Waits for other machines."""
PRECIOUS: dict[Path, bytes] = {}
"""Files that are there before, with their contents."""
SECONDS = 60
"""A command that takes longer hangs."""


@pytest.fixture(scope="module", autouse=True)
def _place(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("fuzzed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.chdir(place)
        make_place(place)
        PRECIOUS.update(add_what_is_precious(place))
        yield


def run(words: list[str]) -> tuple[int, str]:
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(SECONDS)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = main(words)
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            signal.alarm(0)
    out.seek(0)
    err.seek(0)
    return code, out.read() + err.read()


def _hang(_number: int, _frame: Any) -> None:
    raise AssertionError("it hangs")


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(sorted(commands().keys() - ELSEWHERE)))
    options = options_of(command)
    words = [*command]
    if command[0] in {"plan", *HELD_BACK}:
        words += [*TINY.get(command[-1], []), *HELD_BACK.get(command[0], [])]
        if draw(st.integers(0, 4)) == 0:
            words += ["--config", draw(st.sampled_from(TOMLS))]
    held = {"--budget"} if command[0] in {"train", "study"} else {"--seconds"} if command == ("watch",) else set()
    chosen = draw(st.lists(st.sampled_from(sorted(options.keys() - held)), max_size=3, unique=True))
    for option in dict.fromkeys([*required_words(command), *chosen]):
        value = draw(value_for(option, options[option]))
        words += value if option.isupper() else [option, *value]
    return words


def check(words: list[str]) -> None:
    code, said = run(words)
    kept = "".join(path.read_text() for path in Path(".flatwater").glob("fault-*")) if code == 70 else ""
    assert code in SOUND_CODES, f"{words}: {code}: {said}{kept}"
    assert "Traceback" not in said
    assert not set(said) & set("\x1b\x07\x9b\0"), words
    now = contents(Path.cwd())
    assert {path.name for path, content in PRECIOUS.items() if now.get(path) != content} == set(), words


def check_settings(content: bytes) -> None:
    Path("drawn.toml").write_bytes(content)
    check(["plan", "erl", "--config", "drawn.toml", *TINY["erl"]])


def check_prices(content: bytes) -> None:
    for name in ("drawn.csv", "drawn.csv.gz"):
        Path(name).write_bytes(content)
        check(["panel", "import", name, "--out", "drawn.panel"])


@settings(max_examples=25, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines())
def test_whatever_is_written_after_a_command_is_done_or_refused(words: list[str]) -> None:
    check(words)


@pytest.mark.slow
@settings(max_examples=4000, suppress_health_check=[HealthCheck.too_slow])
@given(command_lines())
def test_thousands_of_command_lines_are_done_or_refused(words: list[str]) -> None:
    check(words)


@settings(max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_output_takes_the_place_of_something_else(data: st.DataObject) -> None:
    check(data.draw(output_lines(Path.cwd())))


@settings(max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tomls())
def test_any_settings_are_taken_or_refused(content: bytes) -> None:
    check_settings(content)


@settings(max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(price_tables())
def test_any_prices_are_imported_or_refused(content: bytes) -> None:
    check_prices(content)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["command lines", "settings", "prices", "outputs"])
def test_five_hundred_of_all_kinds_are_done_or_refused(kind: str) -> None:
    """None with a traceback, none that hangs, and no file is destroyed."""
    examples = settings(max_examples=125, derandomize=True, suppress_health_check=[*HealthCheck])
    laws = {
        "command lines": given(command_lines())(check),
        "settings": given(tomls())(check_settings),
        "prices": given(price_tables())(check_prices),
        "outputs": given(output_lines(Path.cwd()))(check),
    }
    examples(laws[kind])()
    assert PRECIOUS.items() <= contents(Path.cwd()).items()
