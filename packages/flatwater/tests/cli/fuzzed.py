"""Words that a user, a script or an enemy may write after a command, by the kind of value that its options declare."""

import gzip
import os
import socket
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from flatwater.cli.main import command_class

NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "-1",
    "16",
    "1e-4",
    "0.5",
    "1e9",
    str(2**20),
    str(2**31),
    str(2**40),
    str(2**62),
    str(2**64),
)
ODD_NUMBERS = ("inf", "-inf", "nan", "1e309", "1e-320", "9" * 5000, "0x10", "1_0", "٣", "+1", " 1", "1e", "--", "None")
TEXTS = (
    "",
    "x",
    "None",
    "True",
    "\x1b]0;title\x07",
    "a\0b",
    "a" * 5000,
    "[bold]x[/]",
    "[1]",
    "🙂\u202e",
    "\udcff",
    "-",
    "=",
    "\n",
)
URLS = ("s3://", "s3://b?x=1", "http://x/y", "file://host/x", "file:///dev/zero/x", "s3:/x", "://", "gs://a b/\0")
PANELS = (
    "synthetic:1e9x1e9",
    f"synthetic:{10**9}x{10**9}",
    "synthetic:" + "9" * 5000 + "x3",
    "synthetic:4x260:seed=nan",
)
PANELS += (
    "synthetic:4x260:signal=inf",
    "synthetic:4x260:halts=1",
    "synthetic:4x260:x=1",
    "synthetic:4x300:late_listings=1",
)
NAMED = ("os:sep", "os:getcwd", ":x", "..a:b", ":", "run:", "run:/dev/zero", "run:runs", "pettingzoo:..a")
NAMED += ("gymnasium::x", "gymnasium:..a:b", "gymnasium:", "pettingzoo:os", "forage:1")
NEVER = {"config", "space", "start_over_budget", "trackers", "compile"}
"""Fields that are drawn by name, that would start long work, or that wait for other machines."""


def make_place(folder: Path) -> None:
    """Files of every kind, from sound to hostile."""
    head = "symbol,date,open,high,low,close\n"
    (folder / "sound.csv").write_text(head + "".join(f"A,2000-01-{day:02},1,2,1,2\n" for day in range(1, 29)))
    (folder / "ragged.csv").write_text(head + "A,2000-01-03,1,2\n")
    (folder / "huge.csv").write_text(head + "A,2000-01-03,1,1e300,1,2\n")
    (folder / "no.csv").write_bytes(b"\xff\xfe\0\0")
    (folder / "no.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")
    (folder / "no.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0" + b"[" * 16)
    (folder / "no.json").write_text("[" * 100_000)
    (folder / "watch.json").write_text('{"findings": [{}], "program": 3}')
    (folder / "good.toml").write_text("seed = 3\n")
    (folder / "deep.toml").write_text("a = " + "[" * 5000)
    (folder / "long.toml").write_text("seed = " + "9" * 5000)
    (folder / "hex.toml").write_text("seed = 0x" + "f" * 5000)
    (folder / "escape.toml").write_text('"\\u001b]0;x\\u0007" = 1')
    (folder / "nul.toml").write_text('panel = "a\\u0000b"\nworld = "a\\u0000b"\nmirror = "s3://a\\u0000b"')
    (folder / "inf.toml").write_text("[learner.hindsight]\nlr = inf\nactor_lr = nan")
    (folder / "space.toml").write_text("[learner.weight_decay]\nlow = nan\nhigh = inf")
    (folder / "dots.toml").write_text(".".join(["a"] * 20_000) + " = 1")
    (folder / "config.toml").symlink_to("config.toml")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.csv")
    (folder / "zero.csv").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(folder / "socket"))
    for number, text in enumerate(
        ("trainer = 'erl'", "rounds = 'x'", "trainer = [1]\nrounds = 3", "rounds = 3\ntrainer = 'grow'")
    ):
        run = folder / "runs" / f"run-{number}[1]"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.toml").write_text(text)
        (run / "metrics.jsonl").write_text('{"round": 1, "losses/critic": "x"}\n')
    (folder / "runs" / "run-0[1]" / ".lock").mkdir()
    os.mkfifo(folder / "runs" / "run-3[1]" / ".lock")


