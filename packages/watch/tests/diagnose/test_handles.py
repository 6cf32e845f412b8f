"""The container whose new items keep memory outside of Python, among those that became longer."""

import atexit
import re
from collections.abc import Callable
from types import ModuleType

import pytest

from flatwater_watch.diagnose.handles import find_handles
from flatwater_watch.diagnose.owners import Owner
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.raw import full_name
from flatwater_watch.heap.roots import Roots
from flatwater_watch.thresholds import MIB

Load = Callable[[str], ModuleType]
EACH = 256 << 10


def handles(program: ModuleType, *, rounds: int = 10, each: int = EACH) -> list[Owner]:
    """What is said of rounds that came with so many bytes each of which no object is."""
    program.turn()
    before = take_census(Roots()).without_objects()
    for _ in range(rounds):
        program.turn()
    return find_handles(before, take_census(Roots()), rounds * each)


SERVER = """
    import zlib
    SEEN, LOG, SHARED = [], [], zlib.compressobj()
    class Stream:
        def __init__(self, number):
            self.number, self.packer = number, {made}
    STREAMS = {{}}
    def turn():
        STREAMS[len(STREAMS)] = Stream(len(STREAMS))
        LOG.append(("accepted", len(STREAMS)))
"""


def test_the_container_of_handles_is_the_owner(load: Load) -> None:
    (owner,) = handles(load(SERVER.format(made="zlib.compressobj()")))
    assert (owner.path, owner.contents.count, owner.outside_python) == ("train.STREAMS", 11, True)
    assert owner.bytes_grown == 10 * EACH
    assert re.fullmatch(r"11 × Stream, .*\bCompress, .*256\.00 KiB outside of Python .*", owner.contents.what)
    assert owner.holders == ("train.py, global STREAMS", "dict of 11", "Stream")
    assert {full_name(type(one)) for one in owner.contents.leaves} == {("zlib", "Compress")}, (
        "their lines count, as bytes do"
    )


@pytest.mark.parametrize("made", ["SHARED", "object()", "{'packed': b''}", "number"])
def test_items_without_a_handle_of_their_own_are_none(made: str, load: Load) -> None:
    """One that all share came before them, and Python's own objects are counted whole."""
    assert handles(load(SERVER.format(made=made))) == []


def test_next_to_nothing_behind_an_item_is_no_handle(load: Load) -> None:
    assert handles(load(SERVER.format(made="zlib.compressobj()")), each=100) == []


def test_a_list_of_handles_alone_says_it_once(load: Load) -> None:
    (owner,) = handles(
        load("""
            import sqlite3
            OPEN = []
            def turn():
                OPEN.append(sqlite3.connect(":memory:"))
                OPEN[-1].close()  # else Python 3.13 warns when it is gone
        """),
        each=MIB,
    )
    assert re.fullmatch(r"11 × Connection, [^,]*1\.00 MiB outside of Python .*", owner.contents.what)


def test_what_atexit_keeps_is_told_by_its_number(load: Load) -> None:
    """Only C code knows the functions, and no walk comes to what they hold."""
    program = load("""
        import atexit
        def job(): pass
        def turn():
            atexit.register(job)
    """)
    try:
        (owner,) = handles(program, each=MIB)
        assert handles(program, rounds=9, each=72 * MIB) == [], "as many as a library registers when it is imported"
    finally:
        atexit.unregister(program.job)
    assert (owner.path, owner.bytes_grown) == ("atexit's callbacks", 10 * MIB)
    assert re.search(r"× Callback, .*1\.00 MiB with each$", owner.contents.what)
    assert "`atexit.unregister(function)`" in owner.rule_advice
