"""What the PNG pictures have in common."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from flatwater.storage.directory import write_object

INK, FAINT = "#1e293b", "#e2e8f0"

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titleweight": "bold",
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
}


def write_picture(out: Path, size: tuple[float, float], paint: Callable[[Figure], None]) -> None:
    """Paint a figure and write it as PNG, whole or not at all.

    Args:
        out: file to write.
        size: width and height in inches.
        paint: draws into the empty figure.

    Raises:
        RunError: it cannot be written.
    """
    with mpl.rc_context(STYLE):
        # A Figure of its own: pyplot keeps every figure in a registry until it is closed.
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=130)
    write_object(out, drawn.getbuffer())
