"""The command `flatwater watch [options] -- COMMAND ...`.

It stands before each run of somebody's program, so modules that not every run needs are imported within functions.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

from flatwater_watch.diagnose.finding_text import brief_text, wrap_text
from flatwater_watch.faces.command_name import WATCH_COMMAND
from flatwater_watch.files.output import (
    KEPT_FOLDER,
    PAGE_OUTPUT,
    WATCH_LOG,
    WATCH_RESULT,
    OutputKind,
    append_output,
    check_output,
    replace_output,
    write_output,
)
from flatwater_watch.masking import mask_secrets
from flatwater_watch.options.bounds import Bounds
from flatwater_watch.options.plain import HIDDEN_FIELD, read_plain
from flatwater_watch.sanitize import escape_controls

if TYPE_CHECKING:
    from flatwater_watch.agent.outcome import GrowthAllowance
    from flatwater_watch.agent.spool import PeriodicReports

LAST_RESULT = KEPT_FOLDER / "watch" / "last.json"
"""Path of the newest result, below the working folder."""
FINDING_SECONDS = 2.0
"""Maximum seconds until --on-finding gets a new finding."""
FLAG_WORDS = ("-h", "--help", "--fail", "--no-fail", "--outside", "--no-outside")
"""Options that no value follows."""


@dataclass(frozen=True, kw_only=True)
class WatchCommand:
    """Run a training program, and say what grows in it: its owner, the line that made it, and when memory ends.

    The command stands after the options: `flatwater watch -- python train.py --lr 3e-4`, `flatwater watch train.py`, or
    `flatwater watch -- -m package.train`. Its output, arguments and exit code stay the same; findings are printed on
    stderr when it has ended, and before that with --every. `flatwater watch watch.json` prints a kept result again.
    """

    steps_from: Literal["auto", "update", "episode", "step", "epoch", "second"] = "auto"
    """The unit of growth: optimizer steps, environment resets, environment steps, DataLoader epochs, or seconds.
    `auto` takes the slowest of them that occurs regularly."""
    budget: str | None = None
    """Memory limit for the forecast, such as 8GiB: findings say when it is reached. Left out: the limit of the machine
    or the container."""
    json: str | None = None
    """Write the result as JSON to this file (its name ends in .json); without a name, to stdout after the program's own
    output."""
    html: Path | None = None
    """Write the result as a web page to this file: the findings, and memory over time. Needs plotly, which
    `pip install 'flatwater-watch[page]'` brings."""
    against: str | None = None
    """Say what changed since an earlier run, in bytes by owner, and which findings are new: `last`, or a file that
    --json wrote. `flatwater watch --against monday.json tuesday.json` compares two files and runs nothing."""
    live: bool = False
    """Print what grows, and what to do about it, on stderr as soon as it is known, while the program runs."""
    every: str | None = None
    """Print the findings while the program runs, at this interval, such as 10m or 1h; a file of --json is written
    again each time."""
    out: Path | None = None
    """Append the output of --every to this file, and keep stderr for the program."""
    on_finding: str | None = None
    """Run this command for each finding as soon as it is known, with the finding as JSON on its input: to send a mail,
    for example. It is run without a shell, and killed after ten seconds."""
    attach: Annotated[int, Bounds(1, 1 << 22)] | None = None
    """Look into a running Python process, by its number, instead of running a command: gdb enters it, and after
    --seconds the watch leaves it as it was. If that is not possible, the watch reads totals from outside. A process
    that runs under a watch already gives its findings so far, at once."""
    outside: bool = False
    """Look at the process of --attach from outside only: it is never stopped, and need not be Python."""
    seconds: Annotated[float, Bounds(0, 1e7, above=True)] = 20.0
    """Duration of --attach in seconds; Ctrl-C ends it earlier, with the findings so far."""
    fail: bool = False
    """For CI: end with exit status 1 where something grows without an end, or memory grew and no cause was found, if
    the program itself ends with 0. Buffers that fill, and mapped files, do not count."""
    fail_if_grows: str | None = None
    """End with 1 as well where memory grew by more than this since warm-up: 64MiB in all, 1MiB/step, 1MiB/second or
    1MiB/hour."""
    command: tuple[str, ...] = field(default=(), metadata=HIDDEN_FIELD)
    """The program's command."""

    @staticmethod
    def read(program: str, options: Sequence[str]) -> "WatchCommand":
        """Read the options up to `--` or the first word that is no option; the words after it are the command."""
        words, command = split_options(options)
        # `split_options` gives a bare --json the value `-`. If the command follows it at once, the command's first word
        # may be meant as its file, though the name lacks .json.
        words_before_command = options[: len(options) - len(command)]
        follows_bare_json = words[-1:] == ["-"] and words_before_command[-1] == "--json"
        if command and follows_bare_json:
            check_is_command(command[0])
        watch_command = read_plain(WatchCommand, words)
        if watch_command is None:  # options that only tyro reads; its import takes long
            from flatwater_watch.options.parsing import read_options

            watch_command = read_options(WatchCommand, f"{program} [options] -- COMMAND", words)
        return replace(watch_command, command=tuple(command))

    def __call__(self) -> int:
        """Run the command, or watch a process, and print and write the result; return the exit code."""
        from flatwater_watch.agent.outcome import GrowthAllowance
        from flatwater_watch.units import parse_bytes

        if self.on_finding is not None:
            from flatwater_watch.events.command import check_command

            check_command(self.on_finding, "--on-finding")
        limit = None if self.budget is None else parse_bytes(self.budget)
        earlier_result = None if self.against is None else read_earlier_result(self.against)
        allowance = None if self.fail_if_grows is None else GrowthAllowance.parse(self.fail_if_grows)
        # Before the program starts: it may run for hours, and then nothing could be written.
        check_output_files(None if self.json in {None, "-"} else self.json, self.html, self.out)
        with self._finding_notices() as notify:
            code, summary = self._obtain_summary(limit, self._make_reports(notify))
            if notify is not None and self.on_finding is not None:  # --live leaves the end to the printed result
                notify(summary)
            try:
                self._print_and_save(summary, earlier_result, keep=not self._reads_kept_result)
            except OSError:  # stdout is full, or nobody reads it
                if not code:  # else the exit code of the program, which failed, is more important
                    raise
        return code or self._report_excess(summary, allowance)  # the code of a program that failed goes first

    @property
    def _reads_kept_result(self) -> bool:
        """Whether the command is a kept result, which is printed again."""
        return self.attach is None and len(self.command) == 1 and self.command[0].endswith(".json")

    def _obtain_summary(self, limit: int | None, reports: "PeriodicReports | None") -> tuple[int, dict[str, Any]]:
        """Get the exit code and the summary of an attached process, of a kept result, or of a run of the program."""
        from flatwater_watch.faces.runner import watch_command

        if self.attach is not None:
            return 0, _watch_attached_process(self.attach, self.seconds, limit, outside=self.outside, reports=reports)
        if self._reads_kept_result:
            return 0, read_earlier_result(self.command[0])
        unit = None if self.steps_from == "auto" else self.steps_from
        return watch_command(self.command, unit=unit, limit=limit, reports=reports)

    def _report_excess(self, summary: dict[str, Any], allowance: "GrowthAllowance | None") -> int:
        """Print by how much the growth exceeds the allowance; return 1 if it does or if --fail applies, else 0."""
        excess = "" if allowance is None else allowance.describe_excess(summary)
        if excess:
            say(excess)
        return int(bool(excess) or (self.fail and fail_option_applies(summary)))

    @contextmanager
    def _finding_notices(self) -> Iterator[Callable[[dict[str, Any]], None] | None]:
        """Yield a function that reports the new findings of a summary; None without --live and --on-finding.

        With --live it prints their headlines, and it runs the command of --on-finding; the end of the block waits for
        the command.
        """
        command_text = (self.on_finding or "").strip()
        if not self.live and not command_text:
            yield None
            return
        from flatwater_watch.diagnose.finding import Finding
        from flatwater_watch.events.command import EventCommand
        from flatwater_watch.events.event import Event

        command = EventCommand(command_text, say, "--on-finding") if command_text else None
        reported_keys = set[tuple[str, str]]()

        def notify(summary: dict[str, Any]) -> None:
            """Report the findings that no earlier summary had, by verdict and owner."""
            for record in summary["findings"]:
                key = record["verdict"], record["owner"]
                if key in reported_keys:
                    continue
                reported_keys.add(key)
                text = brief_text(Finding.from_json(record))
                if self.live:
                    say("\n".join(wrap_text("flatwater: ", text, "  ")))
                if command is not None:
                    command.on_event(Event("finding", text, {"program": summary["program"], **record}))

        try:
            yield notify
        finally:
            if command is not None:
                command.close()

    def _make_reports(self, notify: Callable[[dict[str, Any]], None] | None) -> "PeriodicReports | None":
        """Make the reports for --every, --live and --on-finding; return None if none of them is given.

        Args:
            notify: function of `_finding_notices`, for --live and --on-finding; None if neither is given.

        Raises:
            ConfigError: --every is not a length of time, or --out is given without it.
        """
        from flatwater_watch.agent.spool import PeriodicReports
        from flatwater_watch.errors import ConfigError
        from flatwater_watch.units import parse_duration

        if self.every is None:
            if self.out is not None:
                raise ConfigError("--out takes what --every tells. Give --every as well, such as --every 10m.")
            return None if notify is None else PeriodicReports(FINDING_SECONDS, notify)
        reported_keys = set[tuple[str, str]]()
        every = max(1.0, parse_duration(self.every, "--every"))  # seconds from report to report
        reports = PeriodicReports(every, lambda summary: self._write_report(summary, reported_keys))
        if notify is None:
            return reports
        began = monotonic()

        def notify_and_report(summary: dict[str, Any]) -> None:
            """Notify at each call, every few seconds; report only at the interval of --every."""
            notify(summary)
            reports.report_if_due(monotonic() - began, lambda: [summary])

        return PeriodicReports(min(every, FINDING_SECONDS), notify_and_report)

    def _write_report(self, summary: dict[str, Any], reported_keys: set[tuple[str, str]]) -> None:
        """Print the findings so far on stderr, or append them to the file of --out; rewrite the file of --json.

        Args:
            summary: summary of the program so far.
            reported_keys: verdict and owner of the findings of earlier reports, which are printed by their names alone;
                those of this report are added.
        """
        from datetime import datetime

        from flatwater_watch.errors import RunError
        from flatwater_watch.faces.summary_lines import terminal_lines

        lines = [
            f"{datetime.now().astimezone():%Y-%m-%d %H:%M}",
            *terminal_lines(summary, printed_keys=frozenset(reported_keys)),
        ]
        reported_keys |= {(record["verdict"], record["owner"]) for record in summary["findings"]}
        if self.out is None:
            say("\n".join(lines))
        else:
            with suppress(OSError):  # a full disk
                append_output(self.out, "\n".join([*lines, ""]), WATCH_LOG)
        if self.json not in {None, "-"}:
            with suppress(RunError):  # the last report tries again, and says what is wrong
                replace_output(Path(str(self.json)), json_text(summary).encode(errors="replace"), WATCH_RESULT)

    def _print_and_save(self, summary: dict[str, Any], earlier_result: dict[str, Any] | None, *, keep: bool) -> None:
        """Print the result, and save it for --json, --html and `--against last`; a file that fails is reported.

        Raises:
            OSError: stdout is full, or nobody reads it.
        """
        from flatwater_watch.errors import FlatwaterError
        from flatwater_watch.faces.summary_lines import terminal_lines

        text = json_text(summary)
        written_files = [str(LAST_RESULT)] if keep and _save_last_result(text) else []
        for line in terminal_lines(summary, earlier_result):
            say(line)
        # Functions make the contents, as making the page is slow and may fail.
        outputs: list[tuple[str | Path | None, Callable[[], str], OutputKind]] = [
            (self.json, lambda: text, WATCH_RESULT),
            (self.html, lambda: _page_html(summary), PAGE_OUTPUT),
        ]
        for path, make_content, kind in outputs:
            if path is None or path == "-":  # "-" is stdout, which is written last
                continue
            try:
                content = make_content().encode(errors="replace")
                written_files.append(str(write_output(Path(path), content, kind)))
            except FlatwaterError as error:  # not raised, as the exit code is the program's
                say(f"not written: {error}")
        if written_files:
            say(f"kept in {', '.join(written_files)}")
        if self.json == "-":  # as stdout may be full
            sys.stdout.write(text)


