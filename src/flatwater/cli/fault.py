"""The last resort: an error that no user can put right, because it is ours. It is written down and said plainly."""

import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from flatwater import __version__
from flatwater.cli.output_file import KEPT

FAULT_EXIT = 70
"""EX_SOFTWARE of sysexits.h."""


def describe_fault(fault: BaseException, words: list[str]) -> str:
    """Write the traceback to a file, and say in a sentence what to do with it.

    Args:
        fault: what was raised.
        words: of the command line.
    """
    head = f"flatwater {__version__}, Python {platform.python_version()}, {platform.platform()}\ncommand: {words!r}\n\n"
    kept = _kept(head + "".join(traceback.format_exception(fault)))
    where = f"What is known about it stands in {kept}." if kept else "It stands above."
    return (
        f"this is a fault of Flatwater, please report it ({type(fault).__name__}). {where} "
        "A run goes on with `flatwater resume`."
    )


def _kept(text: str) -> Path | None:
    name = f"fault-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (KEPT, Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return (folder / name).absolute()
    sys.stderr.write(text)
    return None
