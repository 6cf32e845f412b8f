"""Programs for the census to look at: modules of a user, loaded from a file that no library owns."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType

import pytest

Load = Callable[..., ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Run a source text as the module `train`, or another name, as if it had been imported from a user's folder."""
    loaded = []

    def run(source: str, name: str = "train") -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(dedent(source))
        module = ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        loaded.append(name)
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
        return module

    yield run
    for name in loaded:
        vars(sys.modules.pop(name)).clear()