def say(line: str) -> None:
    """Print a text on stderr, without control characters and secrets, if stderr can be written."""
    # Without rich, whose import takes long. A stderr that is closed, full or without a reader raises nothing, as the
    # exit code is the program's.
    with suppress(OSError, AttributeError):
        sys.stderr.write(f"{escape_controls(mask_secrets(line))}\n")
        sys.stderr.flush()


def fail_option_applies(summary: dict[str, Any]) -> bool:
    """Return whether --fail makes the exit status 1 for the outcome and the findings of a summary."""
    from flatwater_watch.agent.outcome import Outcome, fails_build
    from flatwater_watch.diagnose.finding import Finding

    return fails_build(
        Outcome.from_json(summary["outcome"]), [Finding.from_json(record) for record in summary["findings"]]
    )


def _page_html(summary: dict[str, Any]) -> str:
    """Return the result as a web page."""
    from datetime import datetime

    from flatwater_watch.faces.page import watch_page
    from flatwater_watch.faces.watch_result import parse_watch_result

    return watch_page(parse_watch_result(summary), datetime.now().astimezone())


def _watch_attached_process(
    pid: int, seconds: float, limit: int | None, *, outside: bool, reports: "PeriodicReports | None"
) -> dict[str, Any]:
    """Watch a running process from inside, or from outside if it cannot be entered; return its summary.

    If it could not be entered, the summary says why. If a runner watches it already, its findings so far are returned.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from flatwater_watch.faces.attach_inside import CannotEnterError, watch_inside
    from flatwater_watch.faces.attach_outside import check_attach_options, watch_outside
    from flatwater_watch.faces.running_watch import read_running_watch
    from flatwater_watch.terminal import terminal

    check_attach_options(pid, seconds)
    running_watch = None if outside else read_running_watch(pid, limit)
    if running_watch is not None:
        return running_watch
    errors = terminal(to_stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"looking at process {pid}", total=1.0)

        def show_progress(time_share: float) -> None:
            bar.update(task, completed=time_share)

        if outside:
            return watch_outside(pid, seconds, limit, on_reading=show_progress)
        try:
            return watch_inside(pid, seconds, limit, on_reading=show_progress, reports=reports)
        except CannotEnterError as error:
            bar.console.print(f"from outside: {error}", soft_wrap=True)
            summary = watch_outside(pid, seconds, limit, on_reading=show_progress)
            return summary | {"unseen": [f"the inside: {error}", *summary["unseen"]]}


def split_options(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the command line into the options of `watch` itself and the words of the program's command.

    `--every 1h --json python train.py` becomes `--every 1h --json -` and `python train.py`: a bare --json gets `-`.
    """
    words = list(options)
    option_words = list[str]()
    while words and words[0].startswith("-") and words[0] not in {"--", "-m"}:  # `-m package.train` is a command
        word = words.pop(0)
        option_words.append(word)
        if "=" in word or word in FLAG_WORDS:  # the next word is not its value
            continue
        if word == "--json" and not (words and words[0].endswith(".json")):  # without a file: to stdout
            option_words.append("-")
        elif words:
            option_words.append(words.pop(0))  # its value
    command = words[1:] if words[:1] == ["--"] else words
    return option_words, command


