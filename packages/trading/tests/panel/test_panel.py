"""The panel value: read-only, addressed by name, identified by its contents."""

import numpy as np
import pytest

from flatwater_trading.panel.panel import FEATURES, Panel, build_panel
from flatwater_watch.errors import DataError

NAMES = ("A", "B", "C")


def small(*, values: np.ndarray | None = None, **changes: object) -> Panel:
    numbers = np.arange(4 * 3 * 9, dtype=np.float32).reshape(4, 3, 9) + 1
    given = {
        "values": numbers if values is None else values,
        "dates": np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]"),
        "instruments": NAMES,
        "investable": ("A", "C"),
    }
    return build_panel(**(given | changes))  # type: ignore[arg-type]  # each test sets one of the four


def test_a_feature_is_a_view_under_its_name() -> None:
    panel = small()
    for number, name in enumerate(FEATURES):
        assert np.shares_memory(panel.feature(name), panel.values)
        np.testing.assert_array_equal(panel.feature(name), panel.values[:, :, number])


def test_an_unknown_feature_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"'volume' .*panel.*open, close, high, low, rsi"):
        small().feature("volume")


def test_nothing_in_a_panel_can_be_written() -> None:
    panel = small()
    for array in (panel.values, panel.valid, panel.dates, panel.investable, panel.feature("close")):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


@pytest.mark.parametrize(
    ("close", "bought", "watched"),
    [(1.0, True, True), (0.0, False, True), (-1.0, False, True), (np.nan, False, False), (np.inf, False, False)],
)
def test_a_day_is_valid_where_its_close_can_be_traded_or_watched(close: float, *, bought: bool, watched: bool) -> None:
    values = np.ones((4, 3, 9), dtype=np.float32)
    values[2, :2, FEATURES.index("close")] = close
    expected = np.ones((4, 3), dtype=bool)
    expected[2, :2] = bought, watched
    np.testing.assert_array_equal(small(values=values, investable=("A", "C")).valid, expected)


def test_investable_columns_increase_whatever_the_order_asked_for() -> None:
    np.testing.assert_array_equal(small(investable=("C", "A")).investable, [0, 2])
    np.testing.assert_array_equal(small(investable=None).investable, [0, 1, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"investable": ("A", "X", "Y")}, r"investable .*: X, Y\. .*: A, B, C"),
        ({"investable": ()}, "investable .*empty"),
        ({"instruments": ("A", "B", "A")}, "'A' .*twice"),
    ],
)
def test_wrong_names_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        small(**changes)


def test_every_part_of_the_contents_is_in_the_fingerprint() -> None:
    values = np.ones((4, 3, 9), dtype=np.float32)
    changed = values.copy()
    changed[3, 2, 8] = np.nextafter(np.float32(1), np.float32(2))
    panels = [
        small(values=values),
        small(values=changed),
        small(values=values.copy(), instruments=("A", "B", "D"), investable=("A", "D")),
        small(values=values.copy(), investable=("A", "B")),
        small(values=values.copy(), dates=np.arange("2020-01-02", "2020-01-06", dtype="datetime64[D]")),
    ]
    assert len({panel.fingerprint for panel in panels}) == len(panels)


def test_nan_counts_as_nan_whatever_its_bits() -> None:
    one, other = (np.ones((4, 3, 9), dtype=np.float32) for _ in range(2))
    one[1, 1, 4] = np.nan
    other[1, 1, 4] = np.array(0xFFC00001, dtype=np.uint32).view(np.float32)
    assert np.isnan(other[1, 1, 4])
    assert small(values=one).fingerprint == small(values=other).fingerprint
