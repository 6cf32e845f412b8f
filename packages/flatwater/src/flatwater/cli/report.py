"""`flatwater report`: a run, a study or a watch (`watch.json`) as one web page."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from flatwater_watch.files.output import PAGE_OUTPUT, WrittenResult, check_output, write_output
from flatwater_watch.options.declare import WordOption


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a run as one web page: findings, memory by owner against the plan, learning, trading, speed.

    The page is one file that needs no network and can be sent to others. It is made from the run's folder alone, while
    the run goes on or after it has ended. A file that `flatwater watch --json` wrote has a page too: the findings, and
    memory over time. A study's page has its pooled result with an interval, and the folds.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The folder of a run or of a study, the URL at which a run is mirrored, or the JSON file of a watch."""
    out: Annotated[Path | None, WordOption()] = None
    """File to write. Left out: report.html in the run's folder; watch.html next to watch.json; NAME.html here for a
    run at a URL."""
    every: str | None = None
    """Draw the page of a run again at this interval, such as 1m, until the run ends: in a terminal next to it."""

    def __call__(self) -> int:
        """Write the page and print its path: once, or with `--every` until the run ends. Returns the exit code."""
        from flatwater_watch.units import parse_duration

        if self.every is None:
            self._draw()
            return 0
        # At most once a second, which is the time to draw the page of a long run.
        interval = max(1.0, parse_duration(self.every, "--every"))
        while self._is_training():
            self._draw()
            time.sleep(interval)
        self._draw()  # with how the run ended
        return 0

    def _is_training(self) -> bool:
        """Return whether a process trains the run now.

        Raises:
            ConfigError: `run` is not the folder of a run, which `--every` needs.
        """
        from flatwater.rundir.layout import open_folder
        from flatwater.rundir.listing import run_state
        from flatwater_watch.errors import ConfigError

        if not (Path(self.run) / "config.toml").is_file():
            raise ConfigError(f"--every: expected the folder of a run, got {self.run}. Leave --every out.")
        # The counts of rounds only tell a stopped run from a finished one.
        return run_state(open_folder(Path(self.run)), rounds_done=0, rounds=0) == "training"

    def _draw(self) -> None:
        """Write the page of a run, a watch's file, or a package's folder such as a study; print the page's path."""
        from flatwater.plugins import group_rows, load_row
        from flatwater.rundir.plugin_folders import plugin_folder_kind
        from flatwater_watch.terminal import say
        from flatwater_watch.units import format_bytes

        path = Path(self.run)
        if path.is_file():
            page_file, size = self._write_watch_page()
        elif kind := plugin_folder_kind("pages", path):
            _, import_path = group_rows("pages")[kind]
            prepare_page = load_row("pages", kind, import_path)
            default_file, make_page = prepare_page(path)  # the page is made only if its file can be written
            page_file, size = self._write_page(default_file, make_page)
        else:
            page_file, size = self._write_run_page()
        say(f"{page_file}  {format_bytes(size)}")

    def _write_run_page(self) -> tuple[WrittenResult, int]:
        """Write the page of a run into its folder, for a run at a URL into the current one. Returns file and size."""
        from flatwater.mirror.download import open_run_folder
        from flatwater.reports.page import run_page
        from flatwater.reports.records import read_run
        from flatwater.storage.objects import is_url
        from flatwater_watch.terminal import say

        with open_run_folder(self.run, say, with_shards=False) as folder:
            run = read_run(folder.path)
            page_file = Path(f"{folder.path.name}.html") if is_url(self.run) else folder.report
            return self._write_page(page_file, lambda: run_page(run))

    def _write_watch_page(self) -> tuple[WrittenResult, int]:
        """Write the page of a watch next to its file. Returns the page's file and size in bytes."""
        from datetime import datetime

        from flatwater_watch.faces.page import watch_page
        from flatwater_watch.faces.watch_result import read_watch_result

        file = Path(self.run)
        watch = read_watch_result(file)
        return self._write_page(file.with_suffix(".html"), lambda: watch_page(watch, datetime.now().astimezone()))

    def _write_page(self, default_file: Path, make_page: Callable[[], str]) -> tuple[WrittenResult, int]:
        """Write the page to the file of --out, or to `default_file`. Returns the page's file and size in bytes."""
        file = self.out if self.out is not None else default_file
        # Checked before the page is made, which may take a while. The words begin the message of an error.
        check_output("--out" if self.out is not None else "without --out,", file, PAGE_OUTPUT, run_default=default_file)
        content = make_page().encode(errors="replace")
        return write_output(file, content, PAGE_OUTPUT, run_default=default_file), len(content)
