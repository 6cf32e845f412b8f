"""Workers are dealt to the machines of a cluster; one that lacks room is refused by its name."""

import re
from io import StringIO

import pytest
from rich.console import Console

from flatwater.cli.plan import machine_table, show_plan
from flatwater.memory.nodes import Machine, WorkerNeeds, assign_workers, refuse_nodes, worker_capacity
from flatwater.memory.planner import Plan
from flatwater_watch.errors import MemoryLimitError

GIB = 1 << 30
WANTS = WorkerNeeds(worker=GIB, threads=2, mapped=GIB // 4, store=GIB // 8)


def machine(
    name: str, *, cores: int = 8, memory: int = 4 * GIB, store: int = GIB // 2, limit: int = 16 * GIB
) -> Machine:
    return Machine(name, f"id of {name}", cores, memory, store, limit)


def test_workers_add_up_on_a_machine_and_its_file_and_store_count_once() -> None:
    alone, beside = assign_workers([machine("a"), machine("b")], 5, WANTS)
    assert (alone.workers, beside.workers) == (3, 2)
    assert alone.needed_bytes == 3 * GIB + GIB // 4 + GIB // 2
    assert beside.needed_bytes == alone.needed_bytes - GIB
    assert (alone.worker_slots, worker_capacity([alone, beside])) == (4, 8)
    refuse_nodes([alone, beside])


def test_workers_go_where_there_is_room() -> None:
    machines = [machine("no cores", cores=0), machine("small", memory=GIB), machine("large", cores=64, memory=9 * GIB)]
    assert [node.workers for node in assign_workers(machines, 10, WANTS)] == [0, 1, 9]


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ({"memory": 2 * GIB}, r"b: .*2 of 3: 3\.75 GiB and 6 cores.* 2\.75 GiB and 8"),
        ({"limit": 2 * GIB}, r"b: .*1 of 3: 3\.75 GiB and 6 cores.* 2\.00 GiB and 8"),
        (
            {"store": GIB // 16},
            r"b: .*64\.00 MiB.*128\.00 MiB.*--object-store-memory=",
        ),
    ],
)
def test_a_machine_that_lacks_something_is_refused_by_name(lacking: dict[str, int], told: str) -> None:
    machines = [machine("a", cores=4), machine("b", **lacking)]
    nodes = assign_workers(machines, 6, WANTS)
    assert not nodes[1].fits
    with pytest.raises(MemoryLimitError) as refused:
        refuse_nodes(nodes)
    said = str(refused.value)
    assert re.search(told, said)
    assert f"room for {worker_capacity(nodes)} workers of 1.00 GiB and 2 cores each" in said
    assert f"Use --workers {worker_capacity(nodes)}" in said
    assert len(machine_table(nodes).rows) == 2


def test_no_number_of_a_plan_is_cut_on_80_columns() -> None:
    """Names take another line instead."""
    mib = 1 << 20
    long = {"a_long_name_of_a_leaf.that_is_longer_than_its_column": 1023 * mib + 700_000, "replay.row": 100 * mib}
    nodes = assign_workers(
        [machine("a-machine-with-a-long-name.cluster.local"), machine("b", memory=1023 * mib)], 5, WANTS
    )
    plan = Plan(
        long,
        {"validate": 900 * mib, "learn": 123 * mib},
        base_bytes=354 * mib,
        limits={"RAM": 64 * GIB},
        workers=[1023 * mib] * 5,
        worker_owners=[{"replay.row": 700 * mib}] * 5,
        apart=True,
        nodes=nodes,
        largest_message=3 * mib,
    )
    console = Console(width=80, record=True, file=StringIO())
    show_plan(plan, console)
    said = console.export_text()
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    tables = said.partition("wire")[0]
    assert max(map(len, tables.splitlines())) <= 80
    for number in ("1023.67 MiB", "900.00 MiB", "354.00 MiB", "1.00 GiB", "700.00 MiB", "100.0%"):
        assert number in said, number
