"""The command `flatwater-watch`: the finder by itself, for any program."""

import sys
from collections.abc import Sequence

from flatwater_watch.errors import FlatwaterError
from flatwater_watch.faces.command import WatchCommand, say
from flatwater_watch.streams import open_closed_descriptors, run_printing

INTERRUPTED = 130
USAGE = """\
usage: flatwater-watch [run] [options] -- python train.py     what grows in a program, who holds it, and the line
       flatwater-watch [run] --html page.html watch.json      the same of an earlier result, as a page
       flatwater-watch run --help                             each option
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a program and report its growth; return the program's exit code, or 2 for a mistake of the user."""
    words = [*(sys.argv[1:] if arguments is None else arguments)]
    open_closed_descriptors()  # before any file is opened, which would get the number of a closed stream
    return run_printing(lambda: _run(words), _say_error)


def _run(words: Sequence[str]) -> int:
    """Run the command that the words name, and report a mistake of the user; return the exit code."""
    if not words or words[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    try:
        command_words = words[1:] if words[0] == "run" else words  # `run` may be left out
        return WatchCommand.read("flatwater-watch run", command_words)()
    except FlatwaterError as error:
        _say_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


def _say_error(message: str) -> None:
    say(f"error: {message}")
