"""What separate packages add is found by their entry points: no line of Flatwater knows of them.

The package `acme` is made up here as pip would leave it: a folder of modules, and a `.dist-info` with entry points.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from flatwater.cli import table
from flatwater.cli.main import main
from flatwater.plugins import GROUPS, installed_entries, read_table
from flatwater.runs.trackers import TRACKERS
from flatwater.user_code import is_flatwater_module

ROOT = Path(__file__).parents[3]
RECIPE = (ROOT / "examples" / "flatwater" / "cross_entropy.py").read_text().replace("cross_entropy:SEARCH", "boats")
ALGORITHM = (ROOT / "packages/flatwater/tests/runs/regression.py").read_text()
TABLES = """
RECIPES = {"boats": ("acme.boats:SEARCH", "learn to sail")}
COMMANDS = {"harbour list": ("acme.harbour:Harbour", "say which boats there are")}
SECTIONS = {"weather": "acme.pages:weather"}
PAGES = {"log": ("ship.log", "acme.pages:of_log")}
COMPARISONS = {"log": ("ship.log", "acme.pages:compare")}
ENVIRONMENTS = {"boat": "acme.boat:Boat"}
ALGORITHMS = {"rowing": "acme.rowing:REGRESSION"}
TRACKERS = {"diary": "acme.diary:Diary"}
"""
HARBOUR = '''
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Harbour:
    """Say which boats there are."""

    boats: int = 1
    """How many."""

    def __call__(self) -> int:
        print("boats:", self.boats)
        return 0
'''
PAGES = """
from flatwater.comparisons.named import NamedComparison
from flatwater_watch.pages.blocks import Paragraph


def weather(run):
    return {"Weather": [Paragraph(f"calm after {run.done} rounds")]}


def of_log(folder):
    return folder / "log.html", lambda: f"<p>{(folder / 'ship.log').read_text()}</p>"


def compare(folders):
    texts = [(folder / "ship.log").read_text() for folder in folders.values()]
    return NamedComparison(
        settings=[("ship", [*map(str, folders.values())])],
        numbers=[("letters", [str(len(text)) for text in texts])],
        sentences=[f"{letter} is no log." for letter in folders],
        values={"logs": texts},
        draw_page=lambda written: f"<p>{texts}</p>",
    )
"""
BOAT = """
import gymnasium
import numpy as np


