"""The pages say what is: settings, metrics, files, commands, links and dependencies are compared with the code."""

import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flatwater
import flatwater_watch
from flatwater.cli.main import (
    INTERRUPTED,
    _make_reader,
    _SelfParsing,
    command_class,
    find_command,
    main,
    redirect_command,
)
from flatwater.config.mappings import to_mapping
from flatwater.config.toml import dumps_config
from flatwater.memory.planner import group_bytes
from flatwater.metrics.jsonl import read_metrics
from flatwater.recipe import find_installed_recipe, recipe_names
from flatwater.rundir.layout import RunFolder
from flatwater.runs.session import BUDGET_EXIT
from flatwater.runs.signals import STOP_CODES
from flatwater_watch.errors import FlatwaterError
from flatwater_watch.faces.command import WatchCommand
from flatwater_watch.options.declare import field_docs
from flatwater_watch.streams import BROKEN_PIPE_STATUS

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *(ROOT / "docs").rglob("*.md")]
PROJECTS = [tomllib.loads(path.read_text())["project"] for path in sorted(ROOT.glob("packages/*/pyproject.toml"))]
"""Of the three distributions."""
REQUIREMENTS = (ROOT / "requirements.txt", ROOT / "benchmarks" / "requirements.txt")
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SMALL: dict[str, Any] = {"envs": 2, "block": 16, "threads": 1, "evaluation": {"envs": 2}, "wrapped": {"steps": 20}}
SETTINGS = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "documentation" / "settings_reference.py")))
FIRST = ROOT / "docs" / "trading" / "configuration.md"
SETTINGS_PAGES = {found[1]: page for page in PAGES if (found := SETTINGS.MARKER.search(page.read_text()))}


def commands(program: str) -> list[str]:
    """Every line that a page tells the reader to type, without its comment."""
    lines = [line for page in PAGES for block in CONSOLE.findall(page.read_text()) for line in block.splitlines()]
    typed = [line.removeprefix("$ ").split(" #")[0].strip() for line in lines if line.startswith("$ ")]
    typed = [line.removeprefix(".venv/bin/") for line in typed]
    return sorted({line for line in typed if shlex.split(line)[0] == program})


def built_page(page: Path) -> str:
    """A page as the site shows it: with the settings of the recipe that it names."""
    return str(SETTINGS.complete_page(page.read_text()))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", built_page(page)), re.MULTILINE)
    return {SETTINGS.heading_anchor(heading) for heading in headings}


def without_none(mapping: dict[str, Any]) -> dict[str, Any]:
    below = {name: without_none(value) if isinstance(value, dict) else value for name, value in mapping.items()}
    return {name: value for name, value in below.items() if value is not None}


def sentences(config: Any) -> Iterator[str]:
    """What the classes of a configuration say about each setting, as one line."""
    for f in fields(config):
        below = getattr(config, f.name)
        if is_dataclass(below):
            yield from sentences(below)
        else:
            yield " ".join(field_docs(type(config))[f.name].split())


