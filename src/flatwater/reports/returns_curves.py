"""What is paid in training episodes and in held-out ones, against the players that learn nothing."""

from collections.abc import Mapping
from typing import Any

from flatwater.metrics.reader import known
from flatwater.reports.memory_charts import curve


def returns_curves(metrics: dict[str, list[float]], trained: str, levels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Curves over the rounds. Players that learn nothing are level lines, as held-out episodes are always the same.

    Args:
        metrics: columns; `return/mean` and `evaluation/*` may have rounds without a number.
        trained: the player that learns.
        levels: the others, each with its colour.
    """
    rounds, data = metrics["round"], []
    if "return/mean" in metrics:
        data.append(curve(*known(rounds, metrics["return/mean"]), "training, mean", "--quiet", width=1.6))
    for name, colour in levels.items():
        _, level = known(rounds, metrics.get(f"evaluation/{name}", []))
        if level:
            data.append(curve(rounds, [level[-1]] * len(rounds), name, colour, width=1.4))
    x, y = known(rounds, metrics.get(f"evaluation/{trained}", []))
    if x:
        data.append(curve(x, y, f"{trained}, held out", "--champion", width=2.6) | {"mode": "lines+markers"})
    return data