class Boat(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age, self.wind = 0, self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.wind, {}

    def step(self, action):
        self.age += 1
        return self.wind, -abs(float(action[0] - self.wind[0])), False, self.age >= 8, {}
"""
DIARY = """
import json


class Diary:
    def __init__(self, run):
        run.folder.mkdir(exist_ok=True)
        self.file = run.folder / "diary.txt"

    def write(self, round, metrics):
        self.file.write_text(f"{round}: {metrics['return/best']}")

    def close(self):
        pass
"""
ACME = {
    "__init__": "",
    "tables": TABLES,
    "boats": RECIPE,
    "harbour": HARBOUR,
    "pages": PAGES,
    "boat": BOAT,
    "rowing": ALGORITHM,
    "diary": DIARY,
}
SEARCH = ("--rounds", "2", "--candidates", "4", "--elites", "2", "--threads", "1")
EVOLVE = ("--rounds", "1", "--steps", "30", "--population.size", "2", "--net.hidden", "8", "--evaluation.episodes", "2")
EVOLVE += ("--replay.warmup", "24", "--replay.capacity", "200", "--threads", "1", "--trackers")

Install = Callable[..., Path]
Said = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("unpainted")


def forget() -> None:
    """What was found when other packages were installed."""
    installed_entries.cache_clear()
    read_table.cache_clear()
    table.commands.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in {"acme", "emca"}]:
        del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Make a package, as pip leaves it in a folder that Python looks into."""
    site, work = tmp_path / "site", tmp_path / "work"
    site.mkdir()
    (work / "runs").mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(site)

    def install_package(
        name: str = "acme", modules: Mapping[str, str] = ACME, tables: Mapping[str, str] | None = None
    ) -> Path:
        places = dict.fromkeys(GROUPS) if tables is None else tables
        (site / name).mkdir()
        for module, text in modules.items():
            (site / name / f"{module}.py").write_text(text)
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        entries = [f"[flatwater.{group}]\n{name} = {name}.tables:{group.upper()}\n" for group in places]
        (info / "entry_points.txt").write_text("\n".join(entries))
        forget()
        return site

    yield install_package
    forget()


def said(capsys: Said) -> str:
    """All that was printed, with its lines joined."""
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_recipe_a_tracker_and_a_section_are_found(install: Install, capsys: Said) -> None:
    install()
    assert main(["train", "boats", *SEARCH, "--run", "runs/one", "--trackers", "diary"]) == 0
    assert next(Path("runs/one").rglob("diary.txt")).read_text().startswith("2: ")
    assert main(["resume", "runs/one", "--rounds", "3"]) == 0
    assert main(["evaluate", "runs/one", "--json"]) == 0
    capsys.readouterr()
    assert main(["runs"]) == 0
    assert "boats" in said(capsys)
    assert main(["report", "runs/one"]) == 0
    page = Path("runs/one/report.html").read_text()
    assert "Weather" in page
    assert "calm after 3 rounds" in page


def test_an_environment_and_an_algorithm_are_found(install: Install) -> None:
    install()
    own = ("--learner.algorithm", "rowing", "--learner.own.lr", "0.01")
    assert main(["train", "evolve", "--env", "boat", *own, *EVOLVE, "--run", "runs/one"]) == 0
    assert json.loads(Path("runs/one/result.json").read_text())["env"] == "boat"
    assert main(["resume", "runs/one", "--rounds", "2"]) == 0


def test_a_command_is_found_and_explained(install: Install, capsys: Said) -> None:
    install()
    assert main(["harbour", "list", "--boats", "3"]) == 0
    assert "boats: 3" in said(capsys)
    assert main([]) == 0
    listed = said(capsys)
    assert "harbour list say which boats there are" in listed
    assert "train boats learn to sail" in listed


def test_a_folder_of_a_kind_of_its_own_has_a_page(install: Install, capsys: Said) -> None:
    install()
    Path("ship").mkdir()
    Path("ship/ship.log").write_text("all well")
    assert main(["report", "ship"]) == 0, said(capsys)
    assert Path("ship/log.html").read_text() == "<p>all well</p>"
    Path("boat").mkdir()
    Path("boat/ship.log").write_text("sunk")
    capsys.readouterr()
    assert main(["compare", "ship", "boat", "--page", "both.html"]) == 0
    table = said(capsys)
    assert "letters 8 4" in table
    assert "A is no log. B is no log." in table
    assert Path("both.html").read_text() == "<p>['all well', 'sunk']</p>"
    assert main(["compare", "ship", "boat", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"logs": ["all well", "sunk"]}
    Path("ship/config.toml").touch()  # a run may have a file of the same name
    assert main(["compare", "ship", "boat"]) == 2
    assert "got ship, a run, and boat, a log" in said(capsys)


BROKEN = {
    "def": "SyntaxError",
    "import missing_package": "No module named 'missing_package'",
    "raise SystemExit(3)": "SystemExit: 3",
    "": "no attribute 'RECIPES'",
    "RECIPES = COMMANDS = 5": "not iterable",
    "RECIPES = COMMANDS = {'boats': 'acme.boats:SEARCH'}": 'expected ("package.module:',
    "RECIPES = COMMANDS = {'boats': ('acme.boats', 'learn')}": 'expected ("package.module:',
    "RECIPES = COMMANDS = {'a:b': ('acme.boats:SEARCH', 'learn')}": "'a:b': expected a name of letters",
}


@pytest.mark.parametrize(("text", "why"), BROKEN.items())
def test_a_broken_package_adds_nothing_and_is_named_where_a_name_is_not_found(
    text: str, why: str, install: Install, capsys: Said
) -> None:
    install(modules=ACME | {"tables": text}, tables=dict.fromkeys(["recipes", "commands"], ""))
    assert main(["runs"]) == 0
    assert main([]) == 0
    assert "acme" not in said(capsys)
    for words in (["train", "boats"], ["harbour"]):
        assert main(words) == 2
        told = said(capsys)
        assert "the package acme cannot be used" in told
        assert "pip uninstall acme" in told
        assert why in told or "attribute 'COMMANDS'" in told


@pytest.mark.parametrize(
    ("words", "group"),
    [
        (["train", "ppo", "--env", "canoe"], "environments"),
        (["train", "ppo", "--trackers", "canoe"], "trackers"),
        (["train", "evolve", "--learner.algorithm", "canoe"], "algorithms"),
    ],
)
def test_a_broken_table_of_names_is_told_as_well(words: list[str], group: str, install: Install, capsys: Said) -> None:
    install(modules={"__init__": "", "tables": "broken"}, tables={group: ""})
    assert main([*words, "--rounds", "1"]) == 2
    assert "acme.tables" in said(capsys)


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["train", "boats"], {"boats": "import missing_package"}),
        (["train", "boats"], {"boats": "SEARCH = 5"}),
        (["harbour", "list"], {"harbour": "1 / 0"}),
    ],
)
def test_what_a_broken_module_should_have_is_told_with_its_package(
    words: list[str], modules: Mapping[str, str], install: Install, capsys: Said
) -> None:
    install(modules=ACME | modules)
    assert main(words) == 2
    told = said(capsys)
    assert "acme" in told or "expected a Recipe" in told
    assert main(["runs"]) == 0


