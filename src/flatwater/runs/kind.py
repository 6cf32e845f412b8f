"""What a kind of run (`erl`, `grow`) is called and how it is shown: all that reading a run's folder needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from flatwater.metrics.console import Layout


@dataclass(frozen=True)
class Number:
    """One number of a result."""

    title: str
    key: str
    """In result.json."""
    form: str
    """How it is written."""


@dataclass(frozen=True)
class Headline:
    """The one number that a result is judged by."""

    title: str
    key: str
    """In the row of what was trained."""
    form: str
    """How it is written."""
    against: str
    """The row that it is compared with ..."""
    said: str
    """... and how: `{}` stands for that row's number."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of run."""

    name: str
    """As in `flatwater train NAME`, and in a run folder's config.toml."""
    layout: Layout
    """How the terminal shows its rounds."""
    curves: Mapping[str, str]
    """Title -> metric: what the lists and the live screen show of a run, the one that it is judged by last."""
    journal: str
    """Its own file with a line a round, without `.jsonl`."""
    players: str
    """The field of result.json with a row of numbers for each that was compared: `traders`."""
    trained: str
    """The row of what was trained."""
    headline: Headline
    numbers: tuple[Number, ...]
    """Of a row, the most important first."""
    said: tuple[str, ...]
    """Fields of result.json that say on what it was measured."""
