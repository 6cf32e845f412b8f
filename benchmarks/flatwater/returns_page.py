"""The page of returns and CPU seconds: its tables and its picture, from the plays that bench_returns.py keeps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flatwater.comparisons.seed_statistics import interquartile_mean, seed_statistics

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "flatwater" / "returns.md", DOCS / "pictures" / "returns.png"
TITLES = {
    "flatwater": "Flatwater",
    "flatwater zoo": "Flatwater, `--preset zoo`",
    "sb3": "Stable-Baselines3",
    "sbx": "SBX (JAX)",
}
OWN = ("flatwater", "flatwater zoo")
NONE = "–"
Play = Mapping[str, Any]
Curve = Sequence[Sequence[float]]
"""Rows of environment steps, CPU seconds, mean return."""
Players = dict[str, list[Curve]]
"""The curves of each player of a game, one for each seed."""

HEAD = """\
# Returns and speed beside other libraries

Agents of Flatwater, Stable-Baselines3 and SBX in environments of Gymnasium; games that were not played yet are missing.
Our defaults were not chosen on these environments, but for CartPole-v1, Acrobot-v1, Pendulum-v1 and MountainCar-v0
([lab notes](../../benchmarks/notes/training.md)). The highest return of a row is **bold**, of whatever library it is.

- **Flatwater** is `flatwater train ALGORITHM --env ENV` with its defaults; `--preset zoo` gives it the settings of RL
  Baselines3 Zoo, as far as Flatwater has them. The libraries have the Zoo's settings.
- Returns are interquartile means over seeds, of ten episodes of the likeliest action, on seeds that are not trained on;
  in brackets a bootstrap interval of 90 %, where there are three seeds or more. Few seeds tell little apart.
- CPU seconds are those of the whole command or script, with imports, compiling, checkpoints and records, and without
  the evaluations; one thread.
- The steps are few, so that two cores can play all games; many environments need more to be solved.

```console
$ pip install stable-baselines3 sbx-rl minigrid "gymnasium[box2d,mujoco]"
$ python benchmarks/flatwater/bench_returns.py --games ppo:CartPole-v1 --seeds 0 1 2
$ python benchmarks/flatwater/bench_returns.py    # all of them; goes on where it was stopped
```

Every play is a line of [`returns.jsonl`](../../benchmarks/results/returns.jsonl), with its commit and machine; the
games are [`returns.toml`](../../benchmarks/flatwater/returns.toml).

![Return against CPU seconds, a chart for each game](../pictures/returns.png)
"""


def write_page(plays: Sequence[Play], games: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the page and its picture."""
    PAGE.write_text("\n".join(page_lines(plays, games)) + "\n")
    draw_curves(plays, [(algorithm, env) for algorithm, envs in games.items() for env in envs])


