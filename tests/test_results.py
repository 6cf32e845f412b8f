"""RESULTS.md is what the files of the benchmarks say, short enough to be read, and each command in it exists."""

import json
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from flatwater.cli.main import find_command

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
CLAIMS = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "shared" / "claims.py")))
FILES = sorted((BENCHMARKS / "results").glob("*.json"))
FIELDS = {"product", "key", "name", "measured", "wanted", "reached", "rival", "note"}


def runs() -> Iterator[tuple[Path, dict[str, Any]]]:
    yield from ((path, run) for path in FILES for run in json.loads(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_holds_runs_with_their_claims(path: Path) -> None:
    found = json.loads(path.read_text())
    keys = [claim["key"] for run in found for claim in run["claims"]]
    assert keys
    assert len(keys) == len(set(keys)), "a claim stands there once"
    for run in found:
        assert set(run) - {"transcribed"} == {"machine", "commit", "date", "command", "claims"}
        assert run.get("transcribed", True) is True
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", run["date"])
        assert all(isinstance(run[name], str) and run[name] for name in ("machine", "commit", "command"))
        for claim in run["claims"]:
            assert set(claim) == FIELDS
            assert claim["product"] in get_args(CLAIMS.Product)
            assert f"benchmarks/{claim['product']}/" in run["command"] or "benchmarks/" not in run["command"]
            assert claim["reached"] in {True, False, None}
            assert all(isinstance(claim[name], str) for name in FIELDS - {"reached"})
            assert claim["name"]
            assert claim["measured"]
            assert bool(claim["wanted"]) or claim["reached"] is None


def test_the_page_is_what_the_files_say() -> None:
    assert CLAIMS.PAGE.read_text() == CLAIMS.page(), "run: make results"


def test_a_product_has_a_table_that_can_be_read() -> None:
    known = CLAIMS.claims_by_row()
    for product, rows in CLAIMS.SHOWN.items():
        assert len(rows) <= CLAIMS.MAXIMUM_ROWS
        assert [known[row][0]["product"] for row in rows] == [product] * len(rows)
    text = CLAIMS.PAGE.read_text()
    assert len(re.findall(r"^\| (?!claim \|)", text, re.MULTILINE)) == sum(map(len, CLAIMS.SHOWN.values()))


@pytest.mark.parametrize("command", sorted({run["command"] for _, run in runs()}))
def test_a_command_exists(command: str) -> None:
    program, *words = shlex.split(command)
    if program == "flatwater":
        assert find_command(words) is not None
        return
    assert program == "python"
    if words[:2] == ["-m", "pytest"]:
        named = [word for word in words[2:] if word.startswith(("tests/", "packages/"))]
        assert named
        assert [name for name in named if not (ROOT / name).exists()] == []
        return
    source = (ROOT / words[0]).read_text()
    assert [word for word in words[1:] if word.startswith("--") and f'"{word}"' not in source] == []


@pytest.mark.parametrize("path", sorted(BENCHMARKS.rglob("bench_*.py")), ids=lambda path: path.stem)
def test_a_benchmark_keeps_what_it_measures(path: Path) -> None:
    assert re.search(r"record_claims\(|report_parts\(found, show, failures, claims", path.read_text())


def test_a_claim_that_is_measured_again_replaces_the_one_before() -> None:
    first, second, third = (
        {"commit": n, "claims": [{"key": key} for key in keys]} for n, keys in enumerate(("ab", "bc", "a"))
    )
    both = CLAIMS.merge_run([first], second)
    assert [(run["commit"], [claim["key"] for claim in run["claims"]]) for run in both] == [(0, ["a"]), (1, ["b", "c"])]
    assert CLAIMS.merge_run(both, third) == [second, third]
    assert CLAIMS.merge_run(both, {"claims": []}) == both


def test_nothing_is_kept_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    claim = CLAIMS.Claim("watch", "speed", "how fast", "3", "≥ 2", reached=True)
    found = CLAIMS.record_claims.__globals__
    monkeypatch.setitem(found, "RESULTS", tmp_path)
    monkeypatch.setitem(found, "HERE", tmp_path)
    monkeypatch.setitem(found, "commit", lambda: "abc1234")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "watch" / "bench_speed.py"), "--pairs", "3", "--of", "a loop"])
    monkeypatch.delenv("RECORD", raising=False)
    CLAIMS.record_claims([claim])
    assert [*tmp_path.iterdir()] == []
    monkeypatch.setenv("RECORD", "1")
    CLAIMS.record_claims([claim])
    (run,) = json.loads((tmp_path / "speed.json").read_text())
    assert run["command"] == "python benchmarks/watch/bench_speed.py --pairs 3 --of 'a loop'"
    assert run["claims"][0]["measured"] == "3"
