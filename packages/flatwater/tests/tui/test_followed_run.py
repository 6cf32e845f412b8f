"""A followed run: what is kept after many looks is what one look at the end finds, and it does not grow."""

import fcntl
import json
import math
from pathlib import Path

from synthetic_run import append_line, filling, finding, ledger_line, make_run, metrics, write_lines

from flatwater.tui.followed_run import HISTORY, follow_run, read_new_lines_, seconds_left
from flatwater_watch.diagnose.finding import Finding


def test_many_looks_find_what_one_look_finds(tmp_path: Path) -> None:
    run, lines = make_run(tmp_path / "run", 1, wanted=20), metrics(20)
    followed = follow_run(run)
    for n in range(2, 21):
        append_line(run / "metrics.jsonl", lines[n - 1])
        append_line(run / "ledger.jsonl", ledger_line(n))
        read_new_lines_(followed)
        assert followed.done == n
        assert followed.line is not None
        assert followed.line.round == n
    append_line(run / "findings.jsonl", finding() | {"round": 20})
    read_new_lines_(followed)
    at_once = follow_run(run)
    assert followed.history == at_once.history
    assert followed.last_seconds == at_once.last_seconds
    assert followed.findings == at_once.findings
    assert list(followed.history["fitness/mean"]) == [line["fitness/mean"] for line in lines]


def test_nothing_grows_with_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", HISTORY + 40)
    followed = follow_run(run)
    assert {len(kept) for kept in followed.history.values()} == {HISTORY}
    assert followed.done == HISTORY + 40
    for n in range(5):  # the same finding told again replaces what was told before
        append_line(run / "findings.jsonl", filling() | {"round": 30 + n, "bytes_per_step": float(n)})
    read_new_lines_(followed)
    assert len(followed.findings) == 2
    assert followed.findings[Finding.from_json(filling()).fingerprint][1].bytes_per_step == 4


def test_a_run_that_was_resumed_from_an_earlier_checkpoint_is_read_anew(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 40, wanted=50)
    followed = follow_run(run)
    for name, lines in (("metrics", metrics(31)), ("ledger", [ledger_line(n) for n in range(1, 32)]), ("findings", [])):
        cut = run / "cut"
        write_lines(cut, lines)
        cut.replace(run / f"{name}.jsonl")
    read_new_lines_(followed)
    assert (followed.done, followed.findings) == (31, {})
    assert followed.line is not None
    assert followed.line.round == 31
    assert followed.history == follow_run(run).history


def test_states(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 4, wanted=10)
    followed = follow_run(run)
    assert followed.state == "stopped"
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        read_new_lines_(followed)
        assert followed.state == "training"
    assert follow_run(make_run(tmp_path / "other", 4)).state == "finished"


def test_time_left_is_the_pace_times_what_is_left(tmp_path: Path) -> None:
    followed = follow_run(make_run(tmp_path / "run", 4, wanted=10))
    pace = 1.1 + 0.6 + 9.5 + 0.1
    assert math.isclose(seconds_left(followed, followed.changed), 6 * pace)
    assert math.isclose(seconds_left(followed, followed.changed + 3), 6 * pace - 3)
    assert math.isclose(seconds_left(followed, followed.changed + 1e6), 5 * pace)
    assert math.isnan(seconds_left(follow_run(make_run(tmp_path / "new", 0, wanted=3)), 0))


def test_a_value_that_is_not_finite_is_a_gap(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 3, wanted=10)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"round": 4, "fitness/mean": None}) + "\n")
    last = follow_run(run).history["fitness/mean"][-1]
    assert math.isnan(last)
