"""Phrases that messages are made of."""

import pytest

from flatwater_watch.phrases import install_command


@pytest.mark.parametrize(
    ("module", "command"),
    [("ale_py", "pip install ale-py"), ("ale_py.roms", "pip install ale-py"), ("jax.numpy", "pip install jax")],
)
def test_a_missing_module_is_installed_by_the_name_of_its_package(module: str, command: str) -> None:
    assert install_command(module) == command
