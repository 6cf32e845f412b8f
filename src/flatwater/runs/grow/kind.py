"""How runs of growing networks are shown."""

from flatwater.metrics.console import Column, Layout, percent
from flatwater.metrics.figures import short_seconds
from flatwater.runs.kind import Headline, Kind, Number

LAYOUT = Layout(
    round="batch",
    short="batch",
    columns=(
        Column("return", "mean", 6, "return/mean"),
        Column("return", "max", 6, "return/max"),
        Column("return", "min", 6, "return/min"),
        Column("held-out return", "policy", 7, "evaluation/policy"),
        Column("held-out return", "wait", 6, "evaluation/wait"),
        Column("held-out return", "heur", 6, "evaluation/heuristic"),
        Column("", "wait%", 6, "operation/wait", percent),
        Column("", "entropy", 8, "train/entropy"),
        Column("", "expl%", 6, "critic/explained", percent),
        Column("seconds", "play", 5, "time/collect", short_seconds),
        Column("seconds", "learn", 6, "time/update", short_seconds),
        Column("seconds", "eval", 5, "time/evaluate", short_seconds),
        Column("seconds", "save", 5, "time/save", short_seconds),
    ),
    dispensable=frozenset({"max", "min", "expl%", "save"}),
)

GROW = Kind(
    name="grow",
    layout=LAYOUT,
    curves={"return, mean": "return/mean", "held out": "evaluation/policy"},
    journal="episodes",
    players="players",
    trained="policy",
    said=("episodes", "split", "steps", "note"),
    headline=Headline("accuracy", "accuracy", "{:.1%}", "wait", "{} if nothing is grown"),
    numbers=(
        Number("return", "return", "{:.2f}"),
        Number("dev", "deviation", "{:.2f}"),
        Number("accuracy", "accuracy", "{:.1%}"),
        Number("capable", "accuracy_capable", "{:.1%}"),
        Number("impaired", "accuracy_impaired", "{:.1%}"),
        Number("grown", "germinated", "{:.1f}"),
        Number("pruned", "pruned", "{:.1f}"),
        Number("fossilised", "fossilised", "{:.1f}"),
    ),
)
