"""Makes `poisoned`, which plays worlds into poisoned arrays, importable by this folder's tests."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "wrapped"))
pytest.importorskip("mettagrid", reason="mettagrid has wheels for Python 3.11 and 3.12 alone")
