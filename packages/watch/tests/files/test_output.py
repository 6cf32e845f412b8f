"""A file that is named for output: what is there is replaced by its own kind alone, and a result is never lost."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flatwater_watch.errors import ConfigError, RunError
from flatwater_watch.faces.main import main
from flatwater_watch.files.output import (
    PAGE_OUTPUT,
    POLICY_OUTPUTS,
    WATCH_LOG,
    WATCH_RESULT,
    OutputKind,
    append_output,
    check_output,
    flatwater_folder_kind,
    replace_output,
    table_kind,
    write_fallback,
    write_output,
)

POSITIONS = table_kind("a table of positions", ("instrument", "shares"))
OWN = {
    "page.html": (PAGE_OUTPUT, b"<!doctype html>\n<title>x \xc2\xb7 Flatwater</title>"),
    "watch.json": (WATCH_RESULT, b'{\n "program": "x",\n "unit": "step"}'),
    "watch.log": (WATCH_LOG, b"2026-11-26 10:00\nlines\n"),
    "held.csv": (POSITIONS, b"\xef\xbb\xbfinstrument,note,shares\r\n"),
    "policy.pt2": (POLICY_OUTPUTS[".pt2"], b"PK\x03\x04x"),
    "policy.onnx": (POLICY_OUTPUTS[".onnx"], b"\x08\x0a\x12\x07pytorch"),
    "policy.safetensors": (POLICY_OUTPUTS[".safetensors"], b'\x60\0\0\0\0\0\0\0{"__metadata__":{"flatwater":"{}"}}'),
}
OTHERS = (
    b"seed = 3\n",
    b"symbol,date,close\nA,2000-01-03,1\n",
    b"\0",
    b"{}",
    b"<html>mine</html>",
    b"PAR1",
    b"#!/bin/sh\n",
)


@pytest.fixture(autouse=True)
def _empty_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def refusal(path: str, kind: OutputKind = PAGE_OUTPUT) -> str:
    with pytest.raises(ConfigError) as wrong:
        check_output("--out", Path(path), kind)
    return str(wrong.value)


@pytest.mark.parametrize("name", OWN)
def test_a_file_takes_the_place_of_its_own_kind_alone(name: str) -> None:
    kind, own = OWN[name]
    place = Path(name)
    for content in (None, b"", own):
        if content is not None:
            place.write_bytes(content)
        check_output("--out", place, kind)
        replace_output(place, own, kind)
        assert place.read_bytes() == own
    for content in (*OTHERS, *(other for found, other in OWN.values() if found != kind)):
        place.write_bytes(content)
        assert "not replaced" in refusal(name, kind)
        with pytest.raises(RunError):
            replace_output(place, own, kind)
        with pytest.raises(OSError, match="not replaced"):
            append_output(place, "x", kind)
        assert place.read_bytes() == content


@pytest.mark.parametrize(
    "name", ["config.toml", "prices.csv", "page", ".html", "-", "", "x.htm", "x.HTML", "a/..", "."]
)
def test_a_name_that_ends_otherwise_is_refused(name: str) -> None:
    assert "end in .html" in refusal(name)


def test_what_is_no_file_is_refused() -> None:
    os.mkfifo("pipe.html")
    Path("folder.html").mkdir()
    Path("file").touch()
    Path("circle").symlink_to("circle")
    Path("zero.html").symlink_to("/dev/zero")
    assert "a pipe" in refusal("pipe.html")
    assert "a folder" in refusal("folder.html")
    assert "a link, to /dev/zero" in refusal("zero.html")
    assert "no folder" in refusal("nowhere/watch.html")
    for name in ("file/watch.html", "circle/x.html", f"{'a' * 5000}.html", f"{'a' * 240}.html", "a\0b.html"):
        assert "no file" in refusal(name)
    for name in ("a\nb.html", "\x1b]0;x\x07.html", "\u202e.html", "\udcff.html"):
        assert "characters" in refusal(name)
    assert [path.name for path in Path().iterdir() if path.is_file()] == ["file"]


@pytest.mark.parametrize("target", ["missing", "config.toml", "page.html"])
def test_no_link_is_followed(target: str) -> None:
    Path("page.html").write_bytes(OWN["page.html"][1])
    Path("config.toml").write_text("seed = 3\n")
    Path("link.html").symlink_to(target)
    assert "a link, to " in refusal("link.html")
    written = write_output(Path("link.html"), b"after", PAGE_OUTPUT)
    assert written.path == Path(".flatwater/link.html")
    assert Path("link.html").is_symlink()
    assert Path("config.toml").read_text() == "seed = 3\n"
    assert Path("page.html").read_bytes() == OWN["page.html"][1]
    assert not Path("missing").exists()


def test_a_hard_link_of_a_file_of_another_kind_is_not_replaced() -> None:
    Path("config.toml").write_text("seed = 3\n")
    os.link("config.toml", "page.html")
    assert "not replaced" in refusal("page.html")


def a_run(folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.toml").write_text('trainer = "erl"\n')
    return folder


def a_sweep(folder: Path) -> Path:
    folder.mkdir()
    for name in ("base.toml", "space.toml"):
        (folder / name).touch()
    a_run(folder / "trial-0000")
    return folder


@pytest.mark.parametrize("make", [a_run, a_sweep])
@pytest.mark.parametrize("way", ["{}", "./{}/../{}", "link", "/{absolute}", "{}/checkpoints/.."])
def test_no_name_that_flatwater_uses_in_a_folder_of_its_own_is_taken(make: Callable[[Path], Path], way: str) -> None:
    own = make(Path("own"))
    Path("link").symlink_to(own)
    (own / "checkpoints").mkdir(exist_ok=True)
    folder = way.format("own", "own", absolute=own.absolute())
    for name in ("result.json", ".lock.json", "checkpoints/x.json", "logs/x.json", "tensorboard/x.json"):
        (own / name).parent.mkdir(exist_ok=True)
        assert f"folder of {flatwater_folder_kind(own)}" in refusal(f"{folder}/{name}", WATCH_RESULT)
    assert "folder of" in refusal(f"{folder}/report.html")
    assert "folder of" in refusal(f"{folder}/run.log", WATCH_LOG)
    check_output("--out", Path(folder, "report.html"), PAGE_OUTPUT, run_default=own / "report.html")
    check_output("--out", Path(folder, "mine.html"), PAGE_OUTPUT)
    check_output("--out", Path(folder, "policy.onnx"), POLICY_OUTPUTS[".onnx"])


def test_a_folder_of_the_users_with_such_names_is_none() -> None:
    Path("config.toml").write_text("[project]\nlr = 3\n")
    Path("checkpoints").mkdir()
    assert flatwater_folder_kind(Path()) == ""
    check_output("--json", Path("watch.json"), WATCH_RESULT)
    check_output("--json", Path("checkpoints/watch.json"), WATCH_RESULT)


def test_a_result_whose_place_is_lost_is_kept_elsewhere() -> None:
    Path("place").touch()  # what was a folder when it was looked at
    written = write_output(Path("place/watch.json"), b"result", WATCH_RESULT)
    assert written.path == Path(".flatwater/watch.json")
    assert written.path.read_bytes() == b"result"
    assert str(written).startswith(".flatwater/watch.json (place/watch.json ")

    again = write_output(Path("place/watch.json"), b"another", WATCH_RESULT)
    assert again.path.parent == Path(".flatwater")
    assert (written.path.read_bytes(), again.path.read_bytes()) == (b"result", b"another")

    for path in Path(".flatwater").iterdir():
        path.unlink()
    Path(".flatwater").rmdir()
    Path(".flatwater").touch()
    written = write_output(Path("place/watch.json"), b"result", WATCH_RESULT)
    assert written.path.parent.parent == Path("temporary").absolute()
    assert written.path.parent.stat().st_mode & 0o77 == 0
    assert written.path.read_bytes() == b"result"

    shutil.rmtree("temporary")
    Path("temporary").touch()
    with pytest.raises(RunError, match="No other place"):
        write_output(Path("place/watch.json"), b"result", WATCH_RESULT)


def test_what_is_kept_goes_through_no_link_of_somebody_elses() -> None:
    Path("theirs").mkdir()
    Path(".flatwater").symlink_to("theirs")
    kept = write_fallback("fault.txt", b"secret")
    assert kept is not None
    assert kept.is_relative_to(Path("temporary").absolute())
    assert [*Path("theirs").iterdir()] == []


PROGRAM = "import os, pathlib; os.rename('out', 'moved'); pathlib.Path('out').touch(); print('done')"


def test_a_watch_whose_folder_goes_keeps_its_result_and_the_programs_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("out").mkdir()
    assert main(["run", "--json", "out/watch.json", "--", "python3", "-c", PROGRAM]) == 0
    said = capfd.readouterr()
    assert said.out == "done\n"
    assert ".flatwater/watch.json (" in said.err
    assert Path(".flatwater/watch.json").read_text().startswith("{")


@pytest.mark.parametrize(
    "option", [["--json", "zero.json"], ["--html", "nowhere/a.html"], ["--seconds", "nan"], ["--json", "prices.json"]]
)
def test_a_program_is_not_started_for_a_result_that_nobody_can_have(
    option: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("zero.json").symlink_to("/dev/zero")
    Path("prices.json").write_text("[1, 2]")
    assert main(["run", *option, "--", "python3", "-c", "print('started')"]) == 2
    assert "started" not in capfd.readouterr().out
    assert Path("prices.json").read_text() == "[1, 2]"
