"""What is said of two saved results: bytes by owner, and what a build may let pass."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import MAIN, Watched, environment
from watched import LEAK, MIB

from flatwater_watch.agent.outcome import GrowthAllowance
from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.errors import ConfigError
from flatwater_watch.faces.run_comparison import comparison_lines

SERIES = {"seconds": [0.0, 10.0, 110.0], "steps": [0, 5, 55], "file_bytes": [0, 0, MIB], "freed_bytes": [0, 0, None]}


def result(held: dict[str, int], resident: int = 100 * MIB, **changes: Any) -> dict[str, Any]:
    """Of 110 seconds and 55 steps."""
    return (
        unwatched_summary("serve.py", "")
        | {"held": held, "series": SERIES | {"resident_bytes": [0, 0, resident]}}
        | changes
    )


def line_words(now: dict[str, Any], before: dict[str, Any]) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in comparison_lines(now, before)]


def test_the_bytes_of_each_owner_are_told_the_largest_change_first() -> None:
    before = {"serve.CACHE": 10 * MIB, "serve.TABLE": 30 * MIB, "serve.SAME": 5 * MIB}
    now = {"serve.CACHE": 60 * MIB, "serve.SAME": 5 * MIB, "serve.NEW": 2 * MIB}
    head, *lines = line_words(result(now, 150 * MIB), result(before))
    assert head[-3:] == ["then", "now", "change"]
    assert lines == [
        ["resident", "100", "MiB", "150", "MiB", "+50", "MiB"],
        ["of", "it", "mapped", "files", "1", "MiB", "1", "MiB", "none"],
        ["serve.CACHE", "10", "MiB", "60", "MiB", "+50", "MiB"],
        ["serve.TABLE", "30", "MiB", "0", "B", "-30", "MiB"],
        ["serve.NEW", "0", "B", "2", "MiB", "+2", "MiB"],
        ["nothing", "grew", "then,", "and", "nothing", "grows", "now"],
    ]


def test_of_containers_in_each_other_the_one_that_changed_is_told() -> None:
    before = {"app.server": 20 * MIB, "app.server.cache": 10 * MIB, "app.server.cache[*]": 9 * MIB}
    now = {
        "app.server": 70 * MIB,
        "app.server.cache": 60 * MIB,
        "app.server.cache[*]": 59 * MIB,
        "app.server.cache[*].<graph>": 58 * MIB,
    }
    owners = [line[0] for line in line_words(result(now), result(before)) if line[0].startswith("app")]
    assert owners == ["app.server.cache"]


def test_where_owners_are_not_known_that_is_said() -> None:
    older = {name: value for name, value in result({}).items() if name != "held"}
    assert ["owners", "are", "not", "known", "in", "one"] in [
        line[:6] for line in line_words(result({"a": MIB}), older)
    ]


def test_findings_are_new_still_there_or_gone() -> None:
    words = {
        word: [line[0] for line in line_words(result({}, findings=now), result({}, findings=before))][-1]
        for word, now, before in (
            ("new", [LEAK.to_json()], []),
            ("still", [LEAK.to_json()], [LEAK.to_json()]),
            ("gone", [], [LEAK.to_json()]),
        )
    }
    assert words == {word: word for word in words}


@pytest.mark.parametrize(
    ("allowed", "says"),
    [
        ("99MiB", r"100\.00 MiB, .*\b99\.00 MiB"),
        ("100MiB", ""),
        ("1MiB/step", r"\b2\.00 MiB a request, .*\b1\.00 MiB"),  # 100 MiB in 50 steps after warm-up
        ("2MiB/step", ""),
        ("0.9MiB/second", r"\b1\.00 MiB a second"),  # and 100 seconds
        ("3599MiB/hour", r"\b3\.52 GiB an hour"),
        ("3601MiB/hour", ""),
    ],
)
def test_growth_that_a_build_lets_pass(allowed: str, says: str) -> None:
    columns = {"seconds": [0.0, 10.0, *[110.0] * 7], "steps": [0, 5, *[55] * 7]}
    grown = unwatched_summary("serve.py", "") | {
        "unit": "request",
        "resident_growth_bytes": 100 * MIB,
        "series": columns,
    }
    said = GrowthAllowance.parse(allowed).describe_excess(grown)
    assert re.search(says, said)
    assert bool(says) == bool(said)
    served = grown | {"workers": [{}], "steps": 25, "seconds": 50.0}
    assert "4.00 MiB a request" in GrowthAllowance.parse("3MiB/step").describe_excess(served), (
        "the workers' requests are not its own"
    )


@pytest.mark.parametrize("text", ["1MiB/epoch", "much", "1MiB/"])
def test_what_is_no_growth_is_refused(text: str) -> None:
    if text == "1MiB/":  # all of it, as without the stroke
        assert GrowthAllowance.parse(text).per == ""
        return
    with pytest.raises(ConfigError, match=r"1MiB/step|'much' .*8GiB"):
        GrowthAllowance.parse(text)


SERVICE = """
import time

KEPT = []
for _ in range(120):
    KEPT.append(bytearray(300_000))
    time.sleep(0.05)
"""


def test_a_service_is_told_of_while_it_runs_and_two_results_are_compared(tmp_path: Path, run_watched: Watched) -> None:
    heard = tmp_path / "heard.jsonl"
    herald = ("--on-finding", f"sh -c 'cat >> {heard}'")
    options = ("--every", "1s", "--out", "told.txt", "--fail-if-grows", "1KiB/second", *herald)
    ran = run_watched(SERVICE, options=options)
    assert ran.code == 1
    assert "more than allowed" in ran.stderr
    reports = (tmp_path / "told.txt").read_text()
    assert reports.count("flatwater: ") >= 2
    assert reports.count("KEPT grows by") == 1, "a finding is told once, and named from then on"
    assert "KEPT grows by" in ran.stderr
    (told,) = map(json.loads, heard.read_text().splitlines())
    assert (told["event"], told["verdict"], told["owner"]) == ("finding", "leak", ran.summary["findings"][0]["owner"])
    line = [sys.executable, "-c", MAIN, "run", "--against", "out.json", "out.json"]
    again = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment())
    owner = ran.summary["findings"][0]["owner"]
    assert f"still {ran.summary['findings'][0]['fingerprint']}" in again.stderr
    assert owner in ran.summary["held"]
    assert "kept in" not in again.stderr


def test_what_grows_is_printed_while_the_program_runs(run_watched: Watched) -> None:
    ran = run_watched(SERVICE + "import sys\nprint('the program ends', file=sys.stderr)\n", options=("--live",))
    before, _, after = ran.stderr.partition("the program ends")
    assert re.search(r"^flatwater: .*KEPT grows at", before, re.MULTILINE)
    assert before.count("flatwater: ") == 1
    assert "KEPT grows by" in after


def test_reports_need_their_interval(run_watched: Watched) -> None:
    for options, words in (
        (("--out", "told.txt"), "--every"),
        (("--every", "soon"), "90s, 10m"),
        (("--on-finding", "no-such-program-here"), "--on-finding"),
    ):
        ran = run_watched("", options=options)
        assert (ran.code, words in ran.stderr) == (2, True)
