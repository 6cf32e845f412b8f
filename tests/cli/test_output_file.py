"""A file that is named for output: refused before the work where it cannot be, and elsewhere when its place is lost."""

import os
from pathlib import Path

import pytest

from flatwater.cli.main import main
from flatwater.cli.output_file import check_output, write_output
from flatwater.errors import ConfigError, RunError


@pytest.fixture(autouse=True)
def _empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def refused(path: str, suffix: str = "") -> str:
    with pytest.raises(ConfigError) as wrong:
        check_output("--out", Path(path), suffix)
    return str(wrong.value)


def test_what_is_no_file_is_refused() -> None:
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    Path("circle").symlink_to("circle")
    Path("file").touch()
    assert "it is a pipe" in refused("pipe")
    assert "it is a pipe" in refused("link")
    assert "it is a device" in refused("/dev/zero")
    assert "it is a folder" in refused(".")
    assert "there is no folder" in refused("nowhere/told.json")
    assert "no file can be written there" in refused("file/told.json")
    assert "no file can be written there" in refused("circle/x")
    assert "no file can be written there" in refused("a" * 5000)
    assert "no file can be written there" in refused("a\0b")
    assert "must end in .html" in refused("a.txt", ".html")
    check_output("--out", Path("file"))
    check_output("--out", Path("new.html"), ".html")


def test_a_file_is_replaced_whole_also_behind_a_link() -> None:
    Path("target").write_bytes(b"before")
    Path("link").symlink_to("target")
    assert str(write_output(Path("link"), b"after")) == "link"
    assert Path("link").is_symlink()
    assert Path("target").read_bytes() == b"after"


def test_a_result_whose_place_is_lost_is_kept_elsewhere() -> None:
    Path("place").touch()  # what was a folder when it was looked at
    written = write_output(Path("place/told.json"), b"result")
    assert written.path == Path(".flatwater/told.json")
    assert written.path.read_bytes() == b"result"
    assert "cannot be written" in str(written)

    written.path.unlink()
    written.path.parent.rmdir()
    Path(".flatwater").touch()
    written = write_output(Path("place/told.json"), b"result")
    assert written.path.parent == Path("temporary").absolute()
    assert written.path.read_bytes() == b"result"

    written.path.unlink()
    written.path.parent.rmdir()
    Path("temporary").touch()
    with pytest.raises(RunError, match="No other place takes it either"):
        write_output(Path("place/told.json"), b"result")


PROGRAM = "import os, pathlib; os.rename('out', 'moved'); pathlib.Path('out').touch(); print('done')"


def test_a_watch_whose_folder_goes_keeps_its_result_and_the_programs_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("out").mkdir()
    assert main(["watch", "--json", "out/told.json", "--", "python3", "-c", PROGRAM]) == 0
    said = capfd.readouterr()
    assert said.out == "done\n"
    assert ".flatwater/told.json (" in said.err
    assert Path(".flatwater/told.json").read_text().startswith("{")


@pytest.mark.parametrize("option", [["--json", "/dev/full.json"], ["--html", "nowhere/a.html"], ["--seconds", "nan"]])
def test_a_program_is_not_started_for_a_result_that_nobody_can_have(
    option: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    if option[0] == "--json":
        Path("pipe.json").symlink_to("/dev/zero")
        option = ["--json", "pipe.json"]
    assert main(["watch", *option, "--", "python3", "-c", "print('started')"]) == 2
    assert "started" not in capfd.readouterr().out
