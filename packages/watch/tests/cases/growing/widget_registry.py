"""A dashboard that is drawn anew with widgets that are never closed.

Thread: https://github.com/jupyter-widgets/ipywidgets/issues/1345
Looks like: the kernel grows each time that the dashboard is drawn.
Fix: `close()` the old widgets, or set their values instead.
"""

import sys
import time

import ipywidgets


def draw(values: list[int]) -> int:
    sliders = [ipywidgets.IntSlider(value=value, description=f"row {value}") for value in values]  # <- here
    return sum(slider.value for slider in sliders)


def main(rounds: int) -> None:
    total = 0
    for _ in range(rounds):
        total += draw(list(range(200)))
        time.sleep(0.08)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
