"""The last resort: what nothing has caught is told in a sentence, and written down."""

import errno
from pathlib import Path

import pytest

from flatwater.cli import main as entry
from flatwater.cli.main import EXIT_CODES, main


@pytest.fixture(autouse=True)
def _empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def failing(fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    def fail(*_: object) -> int:
        raise fault

    monkeypatch.setattr(entry, "dispatch", fail)
    return main(["runs", "\x1b[31m"])


def test_a_fault_of_ours_is_written_down(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(ZeroDivisionError("a\x1bb"), monkeypatch) == 70
    (kept,) = Path(".flatwater").glob("fault-*.txt")
    said = capsys.readouterr().err
    assert "this is a fault of Flatwater, please report it (ZeroDivisionError)" in said
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
    assert len(list(Path("temporary").glob("fault-*.txt"))) == 1
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


def test_a_nul_character_is_refused_in_any_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a\0b"]) == 2
    assert "'a\\x00b': holds a NUL character" in capsys.readouterr().err
