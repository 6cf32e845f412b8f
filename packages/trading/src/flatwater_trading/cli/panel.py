"""`flatwater panel import` and `flatwater panel show`: a stored panel from price files, and its contents."""

import json
import shlex
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flatwater_trading.panel.notes import BEGIN_LATER, END_EARLIER, LIKE_SPLITS
from flatwater_watch.errors import ConfigError
from flatwater_watch.files.regular_files import read_regular
from flatwater_watch.phrases import count_phrase, list_phrase, stack_lines
from flatwater_watch.terminal import say, terminal
from flatwater_watch.units import format_bytes

if TYPE_CHECKING:  # NumPy comes with the summary; `--help` does without
    from flatwater_trading.panel.importing import ImportResult
    from flatwater_trading.panel.summary import PanelSummary

MAXIMUM_INSTRUMENTS = 40
"""Instruments listed in the table."""
MAXIMUM_LISTED = 5
"""Columns, gaps and moves listed after an import."""


@dataclass(frozen=True, kw_only=True)
class PanelImport:
    """Read daily prices from Parquet, CSV or a workbook, compute the indicators, and store a panel that trainers map.

    Long form: symbol, date, open, high, low, close. Wide form: date and AAPL_open, AAPL_high, AAPL_low, AAPL_close and
    so on for each instrument, or one closing price for each instrument.

    $ flatwater panel import prices.csv --out market.safetensors

    $ flatwater panel import kurse.csv --out kurse.safetensors --map close=PX_LAST
    """

    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A .parquet, .csv, .csv.gz, .xlsx, .xlsm, .xls or .ods file (the last four: pip install
    'flatwater-trading[excel]'). What cannot be right in it is refused with its row and column."""
    out: Path
    """The panel file to write; an existing panel is replaced, in one stroke."""
    force: bool = False
    """Also replace a file that is not a panel; never the source."""
    map: tuple[str, ...] = ()
    """Columns by their role, as in `symbol=Kuerzel date=Datum close=PX_LAST`; also open, high, low and adj_close. In
    wide form a `*` stands for the instrument: `close=*.last`. In cells that hold lists, `close=4` is the fourth number.
    What is not named is guessed, and the guess is shown."""
    dates: Annotated[Literal["mdy", "dmy", "ymd"] | None, tyro.conf.arg(metavar="{mdy,dmy,ymd}")] = None
    """Order of month, day and year in dates such as 01/02/2024, if no row of the file has a number above 12."""
    decimal: Annotated[Literal["point", "comma"] | None, tyro.conf.arg(metavar="{point,comma}")] = None
    """Mark before decimals in text. Left out: guessed, for each column."""
    sheet: str | None = None
    """The sheet of a workbook. Left out: the only sheet that has a table."""
    bars: Annotated[Literal["last", "daily"] | None, tyro.conf.arg(metavar="{last,daily}")] = None
    """Row of a day from prices of hours or minutes: the last row of each day, or a bar of all its rows (first open,
    highest high, lowest low, last close). Left out: such prices are refused."""
    features: tuple[str, ...] = ()
    """Own features: columns of the file, as in `my_signal` (`AAPL_my_signal` in wide form), or functions, as in
    `signals:alpha` for `signals.py` in this folder. `rsi` and its like then take the place of what is computed."""
    investable: str | None = None
    """Instruments that may be traded: names and patterns with commas between them, such as `AAPL,ETF*`, or a text file
    of them. The others can only be watched, and may be of any sign."""

    def __call__(self) -> int:
        """Import the prices, store the panel and print a summary. Returns the exit code."""
        from flatwater_trading.market.config import EpisodeConfig
        from flatwater_trading.panel.importing import read_prices
        from flatwater_trading.panel.store import check_place, save_panel
        from flatwater_trading.panel.summary import summarise_panel
        from flatwater_trading.study.folds import fits_a_study

        check_place(self.out, source=self.source, force=self.force)
        investable = None if self.investable is None else _parse_names(self.investable)
        # Without a terminal, as in CI, the status is a line after 2 s: an import takes less than the usual 10 s.
        with terminal().status(f"reading {self.source} and computing the indicators …", first_line_seconds=2.0):
            import_result = read_prices(
                self.source,
                investable=investable,
                columns=_parse_mapping(self.map),
                dates=self.dates,
                features=self.features,
                decimal=self.decimal,
                sheet=self.sheet,
                bars=self.bars,
            )
            check_place(self.out, source=self.source, force=self.force)  # minutes may have passed
            save_panel(import_result.panel, self.out)
        panel, episode = import_result.panel, EpisodeConfig()
        days, instruments = panel.valid.shape
        say(
            f"{self.out}: {days} {panel.calendar.units} x {instruments} instruments, {len(panel.investable)} investable"
        )
        summary = summarise_panel(panel, context=episode.context, episode=episode.days)
        terminal().print(_summary_table(import_result, summary), width=80)
        say(f"fingerprint {panel.fingerprint}")
        commands = [["flatwater", "train", "erl", "--panel", str(self.out)]]
        if fits_a_study(panel):
            commands.append(["flatwater", "study", str(self.out)])
        say(stack_lines("next        ", [shlex.join(command) for command in commands]))
        return 0


def _parse_names(text: str) -> list[str]:
    """Return the names between commas in `text`, or in the file at `text`, which may also have a name on each line.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = Path(text)
    names_text = text
    if file.is_file():
        try:
            # utf-8-sig, as a byte order mark would become part of the first name.
            names_text = read_regular(file).decode("utf-8-sig").replace("\n", ",")
        except (OSError, ValueError) as error:
            raise ConfigError(f"--investable {text}: the file cannot be read: {error}. Write names in it.") from error
    return [name.strip() for name in names_text.split(",") if name.strip()]


