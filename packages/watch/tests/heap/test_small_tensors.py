"""Small tensors are mostly header: what a census counts of them is what the process has grown by."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import gc, json
import numpy, torch
from flatwater_watch.heap.census import take_census
from flatwater_watch.heap.roots import Roots
from flatwater_watch.meters.process import resident_bytes

net, tall = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)), torch.ones(64, 64)
KINDS = {
    "plain": lambda: torch.full((64,), 1.0),
    "parameter": lambda: torch.nn.Parameter(torch.full((64,), 1.0)),
    "row": lambda: tall[0],
    "detached": lambda: tall.detach(),
    "view": lambda: torch.full((64,), 1.0)[:],
    "loss": lambda: net(tall[:8]).pow(2).mean(),
    "array": lambda: numpy.full(64, 1.0),
}

def filled(make):
    for _ in range(100):
        make()
    kept = [None] * 10_000
    gc.collect()
    before = resident_bytes()
    for n in range(10_000):
        kept[n] = make()
    return kept, resident_bytes() - before

holes, grown = filled(KINDS["plain"]), {}  # the first ones lie where imports have left room
for kind, make in KINDS.items():
    globals()[kind], grown[kind] = filled(make)
holdings = take_census(Roots()).holdings
print(json.dumps({kind: (holdings[f"__main__.{kind}"].bytes - 80_000) / grown[kind] for kind in KINDS}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's allocator, by which the numbers were measured")
def test_what_small_tensors_take_is_counted() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    counted = json.loads(done.stdout)
    assert counted == {kind: pytest.approx(1.0, abs=0.15) for kind in counted}
    assert len(counted) == 7
