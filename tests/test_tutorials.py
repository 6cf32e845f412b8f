"""The notebooks among the pages run from their first cell to their last, and show what they print."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs").rglob("*.ipynb"))
sys.path.append(str(ROOT / "scripts" / "documentation"))
import notebooks  # noqa: E402  (a script, and no package)


@pytest.mark.slow  # up to three quarters of a minute: their steps are those of other tests
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = notebooks.read_notebook(path)
    kept = [bool(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    notebooks.run_notebook_(notebook, tmp_path)
    now = [bool(cell["outputs"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert now == kept, "run scripts/documentation/notebooks.py, and keep what it writes"


def test_there_are_three() -> None:
    assert [path.stem for path in TUTORIALS] == ["own-environment", "quant", "leak"]


def test_a_page_shows_cells_with_what_they_print() -> None:
    code = {"cell_type": "code", "source": ["1 + 1"], "outputs": []}
    shell = {"cell_type": "code", "source": ["!echo a"], "outputs": []}
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# Title"]}, code, shell]}
    notebooks.run_notebook_(notebook, ROOT)
    assert json.dumps(notebook["cells"][1]["outputs"][0]["text"]) == '["2"]'
    page = notebooks.as_page(notebook)
    assert page == "# Title\n\n```python\n1 + 1\n```\n\n```\n2\n```\n\n```console\n$ echo a\n```\n\n```\na\n```\n"
