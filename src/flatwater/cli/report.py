"""`flatwater report RUN` and `flatwater report told.json`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a run as one web page: findings, memory by owner against the plan, learning, trading, speed.

    The page is one file that needs no network and can be sent to others. It is made from the run's folder alone, while
    the run goes on or after it has ended. A file that `flatwater watch --json` wrote has a page too: the findings, and
    memory over time.
    """

    run: Annotated[str, tyro.conf.Positional]
    """The run's folder, the URL at which it is mirrored, or the JSON file of a watch."""
    out: Path | None = None
    """File to write. Left out: report.html in the run's folder; told.html beside told.json; NAME.html here for a
    run at a URL."""

    def __call__(self) -> int:
        """Write the page, and say where it is."""
        from flatwater.units import format_bytes

        out, size = self._of_watch() if Path(self.run).is_file() else self._of_run()
        print(f"{out}  {format_bytes(size)}")
        return 0

    def _of_run(self) -> tuple[Path, int]:
        from flatwater.reports.page import write_page
        from flatwater.runs.fetching import at_hand
        from flatwater.storage.objects import is_url

        with at_hand(self.run, print, shards=False) as folder:
            beside = Path(f"{folder.path.name}.html") if is_url(self.run) else folder.report
            out = self.out if self.out is not None else beside
            return out, write_page(folder.path, out)

    def _of_watch(self) -> tuple[Path, int]:
        from flatwater.reports.watch_page import write_watch_page
        from flatwater.reports.watch_records import read_watch

        out = self.out if self.out is not None else Path(self.run).with_suffix(".html")
        return out, write_watch_page(read_watch(Path(self.run)), out)
