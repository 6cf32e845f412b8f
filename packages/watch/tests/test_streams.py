"""Output that cannot be printed: one line on stderr, and an exit code that says so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = "import sys; from flatwater_watch.faces.main import main; sys.exit(main())"
ALONE = ("run", "--json", "--", "program.py")


def run_piped(folder: Path, words: tuple[str, ...], pipe: str) -> tuple[int, str]:
    """Exit code and stderr of the command, with its stdout led elsewhere by a shell."""
    (folder / "program.py").write_text("")
    line = ["bash", "-c", f'"$@" {pipe}', "bash", sys.executable, "-c", MAIN, *words]
    ran = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return ran.returncode, ran.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ALONE])
def test_output_on_a_full_disk_is_a_failure(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, said = run_piped(tmp_path, words, ">/dev/full")
    assert (code, said.count("Traceback")) == (2, 0)
    assert said.splitlines()[-1].startswith("error: stdout: No space left on device")


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ALONE])
def test_a_reader_may_end_early(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, said = run_piped(tmp_path, words, "> >(exec true)")
    assert code in {0, 141}  # 0: all of it went into the pipe
    assert "Traceback" not in said


def test_help_is_given_where_stdout_is_closed(tmp_path: Path) -> None:
    assert run_piped(tmp_path, ("--help",), ">&-") == (0, "")


def test_a_programs_own_exit_code_goes_before(tmp_path: Path) -> None:
    words = ("run", "--json", "--", sys.executable, "-c", "raise SystemExit(3)")
    assert run_piped(tmp_path, words, ">/dev/full")[0] == 3
    assert json.loads((tmp_path / ".flatwater/watch/last.json").read_text())["outcome"]
