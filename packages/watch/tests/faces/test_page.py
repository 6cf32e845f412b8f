"""The page of a watch: the numbers of its JSON, nothing read as markup, nothing from outside, bad input told."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from seen_page import HOSTILE, Seen, charts, colours, filled_in

from flatwater.cli.main import main
from flatwater_watch.agent.spool import unwatched_summary
from flatwater_watch.faces.page import forecast_memory_end, watch_page
from flatwater_watch.faces.watch_result import parse_watch_result

MIB = 1 << 20
READINGS = 50
PACE = 2.0
"""Seconds an episode."""
PARTS = ["Findings", "Memory", "Not seen"]


def finding(**changes: Any) -> dict[str, Any]:
    found = {
        "verdict": "leak",
        "owner": "main() in train.py: history",
        "holders": ["train.py, local history of main()", "list of 50"],
        "made_at": {"file": "/home/a/train.py", "line": 41, "function": "keep", "operation": "aten::mm"},
        "bytes_per_step": 3.0 * MIB,
        "interval": [2.5 * MIB, 3.5 * MIB],
        "share": 0.9,
        "count": 50,
        "what": "50 × float32[786432]",
        "plateau_bytes": None,
        "plateau_step": None,
        "limit_bytes": 8 << 30,
        "limit_step": 2700,
        "advice": "Keep the number, not the tensor: `loss.item()`.",
        "fingerprint": "0123456789ab",
        "unit": "episode",
        "redundancy": None,
    }
    return found | changes


def summary(*findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """As `flatwater watch --json` writes it: 50 episodes of 2 s, 4 MiB each."""
    at = range(READINGS)
    told = {
        "program": "train.py --lr 3e-4",
        "unit": "episode",
        "steps": READINGS,
        "seconds": PACE * READINGS,
        "readings": READINGS,
        "resident_bytes": (300 + 4 * READINGS) * MIB,
        "resident_growth_bytes": 4 * (READINGS - 1 - READINGS // 5) * MIB,
        "explained_share": 0.97,
        "outcome": {"state": "grows" if findings else "flat", "bytes": 0, "known": [], "next": []},
        "cost": {"cpu_share": 0.004, "bytes": 12 * MIB},
        "processes": 3,
        "exit_code": 0,
        "findings": list(findings),
        "unseen": [],
        "series": {
            "seconds": [PACE * n for n in at],
            "steps": [n + 1 for n in at],
            "resident_bytes": [(300 + 4 * n) * MIB for n in at],
            "file_bytes": [40 * MIB for _ in at],
            "freed_bytes": [(2 + n) * MIB for n in at],
        },
    }
    return told | changes


def page(told: dict[str, Any]) -> str:
    return watch_page(parse_watch_result(told), datetime(2026, 11, 21, tzinfo=UTC))


def see_page(told: dict[str, Any]) -> Seen:
    return Seen(page(told))


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        ("episode", f"episodes {READINGS}in 1 min 40 s, 2.0 s each"),
        ("second", f"duration 1 min 40 s{READINGS} readings"),
    ],
)
def test_the_first_figure_says_a_duration_once(unit: str, words: str) -> None:
    assert words in " ".join(see_page(summary(unit=unit)).text.split())


def test_growth_that_is_over_needs_no_explanation() -> None:
    outcome = {"state": "settled", "bytes": 96 * MIB, "known": [], "next": [], "holders": "train.tile (full)"}
    text = " ".join(see_page(summary(outcome=outcome)).text.split())
    assert "grown 96 MiBat the beginning" in text
    assert "since: most of it is in train.tile (full)." in text
    assert "explained" not in text


def test_every_part_is_there_and_every_chart_is_what_plotly_takes() -> None:
    found = see_page(summary(finding()))
    assert found.titles == PARTS
    assert [value for name, value in found.attributes if name == "data-chart"] == ["0", "1"]
    for chart in charts(found):
        go.Figure(filled_in(chart))  # raises where an attribute is unknown
    sheet = files("flatwater_watch.pages").joinpath("assets", "page.css").read_text()
    assert set().union(*map(colours, charts(found))) <= set(re.findall(r"(--[\w-]+):", sheet))


def test_the_numbers_are_those_of_the_json() -> None:
    told = summary(finding(), unseen=["this C library does not tell"])
    found = see_page(told)
    assert "main() in train.py: history grows by 3.00 MiB" in found.text
    assert found.text.count("Keep the number, not the tensor: ") == 1
    assert "train.py:41 in keep (aten::mm)" in found.text
    assert "the limit of 8.00 GiB is reached at episode 2700" in found.text
    for said in (
        "train.py --lr 3e-4",
        "496 MiB",
        "156 MiB",
        "97%",
        "0.4%",
        "12 MiB",
        "2 worker processes",
        "1 to act on",
    ):
        assert said in found.text
    assert "this C library does not tell" in found.text
    resident, kinds = charts(found)
    drawn = resident["data"][0]
    assert [round(value * MIB) for value in drawn["y"]] == told["series"]["resident_bytes"]
    assert drawn["x"] == told["series"]["seconds"]
    assert drawn["text"] == [f"episode {n + 1}" for n in range(READINGS)]
    ends = {trace["meta"]: trace["y"][-1] for trace in kinds["data"]}
    start = READINGS // 5
    assert ends == {
        "mapped files": 0,
        "freed, kept by the allocator": READINGS - 1 - start,
        "in use": 3 * (READINGS - 1 - start),
    }


def test_a_cost_of_few_seconds_is_told_in_seconds_as_in_the_terminal() -> None:
    """A program that only waits has little CPU time of its own, of which the watch takes most."""
    waits = summary(finding(), cost={"cpu_share": 0.584, "cpu_seconds": 0.2, "bytes": 4 * MIB})
    assert "0.1 CPU s" in see_page(waits).text
    assert "58.4%" not in see_page(waits).text


def test_a_program_that_rests_is_told_its_share_of_the_time_as_well() -> None:
    rests = summary(finding(), seconds=200.0, cost={"cpu_share": 0.3, "cpu_seconds": 40.0, "bytes": 4 * MIB})
    assert "30.0% CPU, 6.0% of the time" in see_page(rests).text


def test_the_kinds_together_change_by_what_is_told_as_growth() -> None:
    told = summary()
    (_, kinds) = charts(see_page(told))
    assert sum(trace["y"][-1] for trace in kinds["data"]) * MIB == told["resident_growth_bytes"]
    told["series"]["freed_bytes"] = [None] * READINGS
    (_, kinds) = charts(see_page(told))
    assert [trace["meta"] for trace in kinds["data"]] == ["mapped files", "in use, or freed and kept"]
    assert sum(trace["y"][-1] for trace in kinds["data"]) * MIB == told["resident_growth_bytes"]


def test_the_forecast_goes_to_the_limit_where_it_is_near() -> None:
    now = PACE * (READINGS - 1)
    near = summary(finding(limit_bytes=700 * MIB, limit_step=80))
    assert forecast_memory_end(parse_watch_result(near)) == (pytest.approx(now + 30 * PACE), 700 * MIB, 80)
    line, level = charts(see_page(near))[0]["data"][1:]
    assert (line["x"], line["y"]) == ([now, now + 30 * PACE], [496, 700])
    assert level["y"] == [700, 700]
    assert "the limit of 700.00 MiB is reached 1 min 0 s after the last reading." in see_page(near).text


def test_a_limit_far_away_is_told_in_words_and_the_line_points_to_it() -> None:
    far = summary(finding())
    resident = charts(see_page(far))[0]
    assert [trace["meta"] for trace in resident["data"]] == ["resident", "forecast"]
    (x0, x1), (y0, y1) = resident["data"][1]["x"], resident["data"][1]["y"]
    at, limit, _ = forecast_memory_end(parse_watch_result(far)) or (0, 0, 0)
    assert (y1 - y0) / (x1 - x0) == pytest.approx((limit / MIB - y0) / (at - x0))
    assert x1 < 1.5 * x0
    assert resident["layout"]["yaxis"]["range"][1] < 2 * y0
    assert "is reached 1 h 28 min after the last reading, beyond the picture." in see_page(far).text


@pytest.mark.parametrize("changes", [{"limit_step": None}, {"limit_step": 20}, {"limit_bytes": 100 * MIB}])
def test_no_forecast_is_drawn_where_there_is_none(changes: dict[str, Any]) -> None:
    resident = charts(see_page(summary(finding(**changes))))[0]
    assert [trace["meta"] for trace in resident["data"]] == ["resident"]


def test_the_gravest_finding_stands_first_with_most_bytes_among_its_like() -> None:
    owners = [
        finding(owner="c", verdict="filling", bytes_per_step=9e9),
        finding(owner="b", bytes_per_step=2e6),
        finding(owner="a", bytes_per_step=3e6),
    ]
    cards = re.findall(r"<h3><span[^>]*>(\w+)</span>(\w) ", page(summary(*owners)))
    assert cards == [("leak", "a"), ("leak", "b"), ("filling", "c")]


def test_a_flat_program_looks_flat() -> None:
    told = summary(resident_growth_bytes=8192)
    told["series"]["resident_bytes"] = [300 * MIB + 8192 * (n % 2) for n in range(READINGS)]
    told["series"]["freed_bytes"] = [2 * MIB] * READINGS
    found = see_page(told)
    assert "Nothing grows: no finding in 50 episodes." in found.text
    low, high = charts(found)[0]["layout"]["yaxis"]["range"]
    assert high - low > 0.04 * 300
    low, high = charts(found)[1]["layout"]["yaxis"]["range"]
    assert low <= -1 < 1 <= high


@pytest.mark.parametrize(
    ("code", "state", "said"),
    [
        (0, "finished", "ended"),
        (130, "stopped", "stopped by Ctrl-C"),
        (137, "failed", "killed by SIGKILL"),
        (143, "failed", "killed by SIGTERM"),
        (7, "failed", "exit code 7"),
        (255, "failed", "exit code 255"),
    ],
)
def test_the_end_of_the_program_is_told(code: int, state: str, said: str) -> None:
    shown = page(summary(exit_code=code))
    assert f'<span class="state {state}">{said}</span>' in shown
    assert ("where memory has run out" in shown) == (code == 137)


def test_a_program_of_which_nothing_was_seen_has_a_page() -> None:
    found = see_page(unwatched_summary("train.py", "no Python program was seen") | {"exit_code": 1})
    assert found.titles == PARTS
    assert charts(found) == []
    assert "Nothing was read" in found.text
    assert "no Python program was seen" in found.text


def test_a_single_reading_and_a_result_without_series_have_a_page() -> None:
    one = summary(finding(limit_step=60), readings=1, steps=1)
    one["series"] = {name: column[:1] for name, column in one["series"].items()}
    assert forecast_memory_end(parse_watch_result(one)) is None
    for chart in charts(see_page(one)):
        go.Figure(filled_in(chart))
    before = summary(finding())
    del before["series"], before["exit_code"]  # an earlier version; an attached process
    found = see_page(before)
    assert charts(found) == []
    assert "the watch ended before the program" in found.text


def test_what_a_program_says_is_never_markup() -> None:
    plain = see_page(summary(finding(redundancy="twice"), unseen=["a"], program="x" * 99))
    texts = dict.fromkeys(("owner", "what", "advice", "redundancy", "fingerprint", "unit"), HOSTILE)
    made = {"file": HOSTILE, "line": 1, "function": HOSTILE, "operation": HOSTILE}
    found = see_page(
        summary(
            finding(**texts, holders=[HOSTILE], made_at=made),
            program=HOSTILE + '" onload="x',
            unit=HOSTILE,
            unseen=[HOSTILE],
        )
    )
    assert found.tags.count("script") == plain.tags.count("script") == 3
    assert set(found.tags) <= set(plain.tags)
    assert {name for name, _ in found.attributes} == {name for name, _ in plain.attributes}
    assert found.text.count(HOSTILE) > 10
    # plotly.js reads markup in names, texts and titles; only `meta`, which the legend shows, is plain text.
    drawn = [{key: trace[key] for key in trace if key != "meta"} for c in charts(found) for trace in c["data"]]
    assert "<img" not in json.dumps([drawn, [chart["layout"] for chart in charts(found)]])


def test_the_page_loads_nothing() -> None:
    found = see_page(summary(finding()))
    assert {name for name, _ in found.attributes if name == "src"} == set()
    targets = [value for name, value in found.attributes if name == "href"]
    assert all(value.startswith("#") or value == "data:," for value in targets)
    assert set(found.tags).isdisjoint({"img", "iframe", "object", "embed", "base"})


def test_the_page_needs_plotly_and_nothing_else_that_is_heavy() -> None:
    """It is drawn beside a program that has just run out of memory."""
    asks = "import sys, flatwater_watch.faces.page; print(sorted({'torch', 'numpy', 'polars'} & {*sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_a_file_of_a_watch_is_written_beside_it_or_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "watch.json"
    told.write_text(json.dumps(summary(finding())))
    assert main(["report", str(told)]) == 0
    written = tmp_path / "watch.html"
    assert capsys.readouterr().out == f"{written}  {written.stat().st_size / MIB:.2f} MiB\n"
    assert main(["report", str(told), "--out", str(tmp_path / "a.html")]) == 0
    assert Seen((tmp_path / "a.html").read_text()).titles == PARTS


def changed_summary(**changes: Any) -> str:
    return json.dumps(summary() | changes)


def columns(**changes: Any) -> str:
    return changed_summary(series=summary()["series"] | changes)


BAD = {
    "no JSON": "{",
    "a binary file": "\ufffd\x00",
    "other JSON": '{"findings": []}',
    "a list": "[1, 2]",
    "a number": "7",
    "a truth for a number": changed_summary(steps=True),
    "a text for a number": changed_summary(steps="many"),
    "a number that is not finite": changed_summary(seconds=float("nan")),
    "a number without end": changed_summary(resident_bytes=10**400),
    "a list for a word": changed_summary(unit=[1]),
    "a verdict that is none": changed_summary(findings=[finding(verdict="doom")]),
    "half a finding": changed_summary(findings=[{"verdict": "leak"}]),
    "a line without a file": changed_summary(findings=[finding(made_at=finding()["made_at"] | {"file": 3})]),
    "a word for a rate": changed_summary(findings=[finding(bytes_per_step="3 MiB")]),
    "a word for the limit": changed_summary(findings=[finding(limit_step="soon")]),
    "a column too short": columns(seconds=[0.0]),
    "a column of words": columns(resident_bytes=["a"] * READINGS),
    "nested without end": "[" * 100_000,
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_result_of_a_watch_is_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tmp_path / "watch.json"
    told.write_text(BAD[case])
    assert main(["report", str(told)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"watch\.json: .*`flatwater watch --json result\.json -- ", said)
    assert [path.name for path in tmp_path.iterdir()] == ["watch.json"]


def test_the_page_is_green_only_where_nothing_was_found() -> None:
    shown = page(summary(finding(), exit_code=0))
    assert '<span class="state stopped">ended, 1 finding</span>' in shown
    assert '<span class="state finished">' not in shown
    large = finding(verdict="filling", plateau_bytes=9 << 30, plateau_step=9000, limit_bytes=8 << 30, limit_step=20)
    assert "1 to act on" in page(summary(large)), "a buffer that does not fit"
