"""Synthetic panels by text: what is written is what is made, and slips are named."""

import pytest

from flatwater_trading.panel.config import SyntheticConfig
from flatwater_trading.panel.specification import parse_synthetic
from flatwater_watch.errors import ConfigError


def test_a_specification_in_text() -> None:
    assert parse_synthetic("synthetic:60x1500") == SyntheticConfig(instruments=60, days=1500)
    assert parse_synthetic("synthetic:7x90:signal=0.6:seed=3:context_instruments=2") == SyntheticConfig(
        instruments=7, days=90, signal=0.6, seed=3, context_instruments=2
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("synthetic:", "no size"),
        ("synthetic:60", "no size"),
        ("synthetic:60x", "no size"),
        ("synthetic:6x90:sginal=1", r"'sginal' .*field\. .*synthetic:INSTRUMENTSxDAYS.*signal_days"),
        ("synthetic:6x90:signal", r"signal = '' .*number"),
        ("synthetic:6x90:seed=1.5", r"seed = '1\.5' .*number"),
        ("synthetic:0x90", r"synthetic\.instruments = 0: .*1 to 65,536"),
        ("synthetic:6x90:context_instruments=6", r"synthetic\.context_instruments = 6: .*instruments \(6\)"),
        ("synthetic:6x90:halts=2", r"synthetic\.halts = 2\.0: .*0 to 1"),
        ("synthetic:6x90:signal=nan", r"synthetic\.signal = nan"),
    ],
)
def test_a_wrong_specification_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_synthetic(spec)