def _parse_mapping(assignments: tuple[str, ...]) -> dict[str, str]:
    """Return the file's column names by role, from assignments of `--map` such as `close=COLUMN`.

    Raises:
        ConfigError: an assignment has no `=`, or nothing on one side of it.
    """
    pairs = [assignment.partition("=") for assignment in assignments]
    for role, sign, column in pairs:
        if not (role and sign and column):
            raise ConfigError(f"--map {role}{sign}{column}: names no column. Write --map close=COLUMN.")
    return {role: column for role, _, column in pairs}


@dataclass(frozen=True, kw_only=True)
class PanelShow:
    """Show what a panel holds: days, instruments, features, splits, fingerprint."""

    path: Annotated[str | None, tyro.conf.Positional] = None
    """A stored panel, a .parquet, .csv or .xlsx file, or `synthetic:60x1500`. The shipped panel if left out."""
    json: bool = False
    """Print one JSON object instead of tables."""

    def __call__(self) -> int:
        """Print the summary as tables or JSON."""
        from flatwater_trading.market.config import EpisodeConfig
        from flatwater_trading.panel.locate import load_panel
        from flatwater_trading.panel.summary import summarise_panel

        # JSON goes to stdout, which must not have a status line then.
        with terminal().status("reading the panel …") if not self.json else nullcontext():
            episode = EpisodeConfig()
            summary = summarise_panel(load_panel(self.path), context=episode.context, episode=episode.days)
        if self.json:
            print(json.dumps(asdict(summary)))
        else:
            _print_tables(self.path or "the shipped panel", summary)
        return 0


