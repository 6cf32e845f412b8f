"""A program behaves, and sees itself, under the watch as it does alone."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from running import environment

from flatwater_watch.faces.runner import watched_environment

TOGETHER = 4
"""Programs that run at once: most of them sleep."""
ADDRESS = re.compile(rb"0x[0-9a-f]{6,}|(?<=started )\d+|(?<=pid=)\d+")
"""What differs from one process to the next."""
LIVE = "import time as _t\n_e = _t.perf_counter() + 0.35\nwhile _t.perf_counter() < _e: _t.sleep(0.01)"
GROW = (
    "import time as _t\n_k, _e = [], _t.perf_counter() + 0.5\n"
    "while _t.perf_counter() < _e: _k.append(bytearray(300_000)); _t.sleep(0.005)"
)
REPLACED = """
import builtins, sys, time
real, now, sleep = builtins.NAME, time.perf_counter, time.sleep
class Own(RAISED): pass
def fails(*_, **__): raise Own('theirs')
end = now() + 0.4
builtins.NAME = fails
while now() < end:
    sleep(0.01)
builtins.NAME = real
print('ran')
"""
"""A builtin function that fails for a while: nothing that the program does meanwhile needs it."""
BUILTINS = (
    "isinstance", "len", "open", "issubclass", "getattr", "hasattr", "min", "max", "sorted", "sum", "dict", "list",
    "set", "tuple", "str", "int", "type", "super", "print", "range", "zip", "map", "iter", "next", "id", "any",
    "property", "Exception", "__import__", "__build_class__", "object", "callable", "enumerate", "repr",
)  # fmt: skip
Ended = tuple[int, bytes, bytes]


def programs() -> dict[str, str]:
    """The sources by name; a star before it says that it is run each time."""
    _, *written = re.split(r"^=== ", Path(__file__).with_name("awkward.txt").read_text(), flags=re.MULTILINE)
    found = {name: source for name, _, source in (each.partition("\n") for each in written)}
    found = {
        name: re.sub("^LIVE$", LIVE, re.sub("^GROW$", GROW, source, flags=re.MULTILINE), flags=re.MULTILINE)
        for name, source in found.items()
    }
    raised = [(name, "Exception") for name in BUILTINS] + [("isinstance", "BaseException")]
    for name, base in raised:
        star = "*" if name in {"isinstance", "len"} else ""
        found[f"{star}{name} replaced, raising {base}"] = REPLACED.replace("NAME", name).replace("RAISED", base)
    return found


PROGRAMS = programs()


def run_to_end(folder: Path, environ: dict[str, str]) -> Ended:
    """Exit code, output and errors of the program in a folder."""
    line = [sys.executable, str(folder / "train.py")]
    ran = subprocess.run(line, cwd=folder, env=environ, input=b"typed", capture_output=True, check=False, timeout=300)
    return ran.returncode, ADDRESS.sub(b"", ran.stdout), ADDRESS.sub(b"", ran.stderr)


def both(folder: Path, source: str) -> tuple[Ended, Ended]:
    """How it ends alone and watched. The runner starts a program just so."""
    notes, place = folder / "watch", folder / "place"
    notes.mkdir(mode=0o700)
    place.mkdir()
    (place / "train.py").write_text(source)
    plain = environment()
    return run_to_end(place, plain), run_to_end(place, watched_environment(notes, None, None, plain))


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ended, Ended]]:
    """By name, what the programs that are asked for did alone and watched."""
    asked = [item for item in request.session.items if isinstance(item, pytest.Function)]
    names = [item.callspec.params["name"] for item in asked if item.module is request.module]
    folders = [tmp_path_factory.mktemp("awkward") for _ in names]
    with ThreadPoolExecutor(TOGETHER) as pool:
        each = pool.map(lambda name, folder: both(folder, PROGRAMS[name]), names, folders)
        return dict(zip(names, each, strict=True))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name.startswith("*") else pytest.mark.slow) for name in PROGRAMS]
)
def test_a_program_is_the_same_under_the_watch(name: str, ran: dict[str, tuple[Ended, Ended]]) -> None:
    alone, watched = ran[name]
    assert watched == alone
