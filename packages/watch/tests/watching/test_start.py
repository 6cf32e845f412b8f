"""What the watch loads into each watched program before its first line: each module and each class is paid by all."""

import subprocess
import sys

import pytest

AGENT = ("flatwater_watch.agent.start_in_process", "flatwater_watch.agent.process", "flatwater_watch.agent.step_hooks")
"""The modules that a watched process loads before the program's first line."""
RUNNER = ("flatwater_watch.faces.command", "flatwater_watch.faces.runner", "flatwater_watch.faces.summary_lines")
"""The modules that the command loads around a program in which nothing grows."""
COSTLY = {"hashlib", "pathlib", "platform", "textwrap", "traceback", "ipaddress", "subprocess", "msgspec", "rich"}
"""Modules that take a millisecond or more, and that a program without a finding does not need."""
COMPILED = 150
"""Maximum texts that are compiled while the watch is loaded: a frozen dataclass takes six, a NamedTuple one."""


def measure_import(modules: tuple[str, ...]) -> tuple[set[str], int]:
    """The modules that an import of some modules loads, and the number of texts that are compiled meanwhile.

    Modules themselves do not count: Python compiles the file of one only where it finds none of its own beside it.
    """
    source = f"""
import sys
before, compiled = set(sys.modules), []
sys.addaudithook(lambda event, given: compiled.append(given[1]) if event == "compile" else None)
import {", ".join(modules)}
print(*(set(sys.modules) - before), sum(str(file).startswith("<") for file in compiled))
"""
    # -S: what the environment loads at each start of Python is not the watch's.
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", path + source], capture_output=True, text=True, check=True
    ).stdout.split()
    return set(said[:-1]), int(said[-1])


def test_a_watched_program_loads_nothing_costly_that_only_a_finding_needs() -> None:
    modules, _ = measure_import(AGENT)
    assert {name for name in modules if name.startswith("flatwater_watch.agent.")} > {AGENT[0]}
    assert not modules & COSTLY
    assert not {name for name in modules if name.startswith(("flatwater_watch.faces", "flatwater_watch.pages"))}


def test_the_command_loads_no_hash_and_no_page_for_a_program_in_which_nothing_grows() -> None:
    modules, _ = measure_import(RUNNER)
    assert not modules & {"hashlib", "traceback", "msgspec", "rich", "jinja2", "plotly"}


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="dataclasses compile all functions of a class at once")
def test_classes_of_the_watch_are_made_from_few_texts() -> None:
    assert measure_import(AGENT)[1] <= COMPILED
