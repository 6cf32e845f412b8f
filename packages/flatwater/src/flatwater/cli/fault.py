"""Messages about exceptions that nothing has caught, in Flatwater or in the user's code; a file keeps the traceback."""

import os
import platform
import sys
import time
import traceback
from pathlib import Path

from flatwater import __version__
from flatwater.user_code import CodeLine
from flatwater_watch.files.output import write_fallback
from flatwater_watch.masking import mask_secrets, mask_words

FAULT_EXIT = 70
"""Exit code EX_SOFTWARE of sysexits.h."""


def save_fault(fault: BaseException, command_words: list[str]) -> str:
    """Write the traceback to a file, and return a message that asks the user to report it."""
    place_sentence = keep_traceback(fault, command_words, "A report of the fault")
    return (
        f"this is a fault of Flatwater, please report it ({type(fault).__name__}). {place_sentence} "
        "Continue a run with `flatwater resume`."
    )


def save_user_fault(fault: BaseException, place: CodeLine, command_words: list[str]) -> str:
    """Write the traceback to a file, and return a message that names the user's line, the error and the file."""
    message = str(fault).strip().partition("\n")[0]  # the first line only: the file has all of it
    error_text = f"{type(fault).__name__}{f': {message}' if message else ''}"
    return f"your {place}: {error_text}. {keep_traceback(fault, command_words)}"


def keep_traceback(fault: BaseException, command_words: list[str], subject: str = "The traceback") -> str:
    """Write the traceback to a file, without secrets, and return a sentence that says where it is."""
    head = f"flatwater {__version__}, Python {platform.python_version()}, {platform.platform()}\n"
    # A URL or a key on the command line must not go into a report.
    command = f"command: {mask_words(command_words)!r}\n\n"
    file = _save_traceback(head + command + mask_secrets("".join(traceback.format_exception(fault))))
    return f"{subject} is in {file}." if file else "It is printed above."


def _save_traceback(text: str) -> Path | None:
    """Write a traceback to a file and return its path; if no folder can be written, to stderr, and return None."""
    name = f"fault-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    file = write_fallback(name, text.encode(errors="backslashreplace"))
    if file is None:
        sys.stderr.write(text)
    return None if file is None else file.absolute()
