"""How runs of evolving traders are shown."""

from flatwater.metrics.console import Column, Layout, percent, whole
from flatwater.metrics.figures import short_seconds
from flatwater.runs.kind import Headline, Kind, Number

LAYOUT = Layout(
    round="generation",
    short="gen",
    columns=(
        Column("fitness", "mean", 6, "fitness/mean"),
        Column("fitness", "max", 6, "fitness/max"),
        Column("fitness", "min", 6, "fitness/min"),
        Column("fitness", "dev", 6, "fitness/deviation"),
        Column("validation", "best", 6, "validation/best"),
        Column("validation", "champ", 6, "validation/champion"),
        Column("", "trades", 7, "trades/count", whole),
        Column("", "win%", 5, "trades/win_rate", percent),
        Column("", "loss", 6, "train/actor_loss"),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        Column("seconds", "val", 4, "time/validate", short_seconds),
        Column("seconds", "learn", 6, "time/learn", short_seconds),
        Column("seconds", "evo", 4, "time/evolve", short_seconds),
        Column("seconds", "save", 5, "time/save", short_seconds),
    ),
    dispensable=frozenset({"dev", "val", "evo", "save"}),
)

ERL = Kind(
    name="erl",
    layout=LAYOUT,
    curves={"fitness, mean": "fitness/mean", "champion": "validation/champion"},
    journal="lineage",
    players="traders",
    trained="champion",
    said=("split", "first_day", "last_day", "days", "note"),
    headline=Headline("champion's return", "total_return", "{:+.1%}", "buy and hold", "buy and hold {}"),
    numbers=(
        Number("return", "total_return", "{:+.1%}"),
        Number("Sharpe", "sharpe", "{:.2f}"),
        Number("drawdown", "drawdown", "{:.1%}"),
        Number("exposure", "exposure", "{:.0%}"),
        Number("trades", "trades", "{:.0f}"),
        Number("wins", "win_rate", "{:.0%}"),
        Number("gain/trade", "mean_gain", "{:+.2f}%"),
        Number("turnover", "turnover", "{:.1f} x"),
    ),
)
