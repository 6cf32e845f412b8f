"""Each view connects a function to a signal of the theme, and is never disconnected.

Thread: https://github.com/manzt/anywidget/issues/929
Looks like: memory climbs with the views that were opened and closed.
Fix: `disconnect` when the view is closed, or connect a method: it is held weakly.
"""

import sys
import time

import numpy as np
from psygnal import Signal


class Theme:
    changed = Signal(str)


class View:
    def __init__(self, theme: Theme) -> None:
        self.colour = "white"
        self.pixels = np.ones((500, 500))  # <- here

        def repaint(colour: str) -> None:
            self.paint(colour)

        theme.changed.connect(repaint)

    def paint(self, colour: str) -> None:
        self.colour = colour


def main(rounds: int) -> None:
    theme = Theme()
    for _ in range(rounds):
        View(theme).paint("grey")
        time.sleep(0.15)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
