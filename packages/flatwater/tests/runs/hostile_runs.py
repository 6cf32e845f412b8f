"""Folders of runs that somebody sends: they name code of theirs wherever a name can stand, or are damaged on purpose.

Code that is executed leaves a line in `Trap.mark`, whoever imports it: the module `payload` lies in the folder where
the commands run, and in each run's own folder, which is importable as a namespace package (`runs.NAME.payload`).
"""

import json
import os
import pickle
import struct
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PAYLOAD = '''\
"""Whoever imports this has executed code of the run's."""
import os
with open({mark!r}, "a") as file:
    file.write(__name__ + "\\n")


class _Any(type):
    def __getattr__(cls, name):
        with open({mark!r}, "a") as file:
            file.write("attribute " + name + "\\n")
        raise AttributeError(name)


class R(metaclass=_Any):
    pass


def __getattr__(name):
    return R
'''

CONFIG = 'trainer = "{trainer}"\nrounds = 2\nseed = 0\ndevice = "cpu"\nthreads = 1\n'
NAMED = {
    "a recipe here": 'trainer = "payload:R"',
    "a recipe in its own folder": 'trainer = "runs.{name}.payload:R"',
    "a recipe in a package": 'trainer = "payload.deep:R"',
    "a recipe that runs a program": 'trainer = "unittest.__main__:R"',
    "a function of the system": 'trainer = "os:system"',
    "a program of ours": 'trainer = "flatwater.__main__:R"',
    "a name with dots": 'trainer = "..payload:R"',
    "a path": 'trainer = "../payload:R"',
    "an empty name": 'trainer = ""',
    "a colon": 'trainer = ":"',
    "orders for a terminal": 'trainer = "payload:R\\u001b[2J"',
    "markup": 'trainer = "[bold]payload:R[/x]"',
    "a very long name": f'trainer = "payload:{"R" * 100_000}"',
    "a number": "trainer = 3",
    "a list": 'trainer = ["payload:R"]',
    "an environment of ppo": 'trainer = "ppo"\nenv = "payload:R"',
    "an environment that gymnasium imports": 'trainer = "ppo"\nenv = "gymnasium:payload:R-v0"',
    "an argument of an environment": 'trainer = "ppo"\nenv = "GymV26Environment-v0"\n'
    'env_args = ["env_id=payload:R-v0"]',
    "an argument in other letters": 'trainer = "ppo"\nenv_args = ["env_id=\'payload\\\\x3aR-v0\'"]',
    "a wrapper": 'trainer = "ppo"\n[wrapped]\nwrappers = ["payload:R"]',
    "arguments of a wrapper": 'trainer = "evolve"\n[wrapped]\nwrappers = ["RecordVideo(video_folder=\'{mark}\')"]',
    "an environment of evolve": 'trainer = "evolve"\nenv = "payload:R"',
    "an environment of erl": 'trainer = "erl"\nenv = "payload:R"',
    "a world and a teacher": 'trainer = "teach"\nworld = "payload:R"\nteacher = "payload:R"',
    "a task and a host": 'trainer = "grow"\ntask = "payload:R"\n[env]\nhost = "payload:R"',
    "an algorithm": 'trainer = "erl"\n[learner]\nalgorithm = "payload:R"\n[learner.own]\nx = 1',
    "an algorithm of ppo": 'trainer = "ppo"\n[learner]\nalgorithm = "payload:R"\n[learner.own]\nx = 1',
    "a network": 'trainer = "erl"\n[net]\nencoder = "payload:R"',
    "features": 'trainer = "erl"\npanel = "payload:R"\nobservation_features = ["payload:R"]',
    "a tracker": 'trainer = "ppo"\ntrackers = ["payload:R"]',
    "a command": 'trainer = "ppo"\non_event = "touch {mark}"',
    "a mirror": 'trainer = "ppo"\nmirror = "file:///../payload"',
}
"""What a run's configuration names -> the lines that do so."""
FORMS = (
    "{:.2f}",
    "{0.__class__}",
    "{x.__class__.__mro__}",
    "{x[0]}",
    "{x!r}",
    "{:1000000000}",
    "{:{x}}",
    "{",
    "\x1b[2J{}",
    "{:" + "x" * 10_000 + "}",
)
"""Forms that a description may hold, of which the first alone may be filled in."""