FILES = (
    "sound.csv",
    "ragged.csv",
    "huge.csv",
    "no.csv",
    "no.parquet",
    "no.safetensors",
    "no.json",
    "watch.json",
    "pipe",
    "pipe.csv",
)
FILES += (
    "zero.csv",
    "socket",
    "folder",
    "missing",
    "missing/x.html",
    "config.toml",
    "/dev/zero",
    "/dev/null",
    "/proc/self/mem",
    ".",
)
FILES += (
    "runs",
    "runs/run-0[1]",
    "runs/run-1[1]",
    "runs/run-2[1]",
    "runs/run-3[1]",
    "~nobody/x.csv",
    "out.html",
    "out.json",
    "/",
)
TOMLS = (
    "deep.toml",
    "long.toml",
    "hex.toml",
    "escape.toml",
    "nul.toml",
    "inf.toml",
    "dots.toml",
    "good.toml",
    "space.toml",
)
PATHS = (*FILES, *TOMLS, *TEXTS, "s3://bucket/run", "a/" * 3000)


@cache
def options_of(command: tuple[str, ...]) -> dict[str, Any]:
    """Option, or the name of a positional argument in capitals -> the type that is declared for it."""
    found = dict(_walk(command_class(command), ""))
    assert len(found) >= 2 or command in {("panel", "show"), ("completion",), ("version",), ("cluster", "check")}
    return found


def _walk(cls: type[Any], above: str) -> Iterator[tuple[str, Any]]:
    hints, annotated = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    for field in fields(cls):
        kind = hints[field.name]
        if field.name in NEVER or field.name in {"trainer", "command"}:
            continue
        if is_dataclass(kind) and isinstance(kind, type):
            yield from _walk(kind, f"{above}{field.name}.")
            continue
        told = getattr(annotated[field.name], "__metadata__", ())
        if any("ositional" in str(extra) for extra in told):
            yield field.name.upper(), kind
        else:
            name = next((extra.name for extra in told if getattr(extra, "name", None)), field.name)
            yield f"--{above}{name}".replace("_", "-"), kind


def value_for(option: str, kind: Any) -> st.SearchStrategy[list[str]]:
    """The words after an option: mostly of its kind, and hostile in the ways of that kind."""
    kinds = {kind, *get_args(kind)}
    if kinds & {Path} or (option in {"RUN", "FOLDER", "PATH", "--json", "--html", "--against"} and str in kinds):
        return st.sampled_from(PATHS + (URLS if str in kinds else ())).map(lambda word: [word])
    if kinds & {bool}:
        return st.just([])
    if str in kinds and not kinds & {int, float}:
        return st.sampled_from(TEXTS + URLS + PANELS + NAMED + FILES + ODD_NUMBERS).map(lambda word: [word])
    number = st.one_of(st.sampled_from(NUMBERS + ODD_NUMBERS + TEXTS), st.integers().map(str), st.floats().map(repr))
    if "tuple" in str(kind):
        return st.lists(number, max_size=4)
    return number.map(lambda word: [word])


def required_words(command: tuple[str, ...]) -> list[str]:
    """Positional arguments and options that a command cannot do without."""
    cls = command_class(command)
    names = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    return [option for option in options_of(command) if option.lstrip("-").lower().replace("-", "_") in names]


OWN = ("config.toml", "metrics.jsonl", "result.json", ".lock", "run.log", "checkpoints/x.json", "report.html", "x.html")
SPELLINGS = ("{}", "./{}", "runs/../{}", "{}/", "{} ", "//{}", "{}\n", "link/{}")
WRITING = (
    ["report", "RUN", "--out", "OUT"],
    ["report", "watch.json", "--out", "OUT"],
    ["report", "seen.json", "--out", "OUT"],
    ["compare", "RUN", "RUN", "--page", "OUT"],
    ["runs", "--page", "OUT"],
    ["panel", "import", "sound.csv", "--out", "OUT"],
    ["orders", "RUN", "--after", "OUT"],
    ["export", "RUN", "--to", "OUT"],
    ["backtest", "RUN", "--out", "OUT", "--force"],
    ["mirror", "RUN", "--to", "URL"],
    ["resume", "URL", "--into", "OUT"],
    ["watch", "--json", "OUT", "--html", "OUT", "--seconds", "1", "--attach", "1"],
    ["watch", "--json", "OUT", "watch.json"],
    ["watch", "--html", "OUT", "seen.json"],
)
"""Commands with a file to write, or a folder."""