def _summary_table(import_result: "ImportResult", summary: "PanelSummary") -> Table:
    """Return the table by which a person checks an import: columns, days, gaps, moves that look like splits."""
    table = Table(box=SIMPLE_HEAD, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    layout = import_result.layout
    table.add_row("columns", ", ".join(_column_phrases(import_result)))
    if layout.guessed:
        guess = " ".join(f"{role}=COLUMN" for role in layout.guessed)
        table.add_row("", f"guessed: {', '.join(layout.guessed)}; if that is wrong, add --map {guess}")
    if import_result.panel.origins:
        table.add_row(
            "own features", ", ".join(f"{name} ({origin})" for name, origin in import_result.panel.origins.items())
        )
    table.add_row("not used", list_phrase(layout.unused, MAXIMUM_LISTED) or "-")
    table.add_row(
        f"{summary.unit}s", f"{summary.days:,}, {summary.first} to {summary.last}; {_longest_gap(import_result)}"
    )
    table.add_row("frequency", import_result.panel.calendar.in_words)
    most_gaps_first = sorted(summary.instruments, key=lambda instrument: -instrument.gaps)
    gaps = [
        f"{instrument.name} {count_phrase(instrument.gaps, summary.unit)}"
        for instrument in most_gaps_first
        if instrument.gaps
    ]
    for title in (BEGIN_LATER, END_EARLIER):
        if title in summary.oddities:
            table.add_row(title, summary.oddities[title])
    table.add_row("gaps", list_phrase(gaps, MAXIMUM_LISTED) or "-")
    table.add_row(LIKE_SPLITS, summary.oddities.get(LIKE_SPLITS, "-"))
    if summary.splits:
        splits = ", ".join(f"{split.name} {split.days:,}" for split in summary.splits)
        table.add_row(f"tradable {summary.unit}s", splits)
    if summary.splits_problem:
        table.add_row("too few rows", _splits_problem(summary))
    return table


def _column_phrases(import_result: "ImportResult") -> list[str]:
    """Return phrases on how the columns of a file were taken: `date = Day`, and of a wide file how many have prices."""
    layout, own_features = import_result.layout, import_result.panel.origins
    phrases = [f"{role} = {name or 'the column without a name'}" for role, name in layout.roles.items()]
    if layout.wide_columns:
        # `wide_columns` has the column of each instrument and field.
        price_columns = [column for (_, field), column in layout.wide_columns.items() if field not in own_features]
        # Each column once: a column of closes alone stands for all four prices of its instrument.
        phrases.append(f"{len({*price_columns})} of prices, such as {price_columns[0]}")
    return phrases


def _splits_problem(summary: "PanelSummary") -> str:
    """Return the reason why the default splits do not fit, and what does."""
    # `train` refuses default lengths that do not fit; only for weeks, months and so on it chooses others by itself.
    remedy = "says which fit" if summary.unit == "day" else "chooses lengths that fit, and says which"
    return f"{summary.splits_problem} `flatwater train erl` {remedy}."


def _longest_gap(import_result: "ImportResult") -> str:
    """Return a phrase about the longest pause between two days of the panel."""
    dates = import_result.panel.dates
    if len(dates) < 2:  # noqa: PLR2004  (one day has no pause)
        return "one day"
    pauses = (dates[1:] - dates[:-1]).astype(int)
    longest = int(pauses.argmax())
    return f"longest pause {count_phrase(int(pauses[longest]), 'day')}, after {dates[longest]}"


def _print_tables(name: str, summary: "PanelSummary") -> None:
    """Print the tables of `flatwater panel show`; if the splits do not fit, also the reason."""
    console = terminal()
    console.print(_overview_table(name, summary))
    if summary.splits:
        console.print(_splits_table(summary))
    if summary.splits_problem:
        console.print(f"the default splits do not fit: {_splits_problem(summary)}\n")
    console.print(_instruments_table(summary))
    console.print(_features_table(summary))


def _overview_table(name: str, summary: "PanelSummary") -> Table:
    """Return the table of facts about the whole panel, titled `name`: days, frequency, missing closes, file."""
    investable = sum(instrument.investable for instrument in summary.instruments)
    table = Table(title=name, box=SIMPLE_HEAD, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    table.add_row(f"{summary.unit}s", f"{summary.days:,}, {summary.first} to {summary.last}")
    table.add_row("frequency", f"{summary.frequency}: {summary.periods_per_year} periods a year")
    watched = len(summary.instruments) - investable
    table.add_row("instruments", f"{investable} investable, {watched} only watched" if watched else str(investable))
    table.add_row("context", f"{summary.context} {summary.unit}s seen before the first one of training is traded")
    table.add_row("missing", f"{summary.missing:.2%} of {summary.unit}s and instruments have no close")
    for title, text in summary.oddities.items():
        table.add_row(title, text)
    table.add_row("fingerprint", summary.fingerprint)
    if summary.file is not None and summary.file_bytes is not None:
        table.add_row("file", f"{summary.file} ({format_bytes(summary.file_bytes)})")
    return table


def _splits_table(summary: "PanelSummary") -> Table:
    """Return the table of the default splits: first, last and number of tradable days of each."""
    table = Table(title=f"tradable {summary.unit}s by default", box=SIMPLE_HEAD, title_justify="left")
    for heading in ("split", "first day", "last day"):
        table.add_column(heading)
    table.add_column(f"{summary.unit}s", justify="right")
    for split in summary.splits:
        table.add_row(split.name, split.first, split.last, f"{split.days:,}")
    return table


def _instruments_table(summary: "PanelSummary") -> Table:
    """Return the table of instruments: role, days and gaps; of the first `MAXIMUM_INSTRUMENTS` columns of the panel."""
    hidden_count = len(summary.instruments) - MAXIMUM_INSTRUMENTS
    caption = f"and {hidden_count} more: --json shows all" if hidden_count > 0 else None
    table = Table(title="instruments", box=SIMPLE_HEAD, title_justify="left", caption=caption, caption_justify="left")
    for heading in ("name", "role", "first day", "last day"):
        table.add_column(heading)
    for heading in ("missing", f"{summary.unit}s in gaps"):
        table.add_column(heading, justify="right")
    for instrument in summary.instruments[:MAXIMUM_INSTRUMENTS]:
        role = "investable" if instrument.investable else "context"
        missing_share = f"{instrument.missing:.2%}"
        table.add_row(
            instrument.name, role, instrument.first or "-", instrument.last or "-", missing_share, str(instrument.gaps)
        )
    return table


def _features_table(summary: "PanelSummary") -> Table:
    """Return the table of features: mean, deviation and missing share over all days and columns, and origin."""
    table = Table(title=f"features, all {summary.unit}s together", box=SIMPLE_HEAD, title_justify="left")
    table.add_column("name")
    for heading in ("mean", "deviation", "missing"):
        table.add_column(heading, justify="right")
    table.add_column("from", overflow="fold")
    for feature in summary.features:
        mean = "-" if feature.mean is None else f"{feature.mean:.5g}"
        deviation = "-" if feature.deviation is None else f"{feature.deviation:.5g}"
        table.add_row(feature.name, mean, deviation, f"{feature.missing:.2%}", feature.origin)
    return table
