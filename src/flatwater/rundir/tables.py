"""Tables in the run folder."""

import io
from pathlib import Path

import polars as pl

from flatwater.storage.directory import write_object


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a table as Parquet, atomically.

    Raises:
        RunError: it cannot be written.
    """
    content = io.BytesIO()
    frame.write_parquet(content)
    write_object(path, content.getbuffer())
