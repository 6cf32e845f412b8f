"""Views that observe the settings of the application, and are closed: the settings still know each of them.

Thread: https://github.com/ipython/traitlets/pull/97
Looks like: memory climbs with the views that were opened, although all but one are closed.
Fix: `settings.unobserve(self.changed, "theme")` when a view is closed.
"""

import sys
import time

import numpy as np
from traitlets import HasTraits, Unicode


class Settings(HasTraits):
    theme = Unicode("light")


class View:
    def __init__(self, settings: Settings, number: int) -> None:
        self.pixels = np.full(60_000, float(number))  # <- here
        settings.observe(self.changed, "theme")

    def changed(self, _change: object) -> None:
        self.pixels += 1


def main(rounds: int) -> None:
    settings = Settings()
    for number in range(rounds):
        View(settings, number)
        if number % 20 == 0:
            settings.theme = f"theme {number}"
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
