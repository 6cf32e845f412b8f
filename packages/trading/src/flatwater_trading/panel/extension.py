"""Comparison of two panels: whether the newer one is the known panel with newer days, and else where they differ."""

from collections.abc import Iterator

import numpy as np

from flatwater_trading.panel.panel import Panel

_CHUNK_DAYS = 256


def find_difference(known_panel: Panel, newer_panel: Panel) -> str:
    """Find the first difference of `newer_panel` on the days of `known_panel`; empty if it begins with the same days.

    Another order of instruments is a difference too, as a trader knows columns by their place.

    Args:
        known_panel: known panel.
        newer_panel: panel that should begin with the same days.

    Returns:
        The rest of a sentence: `on 2013-03-01 the close of AAPL is 430.5 and was 430.47`.
    """
    return next(_difference_phrases(known_panel, newer_panel), "")


def _difference_phrases(known_panel: Panel, newer_panel: Panel) -> Iterator[str]:
    """Yield differences, each as the rest of a sentence, the most basic first: names, then days, then values.

    Only the first is valid (the caller takes `next`), as later ones compare by position.
    """
    for kind, old_names, new_names in (
        ("instrument", known_panel.instruments, newer_panel.instruments),
        ("feature", known_panel.features, newer_panel.features),
        ("investable instrument", known_panel.investable_names, newer_panel.investable_names),
    ):
        for name in old_names:
            if name not in new_names:
                yield f"it lacks the {kind} {name}"
        for name in new_names:
            if name not in old_names:
                yield f"it has the {kind} {name}, which was not there"
        if old_names != new_names:
            orders = f"{', '.join(new_names[:5])} ..., and were {', '.join(old_names[:5])} ..."
            yield f"its {kind}s are in another order: {orders}"
    common_days = min(len(known_panel.dates), len(newer_panel.dates))
    differing_days = np.flatnonzero(known_panel.dates[:common_days] != newer_panel.dates[:common_days])
    if len(differing_days):
        day = differing_days[0]
        # Of the two different days of a row, the earlier is missing in the other panel.
        yield (
            f"it lacks the day {known_panel.dates[day]}"
            if known_panel.dates[day] < newer_panel.dates[day]
            else f"it has the day {newer_panel.dates[day]}, which was not there"
        )
    # In chunks, as both panels are mapped files and masks of a whole comparison would be as large as they are.
    for first_day in range(0, common_days, _CHUNK_DAYS):
        yield from _differing_cell(
            known_panel, newer_panel, slice(first_day, min(first_day + _CHUNK_DAYS, common_days))
        )
    if common_days < len(known_panel.dates):
        yield f"it ends on {newer_panel.dates[-1]}, before the day {known_panel.dates[common_days]}"


def _differing_cell(known_panel: Panel, newer_panel: Panel, days: slice) -> Iterator[str]:
    """Yield a phrase about the first cell that differs, if any; a cell that is missing in both panels is equal."""
    earlier_values, values_now = known_panel.values[days], newer_panel.values[days]
    # Compared exactly, as by the fingerprint: a price that was revised by a rounding makes another panel.
    is_unlike = (earlier_values != values_now) & ~(np.isnan(earlier_values) & np.isnan(values_now))
    if not is_unlike.any():
        return
    day, column, first_feature = np.argwhere(is_unlike)[0]
    close = known_panel.features.index("close")
    # The close if it differs too, as other features are often computed from it.
    feature = close if is_unlike[day, column, close] else first_feature
    yield (
        f"on {known_panel.dates[days][day]} the {known_panel.features[feature]} of {known_panel.instruments[column]} "
        f"is {_cell_text(values_now[day, column, feature])} and was {_cell_text(earlier_values[day, column, feature])}"
    )


def _cell_text(value: float) -> str:
    return "missing" if np.isnan(value) else f"{value:.9g}"
