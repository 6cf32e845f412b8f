"""`flatwater plan RECIPE`: memory of a run by owner, and the limits that it is compared with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flatwater.cli.settings import RecipeSettings, WithTrust
from flatwater.memory.nodes import NodePlan, shortages
from flatwater.memory.planner import BUDGET_SHARE, group_bytes
from flatwater.memory.planner import Plan as PlannedRun
from flatwater_watch.errors import MemoryLimitError
from flatwater_watch.phrases import count_phrase
from flatwater_watch.terminal import terminal
from flatwater_watch.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class PlanCommand(WithTrust, RecipeSettings):
    """Options of planning for any recipe, besides the recipe's settings."""

    about: ClassVar[str] = (
        "Show the memory that a run of `flatwater train {name}` with these options would use, by owner."
    )
    help_more: ClassVar[str] = """
        The state's bytes are exact: they come from the run's own build on a device without memory. Transients are
        estimated from the tensors of each phase, tried out there as well; simulators of other libraries are not
        counted. Nothing is started. Exits with 3 where the run does not fit, with
        what to change.
        """
    config: Path | None = None
    """TOML file with settings, such as a run folder's config.toml. Options on the command line win over it."""
    json: bool = False
    """Print the plan as JSON: what a run writes to plan.json."""

    def __call__(self) -> int:
        """Plan the run, without starting it, and print the plan. Returns the exit code."""
        settings = self.settings()
        with terminal(to_stderr=True).status(
            "building the run on a device without memory, and running its phases once …"
        ):
            from flatwater.runs.settings_checks import check_and_plan  # reading torch is half of the time

            _, plan = check_and_plan(settings, trains=False)
        return print_plan(plan, as_json=self.json)


PRONOUNS = {"orders": "their"}
"""Possessive pronouns of what is planned; that of a run is `its`."""
MINIMUM_SHARE = 0.001
"""Share of the state below which owners are one line together."""
BAR_WIDTH = 16
"""Width of the bar of a share."""
SIZE_WIDTH, SHARE_WIDTH = 10, 6
"""Widths of a size and of a share: they are never cut, names of owners and machines take another line."""


def print_plan(plan: PlannedRun, *, as_json: bool) -> int:
    """Print a plan as a table or as JSON. Returns the exit code: 3 where it does not fit."""
    if as_json:
        print(json.dumps(plan.to_json(), indent=1))
    else:
        show_plan(plan, terminal())
    return 0 if plan.fits else MemoryLimitError.exit_code


def show_plan(plan: PlannedRun, console: Console) -> None:
    """Print the bytes that a run holds and its peak, a row for each owner and phase, then whether it fits."""
    table = Table(title=f"memory of the {plan.what}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("owner", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True, min_width=SIZE_WIDTH)
    table.add_column("share", justify="right", no_wrap=True, min_width=SHARE_WIDTH)
    table.add_column("", no_wrap=True, style="cyan", min_width=BAR_WIDTH)
    # Grouped by two parts of a path: ungrouped, an optimizer's states would be dozens of lines.
    owners = sorted(group_bytes(plan.owners, depth=2).items(), key=lambda item: -item[1])
    rows = [(name, size) for name, size in owners if size >= MINIMUM_SHARE * plan.total_bytes]
    small_owners = owners[len(rows) :]  # the owners are sorted by size
    if small_owners:
        rows.append((f"{len(small_owners)} smaller owners", sum(size for _, size in small_owners)))
    for name, size in rows:
        table.add_row(name, *_cells(size, plan.needed_bytes))
    table.add_row("state, exactly", *_cells(plan.total_bytes, plan.needed_bytes), style="bold", end_section=True)
    if plan.mapped:
        row = _cells(plan.mapped_bytes, plan.needed_bytes)
        table.add_row("mapped, once for all processes", *row, style="dim")
    for name, size in plan.transients.items():
        highest = "" if size < plan.transient_bytes else ", the highest"
        table.add_row(f"phase {name}{highest}", *_cells(size, plan.needed_bytes), style="dim")
    table.add_row("interpreter and libraries", *_cells(plan.base_bytes, plan.needed_bytes), style="dim")
    if plan.workers:
        _add_worker_rows(table, plan)
    table.add_row(
        f"the {plan.what} at {PRONOUNS.get(plan.what, 'its')} highest",
        *_cells(plan.needed_bytes, plan.needed_bytes),
        style="bold",
    )
    console.print(table)
    if plan.nodes:
        console.print(machine_table(plan.nodes))
    for line in plan.notes:
        console.print(line, highlight=False, markup=False)
    if plan.largest_message:
        console.print(f"wire    {format_bytes(plan.largest_message):>12}  numbers in the largest message to a worker")
    _show_verdict(plan, console)


def _add_worker_rows(table: Table, plan: PlannedRun) -> None:
    """Add a row for the bytes of all workers, and a row for the exact state in one worker, the largest."""
    state_bytes = max(sum(owners.values()) for owners in plan.worker_owners)
    workers_text = f"{count_phrase(len(plan.workers), 'worker')}, {format_bytes(max(plan.workers))} each"
    # Workers on other machines do not count in this machine's need.
    if plan.apart:
        table.add_row(f"{workers_text}, set aside in the cluster", style="dim")
    else:
        table.add_row(workers_text, *_cells(sum(plan.workers), plan.needed_bytes), style="dim")
    size_and_share = _cells(state_bytes, plan.needed_bytes)[:2]  # no bar: these bytes are in the row above
    table.add_row("  the state in each, exactly", *size_and_share, style="dim")


def _show_verdict(plan: PlannedRun, console: Console) -> None:
    """Print the limits of memory and the budget, then whether the plan fits, and settings to change if not."""
    for name, size in plan.limits.items():
        console.print(f"limit   {format_bytes(size):>12}  {name}")
    source = "--budget" if plan.budget is not None else f"{BUDGET_SHARE:.0%} of the tightest limit"
    console.print(f"budget  {format_bytes(plan.budget_bytes):>12}  {source}")
    if plan.fits:
        console.print("it fits", style="green")
        return
    console.print("it does not fit", style="bold red")
    short_nodes = [node for node in plan.nodes if not node.fits]
    if short_nodes:
        console.print(shortages(plan.nodes, short_nodes), soft_wrap=True)
    for line in plan.suggestions:
        console.print(f"  {line}", soft_wrap=True)


def machine_table(nodes: Sequence[NodePlan]) -> Table:
    """Return a table with the workers, the memory needed and the memory free on each machine of a cluster."""
    table = Table(
        title="by machine, mapped file and object store once on each",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("machine", overflow="fold")
    table.add_column("workers", justify="right", no_wrap=True)
    for name in ("theirs", "mapped", "store", "wanted", "there"):
        table.add_column(name, justify="right", no_wrap=True, min_width=SIZE_WIDTH)
    for node in nodes:
        wants = node.wants
        private_bytes = node.workers * wants.worker
        # In the order of the columns: workers, mapped file, object store, all of these, and what is available.
        sizes = (private_bytes, wants.mapped, node.machine.store, node.needed_bytes, node.available_bytes)
        style = "" if node.fits else "bold red"
        table.add_row(node.machine.name, str(node.workers), *map(format_bytes, sizes), style=style)
    return table


def _cells(size: int, total: int) -> tuple[str, str, str]:
    """Return bytes as text, their share of the whole, and a bar of that share."""
    share = size / total if total else 0.0
    return format_bytes(size), f"{share:.1%}", "█" * round(BAR_WIDTH * share)
