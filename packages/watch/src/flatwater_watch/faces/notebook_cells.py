"""Names of a notebook's cells: IPython gives their code made-up file names, and people know them by number."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from flatwater_watch.diagnose.evidence import CurrentContents, Evidence
from flatwater_watch.diagnose.finding import AllocationSite

MAIN, PROGRAM, NOTEBOOK = "__main__.", "the main program", "the notebook"
"""The beginning of owners in the main module, which is left out; words for the main module, and those in a notebook."""


def in_notebook() -> bool:
    """Return whether IPython runs this program, in a notebook or in a terminal."""
    return _running_shell() is not None


def _running_shell() -> Any:  # noqa: ANN401  (IPython's own class)
    """Return the running shell of IPython, without importing it; None if no shell runs."""
    module = sys.modules.get("IPython.core.interactiveshell")
    kind = None if module is None else vars(module)["InteractiveShell"]
    # `instance` alone would make a shell if none runs.
    return kind.instance() if kind is not None and kind.initialized() else None


def evidence_with_cell_names(cause: Evidence) -> Evidence:
    """Return the evidence with names such as `In[2]` for the files that IPython made up for cells.

    Outside of IPython it is returned as it is.
    """
    shell = _running_shell()
    if shell is None:
        return cause
    # Made-up file name -> number of the cell, in IPython 7.33 and later.
    numbers: Mapping[str, int] = vars(shell.compile).get("_filename_map", {})
    # Code that the magic of the last cell runs has the number of the next cell, which does not exist yet.
    last_cell = len(shell.user_ns["In"]) - 1
    cells = {file: f"In[{min(number, last_cell)}]" for file, number in numbers.items()}

    def text_with_cells(text: str) -> str:
        for file, cell in cells.items():
            text = text.replace(PurePath(file).name, cell)
        return text

    def site_with_cell(site: AllocationSite | None) -> AllocationSite | None:
        return None if site is None else replace(site, file=cells.get(site.file, site.file))

    contents = cause.newest_contents
    holders = tuple(text_with_cells(holder).replace(PROGRAM, NOTEBOOK) for holder in contents.holders)
    return replace(
        cause,
        owner=text_with_cells(cause.owner).removeprefix(MAIN),
        contents=CurrentContents(holders, contents.objects, text_with_cells(contents.what)),
        made_at=site_with_cell(cause.made_at),
        native_line=site_with_cell(cause.native_line),
    )
