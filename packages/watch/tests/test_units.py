"""Amounts are read back as they were written, and nonsense is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatwater_watch.errors import ConfigError
from flatwater_watch.units import format_bytes, format_duration, parse_bytes


@given(st.integers(0, 1 << 50))
def test_a_formatted_amount_reads_back_to_half_a_percent(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.005)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GiB", 8 << 30), (" 500 mb ", 500_000_000), ("1024", 1024), ("0.5KiB", 512), ("1TB", 10**12), (".5 kb", 500)],
)
def test_amounts_are_read_with_their_unit(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "1.2.3", ".", "8 GiBs", "-1", "1e9", "8 GiB of"])
def test_what_is_no_amount_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r"amount .*\b8GiB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (83, "1 min 23 s"), (5025, "1 h 23 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
