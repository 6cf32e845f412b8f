"""Short rounds gather before they are written: nothing is lost, nothing changes its place, and nothing waits long."""

import json
import time
from collections import Counter
from io import FileIO
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from small_runs import SMALL_PPO

import flatwater as fw
from flatwater.metrics import jsonl
from flatwater.runs import recorder
from flatwater.runs.recorder import MAXIMUM_UNWRITTEN, Round
from flatwater_watch.errors import UserCodeError


def written_rounds(run: Path, file: str = "metrics.jsonl") -> list[int]:
    return [json.loads(line)["round"] for line in (run / file).read_text().splitlines()]


@pytest.fixture(autouse=True)
def _gathers_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round is written because of the time since the round before."""
    monkeypatch.setattr(recorder, "GATHER_SECONDS", 1e9)


@pytest.mark.long
def test_rounds_are_written_in_order_and_before_their_checkpoint(tmp_path: Path) -> None:
    run, behind = tmp_path / "run", []

    def look(round_: Round) -> None:
        behind.append(round_.number - 1 - len(written_rounds(run)))

    fw.train("ppo", run=run, rounds=40, on_round=look, checkpoints={"every": 10}, ledger_every=40, **SMALL_PPO)
    assert written_rounds(run) == written_rounds(run, "episodes.jsonl") == [*range(1, 41)]
    assert max(behind) < MAXIMUM_UNWRITTEN
    events = [line.split()[1:4] for line in (run / "run.log").read_text().splitlines()]
    rounds = [words for words in events if words[0] in {"round", "saved"}]
    saved = [["saved", "checkpoint", f"{round_:06d}.000000"] for round_ in (0, 10, 20, 30, 40)]
    expected = saved[:1]
    for round_ in range(1, 41):
        expected.append(["round", "block", f"{round_}/40:"])
        expected += [saved[round_ // 10]] if round_ % 10 == 0 else []
    assert rounds == expected


def test_rounds_that_gathered_are_one_write_of_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write a row was as much as all else about a short round."""
    append_lines_, written = jsonl._append_lines_, Counter[object]()

    def count(file: FileIO, lines: bytes) -> None:
        written[file.name] += 1
        append_lines_(file, lines)

    monkeypatch.setattr(jsonl, "_append_lines_", count)
    fw.train("ppo", run=tmp_path / "run", rounds=12, checkpoints={"every": 12}, ledger_every=12, **SMALL_PPO)
    assert written_rounds(tmp_path / "run") == [*range(1, 13)]
    # All are written before memory is measured, the last round follows, and one more write is because of the time.
    assert max(written.values()) <= 3


class ProbeEnv(CartPoleEnv):
    """CartPole, which fails, or looks for lines of a run's record, once a test says so."""

    fails: ClassVar[bool] = False
    record: ClassVar[Path | None] = None
    wanted: ClassVar[list[int]] = []
    seen: ClassVar[bool] = False

    def step(self, action: Any) -> Any:
        if self.fails:
            raise KeyError("mine")
        if self.record is not None and not self.seen:
            time.sleep(0.05)
            type(self).seen = written_rounds(self.record) == self.wanted
        return super().step(action)


@pytest.fixture
def probe_env(monkeypatch: pytest.MonkeyPatch) -> type[ProbeEnv]:
    for name, value in (("fails", False), ("record", None), ("wanted", []), ("seen", False)):
        monkeypatch.setattr(ProbeEnv, name, value)
    assert issubclass(ProbeEnv, gymnasium.Env)
    return ProbeEnv


def test_what_an_environment_raises_finds_all_rounds_written(tmp_path: Path, probe_env: type[ProbeEnv]) -> None:
    def fail(round_: Round) -> None:
        probe_env.fails = round_.number == 7

    options = {"checkpoints": {"every": 12}, "ledger_every": 12}
    with pytest.raises(UserCodeError):
        fw.train("ppo", env=probe_env, run=tmp_path / "run", rounds=12, on_round=fail, **options, **SMALL_PPO)
    assert written_rounds(tmp_path / "run") == [*range(1, 8)]


def test_rounds_do_not_wait_for_the_end_of_a_long_round(tmp_path: Path, probe_env: type[ProbeEnv]) -> None:
    run = tmp_path / "run"

    def look(round_: Round) -> None:
        if round_.number == 6:
            probe_env.record, probe_env.wanted = run, [*range(1, 7)]

    options = SMALL_PPO | {"block": 64, "checkpoints": {"every": 7}, "ledger_every": 7}
    fw.train("ppo", env=probe_env, run=run, rounds=7, on_round=look, **options)
    assert probe_env.seen
