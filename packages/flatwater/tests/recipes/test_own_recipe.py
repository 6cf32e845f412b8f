"""A recipe of somebody else's: one file, and every command knows it as it knows those that come with Flatwater."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatwater.checkpoints.catalogue import list_checkpoints
from flatwater.cli.main import command_class, main
from flatwater.named_imports import GIVEN_PERMIT
from flatwater.recipe import find_recipe
from flatwater.runs.built_recipe import make_recipe
from flatwater.state.tree import leaves, nbytes

ROOT = Path(__file__).parents[4]
FILE = ROOT / "examples" / "flatwater" / "cross_entropy.py"
NAME = "cross_entropy:SEARCH"
TINY = ("--candidates", "4", "--elites", "2", "--threads", "1", "--trackers")

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, with the file of the recipe and nothing else."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / FILE.name).exists()])
    (tmp_path / FILE.name).write_text(FILE.read_text())
    sys.modules.pop("cross_entropy", None)
    yield tmp_path
    sys.modules.pop("cross_entropy", None)


def train(run: str, rounds: int, *options: str) -> None:
    assert main(["train", NAME, *TINY, "--rounds", str(rounds), "--run", run, *options]) == 0


def last_leaves(run: str) -> object:
    return list_checkpoints(Path(run, "checkpoints"))[-1].leaves


@pytest.mark.slow
@pytest.mark.usefixtures("painted")
def test_every_command_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", NAME, *TINY]) == 0
    train("whole", 3)
    Path("space.toml").write_text("[elites]\nlow = 1\nhigh = 3\n")
    sweep = ["sweep", NAME, *TINY, "--rounds", "2", "--trials", "2", "--space", "space.toml", "--run", "swept"]
    assert main(sweep) == 0
    for command in (["evaluate", "whole"], ["evaluate", "whole", "--holdout"], ["checkpoints", "whole"]):
        assert main(command) == 0
    capsys.readouterr()
    assert main(["report", "whole"]) == 0
    assert "What was learned" in Path("whole", "report.html").read_text()
    assert Path("whole", "result.png").stat().st_size > 10_000
    capsys.readouterr()
    assert main(["top", "whole", "--once"]) == 0
    assert "round 3/3" in capsys.readouterr().out
    assert main(["runs", "."]) == 0
    assert NAME in capsys.readouterr().out


@pytest.mark.long
def test_resumed_it_ends_as_if_it_had_not_stopped() -> None:
    train("whole", 3)
    train("cut", 1)
    assert main(["resume", "cut", "--rounds", "3"]) == 0
    assert last_leaves("whole") == last_leaves("cut")
    assert Path("whole", "result.json").read_text() == Path("cut", "result.json").read_text()


def test_it_holds_what_was_planned_where_it_was() -> None:
    config = command_class(("train", NAME)).read("train", [*TINY]).settings()
    run = find_recipe(NAME, GIVEN_PERMIT).compose(config)
    tree = run.trainer.run
    assert nbytes(tree) == run.plan.owners
    homes = {leaf.path: leaf.value.data_ptr() for leaf in leaves(tree) if hasattr(leaf.value, "data_ptr")}
    for phase in run.trainer.phases:
        for number in range(phase.steps()):
            phase.step_(number)
    assert homes == {leaf.path: leaf.value.data_ptr() for leaf in leaves(tree) if hasattr(leaf.value, "data_ptr")}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing:SEARCH", "", "'missing'"),
        ("mine:MISSING", "SEARCH = 1", "no attribute 'MISSING'"),
        ("mine:SEARCH", "SEARCH = 1", "expected a Recipe"),
        ("mine:SEARCH", "from cross_entropy import SEARCH", "calls itself 'cross_entropy:SEARCH'"),
    ],
)
def test_what_is_no_recipe_is_refused(name: str, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(text)
    sys.modules.pop("mine", None)
    assert main(["train", name]) == 2
    assert said in capsys.readouterr().err


def test_a_run_whose_recipe_is_gone_cannot_be_resumed_and_is_shown_as_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train("kept", 1)
    sys.modules.pop("cross_entropy")
    Path("cross_entropy.py").unlink()
    assert main(["resume", "kept"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no module 'cross_entropy'" in said
    assert main(["runs", "."]) == 0
    assert NAME in capsys.readouterr().out
    assert main(["report", "kept"]) == main(["top", "kept", "--once"]) == 0
    Path("kept", "description.json").unlink()
    capsys.readouterr()
    assert main(["runs", "."]) == 0
    assert "description.json" in " ".join(capsys.readouterr().out.split())


def test_it_is_short_and_needs_the_public_face_alone() -> None:
    """At most 60 lines of code; sentences and empty lines apart."""
    parsed = ast.parse(FILE.read_text())
    sentences = [
        node
        for node in ast.walk(parsed)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    said = {line for node in sentences for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    code = [line for number, line in enumerate(FILE.read_text().splitlines(), 1) if line.strip() and number not in said]
    assert len(code) <= 60
    imported = {node.module for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
    assert imported == {"typing", "flatwater.config", "flatwater.recipes", "flatwater.state"}


def test_a_phase_is_tried_out_and_a_setting_that_makes_it_smaller_is_suggested() -> None:
    recipe = find_recipe(NAME, GIVEN_PERMIT)
    build, phases, score = (vars(sys.modules["cross_entropy"])[name] for name in ("build", "phases", "score"))
    tried = make_recipe(
        recipe.config,
        build=build,
        phases=phases,
        numbers=lambda *_: {},
        score=score,
        players=("mean", "start"),
        curves=recipe.curves,
        knobs={"candidates": "candidates"},
        tried=["draw"],
    )
    large = ["--candidates", "1000000", "--budget", "1MiB"]
    plan = tried.plan(command_class(("train", NAME)).read("train", [*TINY, *large]).settings())
    assert set(plan.transients) == {"draw"}
    assert not plan.fits
    assert any("candidates = 500000: candidates would take" in line for line in plan.suggestions)


def test_the_page_shows_the_file() -> None:
    page = (ROOT / "docs" / "flatwater" / "own-recipe.md").read_text()
    shown = "\n\n\n".join(re.findall(r"^```python\n(.*?)\n^```", page, re.MULTILINE | re.DOTALL))
    _, _, code = FILE.read_text().partition('explains it.\n"""\n\n')
    assert shown == code.rstrip("\n")


