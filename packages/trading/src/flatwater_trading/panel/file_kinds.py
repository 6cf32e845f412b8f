"""Kinds of files by their names: tables and workbooks that can be imported, and packed files."""

from pathlib import Path

SHEET_SUFFIXES = (".xlsx", ".xlsm", ".xls", ".ods")
"""Workbooks of spreadsheet programs."""
SUFFIXES = (".parquet", ".csv", ".csv.gz", *SHEET_SUFFIXES)
"""Suffixes of the files that can be imported."""
UNPACK_COMMANDS = {
    ".zip": "unzip",
    ".7z": "7z x",
    ".gz": "gunzip",
    ".tar.gz": "tar xf",
    ".tgz": "tar xf",
    ".bz2": "bunzip2",
    ".xz": "unxz",
    ".zst": "zstd -d",
}
"""Suffixes of packed files, and the commands that unpack them. Only gzip is unpacked here (`unpacking`): the standard
library has no zstd before Python 3.14, and polars unpacks without a limit."""


def file_kind(source: Path) -> str:
    """Return the suffix of a file in lower case; both suffixes of a packed table, `.csv.gz`."""
    return "".join(source.suffixes[-2:]).lower() if source.suffix.lower() == ".gz" else source.suffix.lower()


def is_table_name(path: Path) -> bool:
    """Return whether a file of this name is read as a table of prices, perhaps a packed one, and not as a panel."""
    return file_kind(path) in {*SUFFIXES, *UNPACK_COMMANDS}
