"""Scores against later returns: by another library, by hand, and blind to what comes after the days."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatwater_trading.recipe.score_analysis import CHUNK_DAYS, analyse_scores, day_correlations, day_ranks

scipy_stats = pytest.importorskip("scipy.stats")


def market(seed: int, days: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores with many equal ones, marks, and which instruments have a close."""
    rng = np.random.default_rng(seed)
    mark = np.exp(rng.normal(0, 0.02, (days, count)).cumsum(0))
    tradable = rng.random((days, count)) > 0.1
    mark[: days // 3, 0], tradable[: days // 3, 0] = 0, False  # listed later
    return rng.integers(0, 4, (days, count)).astype(float), mark, tradable


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([40, CHUNK_DAYS + 30]))
def test_correlations_are_spearman_s(seed: int, days: int) -> None:
    scores, mark, tradable = market(seed, days, 6)
    found = analyse_scores(scores, mark, tradable)
    for horizon in found.horizons:
        known = []
        for day in range(days - horizon.rows):
            names = tradable[day]
            returns = mark[day + horizon.rows, names] / mark[day, names] - 1
            if len(set(scores[day, names])) > 1:
                known.append(scipy_stats.spearmanr(scores[day, names], returns).statistic)
                assert found.daily[horizon.rows][day] == pytest.approx(known[-1])
            else:
                assert np.isnan(found.daily[horizon.rows][day])
        assert horizon.days == len(known)
        assert horizon.ic == pytest.approx(np.mean(known))
        error = np.std(known, ddof=1) / max(1, len(known) / horizon.rows) ** 0.5
        assert horizon.t == pytest.approx(np.mean(known) / error)
    assert np.isnan(found.daily[5][-5:]).all(), "the last rows have no later close among the days"


def test_a_score_that_knows_the_next_return_orders_all_and_decays() -> None:
    rng = np.random.default_rng(1)
    moves = rng.normal(0, 0.01, (200, 10))
    mark, tradable = np.cumprod(1 + moves, axis=0), np.ones((200, 10), dtype=bool)
    scores = np.vstack([moves[1:], moves[:1]])
    found = analyse_scores(scores, mark, tradable)
    first, second = found.horizons[:2]
    assert first.ic == pytest.approx(1)
    assert first.positive == 1
    assert list(first.quantiles) == sorted(first.quantiles)
    assert sum(first.quantiles) == pytest.approx(0, abs=1e-12), "less the mean of all"
    top = [row[np.argsort(-score)[:2]].mean() - row.mean() for row, score in zip(moves[1:], scores[:-1], strict=True)]
    assert first.quantiles[-1] == pytest.approx(np.mean(top))
    assert 0.2 < second.ic < 0.7, "a fifth of the variance of five rows"
    assert first.kept == pytest.approx(0.2, abs=0.1)
    assert abs(first.same_order) < 0.1


def test_a_score_that_stays_is_kept() -> None:
    mark = np.exp(np.random.default_rng(0).normal(0, 0.01, (80, 8)).cumsum(0))
    found = analyse_scores(np.tile(np.arange(8.0), (80, 1)), mark, np.ones((80, 8), dtype=bool))
    assert [(each.kept, each.same_order) for each in found.horizons] == [(1, pytest.approx(1))] * len(found.horizons)
    assert [each.rows for each in found.horizons] == [1, 5, 10, 20, 60]


def test_too_few_instruments_days_or_differences_have_no_analysis() -> None:
    mark, tradable = np.ones((40, 6)), np.ones((40, 6), dtype=bool)
    assert analyse_scores(np.zeros((40, 6)), mark, tradable).horizons == ()
    assert analyse_scores(mark[:, :3], mark[:, :3], tradable[:, :3]).horizons == ()
    assert analyse_scores(mark[:5], mark[:5], tradable[:5]).horizons == ()


def test_ranks_share_equal_numbers_and_leave_holes() -> None:
    ranks = day_ranks(np.array([[3.0, 1.0, 3.0, np.nan]]))
    np.testing.assert_array_equal(ranks, [[2.5, 1.0, 2.5, np.nan]])
    assert np.isnan(day_correlations(np.ones((1, 4)), ranks)).all()
