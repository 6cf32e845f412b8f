"""What reads a run and makes a page of it holds no more for a run of more rounds."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from synthetic_run import make_run, metrics

from flatwater.metrics.jsonl import encode_line
from flatwater.metrics.jsonl_lines import read_records
from flatwater.reports.records import read_run
from flatwater.rundir.records import AlarmSummary
from flatwater_watch.files.json_values import encode_json

PEAK = """
import sys
from flatwater.cli.main import main
from flatwater_watch.meters.mappings import peak_bytes
assert main(sys.argv[1:]) == 0
print(peak_bytes(), file=sys.stderr)
"""
ROOM = 8 << 20
"""By which peaks of equal processes differ: pages that the allocator takes sooner or later."""


def busy_run(folder: Path, rounds: int) -> Path:
    """A run that had a new champion, an alarm and a reading in each round."""
    run = make_run(folder, min(rounds, 500))
    for name in ("metrics.jsonl", "ledger.jsonl"):
        records = [json.loads(line) for line in (run / name).read_text().splitlines()]
        crowned = {"champion/crowned": 1.0} if name == "metrics.jsonl" else {}
        texts = [encode_json(record | crowned | {"round": 0}).decode().partition('"round":0') for record in records]
        with (run / name).open("w") as file:
            for at in range(rounds):
                before, _, after = texts[at % len(texts)]
                file.write(f'{before}"round":{at + 1}{after}\n')
    with (run / "alarms.jsonl").open("w") as file:
        for at in range(1, rounds + 1):
            told = [f"constant policy: member 3 gives one action in round {at}", "large gradient: 1e9"][: 1 + at % 2]
            file.write(json.dumps({"round": at, "alarms": told}) + "\n")
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace(f"rounds = {min(rounds, 500)}", f"rounds = {rounds}"))
    return run


@pytest.mark.long
def test_the_records_of_many_more_rounds_hold_no_more(tmp_path: Path) -> None:
    read_run(busy_run(tmp_path / "first", 600))  # what libraries keep from their first use on
    peaks = []
    for rounds in (600, 4_000):
        run = busy_run(tmp_path / str(rounds), rounds)
        tracemalloc.start()
        try:
            read_run(run)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 200_000, "3,400 records more, of which each alarm alone had 290 bytes"


def test_alarms_of_all_rounds_are_counted(tmp_path: Path) -> None:
    found = read_run(busy_run(tmp_path / "run", 700)).alarms
    assert found == [
        AlarmSummary("constant policy", "member 3 gives one action in round 700", 700, 1, 700),
        AlarmSummary("large gradient", "1e9", 350, 1, 699),
    ]


def test_marked_lines_are_thinned_among_themselves(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(encode_line(n, {"crowned": 1.0 if n % 3 == 0 else 1.05}) for n in range(1, 100)))
    found = read_records(path, 5, entry={"crowned": 1.0})
    assert [record["round"] for record in found] == [3, 27, 51, 75, 99]


def test_new_champions_of_a_run_are_found(tmp_path: Path) -> None:
    """They were searched by a text that no run writes, and no chart had a dot."""
    run = make_run(tmp_path / "run", 20)
    expected = [(row["round"], row["validation/champion"]) for row in metrics(20) if row["champion/crowned"]]
    assert 1 < len(expected) < 20
    assert read_run(run).crowned == expected


@pytest.mark.slow
@pytest.mark.parametrize("words", [["report"], ["compare"], ["runs"], ["top", "--once"]], ids=" ".join)
def test_a_command_on_a_hundred_times_the_rounds_holds_no_more(tmp_path: Path, words: list[str]) -> None:
    peaks = []
    for rounds in (1_000, 100_000):
        run = busy_run(tmp_path / str(rounds) / "run", rounds)
        of: list[Path | str] = [run]
        if words == ["compare"]:
            of = [run, busy_run(tmp_path / str(rounds) / "other", rounds), "--page", tmp_path / f"{rounds}.html"]
        if words == ["runs"]:
            of = [run.parent]
        asked = [sys.executable, "-c", PEAK, words[0], *map(str, of), *words[1:]]
        done = subprocess.run(asked, check=True, capture_output=True, text=True)
        peaks.append(int(done.stderr.splitlines()[-1]))
    assert peaks[1] < peaks[0] + ROOM
