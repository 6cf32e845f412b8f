"""What a champion does, told from its trades and its equity."""

from datetime import date, timedelta

import polars as pl
import pytest

from flatwater_trading.recipe.behaviour import describe_habits, period_rows, regime_rows
from flatwater_trading.recipe.trader_names import EQUAL_WEIGHT

FIRST = date(2020, 1, 1)


def equity(days: int, *, champion: float = 0.0, market: float = 0.0) -> pl.DataFrame:
    """Curves that change by a share a day; every calendar day is a day."""
    return pl.DataFrame(
        {
            "date": [FIRST + timedelta(days=n) for n in range(days)],
            "champion": [100 * (1 + champion) ** n for n in range(days)],
            EQUAL_WEIGHT: [100 * (1 + market) ** n for n in range(days)],
        }
    )


def trades(*rows: tuple[str, int, int, float, str]) -> pl.DataFrame:
    return pl.DataFrame(
        [(name, FIRST + timedelta(days=a), FIRST + timedelta(days=b), gain, why) for name, a, b, gain, why in rows],
        schema=["instrument", "entry_date", "exit_date", "gain", "reason"],
        orient="row",
    )


def test_habits_count_days_of_purchase_and_ends() -> None:
    log = trades(("A", 0, 10, 1.0, "target"), ("B", 0, 20, -1.0, "held"), ("A", 5, 35, 2.0, "held"))
    said = describe_habits(log, equity(61))
    assert "It bought on 2 of 60 days and held each purchase for 20 calendar days (median)." in said
    assert "Bought most often: A 2, B 1." in said
    assert "after its holding time: 2, at its target: 1." in said


@pytest.mark.parametrize(("days", "periods"), [(60, 3 - 1), (500, 6), (1500, 5)])
def test_periods_are_months_quarters_or_years(days: int, periods: int) -> None:
    rows = period_rows(trades(("A", 0, 10, 1.0, "held")), equity(days))
    assert len(rows) == periods


def test_gains_of_periods_multiply_to_the_gain_of_the_stretch() -> None:
    curves = equity(91, champion=0.002, market=-0.001)
    rows = period_rows(trades(("A", 0, 10, 1.0, "held"), ("B", 0, 12, -3.0, "held")), curves)
    gained, held = 1.0, 1.0
    for _, mine, other, _, _, _ in rows:
        gained, held = gained * (1 + float(mine[:-1]) / 100), held * (1 + float(other[:-1]) / 100)
    assert gained == pytest.approx(1.002**90, abs=0.005)
    assert held == pytest.approx(0.999**90, abs=0.005)
    assert [row[4:] for row in rows] == [("2", "50%"), ("0", ""), ("0", "")]


def test_a_rising_market_has_no_day_after_a_fall() -> None:
    rows = regime_rows(equity(100, champion=0.001, market=0.002))
    names = [row[0] for row in rows]
    assert "rose in the 20 days before" in names
    assert "fell in the 20 days before" not in names
    assert rows[0][1:] == ("79", "+0.10%", "+0.20%", "-0.10%")


def test_the_kind_of_a_day_follows_from_the_days_before_it() -> None:
    """One jump on the last day makes that day neither a rise nor restless: it was not known in the morning."""
    curves = equity(100, market=-0.001)
    jumped = curves.with_columns(
        pl.when(pl.col("date") == curves["date"][-1]).then(1e6).otherwise(pl.col(EQUAL_WEIGHT)).alias(EQUAL_WEIGHT)
    )
    assert regime_rows(jumped)[0][:2] == ("fell in the 20 days before", "79")


def test_too_few_days_have_no_kind() -> None:
    assert regime_rows(equity(30)) == []
