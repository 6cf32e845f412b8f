"""Names of code that stand in files, and who may import them."""

import sys
from pathlib import Path

import pytest
from hostile_runs import set_trap

from flatwater.named_imports import ForeignNameError, import_named_module, import_object, refuse_foreign_imports


@pytest.mark.parametrize("name", ["payload", "payload.deep", "unittest.__main__", "os", "flatwaters"])
def test_where_files_are_only_read_no_name_is_imported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = set_trap(tmp_path)
    monkeypatch.chdir(trap.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with refuse_foreign_imports(), pytest.raises(ForeignNameError, match="not imported"):
        import_named_module(name)
    assert trap.executed() == []


def test_names_of_ours_are_imported_without_the_folder_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in {"", str(tmp_path)}])
    with refuse_foreign_imports():
        assert import_object("flatwater_watch.units:format_bytes")(3) == "3 B"
    assert str(tmp_path) not in sys.path


def test_afterwards_a_name_that_a_user_types_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trap = set_trap(tmp_path)
    monkeypatch.chdir(trap.folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with refuse_foreign_imports():
        pass
    import_named_module("payload")
    sys.modules.pop("payload")
    assert trap.executed() == ["payload"], "the trap works"
