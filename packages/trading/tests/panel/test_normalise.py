"""Normalised observations: undone exactly, blind to later days, finite everywhere, in bounded memory."""

import tracemalloc

import numpy as np
import pytest
import torch

from flatwater_trading.panel.config import DEFAULT_OBSERVATION_FEATURES, SyntheticConfig
from flatwater_trading.panel.features import OBSERVABLE, find_features
from flatwater_trading.panel.features import observed_features as features_of
from flatwater_trading.panel.indicators import write_indicators_
from flatwater_trading.panel.normalise import (
    OBSERVATION_LIMIT,
    SEPARATE_SCALES,
    Statistics,
    normalise_panel,
    scale_kind,
    training_statistics,
)
from flatwater_trading.panel.panel import FEATURES, Panel, build_panel
from flatwater_trading.panel.synthetic import synthetic_panel
from flatwater_watch.errors import DataError

TRAIN_STOP = 200


@pytest.fixture(scope="module")
def panel() -> Panel:
    config = SyntheticConfig(instruments=40, days=300, late_listings=0.5, delistings=0.3, halts=0.02)
    return synthetic_panel(config).panel


def observe_panel(panel: Panel, features: tuple[str, ...] = DEFAULT_OBSERVATION_FEATURES) -> torch.Tensor:
    return normalise_panel(panel, features, training_statistics(panel, features, TRAIN_STOP))


def test_statistics_are_those_of_training_days(panel: Panel) -> None:
    """Of each column by itself; of all columns together for what is free of scale."""
    stats = training_statistics(panel, FEATURES, TRAIN_STOP)
    for f, name in enumerate(FEATURES):
        by_column = [[float(x) for x in column if np.isfinite(x)] for column in panel.values[:TRAIN_STOP, :, f].T]
        together = [x for column in by_column for x in column]
        for n, known in enumerate([together] * len(by_column) if OBSERVABLE[name].scale_free else by_column):
            mean = sum(known) / len(known) if known else 0
            deviation = (sum((x - mean) ** 2 for x in known) / len(known)) ** 0.5 if known else np.inf
            assert stats.mean[n, f] == pytest.approx(mean, rel=1e-9)
            assert stats.deviation[n, f] == pytest.approx(deviation or 1, rel=1e-9)


def with_context(panel: Panel, yields: float) -> Panel:
    """Its last two columns become context: one like the shares, and a rate near 0 whose percentages are huge."""
    values = panel.values.copy()
    days = np.arange(len(panel.dates))
    values[:, -1] = (yields * (1.1 + np.sin(days)))[:, None]
    write_indicators_(values)
    return build_panel(
        values=values, dates=panel.dates, instruments=panel.instruments, investable=panel.instruments[:-2]
    )


@pytest.mark.parametrize("name", [name for name in OBSERVABLE if OBSERVABLE[name].scale_free])
def test_shares_and_context_columns_have_statistics_of_their_own(panel: Panel, name: str) -> None:
    features, mixed = (name,), with_context(panel, 0.05)
    found = training_statistics(mixed, features, TRAIN_STOP)
    shares = slice(0, len(panel.instruments) - 2)
    alone = build_panel(values=panel.values[:, shares].copy(), dates=panel.dates, instruments=panel.instruments[shares])
    for each in ("mean", "deviation"):
        np.testing.assert_allclose(
            getattr(found, each)[shares], getattr(training_statistics(alone, features, TRAIN_STOP), each), rtol=1e-12
        )
    for n in (-2, -1):  # each context column: as if there were no other
        known = features_of(mixed, find_features(features), TRAIN_STOP, slice(None))[:, n, 0]
        known = known[np.isfinite(known)]
        mean, deviation = (known.mean(), known.std()) if len(known) else (0, np.inf)
        assert found.mean[n, 0] == pytest.approx(mean, rel=1e-9)
        assert found.deviation[n, 0] == pytest.approx(deviation, rel=1e-9)


def test_a_panel_says_how_it_is_scaled_where_that_matters(panel: Panel) -> None:
    assert scale_kind(panel) is None
    assert scale_kind(with_context(panel, 0.05)) == SEPARATE_SCALES


def test_days_after_training_leave_no_trace(panel: Panel) -> None:
    values = panel.values.copy()
    values[TRAIN_STOP:] *= 3
    later = build_panel(values=values, dates=panel.dates, instruments=panel.instruments)
    assert torch.equal(observe_panel(panel)[:, :TRAIN_STOP], observe_panel(later)[:, :TRAIN_STOP])


def test_scaling_back_gives_the_panel(panel: Panel) -> None:
    stats = training_statistics(panel, FEATURES, TRAIN_STOP)
    out = observe_panel(panel, FEATURES).numpy()
    seen = np.isfinite(stats.deviation)
    stats = Statistics(mean=stats.mean, deviation=np.where(seen, stats.deviation, 0))
    back = (out * stats.deviation[:, None] + stats.mean[:, None]).transpose(1, 0, 2)
    inside = np.isfinite(panel.values) & seen & (np.abs(out.transpose(1, 0, 2)) < OBSERVATION_LIMIT)
    assert inside.mean() > 0.5
    scale = np.broadcast_to(stats.deviation + np.abs(stats.mean), back.shape)
    assert (np.abs(back - panel.values)[inside] < 1e-6 * scale[inside]).all()