def output_lines(place: Path) -> st.SearchStrategy[list[str]]:
    """A command that writes, and a name for it: of what is precious, of a run's own, of nothing, of no file."""
    runs = [f"runs/{run.name}" for run in (place / "runs").iterdir()]
    own = [f"{run}/{name}" for run in runs for name in OWN]
    names = st.sampled_from([*PATHS, *own, "mine.html", "mine.json", "mine.csv", "link.html", "hard.html", "a/b.html"])
    spelled = st.tuples(st.sampled_from(SPELLINGS), names).map(lambda pair: pair[0].format(pair[1]))
    url = st.sampled_from([*URLS, "file://", "file:///", "file://runs", f"file://{place}/config.toml"])

    def fill_in(line: list[str]) -> st.SearchStrategy[list[str]]:
        kinds = {"RUN": st.sampled_from([*runs, "runs", "missing"]), "OUT": st.one_of(names, spelled), "URL": url}
        return st.tuples(*(kinds.get(word, st.just(word)) for word in line)).map(list)

    return st.sampled_from(WRITING).flatmap(fill_in)


def add_what_is_precious(place: Path) -> dict[Path, bytes]:
    """Files of the user's that look like results, and links to others. Returns all that must stay as they are."""
    (place / "mine.html").write_text("<!doctype html><title>my own page</title>")
    (place / "mine.json").write_text('{"program": 3}')
    (place / "mine.csv").write_text("symbol,close\n")
    (place / "seen.json").write_text('{"findings": [], "program": "x"}')
    (place / "link.html").symlink_to("mine.csv")
    (place / "link").symlink_to("runs")
    os.link(place / "mine.csv", place / "hard.html")
    return contents(place)


def contents(place: Path) -> dict[Path, bytes]:
    """Every regular file below, but for what Flatwater keeps there."""
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    kept = {place / ".flatwater", place / "cache"}
    return {path: path.read_bytes() for path in files if kept.isdisjoint(path.parents)}


KEYS = ("seed", "rounds", "panel", "budget", "mirror", "trackers", "tag", "population.size", "learner.lr", "env", "x")
KEYS += (
    "env.episode.context",
    "splits.holdout_days",
    "checkpoints.keep",
    "learner",
    "env.account",
    "trainer",
    '""',
    "a b",
)
VALUES = (
    "3",
    "-1",
    "nan",
    "inf",
    "'x'",
    "[]",
    "[1, 'a']",
    "{}",
    "{ a = 1 }",
    "true",
    "2024-01-31",
    "07:32:00",
    "1e400",
)
VALUES += (
    '"\\u0000"',
    '"""',
    "'''\n\n'''",
    "0x",
    "1_000",
    "=",
    "[[[[",
    "'s3://k:s@b'",
    f"'{'x' * 3000}'",
    "9" * 400,
    "",
)
BEGINNINGS = ("", "\ufeff", "# é\n", "[env]\n", "[[env]]\n", "\t", "\x00", "[a.b.c.d]\n", "\r\n")


def tomls() -> st.SearchStrategy[bytes]:
    """Texts that are nearly settings, some in another encoding, some with bytes that are no text."""
    line = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(" = ".join)
    text = st.tuples(st.sampled_from(BEGINNINGS), st.lists(line, max_size=4).map("\n".join)).map("".join)
    encoded = st.tuples(text, st.sampled_from(["utf-8", "utf-16", "utf-32", "latin-1"])).map(
        lambda pair: pair[0].encode(pair[1], errors="replace")
    )
    return st.one_of(encoded, st.tuples(encoded, st.binary(max_size=8)).map(b"".join))


HEADS = ("symbol,date,open,high,low,close", "date,AAA,BBB", "date,AAA_open,AAA_high,AAA_low,AAA_close", "date,AAA,AAA")
HEADS += (
    "date",
    "",
    "a;b;c",
    "date\tclose",
    "date,close,close",
    "Symbol,DATE,Close",
    ",,,",
    '"date","AAA',
    "date,=x,@y",
)
CELLS = (
    "2000-01-03",
    "1",
    "2.5",
    "",
    "nan",
    "-1",
    "0",
    "1e400",
    "x",
    "1,5",
    '"1,5"',
    "01/02/2000",
    "9999-99-99",
    "\x00",
)
CELLS += ("2000-01-03T09:30:00", "2000-01-03 00:00:00+00:00", "€3", "1'000", "=1+1", "٣", "AAA", "9" * 40, "A" * 300)


def price_tables() -> st.SearchStrategy[bytes]:
    """Tables that are nearly prices."""
    row = st.lists(st.sampled_from(CELLS), max_size=7).map(",".join)
    sound = st.integers(1, 28).map(lambda day: f"2000-01-{day:02},1,2,1,2,1")
    rows = st.lists(st.one_of(row, sound), max_size=8).map("\n".join)
    text = st.tuples(st.sampled_from(HEADS), rows).map("\n".join)
    encoded = st.tuples(text, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])).map(
        lambda pair: pair[0].encode(pair[1], errors="replace")
    )
    return st.one_of(encoded, encoded.map(gzip.compress), st.binary(max_size=40))
