"""Kill -9 a small run, sweep or import again and again, go on each time, and compare it with one that nobody killed.

    python killed.py FOLDER KILLS KIND

KIND is `erl`, `grow`, `teach`, `ppo`, `weights`, `own-traders` or `own-world` (an algorithm that is a file beside this
one, for traders, and in an environment of a file), `sweep` or `import`. Half of the kills fall on file operations in
the folder, evenly from the first to the last (so among the steps of saving), the others on random moments. Every run
is a fork of this process, which has everything imported. Prints one JSON object; where each kill fell goes to stderr.
"""

import importlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "recipes")]
from forked import exit_of, in_fork
from small_runs import OPTIONS, assert_same, tiny_of

from flatwater.cli.main import main
from flatwater_trading.panel.store import open_panel
from flatwater_watch.files.directory import current_path, write_object

COMMANDS = (
    "flatwater.cli.outcome",
    "flatwater.runs.session",
    "flatwater.cli.train",
    "flatwater.cli.sweep",
    "flatwater_trading.cli.panel",
    "flatwater_trading.panel.importing",
)
TRADING = ("flatwater_trading.recipe.run", "flatwater_trading.recipe.comparison")
TRAINING = (
    "flatwater.recipes.ppo.run",
    "flatwater.metrics.tensorboard",
    "sympy",  # torch imports it with its first optimiser
)
"""What no import of a panel needs, and every fork of a run would import for itself."""
for heavy in (
    *COMMANDS,
    *(() if "import" in sys.argv else TRAINING),
    *(TRADING if {"erl", "weights", "own-traders"} & {*sys.argv} else ()),
):
    importlib.import_module(heavy)
if "import" not in sys.argv:  # to paint it is a quarter of a small run, and nothing of it is compared
    importlib.import_module("flatwater.reports.picture").write_picture = lambda out, _: write_object(out, b"")

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir")
ROUNDS = 3
OWN = ["--learner.algorithm", "regression:REGRESSION"]
OWN_WORLD = ["--env", "continuous:Reach", "--steps", "37", "--population.size", "3", "--net.hidden", "8"]
OWN_WORLD += ["--evaluation.episodes", "2", "--replay.warmup", "24", "--replay.capacity", "200", "--threads", "1"]
WEIGHTS = ["--panel", "synthetic:4x420:signal=0.7", "--history", "40", "--members.size", "2", "--learner.updates", "4"]
WEIGHTS += ["--learner.days", "20", "--splits.holdout-days", "80", "--splits.validation-days", "60", "--threads", "1"]
KINDS = {kind: [kind, *options] for kind, options in OPTIONS.items()} | {
    "own-traders": ["erl", *(OWN[1] if word == "own" else word for word in tiny_of("own"))],
    "own-world": ["erl", *OWN_WORLD, "--trackers", *OWN],
    "weights": ["weights", *WEIGHTS],
}
"""What is trained, by its kind."""


@dataclass(frozen=True)
class Series:
    """What is killed."""

    begin: Callable[[Path], int]
    """Works in a folder."""
    go_on: Callable[[Path], int]
    """After a kill, whenever that came."""
    same: Callable[[Path, Path], None]
    """Compares two folders."""
    at: Callable[[Path], str]
    """How far a killed one had come."""


def train(kind: str, folder: Path) -> int:
    return main(["train", *KINDS[kind], "--rounds", str(ROUNDS), "--run", str(folder)])


def resume(kind: str, folder: Path) -> int:
    return main(["resume", str(folder)]) if (folder / "config.toml").is_file() else train(kind, folder)


def newest(folder: Path) -> str:
    found = max((folder / "checkpoints").glob("*.json"), default=None)
    return found.stem if found else "none"


def sweep(folder: Path) -> int:
    """Two trials, each of two rounds; the same command begins and goes on."""
    space = folder.parent / "space.toml"
    space.write_text("[learner.lr]\nlow = 1e-4\nhigh = 1e-2\nlog = true\n")
    options = [*OPTIONS["grow"], "--rounds", "2", "--space", str(space), "--trials", "2"]
    return main(["sweep", "grow", *options, "--run", str(folder)])


def same_sweeps(first: Path, second: Path) -> None:
    assert (first / "sweep.json").read_bytes() == (second / "sweep.json").read_bytes()
    assert (first / "best.toml").read_bytes() == (second / "best.toml").read_bytes()
    for trial in ("trial-0001", "trial-0002"):
        assert_same(first / trial, second / trial)


def trials(folder: Path) -> str:
    return "+".join(newest(trial) for trial in sorted(folder.glob("trial-*"))) or "none"


def import_panel(folder: Path) -> int:
    """Over a panel that is there already: after a kill the old one must be there, or the new one."""
    folder.mkdir(exist_ok=True)
    out = folder / "prices.panel"
    for days in (40, 400) if not out.exists() else (400,):
        source = folder.parent / f"{days}.csv"
        first = date(2020, 1, 1)
        rows = (f"{first + timedelta(n)},{n + 1},{n + 2},{n + 3}\n" for n in range(days))
        source.write_text("date,AA,BB,CC\n" + "".join(rows))
        if code := main(["panel", "import", str(source), "--out", str(out)]):
            return code
    return 0


def same_panels(first: Path, second: Path) -> None:
    assert (first / "prices.panel").read_bytes() == (second / "prices.panel").read_bytes()


def days_of(folder: Path) -> str:
    out = folder / "prices.panel"
    return str(open_panel(out).valid.shape[0]) if out.exists() else "none"


SERIES = {kind: Series(partial(train, kind), partial(resume, kind), assert_same, newest) for kind in KINDS} | {
    "sweep": Series(sweep, sweep, same_sweeps, trials),
    "import": Series(import_panel, import_panel, same_panels, days_of),
}


def dying(work: Callable[[], int], folder: Path, at: int) -> Callable[[], int]:
    """The same work, which kills itself at its n-th file operation below the folder."""
    seen = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in OPERATIONS and current_path(Path(str(arguments[0]))).is_relative_to(folder):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def work_and_count() -> int:
        sys.addaudithook(count)
        code = work()
        (folder / "operations").write_text(str(seen))
        return code

    return work_and_count


def killed_at(series: Series, folder: Path, operation: int | None, seconds: float) -> str:
    """Start what is killed; say where it was."""
    if operation is not None:
        code = exit_of(in_fork(dying(lambda: series.begin(folder), folder, operation)))
    else:
        child = in_fork(lambda: series.begin(folder))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        code = exit_of(child)
    return f"{code} {series.at(folder)}"


def kill_and_compare(series: Series, folder: Path, kills: int) -> dict[str, object]:
    whole = folder / "whole"
    began = time.monotonic()
    assert exit_of(in_fork(dying(lambda: series.begin(whole), whole, -1))) == 0
    took = time.monotonic() - began
    operations = int((whole / "operations").read_text())
    draw, places = random.Random(kills), []
    for n in range(kills):
        run = folder / "killed"
        place = (n + 1) * operations // (kills + 1) if n % 2 == 0 else None
        places.append(killed_at(series, run, place, draw.uniform(0.1, 0.9) * took))
        assert exit_of(in_fork(lambda run=run: series.go_on(run))) == 0, (n, places)
        series.same(whole, run)
        shutil.rmtree(run)
        sys.stderr.write(f"{n + 1}: {places[-1]}\n")
    return {"operations": operations, "kills": len(places), "places": places}


if __name__ == "__main__":
    made = kill_and_compare(SERIES[sys.argv[3]], Path(sys.argv[1]).resolve(), int(sys.argv[2]))
    sys.stdout.write(json.dumps(made))
