"""Comparison of two panels: whether the newer extends the known panel by newer days, or the first difference."""

from collections.abc import Iterator

import numpy as np

from flatwater_trading.panel.panel import Panel

_CHUNK_DAYS = 256


def find_difference(known: Panel, newer: Panel) -> str:
    """Find the first difference of `newer` on the days of `known`; empty if it begins with the same days.

    Another order of instruments is a difference too, as a trader knows columns by their place.

    Args:
        known: known panel.
        newer: panel that should begin with the same days.

    Returns:
        The rest of a sentence: `on 2013-03-01 the close of AAPL is 430.5 and was 430.47`.
    """
    return next(_difference_phrases(known, newer), "")


def _difference_phrases(known: Panel, newer: Panel) -> Iterator[str]:
    """Yield differences, each as the rest of a sentence, the most basic first: names, then days, then values.

    Only the first is valid (the caller takes `next`), as later ones compare by position.
    """
    for kind, old, new in (
        ("instrument", known.instruments, newer.instruments),
        ("feature", known.features, newer.features),
        ("investable instrument", _investable_names(known), _investable_names(newer)),
    ):
        for name in old:
            if name not in new:
                yield f"it lacks the {kind} {name}"
        for name in new:
            if name not in old:
                yield f"it has the {kind} {name}, which was not there"
        if old != new:
            yield f"its {kind}s are in another order: {', '.join(new[:5])} ..., and were {', '.join(old[:5])} ..."
    common = min(len(known.dates), len(newer.dates))
    differing_days = np.flatnonzero(known.dates[:common] != newer.dates[:common])
    if len(differing_days):
        day = differing_days[0]
        yield (
            f"it lacks the day {known.dates[day]}"
            if known.dates[day] < newer.dates[day]
            else f"it has the day {newer.dates[day]}, which was not there"
        )
    # In chunks, as both panels are mapped files and masks of a whole comparison would be as large as they are.
    for first in range(0, common, _CHUNK_DAYS):
        yield from _differing_cell(known, newer, slice(first, min(first + _CHUNK_DAYS, common)))
    if common < len(known.dates):
        yield f"it ends on {newer.dates[-1]}, before the day {known.dates[common]}"


def _investable_names(panel: Panel) -> tuple[str, ...]:
    return tuple(panel.instruments[n] for n in panel.investable)


def _differing_cell(known: Panel, newer: Panel, days: slice) -> Iterator[str]:
    """Yield a phrase about the first cell that differs, if any; a cell that is missing in both panels is equal."""
    values_before, values_now = known.values[days], newer.values[days]
    # Compared exactly, as by the fingerprint: a price that was revised by a rounding makes another panel.
    unlike = (values_before != values_now) & ~(np.isnan(values_before) & np.isnan(values_now))
    if not unlike.any():
        return
    day, column, feature = np.argwhere(unlike)[0]
    close = known.features.index("close")
    feature = close if unlike[day, column, close] else feature  # other features are often computed from it
    yield (
        f"on {known.dates[days][day]} the {known.features[feature]} of {known.instruments[column]} is "
        f"{_cell_text(values_now[day, column, feature])} and was {_cell_text(values_before[day, column, feature])}"
    )


def _cell_text(value: float) -> str:
    return "missing" if np.isnan(value) else f"{value:.9g}"