PARTS = """
def sections(run):
    from flatwater_watch.pages.blocks import Paragraph, Piece
    if run.done == 2:
        raise ValueError("parts of two rounds")
    return {"Candidates": [Paragraph(("Tried so far: ", Piece(str(run.done), href="javascript:alert(1)")))]}


SEARCH = make_recipe(
    SearchConfig,
    sections=sections,"""
BEGIN = "\nSEARCH = make_recipe(\n    SearchConfig,"


@pytest.mark.long
def test_parts_of_its_own_are_written_while_it_trains_and_shown_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    text = FILE.read_text()
    assert BEGIN in text
    Path("cross_entropy.py").write_text(text.replace(BEGIN, PARTS))
    train("whole", 1)
    written = Path("whole", "sections.json").read_text()
    assert "Tried so far" in written
    sys.modules.pop("cross_entropy")
    Path("cross_entropy.py").write_text("raise SystemExit('a reader has imported a recipe')")
    assert main(["report", "whole"]) == 0
    assert "as parts of a page" in Path("whole", "report.html").read_text(), "a link that is a script"
    Path("whole", "sections.json").write_text(written.replace("javascript:alert(1)", "#top"))
    assert main(["report", "whole"]) == main(["runs", "."]) == main(["top", "whole", "--once"]) == 0
    assert "Tried so far" in Path("whole", "report.html").read_text()
    assert "cross_entropy" not in sys.modules

    Path("cross_entropy.py").write_text(text.replace(BEGIN, PARTS))
    capsys.readouterr()
    assert main(["resume", "whole", "--rounds", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("ValueError: parts of two rounds (cross_entropy.py, line") == 1
    assert "The run goes on" in said
