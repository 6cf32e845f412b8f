"""Files of a run that a person edited or a disk spoiled: what shows the run names them, and never breaks."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatwater.cli.main import main

FILES = (
    "ledger.jsonl",
    "findings.jsonl",
    "metrics.jsonl",
    "alarms.jsonl",
    "result.json",
    "plan.json",
    "equity.parquet",
)
HOSTILE = (
    b"null",
    b"[]",
    b"{}",
    b"3",
    b'"x"',
    b"1" * 5000,
    b"[" * 5000,
    b"NaN",
    b"1e999",
    b"-1e308",
    b'{"round": 1}',
    b'{"round": true}',
    b'{"round": 1e9}',
    b'{"a": [1]}',
    b"\xff\xfe",
    b"\0",
    b"",
)
OPTIONS = "--panel synthetic:4x260 --threads 1 --population.size 2 --evaluation.train-slices 2 --env.episode.context 20"
OPTIONS += " --evaluation.validation-slices 2 --env.episode.trading-days 15 --env.episode.settlement-days 5"
OPTIONS += " --env.trade.hold-days 5 --splits.holdout-days 40 --splits.validation-days 40 --learner.hindsight.updates 2"
OPTIONS += " --learner.hindsight.batch-size 8 --net.channels 4 --net.hidden 8"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "run"
    assert main(["train", "erl", *OPTIONS.split(), "--rounds", "2", "--run", str(path)]) == 0
    finding = (
        '{"round": 1, "verdict": "leak", "owner": "a", "holders": [], "made_at": null, "bytes_per_step": 3.0, '
        '"interval": [1.0, 4.0], "share": 0.5, "count": 2, "what": "x", "plateau_bytes": null, "plateau_step": null, '
        '"limit_bytes": 9, "limit_step": 8, "advice": "b", "fingerprint": "c"}\n'
    )
    (path / "findings.jsonl").write_text(finding)
    (path / "alarms.jsonl").write_text('{"round": 1, "alarms": ["a: b"]}\n')
    return path


def looked_at(run: Path) -> set[int]:
    return {
        main(["report", str(run), "--out", str(run.parent / "page.html")]),
        main(["top", str(run), "--once"]),
        main(["runs", str(run.parent)]),
    }


def test_a_whole_run_is_shown(run: Path) -> None:
    assert looked_at(run) == {0}


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, float, int, bytes]:
    """A file, a place in it from 0 to 1, the bytes that go there, and what comes instead."""
    content = st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=4))
    return draw(st.sampled_from(FILES)), draw(st.floats(0, 1)), draw(st.integers(0, 20)), draw(content)


def damage(content: bytes, at: float, cut: int, new: bytes) -> bytes:
    """In place of a value where one begins there: a file that still is JSON goes deeper than one that is none."""
    place = int(at * len(content))
    colon = content.find(b": ", place)
    if colon < 0:
        return content[:place] + new + content[place + cut :]
    ends = [end for mark in (b",", b"}", b"]") if (end := content.find(mark, colon)) >= 0]
    return content[: colon + 2] + new + content[min(ends, default=len(content)) :]


def check(run: Path, file: str, at: float, cut: int, new: bytes) -> None:
    damaged = run.parent / "damaged" / "run"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(run, damaged, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    (damaged / "checkpoints").mkdir()
    (damaged / file).write_bytes(damage((run / file).read_bytes(), at, cut, new))
    assert looked_at(damaged) <= {0, 2}


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(damages())
def test_a_damaged_file_is_named_or_left_out(run: Path, damaged: tuple[str, float, int, bytes]) -> None:
    check(run, *damaged)


@pytest.mark.parametrize(
    ("part", "key", "number"),
    [(b'"rule"', b'"hold_days": ', b"1e999"), (b'"scores"', b'"rows": ', b"1" + b"0" * 400)],
)
def test_a_number_beyond_all_bounds_is_named(
    part: bytes, key: bytes, number: bytes, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (run / "result.json").read_bytes()
    at = content.index(key, content.index(part)) / len(content)
    check(run, "result.json", at, 0, number)
    assert "result.json: is damaged" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.slow
@settings(max_examples=2000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(damages())
def test_thousands_of_damaged_files_are_named_or_left_out(run: Path, damaged: tuple[str, float, int, bytes]) -> None:
    check(run, *damaged)


@pytest.mark.parametrize("file", FILES)
def test_the_message_names_the_file(file: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = run.parent / "named" / "run"
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(run, damaged)
    (damaged / file).write_bytes(b"[]\n" + (run / file).read_bytes())
    assert main(["report", str(damaged)]) == 2
    assert file in capsys.readouterr().err.replace("\n", "")
