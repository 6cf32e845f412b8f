"""The default traders learn, on days that nothing was chosen on, from markets whose law is known."""

import json
from pathlib import Path

import pytest

from flatwater.cli.main import main

LENGTHS = ("--splits.validation-days", "300", "--splits.holdout-days", "500", "--threads", "1")


@pytest.mark.long
@pytest.mark.parametrize(
    ("market", "share", "beaten"),
    [
        pytest.param("synthetic:12x1500:signal=0.7:signal_days=100", 0.6, ["random"], marks=pytest.mark.slow),
        (
            "synthetic:13x2000:law=interaction:context_instruments=1:signal=0.12:signal_days=20",
            0.5,
            ["random", "ridge", "20-day momentum"],
        ),
    ],
)
def test_the_default_traders_learn_a_known_law(
    market: str, share: float, beaten: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured: 0.86 and 0.77 of the oracle's return. No simple rule earns anything in the second market."""
    run = str(tmp_path / "run")
    assert main(["train", "erl", "--panel", market, "--rounds", "2", *LENGTHS, "--run", run]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--holdout", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    returns = {name: row["total_return"] for name, row in result["traders"].items()}
    assert result["oracle_share"] > share
    assert all(returns["champion"] > returns[name] for name in beaten)
