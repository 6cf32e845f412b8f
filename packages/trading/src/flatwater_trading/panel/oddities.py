"""What should be checked in a panel before it is used: moves like splits, and instruments with a part of the days.

One place for all that say so: the import, `panel show`, the start of a training and of a study, and the notes of their
results.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from flatwater_trading.panel.calendar import DAILY
from flatwater_trading.panel.notes import BEGIN_LATER, END_EARLIER, LIKE_SPLITS
from flatwater_trading.panel.panel import Panel
from flatwater_watch.phrases import list_phrase

SPLIT_RATIOS = (1.5, 2.0, 3.0, 4.0)
"""Usual ratios of a split below 5, new shares for an old share; the inverse of each is usual too. Larger
splits, as of penny stocks, come in all whole numbers."""
LEAST_WHOLE_RATIO = 5
"""Least whole number that counts as a ratio, whether or not it is one of `SPLIT_RATIOS`."""
RATIO_DISTANCE, SMALL_RATIO_DISTANCE = 0.08, 0.03
"""Largest distance of a move from such a ratio, in logarithms: the price moves on the day of the split too. On 99 % of
days 108 US shares moved less than 0.08. The second is for ratios below 2, which shares also reach without a split."""
MINIMUM_SPLIT_MOVE_FACTOR = 15
"""Least multiple of a day's usual move that counts as a split, because splits are rare. A yield often moves from 0.1 to
0.2, which is not a split."""
MAXIMUM_LISTED = 5
"""Moves and instruments of a kind that are listed."""
SPLIT_ADVICE = "Use prices that are adjusted for splits, or be sure that such a move was one of the market."
"""Sentence on moves from one close to the next that look like splits."""


def find_oddities(panel: Panel) -> dict[str, list[str]]:
    """Return the oddities of a panel that a person should check, as lists of phrases by title; a list may be empty.

    The titles are instruments that begin later than the panel (with their first day), instruments that end earlier
    (with their last day), and moves that look like splits.
    """
    begins, ends = list[tuple[str, str]](), list[tuple[str, str]]()
    for n, name in enumerate(panel.instruments):
        rows = np.flatnonzero(panel.valid[:, n])
        if len(rows) and rows[0] > 0:
            begins.append((str(panel.dates[rows[0]]), name))
        if len(rows) and rows[-1] < len(panel.dates) - 1:
            ends.append((str(panel.dates[rows[-1]]), name))
    # Stable sorts by the date alone: instruments of the same day stay in the panel's order.
    latest_first = sorted(begins, key=lambda dated: dated[0], reverse=True)
    earliest_first = sorted(ends, key=lambda dated: dated[0])
    return {
        BEGIN_LATER: [f"{name} {day}" for day, name in latest_first],
        END_EARLIER: [f"{name} {day}" for day, name in earliest_first],
        LIKE_SPLITS: find_jumps(panel),
    }


def oddity_texts(panel: Panel) -> dict[str, str]:
    """Return the oddities of a panel that a person should check, as a text by title, without titles that have none."""
    texts = {title: list_phrase(found, MAXIMUM_LISTED) for title, found in find_oddities(panel).items() if found}
    if LIKE_SPLITS in texts:
        texts[LIKE_SPLITS] = f"{texts[LIKE_SPLITS]}. {SPLIT_ADVICE}"
    return texts


def oddity_lines(panel: Panel) -> list[str]:
    """Return the texts of what should be checked as lines for the start of a training or a study."""
    return [f"{title}: {text}" for title, text in oddity_texts(panel).items()]


def splits_note(panel: Panel, first: int = 0, stop: int | None = None) -> str:
    """Return a warning about moves of prices that look like splits, as the end of a result's note; empty without any.

    Args:
        panel: panel of prices.
        first: first row that counts.
        stop: row after the last; None for the end of the panel.
    """
    jumps = list_phrase(find_jumps(panel, first, stop), MAXIMUM_LISTED)
    if not jumps:
        return ""
    # The caller ends the note with a full stop.
    return f". Moves of the prices that look like splits: {jumps}. {SPLIT_ADVICE.removesuffix('.')}"


def find_jumps(panel: Panel, first: int = 0, stop: int | None = None) -> list[str]:
    """Return the moves of closes that look like splits, as texts such as `AAPL -50.0% on 2020-01-03 (2:1)`, by date.

    If rows are weeks or months, only ratios from 2 on count: shares reach smaller ratios without a split. Columns that
    cannot be bought, such as rates, have no splits.

    Args:
        panel: panel of prices.
        first: first row that a move may lead to.
        stop: row after the last; None for the end of the panel.
    """
    jumps = []
    calendar = panel.calendar
    ratios = SPLIT_RATIOS if calendar.a_year >= DAILY.a_year else SPLIT_RATIOS[1:]  # without 1.5
    for n, name in zip(panel.investable, panel.investable_names, strict=True):
        # Column by column, as the closes of all would be a copy beside a run that has its memory already.
        close = panel.closes(np.asarray([n]))[:, 0]
        rows = np.flatnonzero(np.isfinite(close))
        if len(rows) < 2:  # noqa: PLR2004  (one close has no move)
            continue
        # Across holes too, as a split during a halt is a move between the closes around it.
        moves = np.diff(np.log(close[rows].astype(np.float64)))
        # A split is far larger than the instrument's usual move: a rate near 0 or a volatility index often moves by
        # large ratios. The root scales the usual move to that of a day, as moves grow with the root of the time.
        least_move = MINIMUM_SPLIT_MOVE_FACTOR * np.median(np.abs(moves)) * (calendar.a_year / DAILY.a_year) ** 0.5
        # Most instruments have no move of the smallest ratio, and are not searched ratio by ratio.
        if (np.abs(moves) > max(least_move, np.log(ratios[0]) - RATIO_DISTANCE)).any():
            for step, split in _split_like_moves(moves, ratios, least_move):
                row = int(rows[step + 1])  # of the close after the move
                if row in range(first, len(panel.dates) if stop is None else stop):
                    jumps.append((str(panel.dates[row]), name, float(np.expm1(moves[step])), split))
    return [f"{name} {move:+.1%} on {day} ({split})" for day, name, move, split in sorted(jumps)]


def _split_like_moves(moves: np.ndarray, ratios: Sequence[float], least_move: float) -> Iterator[tuple[int, str]]:
    """Yield the number of each move that looks like a split, with the split such as `2:1`.

    Args:
        moves: logarithmic moves from one close to the next.
        ratios: ratios of splits, new shares for an old share.
        least_move: size that a move must exceed.
    """
    sizes, usual_ratios = np.abs(moves), np.asarray(ratios)
    # The ratio that each move is nearest to: one of the usual ratios or, for large moves, any whole number.
    nearest_usual = usual_ratios[np.abs(sizes[:, None] - np.log(usual_ratios)).argmin(1)]
    whole_ratio = np.exp(sizes).round()
    ratio_of_move = np.where(whole_ratio >= LEAST_WHOLE_RATIO, whole_ratio, nearest_usual)
    tolerance = np.where(ratio_of_move >= 2, RATIO_DISTANCE, SMALL_RATIO_DISTANCE)  # noqa: PLR2004  (two for one)
    is_split = (np.abs(sizes - np.log(ratio_of_move)) < tolerance) & (sizes > least_move)
    for step in map(int, np.flatnonzero(is_split)):
        # At 2:1 the number of shares doubles and their price halves, so the logarithm of the move is below 0.
        yield step, f"{ratio_of_move[step]:g}:1" if moves[step] < 0 else f"1:{ratio_of_move[step]:g}"
