"""The command that people type to watch a program, for messages."""

from importlib.util import find_spec

WATCH_COMMAND = "flatwater watch" if find_spec("flatwater") else "flatwater-watch"
"""`flatwater watch` is there with the distribution `flatwater` alone."""
