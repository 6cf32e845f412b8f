"""`flatwater watch [options] -- COMMAND ...`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from flatwater.cli.output_file import KEPT, check_output, write_output
from flatwater.config.bounds import Bounds

LAST = KEPT / "watch" / "last.json"
"""Where the newest result is kept, below the working folder."""
FLAGS = ("-h", "--help", "--fail", "--no-fail", "--outside", "--no-outside")


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Run a training program, and say what grows in it: who holds it, which line made it, when memory ends.

    The command stands after the options: `flatwater watch -- python train.py --lr 3e-4`, `flatwater watch train.py`, or
    `flatwater watch -- -m package.train`. Its output, arguments and exit code stay its own; findings are told on stderr
    when it has ended.
    """

    steps_from: Literal["auto", "update", "episode", "step", "epoch", "second"] = "auto"
    """What growth is told by: optimizer steps, environment resets, environment steps, DataLoader epochs, or seconds.
    `auto` takes the slowest of them that comes by regularly."""
    budget: str | None = None
    """Memory at which the program would have to stop, such as 8GiB: the date of death is told for it. The machine's or
    the container's limit if left out."""
    json: str | None = None
    """Write the result as JSON to this file (its name ends in .json); without a name, to stdout after the program's own
    output."""
    html: Path | None = None
    """Write the result as a web page to this file: the findings, and memory over time. Needs plotly, which
    `pip install 'flatwater[train]'` brings."""
    against: str | None = None
    """Compare the findings with those of an earlier run: `last`, or a file that --json wrote."""
    attach: Annotated[int, Bounds(1, 1 << 22)] | None = None
    """Look into a running Python process, by its number, instead of running a command: gdb enters it, and after
    --seconds the watch leaves it as it was. Where it cannot be entered, it is looked at from outside: totals."""
    outside: bool = False
    """Look at the process of --attach from outside alone: it is not stopped for a moment, and need not be Python."""
    seconds: Annotated[float, Bounds(0, 1e7, above=True)] = 20.0
    """How long --attach looks; Ctrl-C ends it earlier, and what was read is told."""
    fail: bool = False
    """End with exit status 1, if the program itself ends with 0, where something grows and does not end, or memory grew
    and no cause was found: for CI. What fills a buffer, and mapped files, do not count."""
    command: tyro.conf.Suppress[tuple[str, ...]] = ()
    """The program's command."""

    @staticmethod
    def read(program: str, options: Sequence[str]) -> "Watch":
        """The options up to `--` or the first word that is none; the rest is the program's command."""
        from flatwater.cli.options import read_options

        own, command = split(options)
        read = read_options(Watch, f"{program} [options] -- COMMAND", own)
        return replace(read, command=tuple(command))

    def __call__(self) -> int:
        """Run or look, and tell.

        Raises:
            ConfigError: there is nothing to run, or an option cannot be used.
        """
        from flatwater.memory.watch.runner import watch_command
        from flatwater.units import parse_bytes

        limit = None if self.budget is None else parse_bytes(self.budget)
        before = None if self.against is None else earlier(self.against)
        check_places(None if self.json in {None, "-"} else self.json, self.html)
        if self.attach is not None:
            code, summary = 0, _attached(self.attach, self.seconds, limit, outside=self.outside)
        else:
            unit = None if self.steps_from == "auto" else self.steps_from
            ended = watch_command(self.command, unit=unit, limit=limit)
            code, summary = ended.code, ended.summary
        self._tell(summary, before)
        return code or int(self.fail and failed(summary))

    def _tell(self, summary: dict[str, Any], before: dict[str, Any] | None) -> None:
        import sys

        from flatwater.errors import FlatwaterError
        from flatwater.memory.watch.terminal import lines_of
        from flatwater.terminal import terminal

        text = as_text(summary)
        places = [str(LAST)] if _kept(text) else []
        if self.json == "-":
            sys.stdout.write(text)
        console = terminal(errors=True)
        for line in lines_of(summary, before):
            console.print(line, soft_wrap=True)
        makers: list[tuple[str | Path | None, Callable[[], str]]] = [
            (self.json, lambda: text),
            (self.html, lambda: _page(summary)),
        ]
        for named, made in makers:
            if named is None or named == "-":
                continue
            try:
                places.append(str(write_output(Path(named), made().encode(errors="replace"))))
            except FlatwaterError as error:  # the exit code is the program's
                console.print(f"not written: {error}", soft_wrap=True)
        if places:
            console.print(f"kept in {', '.join(places)}", soft_wrap=True)