def check_is_command(word: str) -> None:
    """Check that the word after a bare `--json` is a command, a script or `-m`, and not meant as the file of --json.

    Raises:
        ConfigError: there is no such command.
    """
    import shutil

    from flatwater_watch.errors import ConfigError

    if word != "-m" and not word.endswith(".py") and shutil.which(word) is None:
        raise ConfigError(
            f"--json {word}: the name must end in .json, and there is no command of this name either. "
            "Name such a file, or leave the name out: then a command follows."
        )


def read_earlier_result(name: str) -> dict[str, Any]:
    """Read the result of an earlier run; `name` is a path, or `last` for the newest result in this folder.

    Raises:
        ConfigError: there is no such file, or it is not the result of a watch.
    """
    from flatwater_watch.errors import ConfigError
    from flatwater_watch.faces.bounded_result import read_record

    path = LAST_RESULT if name == "last" else Path(name)
    try:
        record = read_record(path)
    except OSError as fault:
        raise ConfigError(
            f"{path}: cannot be read: {fault.strerror}. Run once without --against to make one."
        ) from fault
    except (ValueError, RecursionError):  # no JSON: refused below
        record = None
    if not isinstance(record, dict) or "findings" not in record:
        raise ConfigError(f"{name}: {path} was not written by `{WATCH_COMMAND} --json`")
    return record


