"""`with flatwater_watch.watch()` on programs that grow and programs that do not."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flatwater_watch
from flatwater_watch.diagnose.evidence import Evidence
from flatwater_watch.diagnose.judge import make_findings
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.context import Watch
from flatwater_watch.series.readings import Growth
from flatwater_watch.series.slope import Slope

HISTORY: list[Any] = []


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    HISTORY.clear()


def keep() -> None:
    HISTORY.append(np.ones(1 << 16))


def play(act: Callable[[], Any], rounds: int = 100, **options: Any) -> Any:
    """A loop of rounds that take 20 ms each."""
    with flatwater_watch.watch(**options) as watched:
        for _ in range(rounds):
            act()
            time.sleep(0.02)
            watched.step()
    return watched


LEAKS = """
import json, sys, time
import numpy as np
import flatwater_watch

HISTORY = []

def keep():
    HISTORY.append(np.ones(1 << 16))

rounds = 0
with flatwater_watch.watch(budget=sys.argv[1] if sys.argv[1:] else None) as watched:
    while not watched._printed_keys and rounds < 600:
        keep()
        time.sleep(0.02)
        watched.step()
        rounds += 1
(found,) = watched.findings()
made = [found.made_at.function, found.made_at.operation]
print(json.dumps({"found": found.to_json(), "made": made, "summary": watched.summary(), "rounds": rounds}, default=str))
"""


def leaking(folder: Path, *given: str) -> tuple[dict[str, Any], str]:
    """What the program found and printed, in a process of its own: that of the suite holds a million objects, through
    which each census goes.
    """
    program = folder / "leaks.py"
    program.write_text(LEAKS)
    command = [sys.executable, str(program), *given]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(ran.stdout), ran.stderr


def test_a_leak_is_told_when_it_is_found_and_at_the_end(tmp_path: Path) -> None:
    said, told = leaking(tmp_path)
    found, summary, rounds = said["found"], said["summary"], said["rounds"]
    assert (found["verdict"], found["owner"], found["unit"]) == ("leak", "leaks.HISTORY", "round")
    assert found["bytes_per_step"] == pytest.approx(1 << 19, rel=0.05)
    assert said["made"] == ["keep", "numpy"]
    assert summary["steps"] == rounds
    assert [each["owner"] for each in summary["findings"]] == ["leaks.HISTORY"]
    assert summary["explained_share"] > 0.8

    assert told.count("HISTORY grows by 512.") == 2, told
    assert told.startswith("flatwater, round ")
    assert "\nflatwater: leaks.HISTORY grows at leaks.py:" in told
    assert told.count("`del leaks.HISTORY[:-100]`") == 2, "once while it runs, and in the first lines at the end"
    assert f"\n1 finding · {rounds} rounds in " in told
    assert max(map(len, told.splitlines())) <= 100


def test_a_leak_that_was_told_is_not_told_again_as_a_part_or_with_others(capsys: pytest.CaptureFixture[str]) -> None:
    """A container that is found later, filled by the same line, makes another owner of the same leak."""
    growth = Growth(100, 1 << 30, None, Slope(1.0, 1.0, 1.0), "round")
    one, other = (
        make_findings([Evidence(verdict="leak", owner=f"train.BOOK['{name}']", drift=growth.whole)], growth)[0]
        for name in "ab"
    )
    both = replace(one, owner="train.BOOK", parts=(one.owner, other.owner))
    watched = Watch(unit="round", budget=None, report=True)
    process: Any = SimpleNamespace(boundaries=SimpleNamespace(counts={"round": 7}))
    for found in ([one], [both], [other, one]):
        watched.findings = lambda now=found: now
        watched._print_new_findings(process)
    told = capsys.readouterr().err
    assert told.count("leak: ") == 1
    assert "leak: train.BOOK['a'] grows" in told


def test_a_flat_program(capsys: pytest.CaptureFixture[str]) -> None:
    watched = play(lambda: np.ones(1 << 18).sum(), unit="batch")
    assert watched.findings() == []
    assert watched.summary()["unit"] == "batch"
    told = capsys.readouterr().err
    assert told.startswith("flatwater: nothing grows · 100 batches in ")


@pytest.mark.few(1)
@pytest.mark.parametrize("unit", ["request", "tick"])
def test_a_unit_may_have_the_name_of_a_boundary_that_the_watch_counts(
    unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A reading of the tests' own large process is dear, and the next one would wait until it is paid for.
    monkeypatch.setattr("flatwater_watch.agent.process.thread_seconds", lambda: 0.0)
    watched = play(keep, unit=unit, report=False)
    assert watched._process_watch is not None
    assert len(watched._process_watch._samples) > 3
    summary = watched.summary()
    assert (summary["unit"], summary["steps"]) == (unit, 100)


def test_forecasts_end_at_the_budget(tmp_path: Path) -> None:
    said, _ = leaking(tmp_path, "4 TiB")
    found = said["found"]
    assert found["limit_bytes"] == 4 << 40
    left = (4 << 40) - said["summary"]["resident_bytes"]
    assert found["limit_step"] == pytest.approx(left / found["bytes_per_step"], rel=0.1)


def test_without_report_nothing_is_printed_and_nothing_is_kept(
    capsys: pytest.CaptureFixture[str], expect_freed: Callable[[object], None]
) -> None:
    watched = play(lambda: None, rounds=3, report=False)
    assert capsys.readouterr() == ("", "")
    assert watched.summary()["steps"] == 3
    expect_freed(watched)
    expect_freed(watched._process_watch)


def test_what_the_program_raises_comes_out_and_the_watch_is_closed() -> None:
    with pytest.raises(ZeroDivisionError), flatwater_watch.watch(report=False) as watched:
        _ = 1 / 0
    assert watched.summary()["unseen"]
    with flatwater_watch.watch(report=False):
        pass


def test_a_watch_inside_of_a_watch_is_refused_and_the_outer_goes_on() -> None:
    with flatwater_watch.watch(report=False) as outer:
        with pytest.raises(ConfigError, match="one only"), flatwater_watch.watch():
            pass
        outer.step()
    assert outer.summary()["steps"] == 1


def test_each_is_used_once_and_while_it_is_open() -> None:
    watched = flatwater_watch.watch(report=False)
    with pytest.raises(ConfigError, match=r"step: .*not open"):
        watched.step()
    for ask in (watched.findings, watched.summary):
        with pytest.raises(ConfigError, match="not begun"):
            ask()
    with watched:
        pass
    with pytest.raises(ConfigError, match=r"step: .*not open"):
        watched.step()
    with pytest.raises(ConfigError, match="been used"), watched:
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unit": "two words"}, r"unit = 'two words': .*one word"),
        ({"budget": "much"}, r"'much' .*\b8GiB"),
        ({"budget": 0}, r"budget = 0: .*positive"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        flatwater_watch.watch(**options)


def test_importing_flatwater_imports_nothing_else() -> None:
    program = """
import sys
before = set(sys.modules)
import flatwater_watch
print(*sorted(set(sys.modules) - before))
flatwater_watch.watch, flatwater_watch.expect_freed
print(*{"torch", "numpy", "pytest"} & set(sys.modules))
try:
    flatwater_watch.wacht
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=paths()
    )
    loaded, heavy, error = done.stdout.splitlines()
    assert "flatwater_watch" in loaded.split()
    assert [name for name in loaded.split() if name.startswith("flatwater_watch.")] == ["flatwater_watch.lazy"]
    assert not {"typing", "pathlib"} & {*loaded.split()}, "they take longer than the rest"
    assert heavy == ""
    assert error == "module 'flatwater_watch' has no attribute 'wacht'"


def paths() -> dict[str, str]:
    """An environment in which `-S` finds the packages, and no start-up file loads any."""
    source = Path(flatwater_watch.__file__).parents[1]
    packages = Path(np.__file__).parents[1]
    return {"PYTHONPATH": f"{source}:{packages}"}
