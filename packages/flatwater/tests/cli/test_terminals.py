"""What commands look like on a terminal of 80 and of 120 columns, without colour, and on a dumb one: kept as text.

python packages/flatwater/tests/cli/test_terminals.py     # write it anew, after a change that is meant
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "reports"))
from synthetic_run import make_run

KEPT = Path(__file__).with_name("terminals.txt")
MAIN = "import sys; from flatwater.cli.main import main; sys.exit(main())"
RESULT = (
    "import json, sys; from flatwater.cli.outcome import show_result; from flatwater_watch.terminal import terminal; "
    "from flatwater_trading.recipe.recipe import ERL; "
    "show_result(json.load(open('runs/first/result.json')), terminal(), ERL)"
)
COMMANDS = {
    "runs": (MAIN, "runs"),
    "top": (MAIN, "top", "runs/first", "--once"),
    "compare": (MAIN, "compare", "runs/first", "runs/second-with-a-longer-name"),
    "result": (RESULT,),
    "no run": (MAIN, "evaluate", "runs/third"),
    "no option": (MAIN, "train", "erl", "--population.sice", "4"),
}
TERMINALS = {
    "80": (80, {}),
    "120": (120, {}),
    "80, no colour": (80, {"NO_COLOR": "1"}),
    "80, dumb": (80, {"TERM": "dumb"}),
}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
VARIES = (
    (re.compile(r"^[\u2801-\u28ff] .*\n", re.MULTILINE), ""),  # a line that moves, as often as it was drawn
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|\b\d\d-\d\d \d\d:\d\d"), "TIME"),
    (re.compile(r"\d+(\.\d+)? (KiB|MiB)(?= +TIME)"), "SIZE"),
    (re.compile(r"[^\s]*/runs/"), "runs/"),
)


def terminal_output(folder: Path, words: tuple[str, ...], width: int, changes: dict[str, str]) -> str:
    """What a command writes to a terminal, byte for byte."""
    mine, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    known = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "FORCE_COLOR"}}
    environment = known | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)} | changes
    program = subprocess.Popen([sys.executable, "-c", *words], cwd=folder, stdout=other, stderr=other, env=environment)
    os.close(other)
    said = b""
    while True:
        try:
            said += (piece := os.read(mine, 1 << 16))
        except OSError:  # the other end is closed
            break
        if not piece:
            break
    program.wait()
    os.close(mine)
    return said.decode().replace("\r\n", "\n")


def steady(said: str) -> str:
    """The last state of each line, without what differs from run to run."""
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in CONTROL.sub("", said).split("\n"))
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return re.sub(r"\n\n+", "\n\n", text).strip("\n")


def folder_of_runs(folder: Path) -> Path:
    """Two runs, made up."""
    make_run(folder / "runs" / "first", 30)
    make_run(folder / "runs" / "second-with-a-longer-name", 12, wanted=20)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_runs(tmp_path_factory.mktemp("terminals"))


def kept_outputs() -> dict[str, str]:
    """By command and terminal."""
    parts = re.split(r"^=== (.*) ===\n", KEPT.read_text(), flags=re.MULTILINE)[1:]
    return {name: text.strip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


QUICK = {"80": ["runs", "top", "compare", "no option"], "80, dumb": ["runs", "no option"]}
"""Run by default, the dumb terminal with a table and with a refusal; the others are slow, as those that need torch."""


@pytest.mark.parametrize(
    ("terminal", "command"),
    [
        pytest.param(terminal, command, marks=() if command in QUICK.get(terminal, ()) else pytest.mark.slow)
        for terminal in TERMINALS
        for command in COMMANDS
    ],
)
def test_a_command_looks_as_it_did_and_fits(folder: Path, command: str, terminal: str) -> None:
    width, changes = TERMINALS[terminal]
    said = terminal_output(folder, COMMANDS[command], width, changes)
    assert max(map(len, steady(said).splitlines())) <= width
    if "TERM" in changes:
        assert not CONTROL.search(said)
    if "NO_COLOR" in changes:
        assert not re.search(r"\x1b\[[0-9;]*3[1-7]m", said)
    assert steady(said) == kept_outputs()[f"{command}, {terminal}"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        folder_of_runs(Path(place))
        texts = [
            f"=== {command}, {name} ===\n{steady(terminal_output(Path(place), words, width, changes))}\n"
            for command, words in COMMANDS.items()
            for name, (width, changes) in TERMINALS.items()
        ]
    KEPT.write_text("\n".join(texts))