def page_lines(plays: Sequence[Play], games: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield HEAD
    for algorithm, envs in games.items():
        of_algorithm = [play for play in plays if play["algorithm"] == algorithm]
        played = {env: players for env in envs if (players := players_of(of_algorithm, env))}
        if not played:
            continue
        yield f"## {algorithm.upper()}\n"
        yield "### Return after the same steps; CPU seconds for them\n"
        sizes = {env: f"{envs[env]['steps']:,} steps" for env in played}
        yield from table(sizes, played, {env: final_cells(players) for env, players in played.items()})
        yield "### Return after the same CPU seconds\n"
        sizes = {env: f"{shared_seconds(players):.0f} s" for env, players in played.items()}
        yield from table(sizes, played, {env: timed_cells(players) for env, players in played.items()})
    yield from failures(plays)


def players_of(plays: Iterable[Play], env: str) -> Players:
    """Return the curves of each player in an environment, a curve for each seed."""
    found: Players = {}
    for play in plays:
        if play["env"] == env and "curve" in play:
            found.setdefault(play["player"], []).append(play["curve"])
    return found


def table(
    sizes: Mapping[str, str], played: Mapping[str, Players], cells: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of a table with a row for each environment and a column for each player."""
    yield "| environment | for | seeds | " + " | ".join(TITLES.values()) + " |"
    yield "|---" * (3 + len(TITLES)) + "|"
    for env, size in sizes.items():
        counts = sorted({len(curves) for curves in played[env].values()})
        seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        yield f"| {env} | {size} | {seeds} | " + " | ".join(cells[env].get(name, NONE) for name in TITLES) + " |"
    yield ""


def final_cells(players: Players) -> dict[str, str]:
    """Return a cell for each player: its return at the end, and its CPU seconds."""
    returns = {name: [curve[-1][2] for curve in curves] for name, curves in players.items()}
    return {name: f"{text}; {middle_seconds(players[name]):.0f} s" for name, text in with_best(returns).items()}


def middle_return(curves: Sequence[Curve]) -> float:
    """Return the interquartile mean over seeds of the return at the end."""
    return float(interquartile_mean(np.asarray([curve[-1][2] for curve in curves])))


def middle_seconds(curves: Sequence[Curve]) -> float:
    """Return the median over seeds of the CPU seconds at the end."""
    return median(curve[-1][1] for curve in curves)


def timed_cells(players: Players) -> dict[str, str]:
    """Return a cell for each player: the return that it had when the quickest player had all its steps."""
    limit = shared_seconds(players)
    returns = {name: [at_seconds(curve, limit) for curve in curves] for name, curves in players.items()}
    known = {name: [value for value in values if value is not None] for name, values in returns.items()}
    # A player of which a seed had no evaluation by then is left out: the others of its seeds are the quicker ones.
    whole = {name: values for name, values in known.items() if len(values) == len(returns[name])}
    return dict.fromkeys(players, "none yet") | with_best(whole)


def shared_seconds(players: Players) -> float:
    """Return the CPU seconds after which the quickest player had all its steps, the median over its seeds."""
    return min(map(middle_seconds, players.values()))


def at_seconds(curve: Curve, limit: float) -> float | None:
    """Return the last evaluation within so many CPU seconds, None before the first."""
    # The quickest player's own last evaluation counts, whose seconds scatter about their median.
    reached = [row[2] for row in curve if row[1] <= limit * 1.05]
    return reached[-1] if reached else None


def with_best(returns: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Return the interquartile mean and interval of each player as text, the highest mean in bold."""
    middle = {name: float(interquartile_mean(np.asarray(values))) for name, values in returns.items()}
    best = max(middle.values(), default=0.0)
    found = {}
    for name, values in returns.items():
        number = short(middle[name])
        text = f"**{number}**" if short(best) == number else number
        if len(values) >= 3:
            statistics = seed_statistics(values)
            text += f" ({short(statistics.low)} to {short(statistics.high)})"
        found[name] = text
    return found


def short(number: float) -> str:
    """Return a return with as many digits as its size needs."""
    return f"{number:.2f}" if abs(number) < 10 else f"{number:,.0f}"


def failures(plays: Iterable[Play]) -> Iterator[str]:
    """Yield a list of the plays that failed, with what they said."""
    failed = [play for play in plays if "failed" in play]
    if failed:
        yield "## Did not run\n"
    for play in failed:
        said = " ".join(play["failed"])
        yield f"- {TITLES[play['player']]}, {play['algorithm']} in {play['env']}, seed {play['seed']}: `{said}`"


def draw_curves(plays: Sequence[Play], games: Sequence[tuple[str, str]]) -> None:
    """Draw a chart for each game: the interquartile mean of the return against CPU seconds, a line for each player.

    Args:
        plays: plays that have ended.
        games: algorithm and environment of each game, in their order.
    """
    played = {(play["algorithm"], play["env"]) for play in plays if "curve" in play}
    shown = [game for game in games if game in played]
    columns = 3
    rows = -(-len(shown) // columns) or 1
    figure = Figure(figsize=(11, 2.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    colours = dict(zip(TITLES, ("#1f6f8b", "#57b8c9", "#c0504d", "#e0a030"), strict=True))
    for axis, (algorithm, env) in zip(axes, shown, strict=False):
        players = players_of([play for play in plays if play["algorithm"] == algorithm], env)
        for name, curves in players.items():
            length = min(len(curve) for curve in curves)
            points = np.asarray([curve[:length] for curve in curves], dtype=float)
            middle = interquartile_mean(points[:, :, 2].T)
            axis.plot(np.median(points[:, :, 1], 0), middle, "-" if name in OWN else "--", color=colours[name])
        axis.set_title(f"{algorithm.upper()}, {env}", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    lines = [Line2D([], [], color=colours[name], linestyle="-" if name in OWN else "--") for name in TITLES]
    titles = [title.replace("`", "") for title in TITLES.values()]
    figure.legend(lines, titles, loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    figure.supxlabel("CPU seconds", fontsize=9)
    figure.supylabel("return", fontsize=9)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