@dataclass(frozen=True)
class Trap:
    """A user's folder in which code leaves a mark when it is executed. Run commands in `folder`."""

    folder: Path
    mark: Path

    @property
    def runs(self) -> Path:
        """The folder of runs."""
        return self.folder / "runs"

    def executed(self) -> list[str]:
        """What was executed, a line each."""
        return self.mark.read_text().splitlines() if self.mark.is_file() else []


def set_trap(folder: Path) -> Trap:
    """A user's folder with a module `payload`, and none of it executed."""
    trap = Trap(folder, folder / "executed.txt")
    trap.runs.mkdir(parents=True)
    lay_payload(trap, folder)
    return trap


def lay_payload(trap: Trap, folder: Path) -> None:
    """Put the module there."""
    (folder / "payload.py").write_text(PAYLOAD.format(mark=str(trap.mark)))


def foreign_runs(trap: Trap) -> list[Path]:
    """A finished run for each of `NAMED`, with all that can hold a name: description, result, header, pickles."""
    found = []
    for at, line in enumerate(NAMED.values()):
        run = trap.runs / f"foreign{at:02}"
        write_run(run, line.replace("{name}", run.name).replace("{mark}", str(trap.mark)), rounds=2)
        lay_payload(trap, run)
        lay_pickles(trap, run)
        describe(run, name_in(line), FORMS[at % len(FORMS)])
        found.append(run)
    return found


def write_run(run: Path, settings: str, rounds: int) -> None:
    """A finished run with such settings, as far as a list needs it."""
    (run / "checkpoints").mkdir(parents=True)
    lines = settings.splitlines()
    tables = next((at for at, line in enumerate(lines) if line.startswith("[")), len(lines))
    own = ["rounds = 2", "seed = 0", 'device = "cpu"', "threads = 1"]
    (run / "config.toml").write_text("\n".join([*lines[:tables], *own, *lines[tables:]]) + "\n")
    numbers = {"return/mean": 1.0, "evaluation/policy": 2.0, "validation/champion": 3.0, "time/learn": 0.5}
    (run / "metrics.jsonl").write_text("".join(json.dumps({"round": n + 1} | numbers) + "\n" for n in range(rounds)))
    rows = {"policy": {"return": 1.0, "total_return": 0.1}, "champion": {"return": 1.0, "total_return": 0.1}}
    said = {"trainer": "payload:R", "split": "{0.__class__}", "note": "n", "episodes": 1, "agents": 1, "steps": 1}
    said |= {"env": "payload:R", "first_day": "a", "last_day": "b", "days": 1, "first_seed": 1}
    (run / "result.json").write_text(json.dumps(said | {"players": rows, "traders": rows}))


def name_in(line: str) -> str:
    """The recipe that a line names."""
    found = tomllib.loads(line).get("trainer")
    return found if isinstance(found, str) else "payload:R"


def describe(run: Path, name: str, form: str) -> None:
    """A description of that name, whose forms ask for attributes."""
    number = {"title": "return", "key": "return", "form": form}
    content = {
        "name": name.replace("{name}", run.name),
        "round": "round",
        "short": "round",
        "glance": [{"title": "x", "name": "payload:R", "way": "payload:R" if form == FORMS[1] else "short"}],
        "curves": {"mean": "return/mean"},
        "journal": "../../payload" if form == FORMS[2] else "episodes",
        "players": "players",
        "trained": "policy",
        "title": form if form != FORMS[0] else "{split} {episodes:,}",
        "headline": number | {"against": "random", "said": form},
        "numbers": [number],
        "said": ["split", "note"],
        "trained_on": "payload:R",
        "own_parts": True,
    }
    (run / "description.json").write_text(json.dumps(content))


