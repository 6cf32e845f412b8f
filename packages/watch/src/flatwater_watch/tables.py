"""What the finder adds to the command `flatwater`: found by an entry point."""

COMMANDS = {
    "watch": ("flatwater_watch.faces.command:WatchCommand", "run any training program and say what grows in it"),
}
"""Words -> the class that is the command's interface, and one line of help."""
