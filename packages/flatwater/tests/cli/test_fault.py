"""The last resort: what nothing has caught is told in a sentence, and written down."""

import errno
import sys
from pathlib import Path
from typing import Any

import pytest

from flatwater.cli import main as entry
from flatwater.cli.main import EXIT_CODES, main


@pytest.fixture(autouse=True)
def _empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def failing(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Raised by a line that stands in a file of Flatwater: the tests' own lines are a user's."""
    made: dict[str, Any] = {"fault": fault, "__name__": entry.__name__}
    exec(compile("def fail(*_):\n    raise fault\n", entry.__file__, "exec"), made)
    monkeypatch.setattr(entry, "dispatch", made["fail"])
    return main(["runs", "\x1b[31m"])


def test_a_fault_of_ours_is_written_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(ZeroDivisionError("a\x1bb"), monkeypatch) == 70
    (kept,) = Path(".flatwater").glob("fault-*.txt")
    said = capsys.readouterr().err
    assert "fault of Flatwater, please report it (ZeroDivisionError)" in said
    assert str(kept.absolute()) in said
    assert "Traceback" not in said
    text = kept.read_text()
    assert "ZeroDivisionError" in text
    assert "Traceback" in text
    assert "command: ['runs', '\\x1b[31m']" in text
    assert " 70 " in EXIT_CODES


def test_where_the_folder_is_closed_the_temporary_one_takes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".flatwater").touch()
    assert failing(KeyError("x"), monkeypatch) == 70
    assert len(list(Path("temporary").glob("flatwater-*/fault-*.txt"))) == 1
    Path("temporary").rename("gone")
    Path("temporary").touch()
    assert failing(KeyError("x"), monkeypatch) == 70
    assert "Traceback" in capsys.readouterr().err  # nothing takes it: better there than nowhere


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (MemoryError(), 3, "no more memory"),
        (OSError(errno.ENOSPC, "No space left on device", "some/file"), 2, "some/file: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "some/file"), 2, "some/file: Permission denied"),
        (OSError(errno.EBADF, "Bad file descriptor"), 70, "please report it (OSError)"),
        (RecursionError("deep"), 70, "please report it (RecursionError)"),
    ],
)
def test_what_the_machine_refuses_is_no_fault_of_ours(
    fault: Exception, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(fault, monkeypatch) == code
    assert said in capsys.readouterr().err


TASK = """
import numpy as np


def images():
    return np.zeros((60, 8, 8)).reshape(7, -1), np.arange(60) % 4


def unread():
    return open("images.bin")


def cut():
    import no_such_package


def asked():
    from flatwater_watch.units import parse_bytes
    return parse_bytes(None)


def sized(size):
    return size


def left():
    raise SystemExit(0)
"""


@pytest.mark.parametrize(
    ("function", "code", "said"),
    [
        ("images", 2, "images() raised ValueError: cannot reshape array of size 3840"),
        ("images", 2, "(task_of_mine.py, line 5, in images)"),
        (
            "unread",
            2,
            "raised FileNotFoundError: [Errno 2] No such file or directory: 'images.bin' (task_of_mine.py, line 9,",
        ),
        ("cut", 2, "raised ModuleNotFoundError: No module named 'no_such_package' (task_of_mine.py, line 13, in cut)"),
        ("asked", 2, "(task_of_mine.py, line 18, in asked)"),
        (
            "sized",
            2,
            "argument: 'size' (task_of_mine.py, line 21, in sized). Expected a function without arguments",
        ),
        ("left", 2, "left() raised SystemExit: 0 (task_of_mine.py, line 26, in left)"),
        ("missing", 2, "task = 'task_of_mine:missing': it cannot be imported"),
    ],
)
def test_an_error_in_the_user_s_code_is_told_with_its_line(
    function: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("task_of_mine.py").write_text(TASK.lstrip("\n"))
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.delitem(sys.modules, "task_of_mine", raising=False)
    assert main(["plan", "grow", "--task", f"task_of_mine:{function}"]) == code
    told = " ".join(capsys.readouterr().err.split())
    assert said in told
    if function != "missing":
        (kept,) = Path(".flatwater").glob("fault-*.txt")
        assert str(kept.absolute()) in told
        assert "Traceback" in kept.read_text()


def test_a_module_of_the_user_s_that_is_no_python_is_told_with_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("unfinished_task.py").write_text("import numpy\n\ndef images(:\n")
    monkeypatch.syspath_prepend(Path.cwd())
    assert main(["plan", "grow", "--task", "unfinished_task:images"]) == 2
    assert "cannot be imported (invalid syntax (unfinished_task.py, line 3))" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_nul_character_is_refused_in_any_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a\0b"]) == 2
    assert "'a\\x00b': " in capsys.readouterr().err