def failed(summary: dict[str, Any]) -> bool:
    """Whether --fail makes the exit status 1."""
    from flatwater.memory.diagnose.finding import Finding
    from flatwater.memory.watch.outcome import Outcome, fails

    return fails(Outcome.from_json(summary["outcome"]), [Finding.from_json(found) for found in summary["findings"]])


def _page(summary: dict[str, Any]) -> str:
    from datetime import datetime

    from flatwater.reports.watch_page import watch_page
    from flatwater.reports.watch_records import watch_of

    return watch_page(watch_of(summary), datetime.now().astimezone())


def _attached(pid: int, seconds: float, limit: int | None, *, outside: bool) -> dict[str, Any]:
    """What is seen of a running process: from inside, or from outside with the reason."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from flatwater.memory.watch.inside import CannotEnterError, look_into
    from flatwater.memory.watch.outside import check_process, look_at
    from flatwater.terminal import terminal

    check_process(pid, seconds)
    errors = terminal(errors=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"looking at process {pid}", total=1.0)

        def looked(share: float) -> None:
            bar.update(task, completed=share)

        if outside:
            return look_at(pid, seconds, limit, looked=looked)
        try:
            return look_into(pid, seconds, limit, looked=looked)
        except CannotEnterError as reason:
            bar.console.print(f"from outside: {reason}", soft_wrap=True)
            summary = look_at(pid, seconds, limit, looked=looked)
            return summary | {"unseen": [f"the inside: {reason}", *summary["unseen"]]}


def split(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of `watch` itself, and the command. A bare `--json` becomes `--json -`."""
    words, own = list(options), list[str]()
    while words and words[0].startswith("-") and words[0] not in {"--", "-m"}:
        word = words.pop(0)
        own.append(word)
        if "=" in word or word in FLAGS:
            continue
        if word == "--json" and not (words and words[0].endswith(".json")):
            own.append("-")
        elif words:
            own.append(words.pop(0))
    return own, words[1:] if words[:1] == ["--"] else words


def earlier(named: str) -> dict[str, Any]:
    """The result of an earlier run.

    Raises:
        ConfigError: there is none, or the file is no such result.
    """
    import json

    from flatwater.errors import ConfigError
    from flatwater.regular import RESULT_BYTES, read_regular

    path = LAST if named == "last" else Path(named)
    try:
        found: Any = json.loads(read_regular(path, RESULT_BYTES))
    except OSError as fault:
        raise ConfigError(
            f"--against {named}: {path} cannot be read: {fault.strerror}. Run once without --against to make one."
        ) from fault
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "findings" not in found:
        raise ConfigError(f"--against {named}: {path} was not written by `flatwater watch --json`")
    return found


def as_text(summary: dict[str, Any]) -> str:
    """The result as JSON, with each list of numbers on one line."""
    import json

    # A line break is structure here: inside of texts JSON escapes it.
    return re.sub(r'\[\n[^\[\]{}"]*\]', _on_one_line, json.dumps(summary, indent=1)) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return f"[{' '.join(found[0][1:-1].split())}]"


def check_places(json: str | None, html: Path | None) -> None:
    """Find out before the program starts what would fail when it has ended, hours later.

    Args:
        json: file that is asked for.
        html: page that is asked for.

    Raises:
        ConfigError: a file cannot be written there, or the page cannot be made, or it has another ending.
    """
    from importlib.util import find_spec

    from flatwater.errors import ConfigError

    if html is not None and find_spec("plotly") is None:
        raise ConfigError(
            "--html needs plotly, which is not installed. Install it with: pip install 'flatwater[train]'"
        )
    if json is not None:
        check_output("--json", Path(json))
    if html is not None:
        check_output("--html", html, ".html")


def _kept(text: str) -> bool:
    """Keep the result for `--against last`; not where the working folder cannot be written."""
    from flatwater.errors import RunError
    from flatwater.storage.directory import write_object

    try:
        write_object(LAST, text.encode())
    except RunError:
        return False
    return True
