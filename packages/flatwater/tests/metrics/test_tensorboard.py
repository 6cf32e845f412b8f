"""TensorBoard shows the numbers that were written, hides what a resumed run does not remember, and does not grow."""

from io import BytesIO
from math import inf, nan
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.record_writer import RecordWriter

from flatwater.metrics.tensorboard import TensorBoardSink, encode_record
from flatwater_watch.meters.process import resident_bytes


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def write_rounds(folder: Path, rounds: range, *, resume_at: int = 0, shift: float = 0) -> None:
    sink = TensorBoardSink(folder, resume_at=resume_at)
    for n in rounds:
        sink.write(n, {"fitness/mean": n + shift, "fitness/max": nan if n % 2 else inf})
    sink.close()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200, 5000])
def test_a_record_is_that_of_tensorboard(size: int) -> None:
    """By tensorboard's own writer, which takes the checksum byte by byte."""
    content, theirs = bytes(n * n % 251 for n in range(size)), BytesIO()
    RecordWriter(theirs).write(content)
    assert encode_record(content) == theirs.getvalue()


def test_a_resumed_run_shows_each_round_once(tmp_path: Path) -> None:
    write_rounds(tmp_path, range(1, 6))
    write_rounds(tmp_path, range(4, 8), resume_at=3, shift=0.5)
    assert scalars(tmp_path, "fitness/mean") == [(1, 1), (2, 2), (3, 3), (4, 4.5), (5, 5.5), (6, 6.5), (7, 7.5)]


def test_names_and_numbers_of_any_size_are_shown(tmp_path: Path) -> None:
    """Lengths and rounds of one byte and of several; a number too large for single precision is left out."""
    sink, names = TensorBoardSink(tmp_path), ["a", "ü" * 40, "long " * 60]
    for n in (1, 127, 128, 1 << 40):
        sink.write(n, dict.fromkeys(names, 1e39 if n == 128 else n / 3))
    sink.close()
    for name in names:
        steps, values = zip(*scalars(tmp_path, name), strict=True)
        assert steps == (1, 127, 1 << 40)
        assert values == pytest.approx((1 / 3, 127 / 3, (1 << 40) / 3))


def test_what_is_not_finite_is_left_out(tmp_path: Path) -> None:
    write_rounds(tmp_path, range(1, 4))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert events.Tags()["scalars"] == ["fitness/mean"]


def test_memory_does_not_grow_over_rounds(tmp_path: Path) -> None:
    """After a warm-up, 1,000 rounds of 40 numbers may move resident memory by the allocator's grain, not by records."""
    sink = TensorBoardSink(tmp_path)
    numbers = {f"group/number {n}": n / 7 for n in range(40)}
    for n in range(1, 301):
        sink.write(n, numbers)
    before = resident_bytes()
    for n in range(301, 1301):
        sink.write(n, numbers)
    assert resident_bytes() - before < 1 << 20
    sink.close()
