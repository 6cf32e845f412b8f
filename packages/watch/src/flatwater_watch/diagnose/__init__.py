"""The diagnosis of growth: its owner, the holders, the line that made it, and advice."""