class Opener:
    """Executes a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"echo unpickled >> '{self.mark}'",)


def lay_pickles(trap: Trap, run: Path) -> None:
    """Pickles under the names of whatever a run has."""
    content = pickle.dumps(Opener(trap.mark))
    (run / "checkpoints" / "objects").mkdir(exist_ok=True)
    names = ("equity.parquet", "trades.parquet", "lives.npz", "prices.parquet", "plan.json", "holdout.json")
    for name in (*names, "sections.json", "checkpoints/round-000002.json", "checkpoints/objects/aa", "model.pt"):
        (run / name).write_bytes(content)


def write_weights(file: Path, about: object) -> Path:
    """A .safetensors file with such a header and one tensor."""
    header = {"__metadata__": {"flatwater": json.dumps(about)}}
    header |= {"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}  # type: ignore[dict-item]
    raw = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * 4)
    return file


def foreign_weights(trap: Trap) -> list[Path]:
    """Weights whose header names code: as its recipe, and inside of the settings of a recipe of ours."""
    learner = {"algorithm": "payload:R", "own": {"x": 1}}
    settings = {"learner": learner, "net": {"encoder": "payload:R"}, "panel": "payload:R", "env": "payload:R"}
    recipes = ("payload:R", "unittest.__main__:R", "../payload:R", "runs.foreign00.payload:R", "os:system", ":", "")
    written = [{"recipe": name, "header": {}} for name in recipes]
    policy = {"form": "vector", "obs": [4], "actions": ["a"], "bounds": None, "policy": {"host": "payload:R"}}
    trader = {"settings": settings, "past": 1, "instruments": ["A"], "investable": ["A"]}
    written += [{"recipe": name, "header": header} for name in ("ppo", "erl", "evolve") for header in (policy, trader)]
    about = {"format": "flatwater-policy-1", "flatwater": "0", "inputs": {}, "outputs": {}}
    return [write_weights(trap.folder / f"w{at}.safetensors", about | each) for at, each in enumerate(written)]


def broken_runs(folder: Path) -> list[Path]:
    """Runs of recipes of ours that are damaged on purpose, each in a way of its own."""
    made = []

    def run(name: str, settings: str = 'trainer = "ppo"') -> Path:
        path = folder / name
        write_run(path, settings, rounds=2)
        made.append(path)
        return path

    def replace_by_link(path: Path) -> Path:
        path.unlink(missing_ok=True)
        return path

    (run("huge config") / "config.toml").write_text("x = 1\n" + "# a comment\n" * 1_000_000)
    (run("deep config") / "config.toml").write_text("rounds = " + "[" * 50_000)
    (run("dotted config") / "config.toml").write_text(".".join("a" * 30_000) + " = 1\n")
    (run("config of no text") / "config.toml").write_bytes(bytes(range(256)))
    (run("deep result") / "result.json").write_text("[" * 100_000)
    (run("deeper metrics") / "metrics.jsonl").write_text('{"round": 2, "a": ' + "[" * 100_000 + "\n")
    (run("a list as result") / "result.json").write_text("[1]")
    (run("rows that are none") / "result.json").write_text('{"players": {"policy": [1]}, "note": 3}')
    (run("numbers too long") / "result.json").write_text('{"players": {"policy": {"return": ' + "9" * 10_000 + "}}}")
    (run("a name as round") / "metrics.jsonl").write_text('{"round": "payload:R"}\n{"round": 1}\n')
    (run("a line without end") / "metrics.jsonl").write_text('{"round": 1, "x": "' + "x" * 20_000_000)
    with (run("a hole") / "metrics.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    with (run("a hole as result") / "result.json").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("config.toml", "metrics.jsonl", "result.json", "description.json", ".lock", "plan.json"):
        os.mkfifo(replace_by_link(run(f"a pipe for {name}") / name))
        replace_by_link(run(f"a device for {name}") / name).symlink_to("/dev/zero")
        replace_by_link(run(f"a link for {name}") / name).symlink_to("/etc/passwd")
        replace_by_link(run(f"a link to itself for {name}") / name).symlink_to(name)
    replace_by_link(run("a folder for config.toml") / "config.toml").mkdir()
    (run("a loop") / "again").symlink_to("..")
    (run("a loop of checkpoints") / "checkpoints" / "again").symlink_to("../..")
    for name in (
        "red\x1b[31m",
        "line\nbreak",
        "tab\tname",
        "[/bold]",
        "[link=file:///x]y",
        "\u202eright to left",
        "-rf",
    ):
        run(name)
    run("x" * 250)
    run("rounds of text", 'trainer = "ppo"\ntag = 3')
    run("a tag of orders", 'trainer = "ppo"\ntag = ["\\u001b[2J", "[/x]"]')
    (folder / "not.utf8").mkdir()
    odd = os.fsencode(folder) + b"/\xff\xfe"
    (folder / "not.utf8").rename(os.fsdecode(odd))
    path = Path(os.fsdecode(odd)) / "run"
    write_run(path, 'trainer = "ppo"', rounds=2)
    path.rename(Path(os.fsdecode(os.fsencode(folder) + b"/\xfe\xff")))
    made.append(Path(os.fsdecode(os.fsencode(folder) + b"/\xfe\xff")))
    return made
