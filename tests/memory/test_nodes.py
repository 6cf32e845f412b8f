"""Workers are dealt to the machines of a cluster; one that lacks room is refused by its name."""

import pytest

from flatwater.cli.plan import by_machine
from flatwater.errors import MemoryLimitError
from flatwater.memory.nodes import Machine, Wants, dealt_to, refuse_nodes, room_of

GIB = 1 << 30
WANTS = Wants(worker=GIB, threads=2, mapped=GIB // 4, store=GIB // 8)


def machine(
    name: str, *, cores: int = 8, memory: int = 4 * GIB, store: int = GIB // 2, limit: int = 16 * GIB
) -> Machine:
    return Machine(name, f"id of {name}", cores, memory, store, limit)


def test_workers_add_up_on_a_machine_and_its_file_and_store_count_once() -> None:
    alone, beside = dealt_to([machine("a"), machine("b")], 5, WANTS)
    assert (alone.workers, beside.workers) == (3, 2)
    assert alone.needed == 3 * GIB + GIB // 4 + GIB // 2
    assert beside.needed == alone.needed - GIB
    assert (alone.room, room_of([alone, beside])) == (4, 8)
    refuse_nodes([alone, beside])


def test_workers_go_where_there_is_room() -> None:
    machines = [machine("no cores", cores=0), machine("small", memory=GIB), machine("large", cores=64, memory=9 * GIB)]
    assert [node.workers for node in dealt_to(machines, 10, WANTS)] == [0, 1, 9]


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        ({"memory": 2 * GIB}, "b: room for 2 of 3: 3.75 GiB and 6 cores are wanted, 2.75 GiB and 8 are there"),
        ({"limit": 2 * GIB}, "b: room for 1 of 3: 3.75 GiB and 6 cores are wanted, 2.00 GiB and 8 are there"),
        (
            {"store": GIB // 16},
            "b: its object store has 64.00 MiB, where messages need 128.00 MiB: start Ray there with",
        ),
    ],
)
def test_a_machine_that_lacks_something_is_refused_by_name(lacking: dict[str, int], told: str) -> None:
    machines = [machine("a", cores=4), machine("b", **lacking)]
    nodes = dealt_to(machines, 6, WANTS)
    assert not nodes[1].fits
    with pytest.raises(MemoryLimitError) as refused:
        refuse_nodes(nodes)
    said = str(refused.value)
    assert told in said
    assert f"room for {room_of(nodes)} workers of 1.00 GiB and 2 cores each, where 6 are wanted. Use --workers" in said
    assert len(by_machine(nodes).rows) == 2
