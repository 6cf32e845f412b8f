"""`lives.npz`: stages of each slot in the held-out episodes, step by step, as columns."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from flatwater.rundir.results import damaged_file_error
from flatwater_watch.files.directory import write_object
from flatwater_watch.files.regular_files import RESULT_BYTES, read_regular

LIVES_FILE = "lives.npz"
"""File in the run's folder."""
LIVES_COLUMNS = ("player", "env_seed", "stage", "accuracy", "impaired")
"""Columns that a page draws."""
SlotHistory = Mapping[str, np.ndarray[Any, Any]]
"""Columns with a row for each player, episode and step; `stage` and `alpha` have a value for each slot in it."""


def write_lives(folder: Path, lives: SlotHistory) -> None:
    """Write the lives to `lives.npz` in a run's folder."""
    # Compressed in memory first, so that the file appears whole or not at all.
    content = io.BytesIO()
    columns: dict[str, Any] = {**lives}
    np.savez_compressed(content, **columns)
    with content.getbuffer() as packed_bytes:  # a context, as `content` cannot be freed before the buffer is released
        write_object(folder / LIVES_FILE, packed_bytes)


def read_lives(folder: Path) -> SlotHistory | None:
    """Return the lives that `write_lives` wrote; None if there is no file.

    Raises:
        RunError: the file is damaged. Nothing in it is executed: arrays of objects are refused.
    """
    path = folder / LIVES_FILE
    try:
        # A run folder may be a stranger's: no links are followed, and no objects unpickled.
        with np.load(io.BytesIO(read_regular(path, RESULT_BYTES, follow_links=False)), allow_pickle=False) as file:
            lives = {name: file[name] for name in file.files}
        _check_columns(lives)
    except FileNotFoundError:
        return None
    # What NumPy and `zipfile` raise for damaged files, and `_check_columns`.
    except (OSError, ValueError, KeyError, EOFError, AttributeError, BadZipFile) as fault:
        raise damaged_file_error(path, fault) from fault
    return lives


def _check_columns(columns: SlotHistory) -> None:
    """Refuse columns of different lengths, an accuracy that is no number, and stages that are not [rows, slots].

    Raises:
        ValueError: the columns differ in length, or accuracy and stage have the wrong form.
    """
    lengths = {len(columns[name]) for name in LIVES_COLUMNS}
    if len(lengths) > 1:
        raise ValueError("the columns have different lengths")
    if not np.issubdtype(columns["accuracy"].dtype, np.number) or columns["stage"].ndim != 2:  # noqa: PLR2004  (rows, slots)
        raise ValueError("accuracy and stage are not numbers")
