"""What a person sees when training ends: the table, the picture and the folder."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flatwater.metrics.reader import read_metrics
from flatwater.reports.growth_picture import draw_growth
from flatwater.reports.teaching_charts import profile_rows
from flatwater.reports.teaching_picture import draw_teaching
from flatwater.reports.trading_picture import draw_trading
from flatwater.runs.kinds import KINDS
from flatwater.runs.session import Outcome
from flatwater.terminal import WIDTH, lasting_terminal


def show_outcome(train: Callable[[Console], Outcome]) -> int:
    """Train with a console, and show the result where the run finished. Returns the exit code."""
    console = lasting_terminal()
    outcome = train(console)
    folder = outcome.folder
    if outcome.finished:
        result = json.loads(folder.result.read_text())
        PICTURES[result["trainer"]](folder.path, folder.picture)
        show_result(result, console)
        if rows := profile_rows(read_metrics(folder.metrics)):
            show_profile(rows, console)
        console.print(f"\npicture     {folder.picture}\nrun folder  {folder.path}", soft_wrap=True)
        console.print(
            f"next        flatwater evaluate {folder.path} · flatwater resume {folder.path} --rounds N",
            highlight=False,
            soft_wrap=True,
        )
    return outcome.exit_code


def show_result(result: dict[str, Any], console: Console) -> None:
    """What was trained against the baselines."""
    name = result.get("trainer", "erl")
    kind = KINDS[name]
    table = Table(title=TITLES[name].format(**result), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind.players.removesuffix("s"), no_wrap=True)
    numbers = kind.numbers if console.width >= WIDTH else kind.numbers[:NARROW]
    for number in numbers:
        table.add_column(number.title, justify="right", no_wrap=True)
    for who, row in result[kind.players].items():
        cells = [_cell(row.get(number.key, ""), number.form) for number in numbers]
        table.add_row(who, *cells, style="bold" if who == kind.trained else "")
    console.print()
    console.print(table)
    if verdict := result.get("verdict"):
        console.print(verdict)
    console.print(f"Note: {result['note']}.", style="dim")


def show_profile(rows: Sequence[tuple[str, str, str]], console: Console) -> None:
    """Where the time of a step went: medians over the rounds."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("part of a step", no_wrap=True)
    for title in ("µs an agent step", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def _cell(value: float | str | None, form: str) -> str:
    """A number in its form; a dash where it is none, nothing where the trader has no such number."""
    return value if isinstance(value, str) else "-" if value is None else form.format(value)


TITLES = {
    "erl": "{split} days {first_day} to {last_day} ({days} days)",
    "teach": "{episodes} {split} episodes of {agents} agents, {steps} steps, seeds from {first_seed}",
    "grow": "{episodes} {split} episodes of {steps} steps, env seeds from {first_seed}",
}
"""By trainer, with fields of result.json in braces."""
PICTURES = {"erl": draw_trading, "grow": draw_growth, "teach": draw_teaching}
"""What draws result.png, by trainer."""
NARROW = 6
"""Columns shown where the terminal has fewer than `WIDTH` characters: 80 are enough for them."""
