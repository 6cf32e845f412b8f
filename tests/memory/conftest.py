"""Tests of the finder see one user's module, as a program has it: their own, and not those of all tests around them."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the other tests' modules: how many there are depends on what else this process was given to run."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and TESTS in Path(file).parents and module is not request.module:
            monkeypatch.delitem(sys.modules, name)
