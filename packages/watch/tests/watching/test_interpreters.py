"""The watch runs in a bare interpreter, and an interpreter that is too old runs its program without it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

SOURCE = Path(__file__).parents[2] / "src"
PATH = f"import sys; sys.path[:0] = {[str(SOURCE), *sys.path]!r}"
MAIN = f"{PATH}; from flatwater_watch.faces.main import main; sys.exit(main())"
LEAK = """
import sys, time

KEPT = []
for n in range(60):
    KEPT.append(bytearray(1 << 20))
    time.sleep(0.02)
names = [name for name in sys.modules if name.split(".")[0] in ("psutil", "rich", "tyro", "numpy", "torch")]
print("%d %s %s" % (len(KEPT), names, "sitecustomize" in sys.modules))
sys.exit(5)
"""


def interpreter(version: str) -> str:
    """A Python of that version without packages, or the test is skipped."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{version}")
    if path is None:
        pytest.skip(f"Python {version} is not installed here")
    return path


def ran(folder: Path, words: list[str], *, watched: bool, path: str | None = None) -> tuple[int, str, str]:
    """Exit code, output and error output of a program with that PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {} if path is None else {"PYTHONPATH": path}
    # The packages of the command line are given to itself only.
    line = [sys.executable, "-S", "-c", MAIN, "run", "--json", "out.json", "--", *words] if watched else words
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, env=environment, timeout=120)
    return done.returncode, done.stdout, done.stderr


def unseen(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "out.json").read_text())["unseen"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_leak_is_found_in_a_bare_python(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    (tmp_path / "train.py").write_text(LEAK)
    alone = ran(tmp_path, [python, "-s", "train.py"], watched=False)
    code, out, _ = ran(tmp_path, [python, "-s", "train.py"], watched=True)
    assert (code, out) == alone[:2]
    assert alone[2] == ""
    summary = json.loads((tmp_path / "out.json").read_text())
    assert [found["owner"] for found in summary["findings"]] == ["train.KEPT"], summary["unseen"]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8", "3.9", "3.10"])
def test_an_older_python_runs_its_program_and_is_said_to_be_too_old(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    (tmp_path / "train.py").write_text("import os, sys\nprint(sorted(os.environ))\nsys.exit(5)\n")
    alone = ran(tmp_path, [python, "train.py"], watched=False)
    code, out, _ = ran(tmp_path, [python, "train.py"], watched=True)
    assert (code, out) == alone[:2]
    (sentence,) = unseen(tmp_path)
    assert re.search(rf" Python {re.escape(version)}; .*\b3\.11\b", sentence)


def test_what_is_put_into_a_program_imports_the_standard_library_alone() -> None:
    """-I and -S leave nothing else to import."""
    program = f"""
    import importlib.util, sys
    folder = {str(SOURCE / "flatwater_watch")!r}
    spec = importlib.util.spec_from_file_location(
        "flatwater_watch", folder + "/__init__.py", submodule_search_locations=[folder])
    sys.modules["flatwater_watch"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import flatwater_watch.agent.start_in_process, flatwater_watch.agent.process, flatwater_watch.agent.step_hooks
    print("all there")
    """
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", dedent(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "all there\n"


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "source",
    [
        "print('here')",
        "raise ValueError('mine')",
        "import missing_module",
        "import sys; sys.exit(4)",
        "syntax error",
        None,
    ],
)
def test_the_users_own_sitecustomize_does_what_it_does_without_the_watch(tmp_path: Path, source: str | None) -> None:
    own = tmp_path / "own"
    own.mkdir()
    if source is not None:
        (own / "sitecustomize.py").write_text(source)
    (own / "usercustomize.py").write_text("print('and the other')")
    (tmp_path / "train.py").write_text("import sys\nprint('sitecustomize' in sys.modules, sys.path)\n")
    python = interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}")
    alone = ran(tmp_path, [python, "train.py"], watched=False, path=str(own))
    code, out, told = ran(tmp_path, [python, "train.py"], watched=True, path=str(own))
    assert (code, out) == alone[:2]
    said = alone[2].splitlines() or [""]
    assert said[-1] in told  # the traceback of one that ends the interpreter has a line of ours more
