"""A chart of the traffic of each hour, drawn by one process that never ends.

Thread: https://github.com/holoviz/holoviews/issues/5340, https://github.com/holoviz/holoviews/issues/1821
Looks like: the script must be started again every few days, before it has all memory of the machine.
Cause: each plot leaves a callback with bokeh's current document, which holds the plot with its figure and data.
Fix: `bokeh.io.reset_output()` after each chart.
"""

import sys
import time

import holoviews as hv
import numpy as np

hv.extension("bokeh", logo=False)


def traffic(hour: int) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that went through a port, four times a second."""
    steps = np.random.default_rng(hour).normal(size=14_400)
    return np.arange(14_400) / 4, np.abs(steps.cumsum())


def main(hours: int) -> None:
    renderer = hv.renderer("bokeh")
    glyphs = 0
    for hour in range(hours):
        curve = hv.Curve(traffic(hour), "seconds", "bytes").opts(width=900, height=400, title=f"hour {hour}")
        figure = renderer.get_plot(curve).state  # <- here
        glyphs += len(figure.renderers)
        time.sleep(0.08)
    print("glyphs", glyphs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 130)
