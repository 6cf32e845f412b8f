"""The commands that the finder adds to `flatwater`, which finds this table by an entry point."""

COMMANDS = {
    "watch": ("flatwater_watch.faces.command:WatchCommand", "run any training program and say what grows in it"),
}
"""The class that is a command's interface, and one line of help, by the command's words."""