def test_every_recipe_has_a_page_of_its_settings() -> None:
    assert sorted(SETTINGS_PAGES) == sorted(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_the_settings_on_the_site_are_the_default_configuration_each_with_its_sentence(name: str) -> None:
    """What is alike in every run stands on the first page, to which the others have links."""
    recipe = find_installed_recipe(name)
    assert recipe is not None
    config, page = recipe.config(), built_page(SETTINGS_PAGES[name])
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for section in re.findall(r"\(\.\./trading/configuration\.md#(\w+)\)", page):
        blocks += re.findall(rf"^```toml\n(\[{section}\]\n.*?)^```", built_page(FIRST), re.MULTILINE | re.DOTALL)
    together = "\n".join(blocks)
    # What has no value stands there as a comment.
    assert tomllib.loads(together) == without_none(to_mapping(config))
    assert "# budget =" in together
    kept = {line for line in dumps_config(config).splitlines() if " = " in line}
    assert kept <= set(together.splitlines())
    comments = " ".join(" ".join(line.removeprefix("#") for line in together.splitlines()).split())
    assert [said for said in sentences(config) if said not in comments] == []


EARLY = ("--replay.warmup", "100")
"""A run of two generations plays too little for the replay's default."""


def small_run(folder: Path, *options: str) -> RunFolder:
    cache = pytest.MonkeyPatch()
    cache.setenv("XDG_CACHE_HOME", str(folder.parent))
    small = str(ROOT / "examples" / "trading" / "small.toml")
    assert main(["train", "erl", "--config", small, "--run", str(folder), *options]) == 0
    cache.undo()
    return RunFolder(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A whole run of seconds, started as the pages say."""
    return small_run(tmp_path_factory.mktemp("docs") / "run")


@pytest.fixture(scope="module")
def replayed_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same, learning from what was played."""
    return small_run(tmp_path_factory.mktemp("docs") / "run", "--learner.algorithm", "ddpg", *EARLY)


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The same with actions that are drawn."""
    return small_run(tmp_path_factory.mktemp("docs") / "run", "--learner.algorithm", "sac", *EARLY)


@pytest.mark.long
def test_every_metric_is_explained_and_every_explained_metric_is_written(
    run: RunFolder, replayed_run: RunFolder, drawn_run: RunFolder
) -> None:
    page = (ROOT / "docs" / "flatwater" / "run-folder.md").read_text()
    tables = page.split("<!-- metrics:")[1].split("<!-- end of metrics -->")[0]
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", tables, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }
    written = set[str]()
    for each in (run, replayed_run, drawn_run):
        owners = {f"memory/{owner}" for owner in group_bytes(json.loads(each.plan.read_text())["owners"], depth=2)}
        written |= set(read_metrics(each.metrics)) - owners
    assert explained - {"memory/<owner>", "memory/replay.action"} == written


@pytest.mark.long
def test_every_file_of_a_run_is_explained(run: RunFolder) -> None:
    page = (ROOT / "docs" / "flatwater" / "run-folder.md").read_text().split("## The table")[0]
    explained = {name.rstrip("/") for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)}
    left = {path.name for path in run.path.iterdir() if not path.name.startswith(".")}
    assert left <= explained
    assert explained - left == {
        run.looks.name,
        run.report.name,
        run.origin.name,  # of forks
        run.sections.name,  # of recipes that do not ship
        run.tracker("wandb").name,
        run.tracker("package.module:Class").name,
        run.mirror.name,
        run.profile.name,
    }  # where they are asked for


LISTED_FOLDERS = (ROOT / "docs" / "adr", ROOT / "benchmarks" / "notes")
"""Folders that have a page on the site; a page there cannot have a link to another folder."""


def test_links_lead_somewhere() -> None:
    broken = []
    for page in [*PAGES, *(ROOT / "benchmarks").rglob("*.md")]:
        for target in LINK.findall(FENCED.sub("", page.read_text())):
            path, _, fragment = target.partition("#")
            if "://" in target:
                continue
            there = (page.parent / path).resolve() if path else page
            needs_file = page.is_relative_to(ROOT / "docs") and there not in LISTED_FOLDERS
            if not (there.is_file() if needs_file else there.exists()) or (fragment and fragment not in anchors(there)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert not broken


IMPORTED = re.compile(r"\b(?:from (flatwater\w*(?:\.\w+)*) import (\([^)]*\)|[\w, ]+)|import (flatwater\w*\.[\w.]+))")
TYPED = [*PAGES, *(ROOT / "docs").rglob("*.ipynb"), *(ROOT / "examples").rglob("*.py")]


def public_names() -> dict[str, set[str]]:
    """Package -> the names that its `__init__.pyi` offers."""
    return {
        ".".join(stub.parent.relative_to(source).parts): {
            line.split()[-1] for line in stub.read_text().splitlines() if line.startswith("from")
        }
        for source in ROOT.glob("packages/*/src")
        for stub in source.rglob("__init__.pyi")
    }


@pytest.mark.parametrize("path", TYPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_examples_import_public_names_alone(path: Path) -> None:
    public, text = public_names(), path.read_text()
    private = [f"fw.{name}" for name in re.findall(r"\bfw\.(\w+)", text) if name not in public["flatwater"]]
    for package, names, whole in IMPORTED.findall(text):
        if whole or package not in public:
            private.append(whole or package)
        else:
            private += [f"{package}.{name}" for name in {*re.findall(r"\w+", names)} - public[package]]
    assert private == []


@pytest.mark.parametrize("line", commands("flatwater-watch"))
def test_commands_of_the_finder_in_the_pages_are_commands(line: str) -> None:
    """The same for `flatwater-watch`, whose command stands after the options."""
    assert callable(WatchCommand.read("flatwater-watch run", shlex.split(line)[2:]))


@pytest.fixture(scope="session")
def begun_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one round, for commands whose options are the settings of a run."""
    return flatwater.train("ppo", run=tmp_path_factory.mktemp("runs") / "ppo", rounds=1, quiet=True, **SMALL).path


@pytest.mark.parametrize("line", commands("flatwater"))
def test_commands_in_the_pages_are_commands(line: str, request: pytest.FixtureRequest) -> None:
    """Read by the command line as they stand; not run."""
    words = shlex.split(line)[1:]
    command = find_command(words)
    assert command is not None
    options = words[len(command) :]
    if "--config" in options:  # the file is the reader's
        options[options.index("--config") + 1] = str(ROOT / "examples" / "trading" / "small.toml")
    options = ["3" if word == "N" else word for word in options]
    if command == ("fork",):  # the run is the reader's as well
        options[0] = str(request.getfixturevalue("begun_run"))
    if "--help" not in options:
        command, given = redirect_command(command, options)
        interface: Any = command_class(command)
        read = interface.read if isinstance(interface, _SelfParsing) else _make_reader(interface)
        assert callable(read(line, given))


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_make_targets_in_the_pages_exist() -> None:
    typed = {shlex.split(line)[1] for line in commands("make")}
    assert typed
    assert typed <= TARGETS


def test_the_workflow_runs_the_gate_on_every_version_that_is_promised() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "run: .ci/run" in workflow
    assert (ROOT / ".ci" / "run").is_file()
    asked = re.findall(r"^ +tests: \[(.*)\]", workflow, re.MULTILINE)[0].split(", ")
    assert set(asked) <= TARGETS
    tested = re.findall(r'"(3\.\d+)"', workflow.split("python: [")[1].split("]")[0])
    for project in PROJECTS:
        assert re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"])) == tested


def test_what_is_cited_is_this_version() -> None:
    cited = (ROOT / "CITATION.cff").read_text()
    for project in PROJECTS:
        assert f"version: {project['version']}\n" in cited
        assert f"license: {project['license']}\n" in cited


def test_every_dependency_has_its_reason() -> None:
    asked = [line for path in REQUIREMENTS for line in path.read_text().splitlines() if line and line[0] != "#"]
    for project in PROJECTS:
        asked += project["dependencies"]
        asked += [name for extra in project["optional-dependencies"].values() for name in extra]
    wanted = {re.split(r"[^A-Za-z0-9_-]", text)[0] for text in asked} - {"flatwater", "flatwater-watch"}
    page = (ROOT / "docs" / "adr" / "0007-dependencies.md").read_text()
    assert set(re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)) == wanted


def test_the_leaking_example_is_found(tmp_path: Path) -> None:
    program, told = ROOT / "examples" / "watch" / "service.py", tmp_path / "watch.json"
    assert flatwater_watch.main(["run", "--json", str(told), "--", sys.executable, str(program)]) == 0
    (found,) = json.loads(told.read_text())["findings"]
    line = next(at for at, text in enumerate(program.read_text().splitlines(), 1) if "ANSWERS[request]" in text)
    assert (found["verdict"], found["owner"], found["made_at"]["line"]) == ("leak", "service.ANSWERS", line)


def test_the_pendulum_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A swing-up return lies between -16.3 a step (hanging, spinning, full torque) and 0."""
    monkeypatch.setattr("sys.argv", ["pendulum.py", "--episodes", "1"])
    runpy.run_path(str(ROOT / "examples" / "flatwater" / "pendulum.py"), run_name="__main__")
    returns = [float(word) for word in capsys.readouterr().out.split()[2:]]
    assert len(returns) == 4
    assert all(-16.3 * 200 < value < 0 for value in returns)


def test_the_stacked_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["stacked.py", "--steps", "300"])
    runpy.run_path(str(ROOT / "examples" / "flatwater" / "stacked.py"), run_name="__main__")
    easiest, hardest = (float(word) for word in re.findall(r"\d\.\d+", capsys.readouterr().out))
    assert easiest < 0.01
    assert hardest < 0.2, "a straight line comes to 0.5"


def test_the_replay_for_another_library_trains() -> None:
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    buffer = runpy.run_path(str(ROOT / "examples" / "flatwater" / "sb3_replay.py"))["RingBuffer"]
    model = sb3.SAC(
        "MlpPolicy", "Pendulum-v1", replay_buffer_class=buffer, buffer_size=2_000, learning_starts=50, seed=0
    )
    model.learn(120)
    assert int((model.replay_buffer.ring.priorities.mass > 0).sum()) == 120


def test_benchmarks_in_the_pages_exist() -> None:
    named = {name for page in PAGES for name in re.findall(r"(?:\w+/)*bench_[a-z_]+\.py", page.read_text())}
    there = [path.as_posix() for path in (ROOT / "benchmarks").rglob("bench_*.py")]
    assert named
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


def test_every_exit_code_is_explained() -> None:
    table = (ROOT / "docs" / "flatwater" / "resume.md").read_text().split("## Exit codes")[1]
    codes = re.findall(r"\d+", " ".join(re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)))
    known = (0, INTERRUPTED, BROKEN_PIPE_STATUS, *STOP_CODES, BUDGET_EXIT, FlatwaterError.exit_code)
    assert {str(code) for code in known} <= set(codes)
