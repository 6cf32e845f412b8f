"""Modules that are made at run time are items of `sys.modules`; imported ones are code, and not entered."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.modules import imported_module_count, is_runtime_file, open_module, runtime_modules
from flatwater_watch.heap.roots import Roots, user_modules
from flatwater_watch.heap.view import OPAQUE, Walk

COUNT, TEXT = 30, "x" * 40_000


@pytest.fixture
def module_names() -> Iterator[list[str]]:
    """Names of modules that are taken out of `sys.modules` again."""
    runtime_modules()  # those of the tests before
    names: list[str] = []
    yield names
    for name in names:
        sys.modules.pop(name, None)


def _walk() -> Walk:
    return Walk(24, lambda _: False, 1000)


def test_schemas_that_are_parsed_to_modules_are_weighed_below_sys_modules(module_names: list[str]) -> None:
    imported = imported_module_count()
    for number in range(COUNT):
        schema: Any = ModuleType(f"schema_{number}")
        schema.table = [f"{number} {TEXT}" for _ in range(4)]
        sys.modules[schema.__name__] = schema
        module_names.append(schema.__name__)
    holding = take_census(Roots()).holdings["sys.modules"]
    assert holding.length >= COUNT
    assert holding.bytes >= COUNT * 2 * len(TEXT)
    assert imported_module_count() < imported + COUNT, "modules made at run time are not counted"


def test_a_file_that_is_loaded_under_many_names_is_a_users_module_once(tmp_path: Path, module_names: list[str]) -> None:
    file = tmp_path / "rates.py"
    file.write_text("RATES = [1, 2, 3]")
    for number in range(3):
        name = f"rates_{number}"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
        module_names.append(name)
    assert [name for name in user_modules(Roots()) if name in module_names] == ["rates_0"]
    assert [name for name in runtime_modules() if name in module_names] == ["rates_1", "rates_2"]
    assert is_runtime_file(str(file))


@pytest.mark.usefixtures("module_names")
def test_one_that_only_an_object_holds_is_entered_and_an_imported_one_is_not() -> None:
    template: Any = ModuleType("memory:0x7f00")
    template.body = [TEXT]
    assert [name for name, _ in open_module(template, _walk()).parts] == [".body"]
    assert open_module(sys.modules["json"], _walk()) is OPAQUE


def test_an_imported_module_under_a_second_name_is_code(module_names: list[str]) -> None:
    """As `os.path` is `posixpath`: it was taken for data that the program makes."""
    sys.modules["a_second_name_of_json"] = sys.modules["json"]
    module_names.append("a_second_name_of_json")
    assert "a_second_name_of_json" not in runtime_modules()
    assert open_module(sys.modules["json"], _walk()) is OPAQUE
