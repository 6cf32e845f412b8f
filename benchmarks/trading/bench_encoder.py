"""The shared encoder computes each day once; the windowed one computes every window of 504 days anew.

    python benchmarks/trading/bench_encoder.py

One member, 108 columns, an episode of 145 days. Three ways to the same numbers, in CPU seconds of one thread, in turn:
the causal convolution over each window (what a window-by-window system does), the pyramid that computes only what the
window's last day needs (what learning uses on drawn windows), and one pass over the episode (what evaluation uses).
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1] / "shared"))

import torch
from claims import Claim, record_claims

from flatwater.nets.stack import Layout, init_, views
from flatwater_trading.policy.config import TraderNetConfig
from flatwater_trading.policy.encoders import build_encoder

CONTEXT, DAYS, COLUMNS, FEATURES, REPEATS = 504, 145, 108, 5, 3


def main() -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    encoder = build_encoder(TraderNetConfig(), context=CONTEXT, features=FEATURES)
    layout = Layout(encoder.weights)
    block = torch.empty(1, layout.size)
    init_(block, layout, torch.Generator().manual_seed(0))
    params = views(block, layout)
    x = torch.randn(1, 1, COLUMNS, CONTEXT - 1 + DAYS, FEATURES, generator=torch.Generator().manual_seed(1))

    def convolve_window(day: int) -> torch.Tensor:
        return encoder.days(params, x[:, :, :, day : day + CONTEXT])[:, :, 0]

    def pyramid(day: int) -> torch.Tensor:
        return encoder.windows(params, x[:, :, :, day : day + CONTEXT])

    ways: dict[str, Callable[[], torch.Tensor]] = {
        "windowed, causal convolution": lambda: torch.stack([convolve_window(day) for day in range(DAYS)], 2)[0],
        "windowed, pyramid": lambda: torch.stack([pyramid(day) for day in range(DAYS)], 2)[0],
        "shared": lambda: encoder.days(params, x)[0],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    outputs = {}
    with torch.no_grad():
        for turn in range(REPEATS + 1):
            for name, way in ways.items():
                began = time.process_time()
                outputs[name] = way()
                if turn:
                    seconds[name].append(time.process_time() - began)
    shared = median(seconds["shared"])
    rows = [
        {
            "way": name,
            "cpu_seconds": median(took),
            "ratio_to_shared": median(took) / shared,
            "largest_difference": float((outputs[name] - outputs["shared"]).abs().max()),
        }
        for name, took in seconds.items()
    ]
    record_claims([claim(median(seconds["windowed, causal convolution"]) / shared)])
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'way':<30}{'CPU seconds':>12}{'ratio':>8}{'largest difference':>20}")
    for row in rows:
        print(
            f"{row['way']:<30}{row['cpu_seconds']:>12.4f}{row['ratio_to_shared']:>8.1f}{row['largest_difference']:>20.1e}"
        )


def claim(ratio: float) -> Claim:
    """Return the claim of the shared encoder."""
    name = "one pass over an episode of 145 days: times as fast as each window of 504 days anew"
    return Claim("trading", "shared", name, f"{ratio:.0f}", "≥ 50", ratio >= 50)


if __name__ == "__main__":
    main()
