"""What the Dockerfile, the development container and the job scripts of docs/flatwater/operating.md name is there."""

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from flatwater.cli.main import find_command

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEVELOPMENT = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
PACKAGES = ("watch", "flatwater", "trading")
PROJECTS = {
    name: tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text())["project"] for name in PACKAGES
}
MAKEFILE = (ROOT / "Makefile").read_text()
OPERATING = (ROOT / "docs" / "flatwater" / "operating.md").read_text()
OPTIONS = (ROOT / "tests" / "options.txt").read_text()


def steps() -> list[tuple[str, str]]:
    """Instruction and argument of each step, continued lines as one."""
    lines = [line for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def arguments(name: str) -> list[str]:
    return [rest for step, rest in steps() if step == name]


def is_ignored(path: str) -> bool:
    """Whether .dockerignore leaves it out; the last rule that fits counts."""
    left_out = False
    for rule in (ROOT / ".dockerignore").read_text().split():
        if fnmatch(path, rule.removeprefix("!")):
            left_out = not rule.startswith("!")
    return left_out


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    copied = [word for rest in arguments("COPY") for word in rest.split()[:-1]]
    assert {"packages", "constraints.txt", "LICENSE"} <= {*copied}
    for name in copied:
        assert (ROOT / name).exists()
        assert not is_ignored(name)
    assert is_ignored("runs")
    assert is_ignored("packages/watch/tests")
    assert is_ignored(".venv")


def test_the_install_takes_the_pinned_versions_and_extras_that_exist() -> None:
    (install,) = [rest for rest in arguments("RUN") if "pip install" in rest]
    words = shlex.split(install)
    assert words[words.index("-c") + 1] == "/opt/flatwater/constraints.txt"
    places = [re.fullmatch(r"/opt/flatwater/packages/(\w+)(?:\[([\w,]+)\])?", word) for word in words[-len(PACKAGES) :]]
    assert [place[1] for place in places if place] == [*PACKAGES]
    for place in places:
        assert place is not None
        known = PROJECTS[place[1]].get("optional-dependencies", {}).keys()
        assert {*(place[2] or "").split(",")} - {""} <= known
    index = words[words.index("--extra-index-url") + 1]
    assert f"--extra-index-url {index}" in MAKEFILE
    assert f"--extra-index-url {index}" in DEVELOPMENT["postCreateCommand"]


def test_the_pins_agree() -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    groups = [each["dependencies"] for each in PROJECTS.values()]
    groups += [group for each in PROJECTS.values() for group in each.get("optional-dependencies", {}).values()]
    exact = [need for group in groups for need in group if "==" in need and not need.startswith("flatwater")]
    assert any(need.startswith("torch==") for need in exact)
    for need in exact:
        name, version = need.split(";")[0].strip().split("==")
        assert pinned[name] == version


def test_both_images_have_one_python_that_the_project_supports() -> None:
    versions = [re.fullmatch(r"python:(3\.\d+)(-slim)?", image) for image in (*arguments("FROM"), DEVELOPMENT["image"])]
    found = {version[1] for version in versions if version}
    assert len(found) == 1
    assert all(versions)
    (version,) = found
    for project in PROJECTS.values():
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]
        assert int(version[2:]) >= int(project["requires-python"].removeprefix(">=3."))


def test_the_program_gets_the_signals_and_exists() -> None:
    (entry,) = arguments("ENTRYPOINT")
    assert json.loads(entry) == ["flatwater"], "a list: a shell would keep the signals"
    assert "flatwater" in PROJECTS["flatwater"]["scripts"]
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    assert arguments("USER") == ["flatwater"]


def test_the_development_container_makes_a_target_of_the_makefile() -> None:
    program, target, *_ = shlex.split(DEVELOPMENT["postCreateCommand"])
    assert program == "make"
    assert f"READY := {target}" in MAKEFILE
    interpreter = DEVELOPMENT["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter == ".venv/bin/python"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", OPERATING, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def flatwater_calls(text: str) -> Iterator[list[str]]:
    """The words after `flatwater` of each call, in a script, a unit, a page or the head of the Dockerfile."""
    for line in text.splitlines():
        found = re.search(r"(?:^|/|\s)flatwater ((?:train|resume) .*)$", line)
        if found:
            yield shlex.split(found[1])


def options_of(command: str) -> str:
    """As written down, with those of a recipe that the command only names."""
    own = f"\n\n{OPTIONS}".split(f"\n\n{command}\n")[1].split("\n\n")[0]
    whole, _, recipe = own.partition("  and those of ")
    return whole + (options_of(recipe) if recipe else "")


@pytest.mark.parametrize("text", [DOCKERFILE, block("bash"), block("ini"), OPERATING], ids=list("dsiu"))
def test_every_call_names_a_command_and_options_that_exist(text: str) -> None:
    calls = [*flatwater_calls(text)]
    assert calls
    for words in calls:
        command = find_command(words)
        assert command is not None
        known = options_of(" ".join(("flatwater", *command)))
        for word in words:
            assert not word.startswith("--") or f"  {word}" in known, word


JOB = """
set -u
export PATH={bin}:$PATH SLURM_JOB_ID=7
. {script}
"""


@pytest.mark.parametrize(
    ("code", "begun", "calls"),
    [
        (0, False, ["train erl --rounds 500 --run runs/night --quiet"]),
        (0, True, ["resume runs/night --quiet"]),
        (138, True, ["resume runs/night --quiet", "requeue 7"]),
        (2, True, ["resume runs/night --quiet"]),
    ],
)
def test_the_job_of_slurm_resumes_and_is_queued_again_after_its_notice(
    code: int, *, begun: bool, calls: list[str], tmp_path: Path
) -> None:
    """The shell runs the script itself; programs of the cluster, which is not here, are those of this test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "srun": f'shift; echo "$@" >> {tmp_path}/calls; exit {code}',
        "scontrol": f'echo "$@" >> {tmp_path}/calls',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    if begun:
        (tmp_path / "runs" / "night").mkdir(parents=True)
        (tmp_path / "runs" / "night" / "config.toml").touch()
    script = tmp_path / "job.sh"
    script.write_text(block("bash"))
    ran = subprocess.run(["bash", "-c", JOB.format(bin=programs, script=script)], cwd=tmp_path, check=False)
    assert ran.returncode == code
    assert (tmp_path / "calls").read_text().splitlines() == calls


def test_the_unit_is_one_that_does_not_restart_what_would_fail_again() -> None:
    lines = dict(line.split("=", maxsplit=1) for line in block("ini").splitlines() if "=" in line)
    assert {"2", "3", "4"} <= {*lines["RestartPreventExitStatus"].split()}
    assert lines["KillMode"] == "mixed"
    assert lines["SuccessExitStatus"] == "143"
