"""Each distribution alone, as pip leaves it in an environment that has nothing of the others."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection
from importlib.metadata import distribution, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("flatwater", "__editable__")
PRICES = ("polars", "_polars", "talib", "ta_lib", "arch")
"""What trading alone needs."""
MEGABYTE = 1_000_000
LEAK = """\
HISTORY = []
for step in range(3000):
    HISTORY.append(bytearray(20_000))
    sum(range(20_000))
"""
LEAKY_TEST = """\
import pytest

HISTORY = []

@pytest.mark.flat(rounds=16)
def test_leak():
    HISTORY.append(bytearray(100_000))
"""
GROW = """\
rounds = 1
envs = 4
group = 2
trackers = []
threads = 1

[env]
steps = 4
host = { channels = [2, 2, 4] }
fit = { updates = 1, batch_size = 4 }

[policy]
hidden = 8
memory = 6

[learner]
epochs = 1
minibatches = 1

[evaluation]
episodes = 4
every = 2
"""
PPO = ("--envs", "4", "--block", "16", "--learner.minibatches", "1", "--learner.epochs", "1", "--threads", "1")

Call = Callable[..., str]


def run_command(*line: object, cwd: Path, code: int = 0) -> str:
    """All that a command prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    state = {"XDG_STATE_HOME": str(cwd / ".state"), "XDG_CACHE_HOME": str(cwd / ".cache"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*map(str, line)], cwd=cwd, capture_output=True, text=True, check=False, env=kept | state)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def commands(overview: str) -> set[str]:
    """The first words of the commands that `flatwater --help` lists."""
    lines = [line for line in overview.partition("exit codes")[0].splitlines() if line.startswith("  ")]
    return {line.split("  ")[1] for line in lines}


def make_environment(place: Path, *, without: Collection[str]) -> Path:
    """An environment with all packages of this one, besides ours and those whose names begin so; gives its packages."""
    run_command(sys.executable, "-m", "venv", "--without-pip", place, cwd=place.parent)
    inside = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    for found in Path(sysconfig.get_path("purelib")).iterdir():
        if not found.name.lower().startswith((*OURS, *without)) and found.suffix != ".pth":
            (place / inside / found.name).symlink_to(found.resolve())
    return place / inside


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three wheels, built from copies, since a build leaves files behind."""
    place = tmp_path_factory.mktemp("wheels")
    known = int(version("setuptools").partition(".")[0]) >= 80  # else pip fetches what builds
    offline = ["--no-build-isolation", "--no-index"] if known else []
    for name in ("watch", "flatwater", "trading"):
        source = place / name
        shutil.copytree(ROOT / "packages" / name, source, ignore=shutil.ignore_patterns("tests", "build", "*.egg-info"))
        run_command(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *offline, "-w", place, source, cwd=place)
    return place


def install(wheels: Path, place: Path, *names: str) -> None:
    """Put wheels into an environment that has what they need."""
    files = [next(wheels.glob(f"{name}-0*.whl")) for name in names]
    line = (
        sys.executable,
        "-m",
        "pip",
        "--python",
        place / "bin" / "python",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    )
    run_command(*line, *files, cwd=wheels)


def installed_bytes(packages: Path) -> int:
    """Of all packages but those that a new environment has."""
    new = [entry for entry in packages.iterdir() if not entry.name.startswith(("pip", "setuptools", "pkg_resources"))]
    files = [file for entry in new for file in (entry, *entry.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def test_the_platform_has_no_command_of_trading(tmp_path: Path) -> None:
    place = tmp_path / "env"
    packages = make_environment(place, without=PRICES)
    for name in ("flatwater-watch", "flatwater"):
        info = Path(str(distribution(name)._path))
        (packages / info.name).symlink_to(info.resolve())
    sources = [ROOT / "packages" / name / "src" for name in ("watch", "flatwater")]
    (packages / "ours.pth").write_text("".join(f"{source}\n" for source in sources))
    main = (place / "bin" / "python", "-c", "import sys; from flatwater.cli.main import main; sys.exit(main())")
    overview = run_command(*main, "--help", cwd=tmp_path)
    assert not {"train erl", "orders", "backtest", "study", "panel show"} & commands(overview)
    assert {"train ppo", "train evolve", "watch", "report"} <= commands(overview)
    assert "erl" not in overview
    recipes = "expected evolve, grow, ddpg, dqn, sac, td3, ppo, teach"
    assert recipes in run_command(*main, "train", "erl", cwd=tmp_path, code=2)


@pytest.mark.slow
def test_the_finder_alone(wheels: Path, tmp_path: Path) -> None:
    place = tmp_path / "env"
    run_command(sys.executable, "-m", "venv", place, cwd=tmp_path)
    packages = next(place.glob("lib/python3*/site-packages"))
    before = installed_bytes(packages)
    pip = (place / "bin" / "python", "-m", "pip", "install", "-q")
    run_command(*pip, next(wheels.glob("flatwater_watch-*.whl")), cwd=tmp_path)
    assert installed_bytes(packages) - before < 20 * MEGABYTE
    present = {entry.name for entry in packages.iterdir()}
    assert not {"torch", "numpy", "flatwater", "flatwater_trading", "plotly"} & present

    (tmp_path / "leak.py").write_text(LEAK)
    watch, python = place / "bin" / "flatwater-watch", place / "bin" / "python"
    run_command(watch, "run", "--json", "watch.json", "--", python, "leak.py", cwd=tmp_path)
    finding = json.loads((tmp_path / "watch.json").read_text())["findings"][0]
    assert (finding["verdict"], finding["owner"]) == ("leak", "leak.HISTORY")
    assert finding["made_at"]["line"] == 3
    assert "leak.HISTORY" in run_command(watch, "watch.json", cwd=tmp_path)
    said = run_command(watch, "run", cwd=tmp_path, code=2)
    assert "Write it like: flatwater-watch -- python train.py" in said, "`flatwater` is not installed here"
    said = run_command(watch, "run", "--html", "page.html", "--", python, "leak.py", cwd=tmp_path, code=2)
    assert "pip install 'flatwater-watch[page]'" in " ".join(said.split())

    run_command(*pip, "pytest", cwd=tmp_path)
    (tmp_path / "test_own.py").write_text(LEAKY_TEST)
    said = run_command(python, "-m", "pytest", "test_own.py", cwd=tmp_path, code=1)
    assert "HISTORY" in said
    assert "test_own.py:7" in said
    run_command(
        python, "-c", "import flatwater_watch, sys; assert not {'torch', 'numpy'} & {*sys.modules}", cwd=tmp_path
    )


@pytest.fixture(scope="module")
def trading(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The command of an environment with all three, and a folder with a run of traders."""
    folder = tmp_path_factory.mktemp("trading")
    make_environment(folder / "env", without=())
    install(wheels, folder / "env", "flatwater_watch", "flatwater", "flatwater_trading")
    command = folder / "env" / "bin" / "flatwater"
    small = ROOT / "examples" / "trading" / "small.toml"
    run_command(command, "train", "erl", "--config", small, "--run", "runs/traders", cwd=folder)
    return command, folder


