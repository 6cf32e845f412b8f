"""Fixtures of the tests of the watch."""

from pathlib import Path

import pytest
from running import Watched, runs_in


@pytest.fixture
def run_watched(tmp_path: Path) -> Watched:
    """Write a program and run it under `flatwater watch`."""
    return runs_in(tmp_path)
