"""Names of a notebook's cells: IPython gives their code made-up file names, and people know them by number."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from flatwater_watch.diagnose.finding import Finding

MAIN, PROGRAM, NOTEBOOK = "__main__.", "the main program", "the notebook"


def in_notebook() -> bool:
    """Whether IPython runs this program, in a notebook or in a terminal."""
    return _running_shell() is not None


def _running_shell() -> Any:  # noqa: ANN401  (IPython's own class)
    """The running shell of IPython, without importing it; None if none runs."""
    module = sys.modules.get("IPython.core.interactiveshell")
    kind = None if module is None else vars(module)["InteractiveShell"]
    return kind.instance() if kind is not None and kind.initialized() else None


def with_cell_names(finding: Finding) -> Finding:
    """The finding with `In[2]` for the file name that IPython made up for a cell; outside of IPython as it is."""
    shell = _running_shell()
    if shell is None:
        return finding
    numbers: Mapping[str, int] = vars(shell.compile).get("_filename_map", {})  # of IPython 7.33 and later
    last_cell = len(shell.user_ns["In"]) - 1  # code that a cell's magic runs has the number of the cell after it
    cells = {file: f"In[{min(number, last_cell)}]" for file, number in numbers.items()}

    def name_cells(text: str) -> str:
        for file, cell in cells.items():
            text = text.replace(PurePath(file).name, cell)
        return text

    line = finding.made_at
    if line is not None and line.file in cells:
        line = replace(line, file=cells[line.file])
    holders = (name_cells(holder).replace(PROGRAM, NOTEBOOK) for holder in finding.holders)
    return replace(
        finding,
        owner=name_cells(finding.owner).removeprefix(MAIN),
        holders=tuple(holders),
        made_at=line,
        what=name_cells(finding.what),
    )