def json_text(summary: dict[str, Any]) -> str:
    """Return the result as indented JSON, with each list of numbers on one line."""
    import json

    # A list that holds neither texts nor other values in brackets, such as `[\n 1,\n 2\n]`. Line breaks in texts are
    # escaped by JSON, so the pattern finds none there.
    return re.sub(r'\[\n[^\[\]{}"]*\]', _numbers_on_one_line, json.dumps(summary, indent=1)) + "\n"


def _numbers_on_one_line(match: re.Match[str]) -> str:
    return f"[{' '.join(match[0][1:-1].split())}]"


def check_output_files(json: str | None, html: Path | None, out: Path | None = None) -> None:
    """Check, before the program starts, that the results can be written when it has ended, hours later.

    Raises:
        ConfigError: a file cannot be written there or has another ending, or the page cannot be made.
    """
    from importlib.util import find_spec

    from flatwater_watch.errors import ConfigError

    if html is not None and find_spec("plotly") is None:
        raise ConfigError(
            "--html needs plotly, which is not installed. Install it with: pip install 'flatwater-watch[page]'"
        )
    if json is not None:
        check_output("--json", Path(json), WATCH_RESULT)
    if out is not None:
        check_output("--out", out, WATCH_LOG)
    if html is not None:
        check_output("--html", html, PAGE_OUTPUT)


def _save_last_result(text: str) -> bool:
    """Save the result for `--against last`; return False if the working folder cannot be written."""
    from flatwater_watch.errors import RunError
    from flatwater_watch.files.directory import write_object

    try:
        write_object(LAST_RESULT, text.encode())
    except RunError:
        return False
    return True