def test_two_packages_with_one_name_are_refused(install: Install, capsys: Said) -> None:
    install(tables={"commands": ""})
    install("emca", {"__init__": "", "tables": TABLES.replace("acme", "emca")}, {"commands": ""})
    assert main(["harbour", "list"]) == 2
    assert "flatwater.commands: 'harbour list' is in the packages acme and emca" in said(capsys)


@pytest.mark.parametrize(
    ("group", "name", "words"),
    [
        ("recipes", "ppo", ["train", "ppo"]),
        ("environments", "forage", ["train", "ppo", "--env", "forage"]),
        ("trackers", "wandb", ["train", "ppo", "--trackers", "wandb"]),
        ("algorithms", "sac", ["train", "evolve", "--learner.algorithm", "sac"]),
    ],
)
def test_no_package_takes_a_name_that_ships(
    group: str, name: str, words: list[str], install: Install, capsys: Said
) -> None:
    row = ("acme.boats:SEARCH", "") if group == "recipes" else "acme.boats:SEARCH"
    install(modules={"__init__": "", "tables": f"{group.upper()} = {{{name!r}: {row!r}}}"}, tables={group: ""})
    assert main([*words, "--rounds", "1"]) == 2
    assert f"flatwater.{group}: '{name}' is in the packages flatwater and acme" in said(capsys)


def test_a_package_that_is_called_like_flatwater_is_somebody_else_s() -> None:
    ours = ("flatwater", "flatwater.runs.run", "flatwater_watch.errors", "flatwater_trading")
    assert all(map(is_flatwater_module, ours))
    assert not any(map(is_flatwater_module, ("flatwater_acme", "flatwater_watching.x", "flatwaters", "acme.flatwater")))


def test_names_that_ship_without_a_row_are_reserved() -> None:
    assert set(GROUPS["trackers"].shipped) == set(TRACKERS)


def test_a_run_is_shown_where_its_package_is_not_installed(install: Install, capsys: Said) -> None:
    site = install()
    assert main(["train", "boats", *SEARCH, "--run", "runs/one", "--trackers"]) == 0
    shutil.rmtree(site / "acme-1.0.dist-info")
    shutil.rmtree(site / "acme")
    forget()
    capsys.readouterr()
    assert main(["runs"]) == 0
    assert "boats" in said(capsys)
    assert main(["report", "runs/one"]) == 0
    capsys.readouterr()
    assert main(["resume", "runs/one", "--rounds", "3"]) == 2
    assert "no recipe 'boats'" in said(capsys)
    assert "acme" not in sys.modules


def test_a_name_in_a_folder_is_looked_up_among_installed_ones_alone(install: Install, capsys: Said) -> None:
    install()
    assert main(["train", "boats", *SEARCH, "--run", "runs/one", "--trackers"]) == 0
    file = Path("runs/one/config.toml")
    begun = file.read_text()
    for module in [module for module in sys.modules if module.startswith("acme.") and module != "acme.tables"]:
        del sys.modules[module]
    for name in ("acme.boats:SEARCH", "acme", "acme.boats", "harbour list", "boats\u0007"):
        file.write_text(begun.replace('trainer = "boats"', f"trainer = {json.dumps(name)}"))
        assert main(["runs"]) == 0
        assert main(["report", "runs/one"]) == 2
        assert main(["resume", "runs/one"]) == 2
        assert "acme.boats" not in sys.modules, said(capsys)
