"""The notebooks among the pages: run cell by cell, and shown as pages of the site.

python scripts/documentation/notebooks.py     # run all, and keep what they print in them
"""

import argparse
import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs"
Notebook = dict[str, Any]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
MAXIMUM_LINES = 60
"""Lines of a cell's output that a notebook keeps."""


def read_notebook(path: Path) -> Notebook:
    """Read a notebook of format 4."""
    found: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return found


def run_notebook_(notebook: Notebook, folder: Path) -> None:
    """Run the cells one after the other in a folder, as Jupyter would, and keep what they print as their outputs.

    A line `!command` is run by the shell; the value of a cell's last expression is printed.

    Raises:
        Exception: what a cell raises.
    """
    # One namespace for all cells, as in Jupyter's kernel.
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                said = _run_cell("".join(cell["source"]), names)
                lines = CONTROL.sub("", said).rstrip().splitlines(keepends=True)[:MAXIMUM_LINES]
                cell["execution_count"] = number
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []


def _run_cell(source: str, names: dict[str, Any]) -> str:
    """Run a cell, and return what it prints."""
    if source.startswith("!"):
        # The commands of this environment come first, whatever is installed besides.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(  # noqa: S602  (a cell of ours)
            source[1:],
            shell=True,
            check=True,
            env={**os.environ, "COLUMNS": "100", "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return ran.stdout
    parsed = ast.parse(source)
    shown = parsed.body.pop() if parsed.body and isinstance(parsed.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(parsed, "<cell>", "exec"), names)  # noqa: S102  (same)
        if isinstance(shown, ast.Expr):
            value = eval(compile(ast.Expression(shown.value), "<cell>", "eval"), names)  # noqa: S307  (same)
            if value is not None:
                print(repr(value))
    return out.getvalue()


def as_page(notebook: Notebook) -> str:
    """Convert a notebook to Markdown: cells of code with their output below."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        language = "console" if text.startswith("!") else "python"
        parts.append(f"```{language}\n{text.replace('!', '$ ', 1) if language == 'console' else text}\n```")
        if said := "".join("".join(output["text"]) for output in cell["outputs"]).rstrip():
            parts.append(f"```\n{said}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Run all notebooks, and write them with their outputs."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path in sorted(PAGES.rglob("*.ipynb")):
        notebook = read_notebook(path)
        with tempfile.TemporaryDirectory() as folder:
            run_notebook_(notebook, Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
