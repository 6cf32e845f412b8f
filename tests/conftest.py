"""What holds for all tests: one torch thread, because the workers share the cores, and no clock in property tests.

No thread that outlives its test, either: a leak finder in the same process would see what it gathers.
"""

import gc
import os
import signal

import torch
from hypothesis import settings

torch.set_num_threads(1)
os.environ["WANDB_ERROR_REPORTING"] = "false"  # else wandb starts a thread that sends its own telemetry

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # begun in the background: programs of the tests would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A property is not slower for being run beside another process.
settings.register_profile("flatwater", deadline=None, max_examples=50)
settings.load_profile("flatwater")


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of collections: 600,000 objects, a third of a second each time."""
    gc.collect()
    gc.freeze()