@pytest.mark.slow
def test_trading_on_the_platform(trading: tuple[Path, Path]) -> None:
    command, folder = trading
    overview = commands(run_command(command, "--help", cwd=folder))
    assert {"train erl", "train ppo", "orders", "backtest", "study", "panel show", "watch"} <= overview
    assert "instruments" in run_command(command, "panel", "show", cwd=folder)
    run_command(command, "orders", "runs/traders", cwd=folder)
    run_command(command, "evaluate", "runs/traders", cwd=folder)
    run_command(command, "report", "runs/traders", cwd=folder)


@pytest.mark.slow
def test_the_platform_alone(wheels: Path, trading: tuple[Path, Path], tmp_path: Path) -> None:
    make_environment(tmp_path / "env", without=PRICES)
    install(wheels, tmp_path / "env", "flatwater_watch", "flatwater")
    python, command = tmp_path / "env" / "bin" / "python", tmp_path / "env" / "bin" / "flatwater"
    absent = (
        "import importlib.util as u; assert not any(map(u.find_spec, ('polars', 'talib', 'arch', 'flatwater_trading')))"
    )
    run_command(python, "-c", absent, cwd=tmp_path)
    run_command(python, "-c", "import flatwater as fw; fw.recipes.Recipe, fw.envs.growing.Operation", cwd=tmp_path)

    for run in ("one", "two"):
        run_command(command, "train", "ppo", *PPO, "--rounds", "2", "--run", f"runs/{run}", cwd=tmp_path)
    run_command(command, "resume", "runs/two", "--rounds", "3", cwd=tmp_path)
    result = json.loads(
        run_command(command, "evaluate", "runs/two", "--json", cwd=tmp_path).partition("\n}")[0] + "\n}"
    )
    assert result["trainer"] == "ppo"
    run_command(command, "compare", "runs/one", "runs/two", cwd=tmp_path)
    (tmp_path / "grow.toml").write_text(GROW)
    run_command(command, "train", "grow", "--config", "grow.toml", "--run", "runs/grown", cwd=tmp_path)

    shutil.copytree(trading[1] / "runs" / "traders", tmp_path / "runs" / "traders")
    listed = run_command(command, "runs", cwd=tmp_path)
    assert all(name in listed for name in ("one", "two", "grown", "traders", "erl", "3/3"))
    for run in ("two", "grown", "traders"):
        run_command(command, "report", f"runs/{run}", cwd=tmp_path)
        assert (tmp_path / "runs" / run / "report.html").stat().st_size > MEGABYTE
    said = run_command(command, "resume", "runs/traders", "--rounds", "3", cwd=tmp_path, code=2)
    assert "no recipe 'erl'" in " ".join(said.split())
