"""Draw docs/pictures/watch.svg: what `flatwater watch` prints of the program in docs/watch/out-of-memory.md."""

import os
import re
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from pages import ROOT
from rich.console import Console
from rich.text import Text

PAGE, PICTURE = ROOT / "docs" / "watch" / "out-of-memory.md", ROOT / "docs" / "pictures" / "watch.svg"
PROGRAM = re.compile(r'Path\("train\.py"\)\.write_text\("""(.*?)"""\)', re.DOTALL)
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
COLUMNS = 106


def watch_output() -> str:
    """Run the watch on the page's program, and return its output with its colours."""
    found = PROGRAM.search(PAGE.read_text())
    assert found is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(found[1])
        done = subprocess.run(
            [Path(sys.executable).with_name("flatwater"), "watch", "--", sys.executable, "train.py"],
            cwd=folder,
            env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)},
            check=True,
            capture_output=True,
            text=True,
        )
    assert "made at" in done.stderr  # where the machine is busy, the program may end before this is found out
    return done.stderr


def main() -> None:
    """Draw the output of the watch as a terminal."""
    console = Console(record=True, width=COLUMNS, file=StringIO())
    console.print(Text("$ flatwater watch -- python train.py", style="bold"))
    console.print(Text.from_ansi(watch_output().strip()))
    svg = console.export_svg(title="the program of docs/watch/out-of-memory.md")
    PICTURE.write_text(FONT.sub("", svg))  # a page without a network shows the system's own font


if __name__ == "__main__":
    main()