def test_what_is_missing_is_zero_and_the_rest_is_bounded(panel: Panel) -> None:
    out = observe_panel(panel).numpy().transpose(1, 0, 2)
    close = panel.feature("close").astype(float)
    base = {"macd_signal_pct": "macd_signal", "sma20_distance_pct": "sma20_distance"}
    base |= {name: "close" for name in DEFAULT_OBSERVATION_FEATURES if name.startswith("return")}
    chosen = np.stack([panel.feature(base.get(name, name)) for name in DEFAULT_OBSERVATION_FEATURES], 2)
    chosen[(~np.isfinite(close)).cumprod(0) > 0] = np.nan
    assert np.isnan(chosen).any()
    assert (out[np.isnan(chosen)] == 0).all()
    assert np.isfinite(out).all()
    assert np.abs(out).max() <= OBSERVATION_LIMIT


def test_an_unusable_close_hides_the_whole_day() -> None:
    values = np.full((10, 2, 9), 5, dtype=np.float32)
    values += np.arange(10, dtype=np.float32)[:, None, None]
    values[4, 1, FEATURES.index("close")] = 0
    dates = np.datetime64("2020-01-01") + np.arange(10)
    panel = build_panel(values=values, dates=dates, instruments=("A", "B"))
    out = normalise_panel(panel, ("close", "rsi"), training_statistics(panel, ("close", "rsi"), 10))
    assert (out[1, 4] == 0).all()
    assert (out[0, 4] != 0).all()


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6])
def test_a_constant_column_is_centred_and_not_scaled(constant: float) -> None:
    values = np.full((20, 1, 9), constant, dtype=np.float32)
    values[:, :, FEATURES.index("close")] = 1
    values[19, 0, FEATURES.index("trix")] = constant + 2
    dates = np.datetime64("2020-01-01") + np.arange(20)
    panel = build_panel(values=values, dates=dates, instruments=("A",))
    stats = training_statistics(panel, ("trix",), 19)
    assert stats.deviation[0, 0] == 1
    out = normalise_panel(panel, ("trix",), stats)
    np.testing.assert_allclose(out[0, :, 0], [0] * 19 + [2], atol=1e-6)


def test_a_column_without_a_training_day_is_seen_where_its_scale_is_known(panel: Panel) -> None:
    """A share that was listed later: its price has no scale yet, its returns have that of all the others."""
    values = panel.values.copy()
    values[:TRAIN_STOP, 7] = np.nan
    late = build_panel(values=values, dates=panel.dates, instruments=panel.instruments)
    out = observe_panel(late, ("close", "return"))
    assert (out[7, :, 0] == 0).all()
    assert (out[7, TRAIN_STOP + 1 :, 1] != 0).any()


def test_a_return_over_many_days_begins_at_the_close_that_was_known_then() -> None:
    """60 rows ago: the last close up to that row, whether or not it has one itself; unknown before there was any."""
    close = np.full((70, 1), np.nan)
    close[[1, 3, 63, 65, 69]] = np.array([[100.0], [200.0], [50.0], [300.0], [400.0]])
    [feature] = find_features(("return_60",))
    found = feature.compute({"close": close})[:, 0]
    assert np.flatnonzero(np.isfinite(found)).tolist() == [63, 65, 69]
    np.testing.assert_allclose(found[[63, 65, 69]], [100 * (50 / 200 - 1), 50.0, 100.0])


def test_a_return_spans_the_days_without_a_close() -> None:
    values = np.full((6, 1, 9), np.nan, dtype=np.float32)
    values[[0, 1, 4, 5], 0, FEATURES.index("close")] = (100, 110, 99, 99)
    dates = np.datetime64("2020-01-01") + np.arange(6)
    panel = build_panel(values=values, dates=dates, instruments=("A",))
    [feature] = find_features(("return",))
    found = features_of(panel, [feature], 6, slice(None))[:, 0, 0]
    np.testing.assert_allclose(found, [np.nan, 10, np.nan, np.nan, -10, 0], atol=1e-5)


@pytest.mark.parametrize("name", [name for name, feature in OBSERVABLE.items() if feature.scale_free])
def test_what_is_free_of_scale_does_not_know_the_price(panel: Panel, name: str) -> None:
    """The same market in another currency gives the same numbers."""
    [feature] = find_features((name,))
    prices = panel.values[:, :, : FEATURES.index("rsi")] * np.float32(1024)
    values = np.concatenate([prices, panel.values[:, :, FEATURES.index("rsi") :]], axis=2)
    write_indicators_(values)
    other = build_panel(values=values, dates=panel.dates, instruments=panel.instruments)
    first, second = (features_of(each, [feature], len(panel.dates), slice(None)) for each in (panel, other))
    np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-4)


def test_temporaries_stay_a_few_megabytes() -> None:
    values = np.random.default_rng(0).random((3000, 200, 9), dtype=np.float32)
    dates = np.datetime64("2000-01-01") + np.arange(3000)
    panel = build_panel(values=values, dates=dates, instruments=[f"{n}" for n in range(200)])
    tracemalloc.start()
    try:
        stats = training_statistics(panel, DEFAULT_OBSERVATION_FEATURES, 2500)
        normalise_panel(panel, DEFAULT_OBSERVATION_FEATURES, stats)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20
    assert peak < values.nbytes / 2


def test_an_unknown_feature_is_refused(panel: Panel) -> None:
    with pytest.raises(DataError, match="feature 'volume' to observe"):
        training_statistics(panel, ("close", "volume"), TRAIN_STOP)


def test_a_feature_has_its_first_number_after_the_rows_that_it_says() -> None:
    panel = synthetic_panel(SyntheticConfig(instruments=4, days=200, late_listings=0, delistings=0, halts=0)).panel
    for name in OBSERVABLE:
        (feature,) = find_features([name])
        values = features_of(panel, [feature], stop=200, columns=slice(None))[..., 0]
        assert np.isfinite(values).all(1).argmax() == feature.rows - 1, name
