"""Options of commands: declared with a dataclass, bounded, read from the command line."""
